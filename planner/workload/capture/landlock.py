"""Landlock (Linux 5.13): this thread, and all that it starts, may write below some folders only; no way back."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress

from .overlays import call

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
PR_SET_NO_NEW_PRIVS = 38
# Rights to write a file, to remove and make entries of a folder; since the second version to move them to another
# folder, since the third to truncate.
RIGHTS = (0x1FF2, 0x3FF2, 0x7FF2)
ALL_THREADS, SINCE = 8, 8  # a flag, and the version that has it


def restrict_writes(folders: Iterable[str]) -> bool:
    """Make all files read-only but those below some folders; return whether the system can."""
    if sys.platform != "linux":
        return False
    try:
        version = call("syscall", CREATE_RULESET, None, 0, 1)
        rights = RIGHTS[min(version, len(RIGHTS)) - 1]
        rules = call("syscall", CREATE_RULESET, struct.pack("=Q", rights), 8, 0)
        try:
            for folder in folders:
                with suppress(OSError):
                    _allow(rules, folder, rights)
            call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            call("syscall", RESTRICT_SELF, rules, ALL_THREADS if version >= SINCE else 0)
        finally:
            os.close(rules)
    except OSError:
        return False
    return True


def _allow(rules: int, folder: str, rights: int) -> None:
    one = os.open(folder, os.O_PATH | os.O_CLOEXEC)
    try:
        call("syscall", ADD_RULE, rules, 1, struct.pack("=Qi", rights, one), 0)
    finally:
        os.close(one)
