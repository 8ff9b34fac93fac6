"""Steps of the GitHub Action: estimate a script before and after a pull request, and comment the difference.

`estimate` runs the script of both revisions and has no token; `comment` has the token and runs no script. Between
them lies `gpuplan-comment.md` in the runner's folder for temporary files.
"""

from __future__ import annotations

import hashlib
import html
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import requests
from gpuplan.units import format_count, format_device, format_duration, format_offer_name, format_range, format_usd

ROLES = {"recommended": "Recommended", "cheaper": "Cheaper", "faster": "Faster"}
ANSWERED = (0, 3)  # exit codes of an answer; 3: the answer is no
LONGEST_ERROR = 1000
TIMEOUT_S = 30.0
UNKNOWN = "–"
Json = dict[str, Any]


def estimate() -> None:
    """Estimate both revisions and write the comment; one that cannot be estimated is told in it."""
    event = _read_event()
    script, arguments = os.environ["SCRIPT"], shlex.split(os.environ["ARGUMENTS"])
    before = _checkout_base(event["pull_request"]["base"]["sha"])
    old, _ = _estimate_script(before, script, arguments)
    new, error = _estimate_script(Path(os.environ["GITHUB_WORKSPACE"]), script, arguments)
    body = "\n".join(
        [_build_marker(script, arguments), f"### {_escape(script)}", "", *_build_body(old, new, error), ""]
    )
    _comment_file().write_text(body, encoding="utf-8")
    with Path(os.environ["GITHUB_STEP_SUMMARY"]).open("a", encoding="utf-8") as summary:
        summary.write(body)
    if error:
        _warn("gpuplan could not estimate the script: see the comment")


def comment() -> None:
    """Write the comment, or update the one that this action wrote for this script before."""
    event = _read_event()
    repository, number = os.environ["GITHUB_REPOSITORY"], event["pull_request"]["number"]
    address = f"{os.environ['GITHUB_API_URL']}/repos/{repository}/issues"
    body = _comment_file().read_text(encoding="utf-8")
    marker = body.partition("\n")[0]
    with requests.Session() as github:
        github.headers.update(
            {
                "Accept": "application/vnd.github+json",
                "Authorization": f"Bearer {os.environ['TOKEN']}",
                "X-GitHub-Api-Version": "2022-11-28",
            }
        )
        earlier = _find_comment(github, f"{address}/{number}/comments?per_page=100", marker)
        where = f"{address}/{number}/comments" if earlier is None else f"{address}/comments/{earlier}"
        method = "POST" if earlier is None else "PATCH"
        answer = github.request(method, where, json={"body": body}, timeout=TIMEOUT_S)
    if answer.status_code in (403, 404):
        _warn("the token may not comment (a fork's may not): see the summary of this job")
        return
    answer.raise_for_status()


def _read_event() -> Json:
    """Return the event of a pull request; anything else ends the step."""
    if os.environ["GITHUB_EVENT_NAME"] != "pull_request":
        sys.exit("::error::gpuplan runs on `pull_request` only: it runs the script that the request brings")
    event: Json = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    return event


def _warn(text: str) -> None:
    sys.stdout.write(f"::warning::{text}\n")


def _comment_file() -> Path:
    return Path(os.environ["RUNNER_TEMP"]) / "gpuplan-comment.md"


def _checkout_base(tip: str) -> Path:
    """Check out, in a folder of its own, where the request's branch left its base."""
    folder = Path(os.environ["RUNNER_TEMP"]) / f"gpuplan-base-{os.getpid()}"
    found = _git("merge-base", tip, "HEAD")
    if found.returncode:
        sys.exit("::error::the base is not checked out: `fetch-depth: 0` for actions/checkout")
    if _git("worktree", "add", "--quiet", "--detach", str(folder), found.stdout.strip()).returncode:
        sys.exit("::error::the base cannot be checked out")
    return folder


def _git(*words: str) -> subprocess.CompletedProcess[str]:
    folder = os.environ["GITHUB_WORKSPACE"]
    return subprocess.run(["git", *words], cwd=folder, stdout=subprocess.PIPE, text=True, check=False)


