"""A traced step as one device of a mesh runs it: every array at its local shape, with the collectives in between.

Division is propagated forward from the variables and the batch, through the primitives in their order, as GSPMD
does (Xu et al., 2021, arXiv:2105.04663, section 3.5), which also propagates it backward; new values of variables
are divided like the old ones, as in Keras's `fit()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .divider import Divider
from .local_jaxpr import LocalJaxpr, build_constants, build_value
from .mesh_axes import MeshAxes
from .spec import Spec


def divide_step(
    closed_jaxpr: Any,
    *,
    inputs: Sequence[Spec],
    outputs: Sequence[Spec | None],
    mesh: MeshAxes,
) -> LocalJaxpr:
    """Return a traced function as one device of a mesh runs it.

    Args:
        closed_jaxpr: Result of `jax.make_jaxpr`.
        inputs: Division of each argument.
        outputs: Division of each result; None for any.
        mesh: Axes along which something is divided.
    """
    divider = Divider(mesh)
    jaxpr = closed_jaxpr.jaxpr
    arguments = [build_value(one, spec) for one, spec in zip(jaxpr.invars, inputs, strict=True)]
    body, results = divider.divide_body(jaxpr, build_constants(jaxpr), arguments)
    body.outvars = [
        divider.conform(result, spec, jaxpr.eqns[-1], body).variable
        for result, spec in zip(results, outputs, strict=True)
    ]
    return body
