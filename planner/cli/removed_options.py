"""Spellings that earlier versions accepted, each with what to type instead."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import takewhile

# Removed option, value or command | commands that had it; none for all | what to type instead.
_TABLE = """
--compile | profile | run `gpuplan estimate MODEL --compile --accelerator NAME`
--accelerator | profile | run `gpuplan estimate MODEL --accelerator NAME`
cloud-init | export | `gpuplan launch plan.json --dry-run` shows the same machine
terraform | export | `gpuplan launch plan.json --dry-run` shows the same machine
--live |  | `gpuplan catalog refresh` reads prices; `--assume notebook_hours_a_week=20` gives your weekly hours
--spot-life | estimate, breakeven, sweep | type `--assume spot_life_h=5` [h]
--checkpoint-every | estimate, breakeven, sweep | type `--assume spot_checkpoint_every_s=600` [s]
--checkpoint-time | estimate, breakeven, sweep | type `--assume spot_checkpoint_s=30` [s]
--restart-time | estimate, breakeven, sweep | type `--assume spot_restart_s=300` [s]
--catalog | estimate, breakeven, sweep, offers, accelerators | set `GPUPLAN_CATALOG_DIR=FOLDER`
--no-cache | estimate, breakeven, sweep, rig | set `GPUPLAN_TRACE_CACHE=false`
--script-env | estimate, breakeven, sweep, rig, profile, reconcile | set `GPUPLAN_SCRIPT_ENV=NAME`
--script-timeout | breakeven, sweep, rig, profile, reconcile | set `GPUPLAN_SCRIPT_TIMEOUT=30m`
--by | estimate | type `--deadline 'Mon 08:00'`
--retired | estimate | name the chip: `--accelerator K80`; `gpuplan offers` lists what is no longer rented
--by | breakeven, sweep | `gpuplan estimate MODEL --deadline 'Mon 08:00'` answers this
--residency | breakeven, sweep | name regions: `--region R`; or `gpuplan estimate MODEL --residency eu`
--hosts | breakeven, sweep | `gpuplan estimate MODEL --hosts 2` answers this
--scaling | breakeven, sweep | `gpuplan estimate MODEL --scaling weak` answers this
--feed | breakeven, sweep | `gpuplan estimate MODEL --feed jpeg` answers this
--sort | breakeven, sweep | `gpuplan estimate MODEL --sort time` answers this
--quota | breakeven, sweep | set `GPUPLAN_QUOTA=true`
--retired | breakeven, sweep | `gpuplan estimate MODEL --accelerator K80` answers this
--tokens | breakeven, sweep, rig | give `--samples N --epochs N`; or `gpuplan estimate MODEL --tokens 1e9`
--mode | breakeven, sweep, rig | `gpuplan estimate MODEL --mode infer` answers this
--remat | breakeven, sweep, rig | `gpuplan estimate MODEL --remat` answers this
--loss | breakeven, sweep, rig, profile | compile the model in your code, with its loss
--optimizer | breakeven, sweep, rig, profile | compile the model in your code, with its optimizer
--hours-a-day | breakeven | type `--assume notebook_hours_a_day=8`
--batch-size | sweep | type `--batch-sizes 64`
--precision | sweep | type `--precisions mixed_float16`
--steps | sweep | type `--samples N --epochs N`: steps of different batches are different work
--deadline | sweep | `gpuplan estimate MODEL --deadline 12h` answers this
--budget | sweep | `gpuplan estimate MODEL --budget 20` answers this
--fit | sweep | `gpuplan estimate MODEL --fit` divides one batch into passes that fit
--power | rig | type `--assume power_w=450` [W]
--idle-power | rig | type `--assume idle_power_w=50` [W]
--loses | rig | type `--assume value_lost_per_year=0.3`
--vendor | accelerators | type `--architecture Ampere`, or filter the `vendor` of `--json`
--keep | reconcile | leave it out: runs are kept unless `GPUPLAN_KEEP_RUNS=false`
--no-keep | reconcile | set `GPUPLAN_KEEP_RUNS=false`
--fallbacks | launch | set `GPUPLAN_FALLBACKS=6`, or `fallbacks = 6` in a settings file
--checkpoint-every | launch | set `GPUPLAN_CHECKPOINT_EVERY=10m`
--stop-loss | launch | set `GPUPLAN_STOP_LOSS=stop`, or `stop_loss` in a settings file
--accept-old-prices | launch | set `GPUPLAN_ACCEPT_OLD_PRICES=true`
--guest-cap-only | launch | set `GPUPLAN_GUEST_CAP_ONLY=true`
--requirements | launch, export | set `GPUPLAN_REQUIREMENTS=requirements.txt`
--image | export | type `--source image:NAME`
--disk-gb | export | change the size of the disk (100 GB) in the file
--name | export | change the name in the file
--region | ps, stop, reap | leave it out: every region is asked; `--provider P` asks one provider
--owner | reap | `gpuplan stop ID --owner ID` ends machines of another installation
--provider | catalog diff | leave it out: the changes of every provider are shown
--provider | catalog age | leave it out: the prices of every provider are shown
--recorded | accuracy | leave it out: `gpuplan accuracy` prints the record
--from | accuracy | `python -m lab accuracy --from` in a clone computes it
--memory | accuracy | `python -m lab accuracy --memory` in a clone computes it
--laws | accuracy | `python -m lab accuracy --laws` in a clone computes it
--check | accuracy | `python -m lab accuracy --check` in a clone computes it
--markdown | accuracy | `python -m lab accuracy --markdown` in a clone computes it
--output | accuracy | `python -m lab accuracy --output` in a clone computes it
-o | accuracy | `python -m lab accuracy -o` in a clone computes it
calibrate | calibrate | `python -m lab calibrate` in a clone; for your chip `gpuplan profile MODEL -o FILE`
"""
_ROWS = [line.split(" | ") for line in _TABLE.strip().splitlines()]
# (command, or "" for all commands; the removed option, value or command) -> the hint of the error.
REMOVED = {(command, option): hint for option, commands, hint in _ROWS for command in commands.split(", ")}


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
