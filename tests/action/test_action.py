"""The GitHub Action: its steps run here by bash, as a runner runs them, against a server on loopback.

What only GitHub has is not tested: the runner itself, its expressions but `inputs` and `github`, and the real API.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from action.fake_github import TOKEN, FakeGitHub, fake_github

ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action" / "action.yml").read_text(encoding="utf-8"))
STEPS = ACTION["runs"]["steps"]
NAME = "train $(touch planted); `touch planted` |x|.py"  # a shell or Markdown would act on it
SCRIPT = """
import os, sys
print("::set-output name=x::y")
assert "TOKEN" not in os.environ
import keras, numpy
model = keras.Sequential([keras.Input((16,)), keras.layers.Dense({units})])
model.compile(loss="mse")
model.fit(numpy.zeros((640, 16)), numpy.zeros((640, {units})), epochs={epochs})
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """A checkout with a base and a head, and the variables that a runner sets."""

    workspace: Path
    temp: Path
    environ: dict[str, str]

    def run(self, *, arguments: str = "--provider aws --epochs 3") -> list[subprocess.CompletedProcess[str]]:
        """Run the steps but the first, which installs, with the values that a workflow gives."""
        values = {
            "inputs.script": NAME,
            "inputs.arguments": arguments,
            "inputs.github-token": TOKEN,
            "github.action_path": str(ROOT / "action"),
        }
        return [self._run_step(step, values) for step in STEPS[1:]]

    def _run_step(self, step: dict[str, Any], values: dict[str, str]) -> subprocess.CompletedProcess[str]:
        given = {
            key: re.sub(r"\$\{\{ *(.+?) *\}\}", lambda found: values[found[1]], text)
            for key, text in step["env"].items()
        }
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
            cwd=self.workspace,
            env={**self.environ, **given},
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    """The server, empty."""
    with fake_github() as server:
        yield server


@pytest.fixture
def runner(tmp_path: Path, github: FakeGitHub) -> Runner:
    """The script has 3 units on the base and 6 on the head."""
    workspace, temp = tmp_path / "workspace", tmp_path / "temp"
    workspace.mkdir()
    temp.mkdir()

    def git(*words: str) -> str:
        identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
        done = subprocess.run(
            ["git", *identity, *words], cwd=workspace, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    git("init", "-q")
    for units, epochs in ((3, 1), (6, 2)):
        (workspace / NAME).write_text(SCRIPT.format(units=units, epochs=epochs))
        git("add", "-A")
        git("commit", "-q", "-m", f"{units} units")
    event = {"pull_request": {"number": 7, "base": {"sha": git("rev-parse", "HEAD~1")}}}
    (temp / "event.json").write_text(json.dumps(event))
    variables = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "GITHUB_API_URL": github.url,
        "GITHUB_EVENT_NAME": "pull_request",
        "GITHUB_EVENT_PATH": str(temp / "event.json"),
        "GITHUB_REPOSITORY": "me/repo",
        "GITHUB_STEP_SUMMARY": str(temp / "summary.md"),
        "GITHUB_WORKSPACE": str(workspace),
        "RUNNER_TEMP": str(temp),
    }
    return Runner(workspace=workspace, temp=temp, environ=variables)


@pytest.mark.slow
def test_steps_run_locally_against_a_loopback_server_comment_once_and_update_it(
    runner: Runner, github: FakeGitHub
) -> None:
    """Both revisions in one table; a second push changes the same comment, and no other comment is touched."""
    assert [step.returncode for step in runner.run()] == [0, 0]
    (first,) = github.comments
    marker, heading, *_ = first["body"].splitlines()

    assert marker.startswith("<!-- gpuplan ")
    assert "| Parameters | 51 | 102 | +100 % |" in first["body"]
    assert re.search(r"\| · cost \| \$[\d.]+ .*\| \$[\d.]+ .*\| [+-]\d+ % \|", first["body"])
    assert (runner.temp / "summary.md").read_text() == first["body"]

    stranger = github.add(f"{marker}\nmine", kind="User")
    github.comments[:] = [stranger, github.add("another action's", kind="Bot"), first]
    assert [step.returncode for step in runner.run()] == [0, 0]

    assert [method for method, _ in github.asked] == ["GET", "POST", "GET", "GET", "PATCH"]
    assert github.asked[-1][1] == "/repos/me/repo/issues/comments/1"
    assert heading == r"### train $(touch planted); \`touch planted\` \|x\|.py"
    assert [one["body"] for one in github.comments[:2]] == [f"{marker}\nmine", "another action's"]
    assert not (runner.workspace / "planted").exists()


@pytest.mark.slow
def test_a_script_that_fails_is_told_and_a_token_that_may_not_write_is_no_failure(
    runner: Runner, github: FakeGitHub
) -> None:
    """The last line of its error, as text; the table of a fork's request is in the job's summary."""
    (runner.workspace / NAME).write_text("raise ValueError('<b>@everyone</b> ```')")
    github.may_write = False
    estimated, commented = runner.run()
    summary = (runner.temp / "summary.md").read_text()

    assert (estimated.returncode, commented.returncode) == (0, 0)
    assert "::warning::gpuplan could not estimate the script" in estimated.stdout
    assert "::warning::the token may not comment" in commented.stdout
    assert "It cannot be estimated" in summary
    assert "&lt;b&gt;@everyone" in summary
    assert github.comments == []


def test_a_privileged_event_is_refused(runner: Runner, github: FakeGitHub) -> None:
    """`pull_request_target` has a token that may write, and the request's code would run beside it."""
    runner.environ["GITHUB_EVENT_NAME"] = "pull_request_target"
    assert [step.returncode for step in runner.run()] == [1, 1]
    assert github.asked == []


def test_values_reach_the_shell_through_variables_only() -> None:
    """https://docs.github.com/actions/reference/security/secure-use: no expression in a script."""
    assert ACTION["runs"]["using"] == "composite"
    assert all(step["shell"] == "bash" and "${{" not in step["run"] for step in STEPS)
    assert [name for name, one in ACTION["inputs"].items() if one.get("required")] == ["script"]
    assert "TOKEN" not in STEPS[1]["env"]


def test_the_workflow_of_the_page_uses_the_action_with_least_permissions() -> None:
    """What readers copy: known inputs, the whole history, no stored credentials, and two permissions."""
    page = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    workflow = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[0])
    (job,) = workflow["jobs"].values()
    used = next(step for step in job["steps"] if step["uses"].partition("@")[0].endswith("/action"))
    checkout = next(step for step in job["steps"] if step["uses"].startswith("actions/checkout@"))

    assert set(workflow[True]) == {"pull_request"}  # YAML reads `on` as a Boolean
    assert workflow["permissions"] == {"contents": "read", "pull-requests": "write"}
    assert set(used["with"]) <= set(ACTION["inputs"])
    assert checkout["with"] == {"fetch-depth": 0, "persist-credentials": False}
