"""What reaches a shell, run by a real bash: programs are given exactly what was said, and nothing else runs."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest
from gpuplan.errors import UsageError
from gpuplan.launch.core.request import LaunchRequest, RunSpec
from gpuplan.launch.core.shell import quote, quote_all, require_plain_source
from gpuplan.launch.core.startup import HOME, BootConfig, build_startup_script
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from launch.fake_cloud import candidate

PROGRAMS = ("git", "docker", "python3", "tar", "base64", "mkdir", "tee", "aws", "shutdown", "touch", "cat")
# A program of a machine: writes its words into a file of its own, each ended by NUL.
RECORD = """#!/bin/bash
printf '%s\\0' "${{0##*/}}" "$@" > {log}/$$-$RANDOM
{more}
"""
BOOT = BootConfig(
    timer="shutdown -h +60",
    end="shutdown -h now",
    packages=("keras",),
    notices=None,
    copy_="aws s3 sync {source} {target}",
    stream="aws s3 cp {source} {target}",
    bucket="s3://my runs",
)
TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), min_size=1, max_size=40)
NASTY = st.sampled_from(
    [
        "$(touch canary)",
        "`touch canary`",
        "; touch canary",
        "'; touch canary; '",
        "\ntouch canary\n",
        "&& touch canary",
        '"; touch canary; "',
        "| touch canary",
        "END\ntouch canary",
        "-x",
        "$HOME",
        "*",
        "~",
        "\\",
        "{source}",
        "\x1b[A",
    ]
)
WORD = st.one_of(TEXT, NASTY)
LINE = WORD.map(lambda text: re.sub(r"[\x00-\x1f\x7f]", "_", text))  # a plan has no others but in arguments


class CloudMachine:
    """A folder that stands for a machine, whose programs only write down how they were called."""

    def __init__(self, folder: Path) -> None:
        self.home, self.log, self.path = folder / "home", folder / "log", folder / "bin"
        for place in (self.home / "run", self.home / "venv/bin", self.home / "work", self.path, self.log):
            place.mkdir(parents=True)
        more = {"cat": "exec /bin/cat", "aws": 'case "$*" in "s3 cp - "*) exec /bin/cat > /dev/null;; esac'}
        for name in PROGRAMS:
            self._program(self.path / name, more.get(name, "exit 0"))
        self._program(self.path / "sleep", "exit 1")  # ends the loop that keeps the run's files
        self._program(self.path / "df", "echo; echo disk 0 0 99999999")
        self._program(self.home / "venv/bin" / "python", "exit 0")
        for name in ("awk", "grep", "head", "rm", "sed", "tail", "tr"):
            (self.path / name).symlink_to(str(shutil.which(name)))

    def _program(self, path: Path, more: str) -> None:
        path.write_text(RECORD.format(log=self.log, more=more))
        path.chmod(0o755)

    def run(self, script: str) -> list[list[str]]:
        """Run a script to its end and return the programs that it called, each with its words."""
        for file in self.log.iterdir():
            file.unlink()
        text = script.replace(HOME, str(self.home))
        subprocess.run(
            ["/bin/bash"],
            input=text.encode(),
            env={"PATH": str(self.path)},
            cwd=self.home,
            timeout=60,
            check=False,
            capture_output=True,
        )
        return [file.read_bytes().decode().split("\0")[:-1] for file in self.log.iterdir()]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> CloudMachine:
    return CloudMachine(tmp_path_factory.mktemp("machine"))


def script_of(**spec: object) -> str:
    """Return the start-up script of a run."""
    request = LaunchRequest(
        run="r1234abcd-1",
        owner="me",
        made_at=datetime(2026, 11, 21, tzinfo=UTC),
        provider="fake",
        candidates=(candidate(),),
        spec=RunSpec.model_validate({"script": "train.py", "packages": ("keras==3.15.1",), **spec}),
    )
    return build_startup_script(request, candidate(), 1, BOOT)


def called(calls: list[list[str]], *first: str) -> list[list[str]]:
    """Return what follows some first words, wherever a call begins with them."""
    return [call[len(first) :] for call in calls if call[: len(first)] == list(first)]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(script=LINE, arguments=st.lists(WORD, max_size=3), place=st.tuples(LINE, LINE), requirements=LINE)
def test_a_machine_calls_what_it_was_told_and_nothing_else(
    machine: CloudMachine, script: str, arguments: list[str], place: tuple[str, str], requirements: str
) -> None:
    """Script, arguments, address, revision and requirements are anything; nothing of them is ever run."""
    url, reference = place
    url, reference = url.replace("@", "a").replace("/", "b"), reference.replace("@", "a").replace("/", "b")
    calls = machine.run(
        script_of(
            script=script, arguments=tuple(arguments), source=f"git:h/{url}@{reference}", requirements=requirements
        )
    )

    assert called(calls, "git", "clone") == [["-q", "--", f"h/{url}", "code"]]
    assert called(calls, "git", "-C") == [["code", "checkout", "-q", reference]]
    assert called(calls, "python", "-m", "pip") == [
        ["install", "-q", "--no-cache-dir", "-r", f"code/{requirements}"]
    ]
    assert called(calls, "python", "-m", "gpuplan_agent.supervise") == [["run"]]
    assert called(calls, "touch") == []
    told = json.loads((machine.home / "run" / "params.json").read_text())
    assert (told["script"], told["arguments"]) == (script, arguments)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(image=LINE, bucket=LINE)
def test_a_container_and_a_bucket_are_single_words(machine: CloudMachine, image: str, bucket: str) -> None:
    """The name of an image, and the address of an archive in a bucket."""
    calls = machine.run(script_of(source=f"image:{image}"))
    assert called(calls, "docker", "pull") == [["-q", image]]
    assert called(calls, "touch") == []
    place = bucket.removeprefix("//").lstrip("/") or "b"
    calls = machine.run(script_of(source=f"s3:{place}.tgz"))
    assert [f"s3://{place}.tgz", "-"] in called(calls, "aws", "s3", "cp")
    assert called(calls, "touch") == []


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(words=st.lists(WORD, min_size=1, max_size=5))
def test_quoted_words_come_back_as_they_were(machine: CloudMachine, words: list[str]) -> None:
    """Through bash and back."""
    assert machine.run(f"git {quote_all(words)}\n") == [["git", *words]]


def test_what_no_program_can_be_given_is_refused() -> None:
    """NUL ends an argument."""
    with pytest.raises(UsageError, match="NUL"):
        quote("a\0b")


@pytest.mark.parametrize(
    "source",
    [
        "git:https://host/x?access_token=secret",
        "git:https://host/x@v1?token=secret",
        "git:https://host/x#secret",
        "git:https://me@host/x",
        "git:https://me:secret@host/x@v1",
        "git:ssh://me:secret@host/x",
        "git:git@host:me/x?token=secret",
        "git:ext::sh -c reboot",
        "git:-oProxyCommand=reboot",
        "git:/etc",
        "git:file:///etc",
        "git:https://host/x@--upload-pack=reboot",
        "git:https://[host/x",
        "git:",
        "image:",
        "image:--privileged",
    ],
)
def test_an_address_with_a_secret_or_a_trick_is_refused(source: str) -> None:
    """And the secret is not repeated."""
    with pytest.raises(UsageError) as caught:
        require_plain_source(source)

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "source",
    ["git:https://host/me/x.git@v1", "git:git@host:me/x.git", "git:https://host/x", "image:me/x:1", "folder:/x"],
)
def test_a_plain_address_is_taken(source: str) -> None:
    """As they are on the hosts of repositories."""
    require_plain_source(source)
