"""`gpuplan accuracy --memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import NoAnswerError

if TYPE_CHECKING:
    from .accuracy_flags import SettingFlags

__all__ = ["accuracy_of_memory"]


def accuracy_of_memory(flags: SettingFlags) -> None:
    """Compute or load the comparison of predicted and known memory; print, record and check it.

    With ``--check``, NoAnswerError (exit code 3) if it is worse than recorded.
    """
    from ..plan.memory_accuracy import SCHEMA, memory_board, recorded_memory, worsened_memory
    from ..render.files import write_text
    from ..render.memory_accuracy import build_memory_columns, build_memory_rows, format_memory_page
    from ..render.output import emit_json, emit_rows, emit_text, format_json
    from ..render.progress import status

    if flags.recorded:
        board = recorded_memory()
    else:
        with status("tracing") as progress:
            board = memory_board(progress)
    if flags.output is not None:
        write_text(flags.output, format_json(SCHEMA, board))
    if flags.json_:
        emit_json(SCHEMA, board)
    elif flags.markdown:
        emit_text(format_memory_page(board))
    else:
        emit_rows(build_memory_columns(), build_memory_rows(board))
    worse = worsened_memory(recorded_memory(), board) if flags.check else []
    if worse:
        hint = "if intended, record it with `gpuplan accuracy --memory --output profiles/memory.json`"
        raise NoAnswerError("worse than recorded: " + "; ".join(worse), hint=hint)
