"""Fit of what a TPU's matrix units reach, on published training steps: regularized least squares on log time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.rows import Accelerator
from gpuplan.plan.accuracy import predict_traced_row
from gpuplan.predict.coefficients import AcceleratorLimits
from gpuplan.predict.kernel_table import KernelTable
from gpuplan.predict.measurements import Measurement
from gpuplan.predict.predictor import Predictor
from gpuplan.predict.step_time import NoPrediction
from gpuplan.predict.systolic_array import ATTENTION_SHARE, USUAL_PRODUCT_SHARE, systolic_parts_s
from gpuplan.records import Frozen
from gpuplan.workload.model import Workload

MODERN = ("TPU-v5e", "TPU-v5p", "TPU-v6e")
START, START_ATTENTION = 0.75, 0.4  # middle of the priors [-]
PRIOR_LOG = 0.5  # spread of the priors, in log units
RESIDUAL_LOG = 0.05  # spread of residuals, in log units
FITTED = ("TPU-v6e",)  # whose share in the catalog was fitted here; those of others were read


class SystolicShares(Frozen):
    """Shares of the datasheet's peak that a TPU's matrix units reach in training steps [-]."""

    # of matrix products and convolutions, by accelerator; "" for those without published steps
    products: dict[str, float]
    attention: float  # of both passes of fused attention, on every chip

    def find_products(self, accelerator: str) -> float:
        """Return the share of matrix products on an accelerator [-]."""
        return self.products.get(accelerator, self.products[""])


def load_shares() -> SystolicShares:
    """Return the packaged shares."""
    rows = load_catalog().accelerators.values()
    products = {row.name: row.matmul_share for row in rows if row.kind == "tpu" and row.matmul_share}
    return SystolicShares(products={**products, "": USUAL_PRODUCT_SHARE}, attention=ATTENTION_SHARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SystolicStep:
    """Published training step on a slice of TPUs, with what its prediction consists of.

    Args:
        measurement: As published.
        table: Kernels of one chip.
        chip: Its limits.
        beside_s: What exchange and host add to the kernels [s].
    """

    measurement: Measurement
    table: KernelTable
    chip: AcceleratorLimits
    beside_s: float

    @property
    def network(self) -> str:
        """Accelerator and model: the steps that are left out together."""
        return f"{self.measurement.accelerator} {self.measurement.model}"


def select_fitted_rows(corpus: Sequence[Measurement]) -> list[Measurement]:
    """Return the training steps of sharded models on TPUs."""
    return [m for m in corpus if m.mode == "train" and m.shard and m.accelerator.startswith("TPU")]


def build_systolic_steps(
    rows: Sequence[Measurement],
    trace: Callable[[Measurement], Workload],
    accelerators: Mapping[str, Accelerator],
    predictor: Predictor,
) -> list[SystolicStep]:
    """Return the kernels of each row and what is added to them, as predicted with the packaged shares.

    Raises:
        ValueError: A row that cannot be predicted.
    """
    found, shares = [], load_shares()
    for m in rows:
        step, sample = predict_traced_row(m, trace(m), accelerators[m.accelerator], predictor)
        if isinstance(step, NoPrediction) or sample is None:
            raise ValueError(f"{m.source}: {step.reason if isinstance(step, NoPrediction) else 'no kernels'}")
        one = SystolicStep(measurement=m, table=sample.table, chip=sample.chip, beside_s=0.0)
        kernels_s = float(predict_systolic_s([one], shares)[0])
        found.append(replace(one, beside_s=step.time_s.mid - kernels_s))
    return found


def predict_systolic_s(steps: Sequence[SystolicStep], shares: SystolicShares) -> Any:
    """Return the modelled time of each step, array of [steps] [s]."""
    import numpy as np

    def predict(one: SystolicStep) -> float:
        chip = replace(one.chip, matmul_share=shares.find_products(one.measurement.accelerator))
        total_s, _, _ = systolic_parts_s(one.table, chip, attention_share=shares.attention, xp=np)
        return float(total_s.sum()) + one.beside_s

    return np.array([predict(one) for one in steps])


def fit_systolic(steps: Sequence[SystolicStep]) -> SystolicShares:
    """Fit the shares; the steps of one network on one accelerator weigh as much as one step.

    An accelerator without a share has the geometric mean of v5e, v5p and v6e.
    """
    import numpy as np
    from scipy.optimize import least_squares

    names = sorted({one.measurement.accelerator for one in steps})
    read = {name: share for name, share in load_shares().products.items() if name not in ("", *FITTED)}
    number = Counter(one.network for one in steps)
    weight = np.array([number[one.network] ** -0.5 for one in steps])
    measured = np.log([one.measurement.step_s for one in steps])
    start = np.log([*[START] * len(names), START_ATTENTION])

    def build(logs: Any) -> SystolicShares:
        *products, attention = (float(share) for share in np.exp(logs))
        known = dict(zip(names, products, strict=True))
        shares = {**read, **known}
        mean = float(np.exp(np.mean([np.log(shares[name]) for name in MODERN if name in shares])))
        return SystolicShares(products={**shares, "": mean}, attention=attention)

    def residuals(logs: Any) -> Any:
        odd = np.log(predict_systolic_s(steps, build(logs))) - measured
        return np.concatenate([weight * odd / RESIDUAL_LOG, (logs - start) / PRIOR_LOG])

    return build(least_squares(residuals, start, bounds=(-np.inf, 0.0)).x)


def predict_left_out_s(steps: Sequence[SystolicStep]) -> Any:
    """Return the time of each step by shares fitted without its network, array of [steps] [s]."""
    import numpy as np

    networks = {one.network for one in steps}
    fits = {name: fit_systolic([one for one in steps if one.network != name]) for name in networks}
    return np.array([predict_systolic_s([one], fits[one.network])[0] for one in steps])
