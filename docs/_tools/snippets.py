"""The commands that README.md and the documentation show: found, read as the program reads them, and run.

    python docs/_tools/snippets.py                # read every command line: unknown flags, wrong values
    python docs/_tools/snippets.py --run          # and run each, in a folder with stand-ins for the reader's files
    python docs/_tools/snippets.py --run README.md recipes.md

What needs a network, a cloud account, hours, or a machine that it would end is read and not run: see `NOT_RUN`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from commands import parse
from gpuplan.cli.app import run

ROOT = Path(__file__).parents[2]
SEPARATORS = {"&&", "||", "|", ";", ">", ">>", "<"}
# Beginning of a command: why it is read and not run.
NOT_RUN = {
    "catalog refresh": "the network",
    "catalog diff": "prices that were refreshed",
    "quota": "a cloud account", "estimate train.py --provider aws --quota": "a cloud account",
    "ps --cloud": "a cloud account",
    "stop": "a run, which it would end",
    "reap": "runs, which it would end",
    "launch plan.json -O": "a cloud account",
    "launch plan.json --source git:https://github.com/me/project@v1 --max-usd 5": "a cloud account",
    "launch plan.json --yes": "minutes of training; tests/launch runs it",
    "launch here.json --max-hours 1 --yes": "minutes of training; tests/docs/test_tutorial.py runs it",
    "reconcile here.json HERE": "a run; tests/docs/test_tutorial.py runs it",
    "launch plan.json --via": "an installed SkyPilot", "export": "a plan for a cloud; tests/launch/export runs it",
    "reconcile plan.json RUN": "a run",
    "profile ResNet50": "minutes", "profile train.py --data": "a script that reads --images",
    "benchmark": "minutes", "accuracy rows.csv": "rows of `gpuplan benchmark`",
    "estimate examples/models.py:transformer_7b": "half a minute; tests/cli/test_thirty_questions.py asks it",
    **dict.fromkeys(
        (
            "estimate keras_hub:gemma_2b_en?sequence_length=512",
            "estimate keras_hub:gemma_2b_en?sequence_length=512&lora_rank=8",
            "estimate keras_hub:gemma2_2b_en?sequence_length=512&quantize=int4&lora_rank=8",
            "estimate keras_hub:bert_base_en?task=TextClassifier&num_classes=2&sequence_length=128",
        ),
        "Keras Hub; tests/workload/test_keras_hub.py builds them",
    ),
}  # fmt: skip
GOOD = (0, 3)  # done, or the answer is no
QUICKLY = {"profile": ["--max-time", "1", "--processes", "1"]}  # a minute of measuring shows no more


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """One command line of the documentation, and where it stands."""

    page: str
    words: tuple[str, ...]  # after `gpuplan`

    @property
    def text(self) -> str:
        """Command line as typed."""
        return shlex.join(("gpuplan", *self.words))

    @property
    def not_run(self) -> str | None:
        """Missing requirement; None if there is none."""
        line = " ".join(self.words)
        reasons = (reason for begin, reason in NOT_RUN.items() if line == begin or line.startswith(f"{begin} "))
        if "--open" in self.words:
            return "a browser"
        return next(reasons, None)


def pages() -> list[Path]:
    """Return README.md and the pages that are written by hand."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def snippets(page: Path) -> Iterator[Snippet]:
    """Yield the commands of a page's shell blocks, and of its tables of questions."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```(?:sh|bash)\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    for table in re.findall(r"^\| question \| command \|\n((?:\|.*\n)+)", text, re.MULTILINE):
        blocks.insert(0, "\n".join(re.findall(r"^\| .* \| `(.+)` \|$", table, re.MULTILINE)))
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            for words in _simple_commands(line):
                if words[:1] == ["gpuplan"]:
                    yield Snippet(page=page.name, words=tuple(words[1:]))


def _simple_commands(line: str) -> Iterator[list[str]]:
    """Yield the commands of a line, without what goes into files; `[--flag]` is taken as given.

    Example:
        >>> list(_simple_commands("gpuplan a [--b] > c && gpuplan d  # e"))
        [['gpuplan', 'a', '--b'], ['c'], ['gpuplan', 'd']]
    """
    lexer = shlex.shlex(re.sub(r"\[(--[\w-]+)\]", r"\1", line), posix=True, punctuation_chars="&|;<>")
    lexer.whitespace_split, lexer.commenters = True, "#"
    words: list[str] = []
    for word in lexer:
        if word in SEPARATORS:
            yield words
            words = []
        else:
            words.append(word)
    if words:
        yield words


def read_all(chosen: Sequence[Path]) -> list[str]:
    """Return the errors in command lines of pages, one sentence each."""
    wrong = []
    for page in chosen:
        for snippet in snippets(page):
            try:
                parse(list(snippet.words))
            except Exception as error:  # whatever the program would have told
                wrong.append(f"{snippet.page}: `{snippet.text}`: {getattr(error, 'message', error)}")
    return wrong


def run_all(
    chosen: Sequence[Path], folder: Path, *, only: tuple[str, ...] = ("",)
) -> Iterator[tuple[Snippet, int, str]]:
    """Run the commands of some pages in a prepared folder; yields each with its exit code and what it said.

    Args:
        chosen: The pages.
        folder: See `prepare`.
        only: How the commands begin that are run.
    """
    with contextlib.chdir(folder):
        for page in chosen:
            for snippet in snippets(page):
                if snippet.not_run is None and " ".join(snippet.words).startswith(only):
                    said = io.StringIO()
                    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
                        code = run([*snippet.words, *QUICKLY.get(snippet.words[0], [])])
                    yield snippet, code, said.getvalue()
                    if snippet.words[0] == "profile" and "-o" in snippet.words:
                        # It stands in for what other machines measured.
                        for name in ("t4.json", "a100.json"):
                            shutil.copy("profile.json", name)


def prepare(folder: Path) -> None:
    """Put stand-ins for the files of a reader into a folder; the workloads' cache too."""
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copy(ROOT / "examples" / "mnist_cnn.py", folder / "train.py")
    (folder / "models.py").write_text((ROOT / "examples" / "models.py").read_text() + UNET)
    shutil.copytree(ROOT / "catalog", folder / "my_catalog", ignore=shutil.ignore_patterns("__*"))
    (folder / "my_measurements.csv").write_text(MEASUREMENTS)
    _save_model(folder / "model.keras")


