"""Overlays over the folders of a Linux machine, which take what a process writes: what lies below stays as it is.

A process gets mounts of its own while it has one thread, in a user namespace unless it is root's. Later, with any
number of threads, it lays the overlays (unprivileged since Linux 5.11); they are gone with its last descendant.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import signal
import struct
import sys
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path

CLONE_NEWUSER, CLONE_NEWNS = 0x10000000, 0x20000
MS_BIND, MS_REC, MS_SLAVE, MNT_DETACH = 0x1000, 0x4000, 0x80000, 2
MOUNT_SETATTR, AT_FDCWD, AT_RECURSIVE, MOUNT_ATTR_RDONLY = 442, -100, 0x8000, 1
MOST_LOOKED_AT = 1000  # files of a folder [-]
LONGEST_TRIAL_S = 5  # a network folder may not answer
SYSTEM = ("/bin", "/boot", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/sbin", "/usr")
LIVE = ("/dev", "/proc", "/run", "/sys")  # shared with other processes
TAKES, READ_ONLY, AS_IT_IS = "an overlay", "read-only", "as it is"

_entered: list[str] = []  # by this process: options of its overlays


def call(name: str, *arguments: str | bytes | int | None) -> int:
    """Call a function of the C library; OSError if it fails."""
    given = [os.fsencode(one) if isinstance(one, str) else one for one in arguments]
    found = int(getattr(ctypes.CDLL(None, use_errno=True), name)(*given))
    if found < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return found


def enter_namespace(folder: Path, needed: Iterable[str]) -> None:
    """Give this process mounts of its own, if it has one thread and a copy of it can lay overlays in `folder`."""
    if sys.platform != "linux" or len(os.listdir("/proc/self/task")) > 1:
        return
    copy = os.fork()
    if copy == 0:
        with suppress(BaseException):
            signal.alarm(LONGEST_TRIAL_S)
            _enter()
            lay_overlays(folder / "trial", kept=(str(folder),), needed=needed, is_trial=True)
            os._exit(0)
        os._exit(1)
    if os.waitpid(copy, 0)[1] == 0:
        _enter()


def _enter() -> None:
    user, group = os.geteuid(), os.getegid()
    if user == 0:  # in a namespace of its own it would lose its rights over the files of others
        call("unshare", CLONE_NEWNS)
    else:
        call("unshare", CLONE_NEWNS | CLONE_NEWUSER)
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            Path("/proc/self", name).write_bytes(text.encode())
    call("mount", None, "/", None, MS_REC | MS_SLAVE, None)
    _entered.append("redirect_dir=on" if user == 0 else "userxattr")


def has_namespace() -> bool:
    """Return whether this process has mounts of its own."""
    return bool(_entered)


def lay_overlays(scratch: Path, *, kept: Iterable[str], needed: Iterable[str], is_trial: bool = False) -> None:
    """Lay an overlay over each folder that may be written to, and enter the working folder again.

    A folder that cannot have one becomes read-only, as do those of the system. Shared memory stays as it is.

    Args:
        scratch: Folder to create, for what is written.
        kept: Folders that are written as usual.
        needed: Folders that must have an overlay.
        is_trial: Whether to lay these alone.

    Raises:
        OSError: One of them cannot; then no overlay is left.
    """
    working, folders = os.getcwd(), set(map(os.path.realpath, needed)) - {"/"}
    plan = _plan(folders, kept)
    trial = scratch / "trial"
    trial.mkdir(parents=True)
    try:
        with ExitStack() as opened:
            options = _prepare_overlay(_open(trial, opened), scratch / "first", opened)
            call("mount", "overlay", str(trial), "overlay", 0, options)
    except OSError:  # the file system of the temporary folder cannot hold what overlays take
        call("mount", "tmpfs", str(scratch), "tmpfs", 0, "size=25%")  # of the machine's memory
    _change_mounts(plan, {_find_outer(path, plan) for path in folders}, scratch, is_trial=is_trial)
    os.chdir(working)


def _plan(needed: Iterable[str], kept: Iterable[str]) -> dict[str, str]:
    """Return what becomes of a path, for all at which something is to be mounted; outer ones first."""
    mounts = {}
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        fields = line.split()
        path = re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), fields[4])
        mounts[path] = TAKES if "rw" in fields[5].split(",") else AS_IT_IS
    mounts["/"] = READ_ONLY
    plan = {path: how for path, how in mounts.items() if not _is_below(path, LIVE)}
    for entry in os.scandir("/"):
        if entry.path not in mounts and entry.is_dir(follow_symlinks=False):
            plan[entry.path] = AS_IT_IS if entry.path in LIVE else READ_ONLY if entry.path in SYSTEM else TAKES
    sockets = re.findall(
        r"(?m) (/.*)$", Path("/proc/net/unix").read_text(encoding="utf-8", errors="surrogateescape")
    )
    plan |= {path: AS_IT_IS for path in sockets if not _is_below(path, LIVE)}  # overlays hide who listens
    plan |= {os.path.realpath(path): AS_IT_IS for path in kept if os.path.isdir(path)}
    for path in sorted(needed):
        outer = _find_outer(path, plan)
        between = [str(one) for one in (Path(path), *Path(path).parents) if len(str(one)) > len(outer)]
        if plan[outer] != TAKES or not all(map(_can_be_copied, between)):
            plan[path] = TAKES
        for entry in islice(os.scandir(path), MOST_LOOKED_AT):
            if not _can_be_copied(entry.path) and os.access(entry.path, os.W_OK):
                raise OSError(errno.EOVERFLOW, "a file of another group cannot be copied", entry.path)
    return dict(sorted(plan.items()))


def _find_outer(path: str, folders: Iterable[str]) -> str:
    return max((one for one in folders if _is_below(path, (one,))), key=len)


def _can_be_copied(path: str) -> bool:
    """Return whether an overlay can copy a file or folder: a user namespace has only the user and one group."""
    status, user = os.stat(path, follow_symlinks=False), os.geteuid()
    return user == 0 or (status.st_uid, status.st_gid) == (user, os.getegid())


def _is_below(path: str, folders: Iterable[str]) -> bool:
    return any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def _change_mounts(plan: dict[str, str], musts: set[str], scratch: Path, *, is_trial: bool) -> None:
    """Mount what is planned; all paths are opened before, because an outer overlay hides them."""
    with ExitStack() as opened, ExitStack() as undo:
        sources, options = {}, {}
        for number, path in enumerate(plan):
            try:
                sources[path] = _open(path, opened)
            except OSError:  # gone, or out of reach
                if path in musts:
                    raise
                continue
            if plan[path] == TAKES and os.path.isdir(path) and (path in musts or not is_trial):
                options[path] = _prepare_overlay(sources[path], scratch / str(number), opened)
        for path in sorted(musts if is_trial else sources.keys() - {"/"}):
            _change_mount(path, sources[path], plan[path], options.get(path), must=path in musts)
            undo.callback(call, "umount2", path, MNT_DETACH)
        with suppress(OSError):
            _make_read_only("/", 0)
        undo.pop_all()


def _open(path: str | Path, opened: ExitStack) -> str:
    """Return a name of what is at a path now, without signs that have a meaning for overlays."""
    one = os.open(path, os.O_PATH | os.O_CLOEXEC)
    opened.callback(os.close, one)
    return f"/proc/self/fd/{one}"


def _prepare_overlay(lower: str, folder: Path, opened: ExitStack) -> str:
    """Return the options of an overlay that keeps what it takes in a new folder."""
    named = [f"lowerdir={lower}", "volatile", _entered[0]]
    for name in ("upperdir", "workdir"):
        (folder / name).mkdir(parents=True)
        named.append(f"{name}={_open(folder / name, opened)}")
    return ",".join(named)


def _change_mount(path: str, source: str, how: str, options: str | None, *, must: bool) -> None:
    if options is not None:
        try:
            call("mount", "overlay", path, "overlay", 0, options)
            return
        except OSError:
            if must:
                raise
    call("mount", source, path, None, MS_BIND | MS_REC, None)
    if how != AS_IT_IS:
        _make_read_only(path, AT_RECURSIVE)


def _make_read_only(path: str, flags: int) -> None:
    call("syscall", MOUNT_SETATTR, AT_FDCWD, path, flags, struct.pack("=QQQQ", MOUNT_ATTR_RDONLY, 0, 0, 0), 32)


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
                with suppress(OSError), ExitStack() as opened:
                    one = os.open(folder, os.O_PATH | os.O_CLOEXEC)
                    opened.callback(os.close, one)
                    call("syscall", ADD_RULE, rules, 1, struct.pack("=Qi", rights, one), 0)
            call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            call("syscall", RESTRICT_SELF, rules, ALL_THREADS if version >= SINCE else 0)
        finally:
            os.close(rules)
    except OSError:
        return False
    return True
