"""`gpuplan mcp`: commands as tools of the Model Context Protocol, on standard input and output."""

from __future__ import annotations

import sys

from ..errors import UsageError
from ..render.progress import say


def mcp() -> None:
    """Serve `estimate`, `offers` and `breakeven` to an assistant by the Model Context Protocol.

    Speaks the protocol on standard input and output until its input ends. A client starts it.
    The tools take the flags of the commands and return their JSON. A script given as MODEL is run as in
    `gpuplan estimate`, with your rights. Needs `pip install 'gpuplan[mcp]'`.

    Example: claude mcp add gpuplan -- gpuplan mcp
    Example: codex mcp add gpuplan -- gpuplan mcp
    """
    try:
        import anyio
        import mcp  # noqa: F401
    except ImportError:
        raise UsageError(
            "the SDK of the Model Context Protocol is not installed", hint="`pip install 'gpuplan[mcp]'`"
        ) from None
    from .mcp_server import serve

    if sys.stdin.isatty():
        say("waiting for a client on standard input; Ctrl-C ends it")
    anyio.run(serve)
