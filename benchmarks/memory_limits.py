"""Published limits of memory beside the verdict: the largest batch that ran, and the next one, which is missing.

PROFET measured every network at 16, 32, 64, 128 and 256 samples on four GPUs; where the larger ones are missing on
a GPU, they did not fit. Rows of images of 224 and 256 pixels are judged: each batch that ran must fit, and the
next must not. Kernel by kernel, as TensorFlow 2.5 ran them; memory is traced at 64 samples and scaled.
"""

from __future__ import annotations

import sys

from gpuplan.offers.load import load_catalog
from gpuplan.plan.memory import available_bytes, memory_verdict
from gpuplan.predict.corpus import Measurement, collection
from gpuplan.workload.load import WorkloadOptions, load_workload
from gpuplan.workload.model import Memory

GRID = (16, 32, 64, 128, 256)
TRACED = 64


def main() -> int:
    """Print each limit and the share that is right; return 1 below 90 %."""
    limits: dict[tuple[str, str], list[Measurement]] = {}
    for m in collection("profet_keras_aws"):
        if "image_size=224" in m.model or "image_size=256" in m.model:
            limits.setdefault((m.model, m.accelerator), []).append(m)
    right = judged = 0
    split: dict[str, list[bool]] = {}
    memories: dict[str, Memory] = {}
    accelerators = load_catalog().accelerators
    for (model, accelerator), rows in sorted(limits.items()):
        if model not in memories:
            options = WorkloadOptions(batch_size=TRACED)
            memories[model] = load_workload(model, options=options, base=rows[0].base).memory
        row, largest = accelerators[accelerator], max(m.batch_size for m in rows)
        usable = available_bytes(memory_gib=row.memory_gib, usable_gib=row.usable_gib)
        following = [batch for batch in GRID if batch > largest][:1]
        for batch, ran in ((largest, True), *((batch, False) for batch in following)):
            fits = _fits(memories[model], batch, usable)
            right, judged = right + (fits is ran), judged + 1
            for part in (accelerator, model.split(":")[-1].split("?")[0]):
                split.setdefault(part, []).append(fits is ran)
            told = "ran" if ran else "missing"
            print(
                f"{model:48} {accelerator:10} {batch:4} {told:8} {'fits' if fits else 'does not fit'}",
                flush=True,
            )
    for part, found in split.items():
        print(f"{part:48} {sum(found)} of {len(found)} right")
    print(f"{right} of {judged} right: {100 * right / judged:.1f} %")
    return int(right < 0.9 * judged)


def _fits(memory: Memory, batch_size: int, usable: int | None) -> bool | None:
    grows = memory.input_bytes + memory.activations_bytes(compiled=False)
    return memory_verdict(
        fixed_bytes=memory.fixed_bytes, batch_bytes=grows * batch_size // TRACED, batch_size=batch_size,
        available_bytes=usable,
    ).fits  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
