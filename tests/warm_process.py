"""Processes that trace models, forked from one that has imported Keras: the same code, four seconds earlier.

A test process starts one server and replaces `subprocess.Popen` in `gpuplan.child_process`. For each
process the server forks a monitor, which forks the process itself into a session of its own and reports its
process id and exit code. Other modules than the tracer still start from nothing, and so do other backends than
JAX, unless a test asks for a server of theirs.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import IO, Any

MODULE = "gpuplan.workload.capture.child"
STANDARD_STREAMS = 3


class WarmProcess:
    """The part of `subprocess.Popen` that `ScriptProcess` uses, of a process that the server forks."""

    def __init__(self, path: Path, command: list[str], *, env: dict[str, str], streams: list[int]) -> None:
        """Fork a process; `streams` holds the descriptors of its standard output and error."""
        self.stdout: IO[str] | None = None
        reader, writer = os.pipe()
        self._line = socket.socket(socket.AF_UNIX)
        self._line.connect(str(path))
        request = json.dumps({"arguments": command, "environment": env, "folder": os.getcwd()}).encode()
        socket.send_fds(self._line, [len(request).to_bytes(4, "big")], [reader, *streams])
        self._line.sendall(request)
        os.close(reader)
        self.stdin = os.fdopen(writer, "w", encoding="utf-8")
        self._answers = self._line.makefile("r", encoding="utf-8")
        self.pid = int(self._answers.readline())
        self.returncode: int | None = None

    def wait(self) -> int:
        """Return the exit code once the process has ended; negative: killed by that signal."""
        if self.returncode is None:
            self.returncode = int(self._answers.readline())
            self._answers.close()
            self._line.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the process."""
        os.kill(self.pid, number)


def warm_only_jax(backend: str) -> list[str] | None:
    """Return the packages besides Keras that a server has imported; None to start from nothing."""
    return [] if backend == "jax" else None


@contextmanager
def warm_processes(find_packages: Callable[[str], list[str] | None] = warm_only_jax) -> Iterator[Any]:
    """Yield a replacement of `subprocess.Popen`; a server starts with its first process.

    Args:
        find_packages: Function of the backend, like `warm_only_jax`.
    """
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:
        servers: dict[str, subprocess.Popen[bytes]] = {}
        starting = Lock()  # some tests trace in several threads

        def start(command: list[str], *, env: dict[str, str], **how: Any) -> Any:
            backend = env.get("KERAS_BACKEND", "")
            packages = find_packages(backend) if MODULE in command else None
            if packages is None:
                return _POPEN(command, env=env, **how)
            path = Path(folder, "-".join([backend, *packages]))
            with starting:
                if path.name not in servers:
                    servers[path.name] = _start_server(path, backend, packages)
            is_shown = how["stdout"] != subprocess.PIPE
            reader, output = (None, how["stdout"]) if is_shown else os.pipe()
            arguments = command[command.index(MODULE) + 1 :]
            process = WarmProcess(path, arguments, env=env, streams=[output, output])
            if reader is not None:
                os.close(output)
                process.stdout = os.fdopen(reader)
            return process

        try:
            yield start
        finally:
            for server in servers.values():
                with server:
                    server.kill()


_POPEN = subprocess.Popen


def _start_server(path: Path, backend: str, packages: list[str]) -> subprocess.Popen[bytes]:
    """Start a server and wait until it accepts connections."""
    environment = os.environ | {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
    modules = [*packages, "keras", "gpuplan.workload.capture.tracing_process"]
    modules += ["gpuplan.workload.trace.jax.step"] if backend == "jax" else []
    server = _POPEN([sys.executable, "-P", __file__, str(path), *modules], stdout=subprocess.PIPE, env=environment)
    assert server.stdout is not None
    assert server.stdout.readline() == b"ready\n"
    return server


def _serve(path: str, *modules: str) -> None:
    for module in modules:
        import_module(module)

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        print("ready", flush=True)
        while True:
            line, _ = server.accept()
            if os.fork() == 0:
                server.close()
                _monitor(line)
            line.close()
            _collect_monitors()


def _collect_monitors() -> None:
    """Collect the monitors that have ended."""
    while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG):
        pass


def _monitor(line: socket.socket) -> None:
    """Fork one process, report its id and its exit code, and end."""
    length, descriptors, _, _ = socket.recv_fds(line, 4, STANDARD_STREAMS)
    with line.makefile("rw", encoding="utf-8") as talk:
        request = json.loads(talk.buffer.read(int.from_bytes(length, "big")))
        pid = os.fork()
        if pid == 0:
            _run(request, descriptors)
        for one in descriptors:
            os.close(one)
        print(pid, file=talk, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), file=talk, flush=True)
    os._exit(0)


def _run(request: dict[str, Any], descriptors: list[int]) -> None:
    """Become the process: session, standard streams, folder and environment of its own."""
    os.setsid()
    for target, one in enumerate(descriptors):
        os.dup2(one, target)
        os.close(one)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    child = import_module(MODULE)
    sys.modules["__main__"] = sys.modules["__mp_main__"] = child  # the second: by multiprocessing
    sys.argv = [MODULE, *request["arguments"]]
    try:
        child.main(*request["arguments"])
    except MemoryError as error:
        sys.stderr.write(f"out of memory: {error}\n")
    os._exit(1)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
