"""`gpuplan accuracy --memory`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import NoAnswerError

if TYPE_CHECKING:
    from .accuracy_commands import SettingFlags

__all__ = ["accuracy_of_memory"]


def accuracy_of_memory(flags: SettingFlags) -> None:
    """Compute or read predicted memory beside what is known of it; print, record and compare it as asked.

    NoAnswerError (exit 3) with ``--check`` when it is worse than what was recorded.
    """
    from ..plan.memory_accuracy import SCHEMA, memory_board, recorded_memory, worsened_memory
    from ..render.files import write_text
    from ..render.memory_accuracy import memory_columns, memory_page, memory_rows
    from ..render.output import emit_json, emit_rows, emit_text, json_text
    from ..render.progress import status

    if flags.recorded:
        board = recorded_memory()
    else:
        with status("tracing") as progress:
            board = memory_board(progress)
    if flags.output is not None:
        write_text(flags.output, json_text(SCHEMA, board))
    if flags.json_:
        emit_json(SCHEMA, board)
    elif flags.markdown:
        emit_text(memory_page(board))
    else:
        emit_rows(memory_columns(), memory_rows(board))
    worse = worsened_memory(recorded_memory(), board) if flags.check else []
    if worse:
        hint = "if it is meant, record it with `gpuplan accuracy --memory --output profiles/memory.json`"
        raise NoAnswerError("worse than recorded: " + "; ".join(worse), hint=hint)
