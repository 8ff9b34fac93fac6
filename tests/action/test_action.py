"""The GitHub Actions: their steps run here by bash, as a runner runs them, against a server on loopback.

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
from action.fake_github import RUN, TOKEN, FakeGitHub, fake_github

ROOT = Path(__file__).parents[2]
ACTIONS: dict[str, Any] = {
    name: yaml.safe_load((ROOT / name / "action.yml").read_text(encoding="utf-8"))
    for name in ("action", "action/comment")
}
ESTIMATE, KEEP = ACTIONS["action"]["runs"]["steps"][1:]
(COMMENT,) = ACTIONS["action/comment"]["runs"]["steps"]
MARKER = "<!-- gpuplan 0123456789abcdef -->"
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
    github: FakeGitHub
    environ: dict[str, str]

    def estimate(self) -> subprocess.CompletedProcess[str]:
        """Run the step that estimates, and keep its text as the next step does."""
        done = self._run_step(ESTIMATE)
        if done.returncode == 0:
            outputs = dict(line.split("=", 1) for line in (self.temp / "output").read_text().splitlines())
            values = {"steps.estimate.outputs.artifact": outputs["artifact"], "runner.temp": str(self.temp)}
            kept = {key: fill(str(value), values) for key, value in KEEP["with"].items()}
            self.github.upload(kept["name"], Path(kept["path"]).read_bytes())
        return done

    def comment(self) -> subprocess.CompletedProcess[str]:
        """Run the step that comments."""
        return self._run_step(COMMENT)

    def tell(self, name: str, event: dict[str, Any]) -> None:
        """Set the event."""
        (self.temp / "event.json").write_text(json.dumps(event))
        self.environ["GITHUB_EVENT_NAME"] = name

    def _run_step(self, step: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        values = {
            "inputs.script": NAME,
            "inputs.arguments": "--provider aws --epochs 3",
            "inputs.github-token": TOKEN,
            "github.action_path": str(ROOT / ("action" if step is ESTIMATE else "action/comment")),
        }
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", step["run"]],
            cwd=self.workspace,
            env={**self.environ, **{key: fill(text, values) for key, text in step["env"].items()}},
            capture_output=True,
            text=True,
            check=False,
        )


def fill(text: str, values: dict[str, str]) -> str:
    """Return a text with its expressions replaced."""
    return re.sub(r"\$\{\{ *(.+?) *\}\}", lambda found: values[found[1]], text)


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
        "GITHUB_OUTPUT": str(temp / "output"),
        "GITHUB_REPOSITORY": "me/repo",
        "GITHUB_RUN_ID": RUN,
        "GITHUB_STEP_SUMMARY": str(temp / "summary.md"),
        "GITHUB_WORKSPACE": str(workspace),
        "RUNNER_TEMP": str(temp),
    }
    return Runner(workspace=workspace, temp=temp, github=github, environ=variables)


@pytest.mark.slow
def test_steps_run_locally_against_a_loopback_server_comment_once_and_update_it(
    runner: Runner, github: FakeGitHub
) -> None:
    """Both revisions in one table; a second push changes the same comment, and no other comment is touched."""
    assert [runner.estimate().returncode, runner.comment().returncode] == [0, 0]
    (first,) = github.comments
    marker, heading, *_ = first["body"].splitlines()

    assert marker.startswith("<!-- gpuplan ")
    assert "| Parameters | 51 | 102 | +100 % |" in first["body"]
    assert re.search(r"\| · cost \| \$[\d.]+ .*\| \$[\d.]+ .*\| [+-]\d+ % \|", first["body"])
    assert (runner.temp / "summary.md").read_text() == first["body"]

    stranger = github.add(f"{marker}\nmine", kind="User")
    github.comments[:] = [stranger, github.add("another action's", kind="Bot"), first]
    assert [runner.estimate().returncode, runner.comment().returncode] == [0, 0]

    assert [method for method, _ in github.asked if method != "GET"] == ["POST", "PATCH"]
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
    estimated, commented = runner.estimate(), runner.comment()
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
    assert [runner.estimate().returncode, runner.comment().returncode] == [1, 1]
    assert github.asked == []


def test_what_the_estimating_job_wrote_cannot_reach_the_token(runner: Runner, github: FakeGitHub) -> None:
    """A `.pth` file or a start-up file of bash would run beside the token on the same machine.

    The commenting job is on another one. All that comes from the first is a text, posted where the event says.
    """
    assert "python" not in COMMENT["run"] + (ROOT / "action" / "comment" / "comment.sh").read_text()
    assert "env" not in KEEP
    github.upload("gpuplan-comment-1", f"{MARKER}\n$(touch planted) `id` number=8".encode())
    github.upload("others", b"not read")

    assert runner.comment().returncode == 0
    assert [one["body"] for one in github.comments] == [f"{MARKER}\n$(touch planted) `id` number=8"]
    assert github.asked[-1] == ("POST", "/repos/me/repo/issues/7/comments")
    assert not list(runner.workspace.glob("planted"))


@pytest.mark.parametrize(
    ("file", "text"),
    [("gpuplan-comment.md", b"<!-- another's -->\n"), ("gpuplan-comment.md", b""), ("x/../../y", MARKER.encode())],
)
def test_an_artifact_that_is_no_comment_is_refused(
    runner: Runner, github: FakeGitHub, file: str, text: bytes
) -> None:
    """Another marker would overwrite another action's comment."""
    github.add("<!-- another's -->\n", kind="Bot")
    github.upload("gpuplan-comment-1", text, file=file)
    done = runner.comment()

    assert (done.returncode, "artifact 0 is no comment of gpuplan" in done.stdout) == (1, True)
    assert len(github.comments) == 1


