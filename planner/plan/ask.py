"""From a model reference to an estimate: read the catalog, trace the model, predict, price, rank."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import import_module
from threading import Thread
from typing import TYPE_CHECKING, Any

from .estimate import Question, estimate_workload
from .result import Estimate
from .select import Selection, select
from .terms import Terms

if TYPE_CHECKING:
    from ..offers.load import Catalog
    from ..predict.predictor import Predictor
    from ..workload.model import Workload
    from ..workload.options import WorkloadOptions

__all__ = ["Prepared", "ask", "prepare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Everything that an answer is worked out from.

    Args:
        workload: What runs.
        selection: The offers.
        predictor: Knows step times.
        catalog: What is for rent.
        terms: What is charged and assumed beside the training.
    """

    workload: Workload
    selection: Selection
    predictor: Predictor
    catalog: Catalog
    terms: Terms


def ask(
    model: Any,
    question: Question,
    *,
    options: WorkloadOptions,
    script_arguments: Sequence[str] = (),
    catalog: Catalog | None = None,
    terms: Terms | None = None,
    around_trace: AbstractContextManager[object] | None = None,
) -> Estimate:
    """Return the answer to a question about a model.

    Args:
        model: A MODEL reference, or a Keras model.
        question: Filters, order and limits.
        options: What is said about the run beside the model.
        script_arguments: What a training script finds in `sys.argv`.
        catalog: What is for rent (``catalog_of(settings)``); None: what comes with gpuplan.
        terms: What is charged and assumed beside the training; None: as the catalog has it.
        around_trace: Entered while the model is traced (to show that it takes a while).

    Raises:
        GpuplanError: Whatever the user can fix, by its kind.
    """
    ready = prepare(
        model, question, options=options, script_arguments=script_arguments, catalog=catalog, terms=terms,
        around_trace=around_trace,
    )  # fmt: skip
    return estimate_workload(
        ready.workload,
        selection=ready.selection,
        predictor=ready.predictor,
        question=question,
        terms=ready.terms,
    )


def prepare(
    model: Any,
    question: Question,
    *,
    options: WorkloadOptions,
    script_arguments: Sequence[str] = (),
    catalog: Catalog | None = None,
    terms: Terms | None = None,
    around_trace: AbstractContextManager[object] | None = None,
) -> Prepared:
    """Return what an answer is worked out from; the arguments are those of ``ask``.

    What can go wrong cheaply (filters, the catalog) goes wrong before the model is traced.
    """
    from ..offers.load import load_catalog
    from ..predict.predictor import Predictor

    catalog = catalog or load_catalog()
    terms = terms or Terms(costs=catalog.costs)
    selection = select(question.filters, catalog=catalog)
    predictor = Predictor.load()
    # The child process that traces has a core of its own; meanwhile this one loads what comes after.
    Thread(target=import_module, args=("numpy",), daemon=True).start()
    with around_trace or nullcontext():
        workload = _workload(model, options=options, script_arguments=script_arguments)
    return Prepared(workload=workload, selection=selection, predictor=predictor, catalog=catalog, terms=terms)


def _workload(model: Any, *, options: WorkloadOptions, script_arguments: Sequence[str]) -> Workload:
    """Return the traced workload of a reference or a model."""
    if isinstance(model, str):
        from ..workload.load import load_workload

        return load_workload(model, options=options, argv=script_arguments)
    from ..workload.load import workload_of_model

    return workload_of_model(model, options=options)
