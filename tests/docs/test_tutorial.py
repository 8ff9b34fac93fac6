"""docs/tutorial.md: its commands, in their order, by the installed program before an emulated AWS."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import snippets
import transcripts
from launch.aws_world import AwsServer
from transcript_worlds import Aws

pytestmark = pytest.mark.slow

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
TEXT = PAGE.read_text(encoding="utf-8")


class Tutorial:
    """What each command of the page printed, and the emulated cloud afterwards."""

    def __init__(self, world: Aws, shell: transcripts.Shell) -> None:
        self.printed: list[tuple[tuple[str, ...], str]] = []
        self.most_alive = 0
        self._names: dict[str, str] = {}
        (script,) = re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
        (shell.folder / "train.py").write_text(script, encoding="utf-8")
        for snippet in snippets.snippets(PAGE):
            self._run(snippet.words, world, shell)

    def _run(self, words: tuple[str, ...], world: Aws, shell: transcripts.Shell) -> None:
        text = shell.run([self._names.get(word, word) for word in words])
        self.printed.append((words, text))
        self.most_alive = max(self.most_alive, len(world.server.alive()))
        if words[0] == "launch" and "--yes" in words:
            stands_for = "HERE" if words[1] == "here.json" else "RUN"
            self._names[stands_for] = re.findall(r"^run (\S+):", text, re.MULTILINE)[0]

    def of(self, *beginning: str) -> list[str]:
        """Return the output of the commands that begin with these words."""
        return [text for words, text in self.printed if words[: len(beginning)] == beginning]


@pytest.fixture(scope="module")
def tutorial() -> Iterator[tuple[Tutorial, AwsServer]]:
    """The page, followed once; a command that fails raises."""
    world = Aws()
    with transcripts.shell_of(world, transcripts.installed()) as shell:
        yield Tutorial(world, shell), world.server


def test_the_commands_lead_to_a_stopped_machine(tutorial: tuple[Tutorial, AwsServer]) -> None:
    """One machine is started by step 7, and none is left after step 8."""
    done, server = tutorial

    assert done.most_alive == 1
    assert server.alive() == []
    assert len(server.meter()) == 1
    assert "0 machines were past their cap" in done.of("reap")[0]


def test_the_second_list_is_empty(tutorial: tuple[Tutorial, AwsServer]) -> None:
    """As the page says of `ps` after `stop`."""
    before, after = tutorial[0].of("ps", "--cloud")

    assert "running" in before
    assert "running" not in after


def test_the_rehearsal_is_compared_with_its_plan(tutorial: tuple[Tutorial, AwsServer]) -> None:
    """The run on this computer leaves step times, which `reconcile` finds."""
    (text,) = tutorial[0].of("reconcile", "here.json")

    assert "step" in text


@pytest.mark.parametrize(
    ("heading", "command"), [("3. Read the screen", "estimate"), ("6. Look at the launch", "launch")]
)
def test_the_screen_has_the_words_that_the_page_explains(
    tutorial: tuple[Tutorial, AwsServer], heading: str, command: str
) -> None:
    """First column of the tables in steps 3 and 6."""
    section = TEXT.partition(f"## {heading}")[2].partition("\n## ")[0]
    words = re.findall(r"^\| `([^`]+)` \|", section, re.MULTILINE)
    printed = tutorial[0].of(command, "train.py" if command == "estimate" else "plan.json")[0]

    assert len(words) >= 5
    assert [word for word in words if word not in printed] == []
