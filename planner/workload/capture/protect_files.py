"""Protection of files from the first `fit()` on: what a script writes that trained nothing goes elsewhere.

What is written in Python and by known libraries is redirected, and Landlock, where it is, refuses the rest.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import gc
import io
import os
import re
import shutil
import stat
import struct
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from functools import partial, wraps
from inspect import unwrap
from itertools import count
from pathlib import Path
from typing import Any

from .patches import replace_after_import

LARGEST_COPY_BYTES = 2**28  # a larger file is opened anew for reading alone
READ_AND_WRITE, PRIVATE_IN_PLACE = 3, 0x12  # arguments of mmap
_SHARED = re.compile(r"^(\w+)-(\w+) rw.s (\w+) \S+ \d+ +(/.*)$", re.MULTILINE)


def find_open_path(descriptor: int) -> str:
    """Return the path of an open file; OSError if it is unknown."""
    if hasattr(fcntl, "F_GETPATH"):  # macOS
        return os.fsdecode(fcntl.fcntl(descriptor, fcntl.F_GETPATH, bytes(1024)).rstrip(b"\0"))
    return os.readlink(f"/proc/self/fd/{descriptor}")


def open_anew(is_kept: Callable[[str], bool], find: Callable[[str], str]) -> None:
    """Let each descriptor open for writing be one of the file to write instead, whose path `find` returns."""
    written = {}
    for number in map(int, os.listdir("/dev/fd")):
        with suppress(OSError):  # closed or deleted since
            if number > 2 and fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY:
                path, status = find_open_path(number), os.stat(number)
                if stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.stat(path)) and not is_kept(path):
                    written[number] = path
    for one in gc.get_objects() if written else ():  # write what is buffered
        with suppress(Exception):
            if isinstance(one, io.IOBase) and one.fileno() in written:
                one.flush()
    for number, path in written.items():
        flags = fcntl.fcntl(number, fcntl.F_GETFL)
        try:
            if os.stat(number).st_size > LARGEST_COPY_BYTES:
                raise OSError(errno.EFBIG, "too large to be copied", path)
            new = os.open(find(path), flags)
        except OSError:
            new = os.open(path, flags & ~os.O_ACCMODE)
        with suppress(OSError):
            os.lseek(new, os.lseek(number, 0, os.SEEK_CUR), os.SEEK_SET)
        os.dup2(new, number, inheritable=os.get_inheritable(number))
        os.close(new)


def make_mappings_private(is_kept: Callable[[str], bool]) -> None:
    """Let what is written to mapped files stay in memory (Linux)."""
    maps, c_library = Path("/proc/self/maps"), ctypes.CDLL(None)
    text = maps.read_text(encoding="utf-8", errors="surrogateescape") if maps.exists() else ""
    for start, end, offset, path in _SHARED.findall(text):
        with suppress(OSError):  # no file any more
            if not is_kept(path):
                one, first, last = os.open(path, os.O_RDONLY), int(start, 16), int(end, 16)
                place = [ctypes.c_size_t(value) for value in (first, last - first, int(offset, 16))]
                c_library.mmap(*place[:2], READ_AND_WRITE, PRIVATE_IN_PLACE, one, place[2])
                os.close(one)


WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
PROGRAMS = ("os.system", "os.exec", "os.posix_spawn", "subprocess.Popen")
UNPROTECTED = (
    "files cannot be made read-only on this system: what the script saved after fit() went elsewhere only where "
    "it did so in Python or by a library that gpuplan knows"
)
_TABLE = tomllib.loads(Path(__file__).with_name("protected.toml").read_text(encoding="utf-8"))
UNSAVED: list[str] = _TABLE["unsaved"]
REFUSED: dict[str, list[list[int]]] = _TABLE["refused"]
REDIRECTED: dict[str, list[tuple[list[str], int, str]]] = _TABLE["redirected"]


class FileProtection:
    """What keeps the user's files as they are from its creation on; it cannot be undone."""

    def __init__(self, folder: Path | None, *, own: Path) -> None:
        """Protect all files but those of caches; `folder` takes what is written, None: a new one."""
        folder = folder or Path(tempfile.mkdtemp(prefix="gpuplan-"))
        temporary = tempfile.gettempdir()
        kept = [str(folder), *map(os.path.expanduser, ("~/.keras", "~/.cache")), "/dev", "/proc"]
        self._scratch = folder / "written"
        self._scratch.mkdir()
        self._copies: dict[str, str] = {}  # of redirected files, by path
        self._numbers = count()
        self._is_kept = _build_check(kept)
        make_mappings_private(self._is_kept)
        is_temporary = _build_check([temporary])
        if not any(is_temporary(os.path.join(os.path.realpath(one), "")) for one in (str(own), os.getcwd())):
            # But those of the temporary folder from before.
            self._is_kept = _build_check(kept, os.path.join(temporary, tempfile.gettempprefix()))
            kept = [*kept, temporary]
        self.notes = () if restrict_writes(kept) else (UNPROTECTED,)
        tempfile.tempdir = os.environ["TMPDIR"] = str(self._scratch)
        sys.dont_write_bytecode = True
        open_anew(self._is_kept, lambda path: str(self._find(path)))
        if "keras" in sys.modules:
            for name in UNSAVED:
                replace_after_import("keras", name, lambda save: lambda *args, **kwargs: None)
        for module, functions in REDIRECTED.items():
            for names, position, mode in functions:
                for name in names:
                    replace_after_import(module, name, partial(self._wrap, position, mode))
        sys.addaudithook(self._refuse)

    def _find(self, file: Any, mode: str = "a") -> Any:
        """Return the path to use instead of one that is opened in a mode; anything else as it is."""
        writes = not set("wax+g").isdisjoint(mode)
        if not (writes or self._copies) or not isinstance(file, (str, bytes, os.PathLike)) or _is_no_file(file):
            return file
        path = outer = os.path.abspath(os.fsdecode(file))
        while outer != os.path.dirname(outer):
            if outer in self._copies:
                return self._copies[outer] + path[len(outer) :]
            outer = os.path.dirname(outer)
        if not writes or self._is_kept(path) or ("x" in mode and os.path.lexists(path)):
            return file
        if (os.path.isdir(path) and "d" not in mode) or ("g" in mode and not os.path.lexists(path)):
            return file
        copy = str(self._scratch / f"{next(self._numbers)}-{os.path.basename(path)}")
        if "g" in mode:  # it goes, with what is in it
            (Path.mkdir if os.path.isdir(path) else Path.touch)(Path(copy))
            self._copies = {one: new for one, new in self._copies.items() if not one.startswith(path + os.sep)}
        elif "w" not in mode and os.path.isfile(path):
            shutil.copyfile(path, copy)
        self._copies[path] = copy
        return copy

    def _wrap(self, position: int, mode: str, function: Callable[..., Any]) -> Callable[..., Any]:
        code = getattr(unwrap(function), "__code__", None)
        name = "" if code is None else code.co_varnames[position]

        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            how = mode or (*args[position + 1 :], kwargs.get("mode") or "r")[0]
            if isinstance(how, int):  # flags
                writes = "x" if how & os.O_EXCL else "wb" if how & os.O_TRUNC else "a"
                how = writes if how & WRITING else "r"
            is_relative = any(value is not None for key, value in kwargs.items() if key.endswith("dir_fd"))
            if len(args) > position and not is_relative:
                args = (*args[:position], self._find(args[position], how), *args[position + 1 :])
            elif name in kwargs:
                kwargs[name] = self._find(kwargs[name], how)
            return function(*args, **kwargs)

        return call

    def _refuse(self, event: str, arguments: tuple[Any, ...]) -> None:
        """Raise PermissionError for a program, and for what was not redirected."""
        if event in PROGRAMS:
            raise PermissionError(f"{event} after fit(), which trained nothing here")
        if event == "open" and not arguments[2] & WRITING:
            return
        for position, folder in REFUSED.get(event, ()):
            path = arguments[position]
            if isinstance(path, (str, bytes, os.PathLike)) and not _is_no_file(path):
                base = arguments[folder] if len(arguments) > folder else -1
                inside = find_open_path(base) if isinstance(base, int) and base >= 0 else ""
                path = os.path.abspath(os.path.join(inside, os.fsdecode(path)))
                makes = event == "os.mkdir" or (event == "open" and arguments[2] & os.O_EXCL)
                fails = os.path.lexists(path) if makes else event == "open" and os.path.isdir(path)  # by itself
                if not fails and not self._is_kept(path):
                    raise PermissionError(f"{event} after fit(), which trained nothing here")


