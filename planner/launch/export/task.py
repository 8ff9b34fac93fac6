"""Engine-independent task of an export: machine, code, deadline and commands, from an estimate's `plan.json`.

Pure but for reading the file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from decimal import Decimal
from pathlib import PurePosixPath

from ...errors import NoAnswerError, UsageError
from ...offers.catalog import find_chosen_accelerator
from ...offers.rows import Accelerator
from ...plan.money import compute_rental_usd
from ..arguments import LaunchArgs
from ..build_plan import build_run_spec
from ..clouds.google.options import machine_type
from ..core.api_call import refusing
from ..core.launch_plan import CostBounds
from ..core.request import LaunchCandidate, RunSpec, build_run_name
from ..core.shell import pin_versions, quote, quote_all, require_plain_source, split_git_source
from ..planning import apply_cap
from ..select_offer import Renter, read_estimate, select_candidates

BY_ACCELERATOR = ("runpod", "vast")  # engines have other names for their machines
PYTHON_IMAGE = "python:3.12"  # Debian with git; GPU libraries come with the packages, drivers with the node
KILL_AFTER_S = 60  # between SIGTERM and SIGKILL, for a last checkpoint
CHIPS_PER_HOST = 4  # of a TPU slice with several


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportTask:
    """Machine, script and deadline of an export; the name has lower case, digits and hyphens, at most 40."""

    name: str
    provider: str
    offer: LaunchCandidate
    spec: RunSpec
    instead_of: str = ""  # the plan's pick and why it is not exported; empty where it is, or another was asked for
    hosts: int = 1  # machines that train one model together; the offer's devices and price are those of all [-]
    disk_gb: int = 100  # size of the disk of each [GB]

    @property
    def source(self) -> tuple[str, str]:
        """Kind and address of the code."""
        kind, _, place = self.spec.source.partition(":")
        return kind, place

    @property
    def machine(self) -> tuple[str, tuple[str, int] | None]:
        """The vendor's name of the machine, and name and number of accelerators attached by Google."""
        name = self.offer.instance_type
        return machine_type(name) if self.provider == "gcp" else (name, None)

    @property
    def spot(self) -> bool:
        """Whether the machine is a spot machine."""
        return self.offer.purchase == "spot"

    @property
    def tpu(self) -> bool:
        """Whether the machine is a TPU slice."""
        return self.row is not None and self.row.kind == "tpu"

    @property
    def row(self) -> Accelerator | None:
        """Row of the accelerator in the catalog; None for a CPU."""
        return find_chosen_accelerator(self.offer.accelerator)

    @property
    def container(self) -> str:
        """Container to run in, for engines that need one."""
        kind, place = self.source
        return place if kind == "image" else PYTHON_IMAGE

    @property
    def devices(self) -> int:
        """Number of devices of a machine; raises NoAnswerError for a fraction."""
        if self.offer.devices != int(self.offer.devices):
            raise NoAnswerError(
                f"{self.offer.instance_type} has {self.offer.devices:g} of a {self.offer.accelerator}, and "
                "engines count whole devices",
                hint="choose another offer: `--rank N`",
            )
        return int(self.offer.devices) // self.hosts

    @property
    def slice_hosts(self) -> int:
        """Hosts of the machine, each of which runs the script; 1 unless it is a larger TPU slice [-]."""
        most = (self.row and self.row.chips_per_host) or CHIPS_PER_HOST
        return self.devices // CHIPS_PER_HOST if self.tpu and self.devices > most else 1

    @property
    def worst_case_usd(self) -> Decimal:
        """Cost of the machine until its deadline, without boot, disk and traffic [USD]."""
        return compute_rental_usd(duration_s=float(self.offer.cap_s), usd_per_hour=self.offer.usd_per_hour)

    @property
    def setup_commands(self) -> list[str]:
        """Commands that fetch the code, enter its folder and install its packages."""
        (kind, place), lines = self.source, []
        if kind == "git":
            url, reference = split_git_source(place)
            lines = [f"[ -d code ] || git clone -q -- {quote(url)} code", "cd code"]
            lines += [f"git checkout -q {quote(reference)}"] if reference else []
        if self.spec.requirements:
            return [*lines, f"pip install -q -r {quote(self.spec.requirements)}"]
        if kind == "image":
            return lines
        jax = "jax[tpu]" if self.tpu else "jax" if self.offer.accelerator == "CPU" else "jax[cuda12]"
        return [*lines, f"pip install -q {quote_all(pin_versions(('keras', jax), self.spec.packages))}"]

    @property
    def run_command(self) -> str:
        """Command that runs the script: SIGTERM at the deadline, SIGKILL a minute later."""
        spec = self.spec
        script = str(PurePosixPath(spec.script))
        deadline = f"timeout --signal=TERM --kill-after={KILL_AFTER_S} {self.offer.cap_s}"
        backend = "" if self.source[0] == "image" or spec.requirements else "KERAS_BACKEND=jax "
        return f"{backend}{deadline} {quote_all(['python', script, *spec.arguments])}"

    def require_source(self, *kinds: str, engine: str) -> None:
        """Raise UsageError unless an engine can fetch the source."""
        require_plain_source(self.spec.source)
        if self.source[0] not in kinds:
            shown = {"folder": "a folder", "git": "git:URL@REF", "image": "image:NAME"}
            ways = " or ".join(shown[kind] for kind in kinds)
            raise UsageError(
                f"`--source {self.spec.source}`: {engine} takes its code from {ways}",
                hint="push it, then `--source git:https://…`, or build a container and `--source image:NAME`"
                if "image" in kinds
                else "run it in the folder of the script, without `--source`",
            )


