"""Published training steps that ran beside the verdict: none of them may be called too large.

Nothing about memory was adjusted to these rows: they are of other publishers than `memory_limits.py` looks at. Of
each network on each GPU the largest batch is judged, where that needs most of the memory; steps whose
weights were sharded over several devices are left out, since one device held a part only.
"""

from __future__ import annotations

import argparse
import sys

from gpuplan.offers.load import load_catalog
from gpuplan.plan.memory import available_bytes, memory_verdict
from gpuplan.predict.cases import workload_of
from gpuplan.predict.corpus import Measurement, packaged_corpus
from gpuplan.predict.runs import pressure_of
from gpuplan.predict.scaling import SHARDED
from gpuplan.predict.store import load_store, run_key

FROM_PRESSURE = 0.75


def rows(from_pressure: float) -> list[Measurement]:
    """Return the row of each network on each GPU, at each precision, that needs the most memory.

    Args:
        from_pressure: Least share of the memory that it needs, as the packaged traces have it [-].
    """
    accelerators, traces = load_catalog().accelerators, load_store()
    most: dict[tuple[str, ...], tuple[float, Measurement]] = {}
    for m in packaged_corpus():
        chip = accelerators.get(m.accelerator)
        told = m.mode == "train" and m.origin != "profet_keras_aws" and m.distribution not in SHARDED
        if not told or chip is None or chip.kind != "gpu" or run_key(m) not in traces:
            continue
        pressure = pressure_of(traces[run_key(m)].memory_bytes, chip)
        key = (m.origin, m.model, m.accelerator, m.precision, str(m.compiled))
        if pressure >= max(from_pressure, most.get(key, (0.0, m))[0]):
            most[key] = (pressure, m)
    return [m for _, m in most.values()]


def main() -> int:
    """Print each row with its verdict; return 1 when less than 90 % of them fit."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--from", type=float, default=FROM_PRESSURE, dest="least", help="share of the memory")
    least = parser.parse_args().least
    accelerators, fit, judged = load_catalog().accelerators, 0, 0
    for m in rows(least):
        memory, chip = workload_of(m).memory, accelerators[m.accelerator]
        activations = memory.activations_bytes(compiled=m.compiled, recompute=m.recompute)
        verdict = memory_verdict(
            fixed_bytes=memory.fixed_bytes, batch_bytes=memory.input_bytes + activations, batch_size=m.batch_size,
            available_bytes=available_bytes(memory_gib=chip.memory_gib, usable_gib=chip.usable_gib),
        )  # fmt: skip
        judged, fit = judged + 1, fit + (verdict.fits is True)
        share = verdict.needed_bytes / (verdict.available_bytes or 1)
        name = f"{m.origin} {m.model.split('?')[0]} {m.batch_size} {m.precision}"
        print(f"{name[:84]:84} {m.accelerator:14} {share:6.0%} {verdict.verdict}", flush=True)
    print(f"{fit} of {judged} that ran are said to fit: {fit / judged:.1%}")
    return int(fit < 0.9 * judged)


if __name__ == "__main__":
    sys.exit(main())
