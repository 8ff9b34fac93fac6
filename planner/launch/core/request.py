"""What is asked for: which machines, in which order, to run what, for how long and how much at most."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

from pydantic import Field

from ..prepare.packages import find_pinned_packages
from .api_call import Data

__all__ = [
    "CHECKPOINT_EVERY_S",
    "Interruptions",
    "LaunchCandidate",
    "LaunchRequest",
    "RunSpec",
    "Seconds",
    "StopLoss",
]

CHECKPOINT_EVERY_S = 60.0  # longest work that a crash can lose, where neither the user nor the plan says [s]


class Seconds(Data):
    """An 80 % interval of a time [s]."""

    low: float
    mid: float
    high: float


class Interruptions(Data):
    """What a plan expects of a machine that can be taken back: `offers[].spot` of the estimate.

    Args:
        life_s: Mean time until it is taken back [s].
        basis: How that is known.
        notice_s: Warning that the provider gives; None: not known [s].
        count: How often it is taken back in the run, on average [-].
        checkpoint_every_s: Work between two checkpoints that the plan's bill rests on [s].
        checkpoint_s: One checkpoint [s].
    """

    life_s: float
    basis: str
    notice_s: float | None
    count: float
    checkpoint_every_s: float
    checkpoint_s: float


class LaunchCandidate(Data):
    """An offer of the plan, with the cap that holds on it.

    Args:
        rank: Its place in the plan, from 1.
        usd_per_hour: That the plan counts with: as read from the provider, else as estimated [USD/h].
        run_s: Time of all steps on it; None when unknown.
        step_s: Time of one step on it; None when unknown.
        cap_s: Longest life of the machine, from the cloud's start of billing to the order to end [s].
        spot: What is expected of interruptions; None on demand, and where the plan knows nothing of them.
        planned_usd_per_hour: Of the estimate, where `usd_per_hour` was read since; None: the same [USD/h].
        price_source: Where `usd_per_hour` was read for this launch; empty: it is the estimate's.
        price_problem: Why it could not be read; empty: it was, or nobody was asked.
    """

    rank: int
    instance_type: str
    accelerator: str
    devices: float
    region: str
    purchase: Literal["on_demand", "spot"]
    usd_per_hour: Decimal
    price_as_of: str | None
    run_s: Seconds | None
    step_s: Seconds | None
    cap_s: int
    spot: Interruptions | None = None
    planned_usd_per_hour: Decimal | None = None
    price_source: str = ""
    price_problem: str = ""


class StopLoss(Data):
    """What happens when the first steps are outside the predicted interval by more than a factor.

    Args:
        action: `warn` writes it to the log and the status; `stop` ends the run as well; `off` does not look.
        steps: How many steps are looked at, after those that compile [-].
        factor: How far outside is too far [-].
    """

    action: Literal["off", "warn", "stop"] = "warn"
    steps: int = 50
    factor: float = 2.0


class RunSpec(Data):
    """What runs on the machine.

    Args:
        script: Path of the training script within the source.
        arguments: What it finds in `sys.argv`.
        source: `folder:PATH`, `git:URL@REF`, `s3:BUCKET/KEY`, `gs:…`, or `image:NAME` (the code is in it, below
            the image's own working folder).
        requirements: A file within the source to install from; None: nothing to install.
        checkpoint_every_s: Longest work that a crash can lose [s].
        restarts: How often a run that crashed is started anew on the same machine [-].
        stop_loss: What happens when the run is slower than planned.
        packages: Pinned requirements that a machine installs when the source names none.
    """

    script: str
    arguments: tuple[str, ...] = ()
    source: str
    requirements: str | None = None
    checkpoint_every_s: float = CHECKPOINT_EVERY_S
    restarts: int = 3
    stop_loss: StopLoss = StopLoss()
    packages: tuple[str, ...] = Field(default_factory=find_pinned_packages)


class LaunchRequest(Data):
    """Everything that planning needs; nothing else is looked at, so that the same request gives the same plan.

    Args:
        run: Name of the run, unique within the ledger; in the name and the tags of all that is made.
        attempt: Number of the first attempt; larger than 1 when a run goes on on another machine.
        owner: Id of the installation whose machines these are; no other's are ever touched.
        made_at: When it was asked, in UTC.
        provider: Of all candidates.
        candidates: In the order in which they are tried.
        spec: What runs.
        max_usd: Ceiling for the whole run, past attempts included [USD].
        spent_usd: What past attempts of the run may have cost at most [USD].
        options: The provider's own, by name.
        guest_cap_only: Whether the user consents to a machine that nothing outside it ends.
        owner_name: Label beside the owner's id; empty: none.
    """

    run: str
    attempt: int = 1
    owner: str
    made_at: datetime
    provider: str
    candidates: tuple[LaunchCandidate, ...]
    spec: RunSpec
    max_usd: Decimal | None = None
    spent_usd: Decimal = Decimal(0)
    options: dict[str, str] = Field(default_factory=dict)
    guest_cap_only: bool = False
    owner_name: str = ""