def _build_check(folders: Iterable[str], *starts: str) -> Callable[[str], bool]:
    """Return a function that tells whether a path lies below a folder, or begins in a way."""
    begins = tuple({os.path.join(form, "") for one in folders for form in (one, os.path.realpath(one))}) + starts
    return lambda path: path.startswith(begins)


def _is_no_file(name: Any) -> bool:
    """Return whether a name is one of SQLite's: in memory, or an address."""
    return isinstance(name, str) and (name in ("", ":memory:") or name.startswith("file:"))


# --- Landlock --------------------------------------------------------------------------------------------------

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
    with suppress(OSError), ExitStack() as opened:
        version = call("syscall", CREATE_RULESET, None, 0, 1)
        rights = RIGHTS[min(version, len(RIGHTS)) - 1]
        rules = call("syscall", CREATE_RULESET, struct.pack("=Q", rights), 8, 0)
        opened.callback(os.close, rules)
        for folder in folders:
            with suppress(OSError):
                one = os.open(folder, os.O_PATH | os.O_CLOEXEC)
                opened.callback(os.close, one)
                call("syscall", ADD_RULE, rules, 1, struct.pack("=Qi", rights, one), 0)
        call("prctl", PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        call("syscall", RESTRICT_SELF, rules, ALL_THREADS if version >= SINCE else 0)
        return True
    return False


def call(name: str, *arguments: str | bytes | int | None) -> int:
    """Call a function of the C library; OSError if it fails."""
    given = [os.fsencode(one) if isinstance(one, str) else one for one in arguments]
    found = int(getattr(ctypes.CDLL(None, use_errno=True), name)(*given))
    if found < 0:
        raise OSError(ctypes.get_errno(), f"{name}: {os.strerror(ctypes.get_errno())}")
    return found