def test_a_text_without_end_is_cut(runner: Runner, github: FakeGitHub) -> None:
    """20 MB that are packed into 20 kB."""
    github.upload("gpuplan-comment-1", f"{MARKER}\n".encode() + b"x" * 20_000_000)

    assert runner.comment().returncode == 0
    assert len(github.comments[0]["body"]) == 60_000


def test_a_workflow_of_its_own_comments_on_the_request_of_a_fork(runner: Runner, github: FakeGitHub) -> None:
    """Its event names no request: it asks for that of branch and commit; one with newer commits gets nothing."""
    label = "them:a&b=c"
    ran = {"id": int(RUN), "event": "pull_request", "head_branch": "a&b=c", "head_sha": "1f"}
    runner.tell("workflow_run", {"workflow_run": {**ran, "head_repository": {"owner": {"login": "them"}}}})
    github.upload("gpuplan-comment-1", f"{MARKER}\n".encode())
    github.pulls.append({"number": 7, "head": {"label": label, "sha": "2e"}})
    newer = runner.comment()
    assert (newer.returncode, github.comments) == (0, [])
    assert "has newer commits" in newer.stdout

    github.pulls.append({"number": 7, "head": {"label": label, "sha": "1f"}})
    assert runner.comment().returncode == 0
    assert len(github.comments) == 1

    runner.tell("workflow_run", {"workflow_run": {**ran, "event": "pull_request_target"}})
    assert runner.comment().returncode == 1


def test_values_reach_the_shell_through_variables_only() -> None:
    """https://docs.github.com/actions/reference/security/secure-use: no expression in a script."""
    steps = [step for action in ACTIONS.values() for step in action["runs"]["steps"] if "run" in step]
    assert len(steps) == 3
    assert all(action["runs"]["using"] == "composite" for action in ACTIONS.values())
    assert all(step["shell"] == "bash" and "${{" not in step["run"] for step in steps)
    inputs = ACTIONS["action"]["inputs"]
    assert [name for name, one in inputs.items() if one.get("required")] == ["script"]
    assert "token" not in str(ACTIONS["action"]).lower()


def test_the_workflows_of_the_page_use_the_actions_with_least_permissions() -> None:
    """What readers copy: known inputs, the whole history, no stored credentials, and the token in its own job."""
    page = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    same, forks = map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)[:2])
    checkout, _, used = same["jobs"]["gpuplan"]["steps"]
    comment = {"runs-on": "ubuntu-latest", "steps": [{"uses": "OWNER/gpuplan/action/comment@REVISION"}]}
    rights = {"actions": "read", "pull-requests": "write"}

    assert set(same[True]) == {"pull_request"}  # YAML reads `on` as a Boolean
    assert same["permissions"] == {"contents": "read"}
    assert "permissions" not in same["jobs"]["gpuplan"]
    assert used["uses"].partition("@")[0].endswith("/action")
    assert set(used["with"]) <= set(ACTIONS["action"]["inputs"])
    assert checkout["with"] == {"fetch-depth": 0, "persist-credentials": False}
    assert same["jobs"]["comment"] == {**comment, "needs": "gpuplan", "permissions": rights}

    assert forks[True] == {"workflow_run": {"workflows": [same["name"]], "types": ["completed"]}}
    assert forks["permissions"] == rights
    condition = "github.event.workflow_run.event == 'pull_request'"
    assert forks["jobs"] == {"comment": {**comment, "if": condition}}
