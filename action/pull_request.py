"""Step of the GitHub Action: estimate a script before and after a pull request, and write the comment to post.

It runs the script of both revisions and has no token. `comment/`, in a job of its own, posts `gpuplan-comment.md`.
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

from gpuplan.units import format_count, format_device, format_duration, format_offer_name, format_range, format_usd

ROLES = {"recommended": "Recommended", "cheaper": "Cheaper", "faster": "Faster"}
ANSWERED = (0, 3)  # exit codes of an answer; 3: the answer is no
LONGEST_ERROR = 1000
UNKNOWN = "–"
Json = dict[str, Any]


def estimate() -> None:
    """Estimate both revisions and write the comment; one that cannot be estimated is told in it."""
    event = _read_event()
    script, arguments = os.environ["SCRIPT"], shlex.split(os.environ["ARGUMENTS"])
    before = _checkout_base(event["pull_request"]["base"]["sha"])
    old, _ = _estimate_script(before, script, arguments)
    new, error = _estimate_script(Path(os.environ["GITHUB_WORKSPACE"]), script, arguments)
    digest = hashlib.sha256(shlex.join([script, *arguments]).encode()).hexdigest()[:16]
    marker = f"<!-- gpuplan {digest} -->"  # by which the comment is found again
    body = "\n".join([marker, f"### {_escape(script)}", "", *_build_body(old, new, error), ""])
    (Path(os.environ["RUNNER_TEMP"]) / "gpuplan-comment.md").write_text(body, encoding="utf-8")
    for name, text in (("GITHUB_STEP_SUMMARY", body), ("GITHUB_OUTPUT", f"artifact=gpuplan-comment-{digest}\n")):
        with Path(os.environ[name]).open("a", encoding="utf-8") as file:
            file.write(text)
    if error:
        sys.stdout.write("::warning::gpuplan could not estimate the script: see the comment\n")


def _read_event() -> Json:
    """Return the event of a pull request; anything else ends the step."""
    if os.environ["GITHUB_EVENT_NAME"] != "pull_request":
        sys.exit("::error::gpuplan runs on `pull_request` only: it runs the script that the request brings")
    event: Json = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
    return event


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


if __name__ == "__main__":
    estimate()
