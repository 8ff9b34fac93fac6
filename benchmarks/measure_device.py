"""Time Keras training steps on this machine's accelerator, and keep every sample with what it was measured on.

    python benchmarks/measure_device.py --budget-s 540                      # on a machine with a GPU or a TPU
    python benchmarks/measure_device.py --quick --device cpu -o /tmp/try    # to see how it works, on any machine
    python benchmarks/measure_device.py --to-csv rows.csv profiles/measured/*.json

Needs Keras, numpy and JAX or PyTorch (both are timed when both are there), and this checkout; gpuplan need not
be installed. One JSON file for each backend goes to profiles/measured/; run it again, and it goes on where it
stopped. benchmarks/README.md says how it measures.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from measuring.clock import Rules
from measuring.machine import host, memory_bytes
from measuring.models import ROOT
from measuring.plan import PRECISIONS, QUICK, WORKLOADS, Configuration, plan, runnable_precisions
from measuring.rounds import GIB, Limits, Outcome, ask, child_environment, run_round
from measuring.store import Profile, read_profiles, stack_of, write_csv

MEASURED = ROOT / "profiles" / "measured"
QUICK_RULES = Rules(warm_up_steps=10, window_s=0.02, windows=4, windows_most=6)
PROBE_S = 120.0
SHORTEST_ROUND_S = 15.0
GIB_EACH = 16  # device memory for each process that compiles beside others
MOST_TOGETHER = 8


class RefusalError(Exception):
    """Something the user asked for that cannot be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Constant parameters of a run.

    Args:
        platform: `gpu`, `tpu` or `cpu`.
        profiles: By backend.
        environments: Place of this environment in each profile.
        rules, limits: How, and within what.
        together: Processes that compile at the same time [-].
        stop_at: End of the budget, by `time.monotonic` [s].
        retry: Whether what failed before is tried again.
        kernels: Whether the kernels of each row are traced after it is timed.
    """

    platform: str
    profiles: dict[str, Profile]
    environments: dict[str, int]
    rules: Rules
    limits: Limits
    together: int
    stop_at: float
    retry: bool
    kernels: bool


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or convert; 0 when done, 1 when nothing could be measured, 2 on a wrong request."""
    options = parser().parse_args(arguments)
    try:
        if options.to_csv:
            print(write_csv(options.to_csv, read_profiles(options.profile)), "rows", file=sys.stderr)
            return 0
        return measure(options)
    except (RefusalError, ValueError, OSError) as problem:
        print(f"error: {problem}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    text = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = text.add_argument
    add("profile", nargs="*", type=Path, help="with --to-csv: profiles to convert")
    add(
        "--to-csv",
        type=Path,
        metavar="FILE",
        help="convert profiles to rows for `gpuplan accuracy`; time nothing",
    )
    add("--csv", type=Path, metavar="FILE", help="also write all measured rows of these profiles as CSV")
    add(
        "--output", "-o", type=Path, metavar="DIR", help="folder of the profiles (default: profiles/measured)"
    )
    add("--device", choices=["auto", "gpu", "tpu", "cpu"], default="auto", help="cpu: only to try it out")
    add("--backend", choices=["jax", "torch"], action="append", help="default: those installed")
    add("--precision", choices=PRECISIONS, action="append", help="default: tf32, mixed_bfloat16, float32")
    add("--only", metavar="REGEX", help="only models whose reference holds this")
    add("--accelerator", metavar="NAME", help="name in the rows (default: as the driver calls it)")
    add("--budget-s", type=float, default=3600.0, help="stop in time [s]")
    add(
        "--together",
        type=int,
        help="processes that compile at the same time; 1: strictly one after the other",
    )
    add("--prepare-limit-s", type=float, default=Limits().prepare_s, help="for each process [s]")
    add("--measure-limit-s", type=float, default=Limits().measure_s, help="for each process [s]")
    add("--host-memory-gib", type=float, help="for each process (default: 80 %% of the host, shared) [GiB]")
    add("--retry", action="store_true", help="run again what failed before")
    add("--kernels", action="store_true", help="also keep the time of each kernel, traced after each row")
    add("--quick", action="store_true", help="a few tiny models and short windows")
    add("--list", action="store_true", help="print what would be run, in order, and stop")
    return text


def measure(options: argparse.Namespace) -> int:
    """Probe, plan, run rounds until all is done or the budget is spent, and say what came of it."""
    start = time.monotonic()
    backends = options.backend or [name for name in ("jax", "torch") if find_spec(name)]
    platform = "cpu" if options.device == "cpu" else "tpu" if options.device == "tpu" else "gpu"
    probes = seeing(probe(backends, platform=platform), platform=platform, required=options.backend or ())
    backends = list(probes)
    device = probes[backends[0]]["device"]
    session = session_of(options, probes, platform=platform, stop_at=start + options.budget_s)
    capability = device["compute_capability"]
    wanted = options.precision or PRECISIONS[:3]
    precisions = runnable_precisions(wanted, compute_capability=tuple(capability) if capability else None)
    todo = plan(
        QUICK if options.quick else WORKLOADS, backends=backends, precisions=precisions, only=options.only
    )
    left = [c for c in todo if not session.profiles[c.backend].settles(c, retry=options.retry)]
    say(f"{device['name']}: {len(left)} of {len(todo)} to run, {session.together} at a time")
    if options.list:
        print("\n".join(f"{c.backend}\t{c.mode}\t{c.precision}\t{c.batch_size}\t{c.model}" for c in left))
        return 0
    run(left, session)
    return conclude(session, options.csv)


def probe(backends: Sequence[str], *, platform: str) -> dict[str, dict[str, Any]]:
    """Return each backend's report on device and software.

    Each is asked in a process of its own, so that this one never holds the device.
    """
    if not backends:
        raise RefusalError("neither jax nor torch is installed: `pip install keras jax[cuda13]`")

    def asked(backend: str) -> dict[str, Any]:
        environment = child_environment(backend, platform=platform, device_fraction=Limits().device_fraction)
        return ask({"do": "probe", "backend": backend}, environment, within_s=PROBE_S)

    with ThreadPoolExecutor() as pool:
        return dict(zip(backends, pool.map(asked, backends), strict=True))


def seeing(
    answers: Mapping[str, dict[str, Any]], *, platform: str, required: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Return the answers of the backends that see the device, and say which do not.

    Raises:
        RefusalError: None does, or one that was asked for does not.
    """
    blind = {name: why for name, answer in answers.items() if (why := _blindness(answer, platform))}
    if len(blind) == len(answers) or set(blind) & set(required):
        raise RefusalError("; ".join(f"{name} {why}" for name, why in blind.items()))
    for name, why in blind.items():
        say(f"left out: {name} {why}")
    return {name: answer for name, answer in answers.items() if name not in blind}


def _blindness(answer: Mapping[str, Any], platform: str) -> str | None:
    """Return the reason that prevents timing a backend on a platform; None if there is none."""
    if answer["event"] == "failed":
        return f"finds no {platform}: {answer['message']}"
    found = answer["device"]["platform"]
    return None if found == platform else f"computes on a {found}, not a {platform}"


def session_of(
    options: argparse.Namespace, probes: Mapping[str, Mapping[str, Any]], *, platform: str, stop_at: float
) -> Session:
    """Return the session; a CPU's rows are kept out of the accelerators' folder."""
    if platform == "cpu" and options.output is None:
        raise RefusalError("a CPU's rows do not belong among the accelerators': name a folder with --output")
    device = next(iter(probes.values()))["device"]
    accelerator = options.accelerator or ("CPU" if platform == "cpu" else device["name"])
    together = options.together or default_together(platform, os.cpu_count() or 1, device["memory_bytes"])
    share = 0.8 * (memory_bytes() or 64 * GIB) / together
    limits = Limits(
        prepare_s=options.prepare_limit_s,
        measure_s=options.measure_limit_s,
        host_bytes=int(options.host_memory_gib * GIB if options.host_memory_gib else share),
    )
    rules = QUICK_RULES if options.quick else Rules()
    profiles, environments = {}, {}
    for backend, answer in probes.items():
        path = (options.output or MEASURED) / Profile.name_of(accelerator, backend)
        profiles[backend] = Profile(path, accelerator=accelerator, backend=backend)
        facts = {name: answer[name] for name in ("device", "software")}
        method = {"rules": rules.to_json(), "device_fraction": limits.device_fraction}
        environments[backend] = profiles[backend].environment({**facts, "host": host(), "method": method})
    return Session(
        platform=platform,
        profiles=profiles,
        environments=environments,
        rules=rules,
        limits=limits,
        together=together,
        stop_at=stop_at,
        retry=options.retry,
        kernels=options.kernels,
    )


def default_together(platform: str, cores: int, device_bytes: int | None) -> int:
    """Return the number of parallel compilations: two cores and 16 GiB of the GPU for each, at most 8.

    Example:
        >>> default_together("gpu", 16, 141 * 10**9), default_together("gpu", 4, 16 * 2**30)
        (8, 1)
    """
    if platform != "gpu" or device_bytes is None:
        return 1
    return max(1, min(cores // 2, device_bytes // (GIB_EACH * GIB), MOST_TOGETHER))


def run(todo: Sequence[Configuration], session: Session) -> None:
    """Run rounds. A configuration that did not fit next to waiting processes is retried alone."""
    waiting, alone = list(todo), list[Configuration]()
    while waiting or alone:
        size = 1 if alone else session.together
        source = alone or waiting
        batch, source[:] = source[:size], source[size:]
        tried_alone = source is alone
        batch = [c for c in batch if not session.profiles[c.backend].settles(c, retry=session.retry)]
        if session.stop_at - time.monotonic() < SHORTEST_ROUND_S:
            say("the budget is spent; run it again to go on")
            return
        for outcome in run_round(
            batch,
            rules=session.rules.to_json(),
            limits=session.limits,
            platform=session.platform,
            stop_at=session.stop_at,
            kernels=session.kernels,
        ):
            if outcome.status == "out_of_memory" and len(batch) > 1 and not tried_alone:
                alone.append(outcome.configuration)
            else:
                keep(outcome, session, together=len(batch))


def keep(outcome: Outcome, session: Session, *, together: int) -> None:
    """Write a row down and say so; what the budget stopped is no row."""
    c = outcome.configuration
    number = f"{outcome.facts['step_ms']:10.3f} ms" if outcome.status == "measured" else outcome.status
    say(f"{c.backend:5} {c.mode:5} {c.precision:14} {c.batch_size:6}  {c.model}  {number}")
    if outcome.status == "stopped":
        return
    compiled, stack = stack_of(c.backend)
    session.profiles[c.backend].add({
        **c.to_json(), "compiled": compiled, "stack": stack, "status": outcome.status,
        "environment": session.environments[c.backend], "prepared_together": together,
        "measured_at": datetime.now(UTC).isoformat(timespec="seconds"), **outcome.facts,
    })  # fmt: skip


def conclude(session: Session, csv: Path | None) -> int:
    """Print one JSON object: files, counts, doubtful rows; write the CSV."""
    rows = [row for profile in session.profiles.values() for row in profile.rows]
    measured = [row for row in rows if row["status"] == "measured"]
    if csv:
        write_csv(csv, [profile.data for profile in session.profiles.values()])
    told = {
        "profiles": [str(profile.path) for profile in session.profiles.values() if profile.rows],
        "measured": len(measured),
        "not_measured": len(rows) - len(measured),
        "doubtful": sum(bool(row["findings"]) for row in measured),
        "models": len({row["model"] for row in measured}),
    }
    print(json.dumps(told))
    return 0 if measured else 1


def say(text: str) -> None:
    """Talk on stderr."""
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
