"""A plan over the whole catalog, of a workload with names that try to get out of the page."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from factories import estimate_workload, make_workload
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.cost_terms import CostTerms
from gpuplan.plan.estimate import Estimate
from gpuplan.plan.estimate_model import build_report_details
from gpuplan.plan.question import EstimateContext, Filters, Question, select
from gpuplan.predict.predictor import Predictor
from gpuplan.render.estimate_output import format_estimate_json
from gpuplan.workload.model import Unmodelled
from gpuplan.workload.ops import Op, OpKind
from gpuplan.workload.options import WorkloadOptions
from hostile import HOSTILE


def conv(layer: str, *, size: int, channels: int, phase: str = "forward") -> Op:
    """Return a 3x3 convolution of a batch of 32 square images, as many channels in as out."""
    m, n, k = 32 * size * size, channels, 9 * channels
    moved = 4.0 * (2 * m * n + k * n)
    return Op(
        kind=OpKind.CONV,
        name="conv_general_dilated",
        phase=phase,
        layer=layer,
        dtype="float32",  # type: ignore[arg-type]
        flops=2.0 * m * n * k,
        bytes_read=moved,
        bytes_written=4.0 * m * n,
        m=m,
        n=n,
        k=k,
        variant="fprop",
        kernel=(3, 3),
        stride=(1, 1),
        channels_in=channels,
        channels_out=channels,
    )


def elementwise(layer: str, *, size: int, channels: int, group: int) -> Op:
    """Return the activation after it."""
    moved = 4.0 * 32 * size * size * channels
    return Op(
        kind=OpKind.ELEMENTWISE,
        name="max",
        phase="forward",
        layer=layer,
        dtype="float32",
        flops=moved / 4,
        bytes_read=moved,
        bytes_written=moved,
        layer_bytes_read=moved,
        layer_bytes_written=moved,
        fused_bytes_read=moved,
        fused_bytes_written=moved,
        layer_group=group,
        fused_group=group // 2,
    )


def ops() -> tuple[Op, ...]:
    """Return a small network, some of its layers named by somebody who means harm."""
    names = [*HOSTILE, *(f"stage{i}/block{i}/conv" for i in range(25))]
    rows: list[Op] = []
    for index, name in enumerate(names):
        size, channels = (56, 64) if index % 2 else (28, 128)
        rows += [
            conv(name, size=size, channels=channels),
            elementwise(name, size=size, channels=channels, group=index),
        ]
    return tuple(rows)


ACCELERATORS = ("T4", "L4", "A100-80GB", "H100-SXM", "TPU-v5e", "CPU")
REGIONS = ("us-east-1", "us-central1", "eastus", "any", "local")


def planned(filters: Filters) -> Estimate:
    """Return the workload's estimate on some offers, with the details of a report."""
    catalog, question = load_catalog(), Question()
    workload = make_workload(
        model=f"{HOSTILE[0]}{HOSTILE[4]}.py",
        ops=ops(),
        samples=3200,
        epochs=200_000,
        steps=20_000_000,
        notes=(HOSTILE[1],),
        unmodelled=(Unmodelled(name=HOSTILE[3], count=1, bytes_share=0.01),),
    )
    context = EstimateContext(
        workload=workload,
        options=WorkloadOptions(),
        selection=select(filters, catalog=catalog),
        predictor=Predictor.load(),
        catalog=catalog,
        terms=CostTerms(costs=catalog.costs),
    )
    estimate = estimate_workload(
        workload, selection=context.selection, predictor=context.predictor, question=question, terms=context.terms
    )
    return replace(estimate, details=build_report_details(context, estimate, question))


@pytest.fixture(scope="session")
def answer() -> Estimate:
    """Six accelerators in a few regions."""
    return planned(Filters(accelerators=ACCELERATORS, regions=REGIONS))


@pytest.fixture(scope="session")
def plan(answer: Estimate) -> dict[str, Any]:
    """The plan as it is read from a file."""
    document: dict[str, Any] = json.loads(format_estimate_json(answer))
    return document


@pytest.fixture(scope="session")
def whole_plan() -> dict[str, Any]:
    """A plan of everything that can be rented."""
    document: dict[str, Any] = json.loads(format_estimate_json(planned(Filters())))
    return document