UNET = '''

def unet(image_size=128):
    """Stands in for a function of the reader's."""
    return vgg13(image_size=image_size, classes=2)
'''
MEASUREMENTS = (
    "model,batch_size,accelerator,devices,mode,precision,compiled,stack,step_ms,source\n"
    "models.py:lstm_text,64,T4,1,train,float32,false,keras,20.0,a stand-in\n"
)


def _save_model(path: Path) -> None:
    os.environ.setdefault("KERAS_BACKEND", "jax")
    import keras

    keras.Sequential([keras.layers.Input((8,)), keras.layers.Dense(2)]).save(path)


def main() -> int:
    """Read the command lines; with `--run`, run them, with the time of each."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--run", action="store_true")
    arguments.add_argument("pages", nargs="*", help="names of pages; default: all")
    asked = arguments.parse_args()
    chosen = [page for page in pages() if not asked.pages or page.name in asked.pages]
    bad = read_all(chosen)
    if asked.run:
        with tempfile.TemporaryDirectory(prefix="gpuplan-docs-") as name:
            os.environ |= {
                "GPUPLAN_CACHE_DIR": f"{name}/cache",
                "GPUPLAN_DATA_DIR": f"{name}/data",
                "GPUPLAN_STATE_DIR": f"{name}/state",
                "GPUPLAN_MEASURE": "false",
                "GOOGLE_CLOUD_PROJECT": "my-project",
            }
            folder = Path(name, "work")
            folder.mkdir()
            prepare(folder)
            with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()):
                run(["estimate", "examples/mnist_cnn.py", "--provider", "local", "-o", "plan.json"])
            before = time.monotonic()
            for snippet, code, said in run_all(chosen, folder):
                now = time.monotonic()
                print(f"{code}  {now - before:5.1f} s  {snippet.page}: {snippet.text}")
                before = now
                if code not in GOOD:
                    bad.append(f"{snippet.page}: `{snippet.text}` ended with {code}: {said.strip()}")
    print("\n".join(bad), file=sys.stderr)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