def _estimate_script(folder: Path, script: str, arguments: list[str]) -> tuple[Json | None, str]:
    """Return the answer for the script in a folder, or None and the error."""
    if not (folder / script).is_file():
        return None, f"no such file: {script}"
    command = [sys.executable, "-P", "-m", "gpuplan", "estimate", "--json", script, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode in ANSWERED and done.stdout:
        answer: Json = json.loads(done.stdout)
        return answer, ""
    return None, done.stderr.strip()


def _build_marker(script: str, arguments: list[str]) -> str:
    """Return the hidden first line by which the action finds its comment for this script."""
    return f"<!-- gpuplan {hashlib.sha256(shlex.join([script, *arguments]).encode()).hexdigest()[:16]} -->"


def _build_body(old: Json | None, new: Json | None, error: str) -> Iterator[str]:
    """Yield the lines below the heading."""
    if new is None:
        yield f"It cannot be estimated:\n\n<pre>{html.escape(error[:LONGEST_ERROR])}</pre>"
        return
    yield _escape(new["decision"]["sentence"])
    yield from ("", "| | before | after | difference |", "| --- | --- | --- | --- |")
    for row in _build_rows(old, new):
        yield f"| {' | '.join(map(_escape, row))} |"
    yield f"\nNothing was trained. Ranges hold 80 % of runs; prices as of {new['catalog']['as_of']}."


def _build_rows(old: Json | None, new: Json) -> Iterator[tuple[str, ...]]:
    """Yield name, value before, value after and difference."""
    for key, name in (("steps", "Steps"), ("parameters", "Parameters"), ("flops_per_step", "FLOP per step")):
        yield _compare(name, old and old["workload"][key], new["workload"][key], format_count)
    for role, name in ROLES.items():
        before, after = old and old["decision"][role], new["decision"][role]
        yield name, _format_offer(before), _format_offer(after), ""
        for part, key, show in (("time", "run_time_s", _format_time), ("cost", "cost_usd", _format_cost)):
            yield _compare(f"· {part}", _get_range(before, key), _get_range(after, key), show)


def _compare(name: str, before: Any, after: Any, show: Callable[[Any], str]) -> tuple[str, ...]:
    """Return a row of two values, with the difference of numbers or of the middles of ranges in percent."""
    old, new = (value["mid"] if isinstance(value, dict) else value for value in (before, after))
    difference = f"{100 * (new - old) / old:+.0f} %" if old and new is not None else UNKNOWN
    return name, *(UNKNOWN if one is None else show(one) for one in (before, after)), difference


def _get_range(offer: Mapping[str, Any] | None, key: str) -> dict[str, float] | None:
    """Return low, mid and high of an offer as numbers."""
    if offer is None or offer[key] is None:
        return None
    return {bound: float(value) for bound, value in offer[key].items()}


def _format_offer(offer: Mapping[str, Any] | None) -> str:
    if offer is None:
        return UNKNOWN
    name = format_offer_name(offer["provider"], offer["instance_type"])
    spot = ", spot" if offer["purchase"] == "spot" else ""
    return f"{name} ({format_device(offer['accelerator'], offer['devices'])}{spot})"


def _format_time(time_s: Mapping[str, float]) -> str:
    low, mid, high = (format_duration(time_s[bound]) for bound in ("low", "mid", "high"))
    return f"{mid} ({low} to {high})"


def _format_cost(usd: Mapping[str, float]) -> str:
    return f"${format_usd(usd['mid'])} ({format_range(usd['low'], usd['high'])})"


def _escape(text: str) -> str:
    """Return text that Markdown shows as it is, without links, mentions or a cell's end."""
    plain = html.escape(text.replace("@", "@\u200b"), quote=False)
    return "".join(f"\\{letter}" if letter in "\\`*_[]|~#!" else letter for letter in plain)


def _find_comment(github: requests.Session, address: str, marker: str) -> int | None:
    """Return the number of the comment that begins with the marker and that a bot wrote."""
    while address:
        answer = github.get(address, timeout=TIMEOUT_S)
        answer.raise_for_status()
        for one in answer.json():
            if one["user"]["type"] == "Bot" and one["body"].startswith(marker):
                number: int = one["id"]
                return number
        address = answer.links.get("next", {}).get("url", "")
    return None


if __name__ == "__main__":
    {"estimate": estimate, "comment": comment}[sys.argv[1]]()
