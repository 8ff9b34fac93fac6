"""Transcripts of `launch`, `ps`, `reap` and `stop` against loopback servers, inserted into the documentation.

    python docs/_tools/transcripts.py                    # compare docs/launching.md with what is printed
    python docs/_tools/transcripts.py --update           # write what is printed into it
    python docs/_tools/transcripts.py --only aws azure   # some providers

Each command is the installed program `gpuplan` in a process of its own, on a terminal of a fixed width, in a
folder with a copy of `examples/mnist_cnn.py` and fresh settings, as after an installation. The servers are those
of the tests (`tests/launch`): they serve machines and prices, and each request moves their clocks on. Of what is
printed, ids and times are put in one form; nothing else is changed.
"""

from __future__ import annotations

import argparse
import difflib
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from transcript_worlds import WORLDS, World  # noqa: E402 - they are among the tests

PAGE = ROOT / "docs" / "launching.md"
WIDTH = 200
LIMIT_S = 300.0  # of one command
PASSED_ON = ("PATH", "LANG", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "SSL_CERT_FILE")
# What differs from one run to the next, and what stands for it; the same length, so that columns stay.
FORMS = (
    (r"\br[0-9a-f]{8}-(\d+)", r"r0a1b2c3d-\1"),
    (r"\bown-[0-9a-f]{16}\b", "own-0123456789abcdef"),
    (r"\b(i|sg|vol)-[0-9a-f]{17}\b", r"\1-0123456789abcdef0"),
    (r"\b(i|sg|ami)-[0-9a-f]{8}\b", r"\1-01234567"),
    (r"\blocal-[0-9a-f]{8}\b", "local-01234567"),
    (r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "01234567-89ab-cdef-0123-456789abcdef"),
    (r"\b(gpuplan-r0a1b2c3d-\d+-\d+)-[0-9a-f]{8}\b", r"\1-01234567"),
    (r"\b(localhost|127\.0\.0\.1):\d{4,5}\b", r"\1:12345"),
    (r"\b20\d\d-\d\d-\d\d \d\d:\d\d\b", "2026-11-21 12:00"),
    (r"(?m)^\d\d:\d\d:\d\d ", "12:00:00 "),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shell:
    """A folder, an environment and a program: what a command needs."""

    folder: Path
    environment: dict[str, str]
    program: str
    printed: list[str] = field(default_factory=list)

    def run(self, words: Sequence[str], *, shown: bool = True) -> str:
        """Run a command on a terminal and return what is then on it; RuntimeError when it fails."""
        text = on_screen(self.capture(words))
        if shown:
            self.printed.append(f"$ gpuplan {shlex.join(words)}\n{text}")
        return text

    def capture(self, words: Sequence[str]) -> str:
        """Run a command on a terminal and return all that it sends there; RuntimeError when it fails."""
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [self.program, *words],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        text = _read_all(ours)
        if process.wait(timeout=LIMIT_S) != 0:
            raise RuntimeError(
                f"`gpuplan {shlex.join(words)}` ended with {process.returncode}:\n{on_screen(text)}"
            )
        return text


def _read_all(terminal: int) -> str:
    """Return what is sent to a terminal until its last user closes it."""
    parts = []
    while True:
        try:
            part = os.read(terminal, 65536)
        except OSError:  # Linux: no process has it open any more
            break
        if not part:
            break
        parts.append(part)
    os.close(terminal)
    return b"".join(parts).decode()


def on_screen(text: str) -> str:
    """Return the final terminal contents, without overwritten lines such as a spinner's.

    Example:
        >>> on_screen("\\x1b[?25lone\\r\\x1b[2K\\x1b[1mtwo\\x1b[0m\\r\\nthree")
        'two\\nthree\\n'
    """
    lines, row, column = [""], 0, 0
    for found in re.finditer(r"\x1b\[([\d;?]*)([A-Za-z])|[\r\n]|[^\x1b\r\n]+", text):
        count, order = found[1], found[2] or found[0]
        if order == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif order == "\r":
            column = 0
        elif order == "A":
            row = max(0, row - int(count or 1))
        elif order == "K":
            lines[row] = "" if count == "2" else lines[row][:column]
        elif not found[2]:
            lines[row] = lines[row][:column].ljust(column) + found[0] + lines[row][column + len(found[0]) :]
            column += len(found[0])
    return "\n".join(lines).rstrip("\n") + "\n"


@contextmanager
def shell_of(world: World, program: str) -> Iterator[Shell]:
    """Give a world and a fresh installation's folders for as long as its commands run."""
    with tempfile.TemporaryDirectory(prefix="gpuplan-transcripts-") as name, world.running(Path(name)) as given:
        folder = Path(name, "work")
        folder.mkdir()
        shutil.copy(ROOT / "examples" / "mnist_cnn.py", folder)
        own = {f"GPUPLAN_{kind}_DIR": f"{name}/{kind.lower()}" for kind in ("CACHE", "DATA", "STATE")}
        kept = {key: value for key, value in os.environ.items() if key in PASSED_ON}
        environment = {
            **kept, **own, "HOME": name, "XDG_CONFIG_HOME": f"{name}/config", "COLUMNS": str(WIDTH),
            "TERM": "xterm", "NO_COLOR": "1", "KERAS_BACKEND": "jax",
            "GPUPLAN_TODAY": "2026-11-25", "GPUPLAN_MEASURE": "false", **given,
        }  # fmt: skip
        yield Shell(folder=folder, environment=environment, program=program)


def transcript(world: World, program: str) -> str:
    """Return the normalized output of a world's commands.

    A run is launched, listed and stopped. Where the server's clock can be moved, ten minutes pass before the stop,
    and a second run is launched, whose cap passes before `reap`.
    """
    with shell_of(world, program) as shell:
        estimate = ["estimate", "mnist_cnn.py", "--provider", world.provider, *world.planned]
        shell.run([*estimate, "-o", "plan.json"], shown=False)
        launch = ["launch", "plan.json", *world.flags, "--max-hours", "2", "--yes"]
        run = re.findall(r"^run (\S+):", shell.run(launch), re.MULTILINE)[0]
        shell.run(["ps", "--cloud", "--provider", world.provider])
        if world.has_clock:
            world.pass_time(600.0)
        shell.run(["stop", run, "--yes"])
        if world.has_clock:
            shell.run([*launch, "--name", "again"], shown=False)
            world.pass_time(3 * 3600.0, machine_hangs=True)
        shell.run(["reap", "--provider", world.provider])
        return in_one_form("\n".join(shell.printed), home=shell.folder.parent)


def in_one_form(text: str, *, home: Path) -> str:
    """Return a transcript with its ids and times in one form, and without spaces at the ends of lines."""
    text = text.replace(str(home), "/home/me")
    for pattern, form in FORMS:
        text = re.sub(pattern, form, text)
    return "\n".join(line.rstrip() for line in text.splitlines()).strip() + "\n"


def _block(name: str) -> re.Pattern[str]:
    """Return the pattern of a provider's place in the page."""
    return re.compile(rf"(<!-- transcript: {name} -->\n+```console\n)(.*?)(```\n)", re.DOTALL)


def written(name: str) -> str:
    """Return the transcript that the page has; ValueError when it has no place for it."""
    found = _block(name).search(PAGE.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{PAGE.name} has no `<!-- transcript: {name} -->` with a block of `console` after it")
    return found[2]


def write(name: str, text: str) -> None:
    """Put a transcript into the page."""
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(_block(name).sub(lambda found: found[1] + text + found[3], page), encoding="utf-8")


def differences(name: str, printed: str) -> str:
    """Return the difference between the page and the output; empty if there is none."""
    lines = difflib.unified_diff(
        written(name).splitlines(), printed.splitlines(), PAGE.name, "what is printed", lineterm=""
    )
    return "\n".join(lines)


def installed() -> str:
    """Return the program that belongs to this Python."""
    return str(Path(sys.executable).with_name("gpuplan"))


def main() -> int:
    """Compare, or write."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--update", action="store_true", help="write what is printed into the page")
    arguments.add_argument("--only", nargs="+", choices=list(WORLDS), default=list(WORLDS), help="some providers")
    arguments.add_argument("--program", default=installed(), help="the `gpuplan` to run, such as one of a wheel")
    asked = arguments.parse_args()
    differ = []
    for name in asked.only:
        printed = transcript(WORLDS[name](), asked.program)
        if asked.update:
            write(name, printed)
        else:
            differ.append(differences(name, printed))
    print("\n".join(filter(None, differ)), end="")
    return 1 if any(differ) else 0


if __name__ == "__main__":
    sys.exit(main())
