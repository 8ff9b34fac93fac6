"""Spellings that earlier versions accepted, each with what to type instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

_ESTIMATES = ("estimate", "breakeven", "sweep")
_WORK = (*_ESTIMATES, "rig")
_RUNS = (*_WORK, "profile", "reconcile")

# Replacement of an option by the commands that had it.
_ON_COMMANDS: tuple[tuple[tuple[str, ...], dict[str, str]], ...] = (
    (
        _ESTIMATES,
        {
            "--spot-life": "type `--assume spot_life_h=5` [h]",
            "--checkpoint-every": "type `--assume spot_checkpoint_every_s=600` [s]",
            "--checkpoint-time": "type `--assume spot_checkpoint_s=30` [s]",
            "--restart-time": "type `--assume spot_restart_s=300` [s]",
        },
    ),
    (
        (*_ESTIMATES, "offers", "accelerators"),
        {"--catalog": "set `GPUPLAN_CATALOG_DIR=FOLDER`, or `catalog_dir` in a settings file"},
    ),
    (_WORK, {"--no-cache": "set `GPUPLAN_TRACE_CACHE=false`"}),
    (_RUNS, {"--script-env": "set `GPUPLAN_SCRIPT_ENV=NAME`, several names separated by commas"}),
    (
        ("breakeven", "sweep", "rig", "profile", "reconcile"),
        {"--script-timeout": "set `GPUPLAN_SCRIPT_TIMEOUT=30m`, or `script_timeout` in a settings file"},
    ),
    (
        ("estimate",),
        {
            "--by": "type `--deadline 'Mon 08:00'`",
            "--retired": "name the chip: `--accelerator K80`; `gpuplan offers` lists what is no longer rented",
        },
    ),
    (
        ("breakeven", "sweep"),
        {
            "--by": "`gpuplan estimate MODEL --deadline 'Mon 08:00'` answers this",
            "--residency": "`gpuplan estimate MODEL --residency eu` answers this; here name regions: `--region R`",
            "--hosts": "`gpuplan estimate MODEL --hosts 2` answers this",
            "--scaling": "`gpuplan estimate MODEL --scaling weak` answers this",
            "--feed": "`gpuplan estimate MODEL --feed jpeg` answers this",
            "--sort": "`gpuplan estimate MODEL --sort time` answers this",
            "--quota": "set `GPUPLAN_QUOTA=true`",
            "--retired": "`gpuplan estimate MODEL --accelerator K80` answers for a chip that is no longer rented",
        },
    ),
    (
        ("breakeven", "sweep", "rig"),
        {
            "--tokens": "`gpuplan estimate MODEL --tokens 1e9` answers this; here give `--samples N --epochs N`",
            "--mode": "`gpuplan estimate MODEL --mode infer` answers this",
            "--remat": "`gpuplan estimate MODEL --remat` answers this",
        },
    ),
    (
        ("breakeven", "sweep", "rig", "profile"),
        {
            "--loss": "compile the model in your code, with its loss",
            "--optimizer": "compile the model in your code, with its optimizer",
        },
    ),
    (("breakeven",), {"--hours-a-day": "type `--assume notebook_hours_a_day=8`"}),
    (
        ("sweep",),
        {
            "--batch-size": "type `--batch-sizes 64`",
            "--precision": "type `--precisions mixed_float16`",
            "--steps": "type `--samples N --epochs N`: steps of different batches are different work",
            "--deadline": "`gpuplan estimate MODEL --deadline 12h` answers this",
            "--budget": "`gpuplan estimate MODEL --budget 20` answers this",
            "--fit": "`gpuplan estimate MODEL --fit` divides one batch into passes that fit",
        },
    ),
    (
        ("rig",),
        {
            "--power": "type `--assume power_w=450` [W]",
            "--idle-power": "type `--assume idle_power_w=50` [W]",
            "--loses": "type `--assume value_lost_per_year=0.3`",
        },
    ),
    (("accelerators",), {"--vendor": "type `--architecture Ampere`, or filter the `vendor` of `--json`"}),
    (
        ("reconcile",),
        {
            "--keep": "leave it out: runs are kept unless `GPUPLAN_KEEP_RUNS=false`",
            "--no-keep": "set `GPUPLAN_KEEP_RUNS=false`",
        },
    ),
    (
        ("launch",),
        {
            "--fallbacks": "set `GPUPLAN_FALLBACKS=6`, or `fallbacks = 6` in a settings file",
            "--checkpoint-every": "set `GPUPLAN_CHECKPOINT_EVERY=10m`, or `checkpoint_every` in a settings file",
            "--stop-loss": "set `GPUPLAN_STOP_LOSS=stop`, or `stop_loss` in a settings file",
            "--accept-old-prices": "set `GPUPLAN_ACCEPT_OLD_PRICES=true`",
            "--guest-cap-only": "set `GPUPLAN_GUEST_CAP_ONLY=true`",
        },
    ),
    (
        ("launch", "export"),
        {"--requirements": "set `GPUPLAN_REQUIREMENTS=requirements.txt`, or `requirements` in a settings file"},
    ),
    (
        ("export",),
        {
            "--image": "type `--source image:NAME`",
            "--disk-gb": "change the size of the disk (100 GB) in the file",
            "--name": "change the name in the file",
        },
    ),
    (
        ("ps", "stop", "reap"),
        {"--region": "leave it out: every region is asked; `--provider P` asks one provider"},
    ),
    (("reap",), {"--owner": "`gpuplan stop ID --owner ID` ends machines of another installation"}),
    (("catalog diff",), {"--provider": "leave it out: the changes of every provider are shown"}),
    (("catalog age",), {"--provider": "leave it out: the prices of every provider are shown"}),
)

_ON_A_MACHINE = "`gpuplan launch plan.json --dry-run` shows the same machine, and without `--dry-run` starts it"
# (command, or "" for all commands; the removed option, value or command) -> the hint of the error.
REMOVED: dict[tuple[str, str], str] = {
    ("profile", "--compile"): "run `gpuplan estimate MODEL --compile --accelerator NAME`",
    ("profile", "--accelerator"): "run `gpuplan estimate MODEL --accelerator NAME`",
    ("export", "cloud-init"): _ON_A_MACHINE,
    ("export", "terraform"): _ON_A_MACHINE,
    ("", "--live"): "`gpuplan catalog refresh` reads prices, "
    "`--assume notebook_hours_a_week=20` gives your weekly hours",
    **{
        (command, option): hint
        for commands, hints in _ON_COMMANDS
        for command in commands
        for option, hint in hints.items()
    },
    ("accuracy", "--recorded"): "leave it out: `gpuplan accuracy` prints the record",
    **{
        ("accuracy", flag): f"`python -m lab accuracy {flag}` in a clone computes it"
        for flag in ("--from", "--memory", "--laws", "--check", "--markdown", "--output", "-o")
    },
    ("calibrate", "calibrate"): (
        "`python -m lab calibrate` in a clone rebuilds the packaged files; for your own chip,"
        " `gpuplan profile MODEL -o FILE` and then `gpuplan estimate FILE`"
    ),
}


def find_replacement(arguments: Sequence[str]) -> str | None:
    """Return the hint for the first removed spelling of a command line; None without one.

    Args:
        arguments: Arguments without the program name; those after `--` belong to the user's script.
    """
    typed = list(takewhile(lambda word: word != "--", arguments))
    words = [part for word in typed for part in word.split("=", 1)]
    keys = (key for word in words for key in _iter_keys(typed, word))
    return next((REMOVED[key] for key in keys if key in REMOVED), None)


def _iter_keys(typed: Sequence[str], word: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of a word: those of the command, of its group and command, and of all commands."""
    names = [one for one in typed if not one.startswith("-")]
    for count in (1, 2):
        yield " ".join(names[:count]), word
    yield "", word