@refusing("this cannot be exported", hint="correct that flag, or the plan")
def build_export_task(args: LaunchArgs, engine: Renter) -> ExportTask:
    """Return the export task of an estimate; arguments as those of `gpuplan launch`.

    Raises:
        UsageError: The file is not an estimate, or has no script.
        NoAnswerError: The engine does not support the offer, or no deadline can be derived.
    """
    planned = read_estimate(args.path)
    if planned is None:
        raise UsageError(
            f"{args.path} is a launch plan, not an estimate", hint="give the `plan.json` of `gpuplan estimate -o`"
        )
    provider, (first, *_) = select_candidates(planned, engine, rank=args.rank, fallbacks=0, only_recommended=False)
    known = find_chosen_accelerator(first.accelerator)
    if known is not None and known.vendor not in ("NVIDIA", "Google"):
        raise NoAnswerError(
            f"cannot export {first.accelerator}: only NVIDIA GPUs, TPUs and CPUs are supported",
            hint="choose another offer: `--rank N`",
        )
    hosts, spec = planned.offers[first.rank - 1].get("hosts", 1), build_run_spec(args, planned)
    pick, instead_of = planned.offers[planned.chosen[0] if planned.chosen else first.rank - 1], ""
    if args.rank is None and (why := engine.why_not(pick)):
        instead_of = f"instead of {pick['provider']} {pick['instance_type']}, which {why}"
    terms = CostBounds(slack_s=0.0, max_usd_per_hour=first.usd_per_hour)
    return ExportTask(
        name=_name(args, spec, provider, first, hosts=hosts),
        provider=provider,
        spec=spec,
        hosts=hosts,
        instead_of=instead_of,
        offer=apply_cap(first, terms, max_hours=args.max_hours, max_usd=args.most_usd),
    )


def _name(args: LaunchArgs, spec: RunSpec, provider: str, offer: LaunchCandidate, *, hosts: int) -> str:
    """Return a deterministic name: the script's name and a hash."""
    parts = [
        args.name, provider, spec.script, *spec.arguments, spec.source, offer.instance_type, offer.region,
        offer.purchase, *([hosts] if hosts > 1 else []),
    ]  # fmt: skip
    stem = re.sub(r"[^a-z0-9]+", "-", PurePosixPath(spec.script).stem.lower()).strip("-")[:20].strip("-")
    mark = build_run_name(json.dumps(parts), 1).partition("-")[0]
    return "-".join(filter(None, ("gpuplan", stem, mark)))


def require_gpu_hosts(task: ExportTask, *, engine: str) -> None:
    """Raise NoAnswerError for several TPU slices, which find one another without these variables."""
    if task.hosts > 1 and task.tpu:
        raise NoAnswerError(
            f"cannot export {task.hosts} slices of {task.offer.instance_type} to {engine}: only machines with "
            "GPUs or CPUs are joined",
            hint="choose another offer: `--rank N`, or a larger slice",
        )
