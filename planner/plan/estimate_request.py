"""Request for an estimate: the arguments of `gpuplan.estimate` and the flags of `gpuplan estimate`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from ..records import Flag, Frozen

USUAL, WORKLOAD, MACHINES, LIMITS = "Usual options", "Workload", "Machines", "Limits"
MONEY, SEVERAL, SPOT, OUTPUT = "Money", "Several devices", "Spot", "Output"
PANELS = (USUAL, WORKLOAD, MACHINES, LIMITS, MONEY, SEVERAL, SPOT, OUTPUT)


class EstimateRequest(Frozen):
    """Request for an estimate as the user states it; None stands for the setting of the model, script or user."""

    batch_size: Annotated[int | None, Flag("Samples per step, of all devices together.", USUAL)] = None
    samples: Annotated[int | None, Flag("Training samples per epoch.", USUAL)] = None
    epochs: Annotated[int | None, Flag("Number of passes over the samples.", USUAL)] = None
    precision: Annotated[
        str | None, Flag("float32, tf32, mixed_float16, mixed_bfloat16, float16 or bfloat16.", USUAL)
    ] = None
    accelerators: Annotated[Sequence[str], Flag("Only this accelerator.", USUAL, "accelerator", "NAME")] = ()
    providers: Annotated[Sequence[str], Flag("Only this provider.", USUAL, "provider", "NAME")] = ()
    own: Annotated[
        str | None, Flag("Accelerator of a machine that you have, which costs its electricity.", USUAL, "", "NAME")
    ] = None
    deadline: Annotated[
        str | float | None,
        Flag("Time limit of the run: 90s, 12h, 2d; or its end: 'Mon 08:00', 18:30.", USUAL, "", "TIME"),
    ] = None
    budget: Annotated[float | None, Flag("Maximum cost of the run in dollars.", USUAL, "", "USD")] = None

    steps: Annotated[int | None, Flag("Number of optimizer steps, instead of epochs.", WORKLOAD)] = None
    tokens: Annotated[
        float | None, Flag("Training tokens of a language model's run (1e9), instead of epochs.", WORKLOAD)
    ] = None
    mode: Annotated[Literal["train", "infer"], Flag("Training or inference.", WORKLOAD)] = "train"
    loss: Annotated[str | None, Flag("Keras loss of a model that is not compiled.", WORKLOAD, "", "NAME")] = None
    optimizer: Annotated[
        str | None, Flag("Keras optimizer of a model that is not compiled.", WORKLOAD, "", "NAME")
    ] = None
    remat: Annotated[
        bool, Flag("Recompute each layer's activations in the backward pass (RematScope).", WORKLOAD)
    ] = False
    feed: Annotated[
        str | None,
        Flag(
            "How samples are fed: none (not measured), arrays, jpeg, or samples/s per vCPU.", WORKLOAD, "", "HOW"
        ),
    ] = None
    profiles: Annotated[
        Sequence[Path | str], Flag("Profile from `gpuplan profile` or StepTimer.", WORKLOAD, "profile", "FILE")
    ] = ()
    measure: Annotated[
        bool | None,
        Flag("Time a few steps on this machine where it could be the answer.", WORKLOAD, "measure/--no-measure"),
    ] = None
    measured: Annotated[
        Sequence[str] | Mapping[str, float],
        Flag("Step time that you know: T4=120ms; corrects the others.", WORKLOAD, "", "NAME=TIME"),
    ] = ()

    partial: Annotated[
        bool, Flag("Answer for the phases of a script that can be planned, where some cannot.", WORKLOAD)
    ] = False

    regions: Annotated[Sequence[str], Flag("Only this region.", MACHINES, "region", "NAME")] = ()
    residency: Annotated[
        Sequence[str], Flag("Only regions in eu, eea, uk or a country.", MACHINES, "", "WHERE")
    ] = ()
    devices: Annotated[Sequence[float], Flag("Only this number of devices.", MACHINES, "", "N")] = ()
    quota: Annotated[bool, Flag("Check your quotas at AWS, Azure and Google Cloud (a few seconds).", MACHINES)] = (
        False
    )

    fit: Annotated[
        bool, Flag("What does not fit: sharded, in smaller passes, with recomputed layers.", LIMITS)
    ] = False
    compile: Annotated[
        bool, Flag("Exact memory: let XLA compile the step for each named accelerator (minutes).", LIMITS)
    ] = False
    script_timeout: Annotated[
        str | float | None, Flag("Time limit of a script: 90s, 30m. Default: 10m.", LIMITS, "", "TIME")
    ] = None

    hour_value: Annotated[
        float | None, Flag("Value of an hour of your own time in dollars. Default: 20.", MONEY, "", "USD")
    ] = None
    wait_value: Annotated[
        float | None, Flag("Value of an hour of waiting for results in dollars. Default: 1.", MONEY, "", "USD")
    ] = None
    sort: Annotated[Literal["cost", "time", "co2"], Flag("Order of the offers.", MONEY)] = "cost"
    assume: Annotated[
        Sequence[str] | Mapping[str, float],
        Flag("Replace an assumption: boot_s=90, dataset_gb=150 (see --breakdown).", MONEY, "", "KEY=VALUE"),
    ] = ()

    hosts: Annotated[Sequence[int], Flag("Number of equal machines that share the work.", SEVERAL, "", "N")] = ()
    scaling: Annotated[
        Literal["weak", "strong"] | None,
        Flag(
            "The devices share the batch (strong, the default), or each keeps it (weak): another training.",
            SEVERAL,
        ),
    ] = None
    shard: Annotated[
        str | None,
        Flag(
            "none, zero1, zero2, fsdp, tensor:N (N devices share each product), auto, or a list with commas, of "
            "which the first that fits is taken. Default: as the script says.",
            SEVERAL, "", "HOW",
        ),
    ] = None  # fmt: skip

    purchase: Annotated[
        Literal["on-demand", "spot", "any"],
        Flag("Purchase option. Spot machines end early: --assume spot_life_h=5, spot_restart_s=300.", SPOT),
    ] = "any"

    def list_pairs(self, name: str, *, unit: str = "") -> list[str]:
        """Return a field of pairs as texts `key=value`; numbers of a mapping get a unit.

        Example:
            >>> EstimateRequest(measured={"T4": 0.12}).list_pairs("measured", unit="s")
            ['T4=0.12s']
        """
        given: Sequence[str] | Mapping[str, float] = getattr(self, name)
        if isinstance(given, Mapping):
            return [f"{key}={value}{unit}" for key, value in given.items()]
        return list(given)
