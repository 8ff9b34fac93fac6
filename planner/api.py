"""Python API: `gpuplan.estimate(model, ...)`, and its display in notebooks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from .files import cache_dir_restored
from .plan.estimate import Estimate as PlanEstimate
from .plan.estimate_request import EstimateRequest
from .records import iter_field_parameters

if TYPE_CHECKING:
    from pandas import DataFrame

    from .plan.breakeven import Breakeven

Given = ParamSpec("Given")
Answer = TypeVar("Answer")
Request = TypeVar("Request")


class Estimate(PlanEstimate):
    """Time and cost of a workload on every selected offer, displayed as a table in a notebook."""

    def __repr__(self) -> str:
        model, count = self.workload.model, len(self.offers)
        taken = self.decision.recommended
        best = "" if taken is None else f": take {self.offers[taken].offer.instance_type}"
        return f"<gpuplan.Estimate of {model} on {count} offers{best}>"

    def _repr_html_(self) -> str:
        from .render.estimate_output import format_estimate_html

        return format_estimate_html(self)

    def to_pandas(self) -> DataFrame:
        """Return a pandas data frame with one row per offer, in the order of `offers`.

        Columns are those of the TSV of `gpuplan estimate`, units in their names: `usd_per_hour` [USD/h],
        `run_time_s_low`, `run_time_s_mid`, `run_time_s_high` [s], `cost_usd_mid` [USD], `memory_bytes` and so on.
        Money is float here; exact amounts are in `offers`. Unknown values are missing, never 0.

        Raises:
            UsageError: pandas is not installed (`pip install 'gpuplan[pandas]'`).
        """
        from .render.estimate_output import build_offer_frame

        return build_offer_frame(self)


def takes_fields(
    record: Callable[Given, Request],
) -> Callable[[Callable[[Any, Request], Answer]], Callable[Concatenate[Any, Given], Answer]]:
    """Replace the second parameter of a function, a record, by its fields as keyword arguments.

    Signature and docstring list the fields with their help; type checkers know them from the record.
    """

    def decorate(function: Callable[[Any, Request], Answer]) -> Callable[Concatenate[Any, Given], Answer]:
        @wraps(function)
        def flat(model: Any, *unnamed: Given.args, **named: Given.kwargs) -> Answer:
            return function(model, record(*unnamed, **named))

        taken, parameters = inspect.signature(function), list(iter_field_parameters(record))
        plain = (one.replace(annotation=one.annotation.__origin__) for one in parameters)
        flat.__signature__ = taken.replace(parameters=[taken.parameters["model"], *plain])  # type: ignore[attr-defined]
        helps = (f"{one.name}: {one.annotation.__metadata__[0].help}" for one in parameters)
        flat.__doc__ = (function.__doc__ or "").replace("FIELDS", "\n        ".join(helps))
        return flat  # type: ignore[return-value]

    return decorate


@takes_fields(EstimateRequest)
@cache_dir_restored()
def estimate(model: Any, request: EstimateRequest) -> Estimate:
    """Estimate time, cost and memory of a run on every accelerator that can be rented. Nothing is trained.

    Environment, garbage collector and threads of the calling process stay as they are. Times are texts or numbers
    of seconds. No value of a sequence selects all.

    Args:
        model: A `keras.Model`, or a MODEL reference as on the command line (`"ResNet50"`, `"train.py"`).
        FIELDS

    Raises:
        GpuplanError: The caller can fix the error: UsageError for a wrong argument, NoAnswerError if no offer
            passes the filters. A run that fits nowhere is no error: see `recommendation`.
    """
    from .plan.estimate_model import estimate_model
    from .plan.request import resolve_request

    compiling = None
    if request.compile:
        from .plan.compilation import StepCompiler

        compiling = StepCompiler()
    answer = estimate_model(model, resolve_request(request).with_refresh(), compiling=compiling)
    return Estimate(**{field.name: getattr(answer, field.name) for field in fields(answer)})


@cache_dir_restored()
def breakeven(model: Any, *, runs: int = 1, against: Sequence[str] = (), **asked: Any) -> Breakeven:
    """Compare notebooks, this machine and the clouds for one run and for several. Nothing is trained.

    Args:
        model: A `keras.Model`, or a MODEL reference as on the command line.
        runs: Number of equal runs, one after the other [-].
        against: Alternatives by name, such as `"colab-free"`, `"aws:g4dn.xlarge:spot"`; empty for the best ones.
        asked: Arguments of `estimate`.

    Raises:
        GpuplanError: The caller can fix the error: UsageError for a wrong argument, NoAnswerError if nothing can
            run the work.
    """
    from .plan.breakeven import compare_alternatives
    from .plan.context import build_context
    from .plan.estimate_workload import prepare_fit
    from .plan.request import resolve_request

    request = resolve_request(EstimateRequest(**asked)).with_refresh()
    context, question = build_context(model, request), request.question
    return compare_alternatives(
        context,
        question=question,
        against=tuple(against),
        runs=runs,
        prepare=lambda: prepare_fit(context, model, question),
    )
