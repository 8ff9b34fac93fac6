"""Placement of a step's variables and samples on the devices of a mesh."""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, Literal

from ....records import Frozen
from ...keras_layers import group_variables
from .divider import divide_step
from .spec import Axes, LocalJaxpr, MeshAxes, Shape, Spec, build_undivided, compute_local_shape


class Placement(Frozen):
    """Placement of variables and samples.

    Args:
        mesh: Axes of the mesh of more than one device.
        divided: Specs of the variables that devices hold in parts, by the variable's identity.
    """

    mesh: MeshAxes
    divided: Mapping[int, Spec]

    @property
    def devices(self) -> int:
        """Devices of the mesh [-]."""
        return prod(self.mesh.sizes.values())

    @property
    def replicas(self) -> int:
        """Parts into which the mesh divides a batch [-]."""
        return prod(self.mesh.sizes[name] for name in self.mesh.replicas)

    @property
    def sample_axes(self) -> Axes:
        """Axes of the first dimension of a batch, which is traced at the size of one replica."""
        return self.mesh.build_axes([name for name in self.mesh.sizes if name in self.mesh.replicas])

    def get_spec(self, variable: Any) -> Spec:
        """Return the division of a variable of the model."""
        return self.divided.get(id(variable)) or build_undivided(tuple(variable.shape))

    def compute_local_shape(self, variable: Any) -> Shape:
        """Return the shape of the part of a variable that a device holds."""
        return compute_local_shape(tuple(variable.shape), self.get_spec(variable))


def divide_as_placed(
    closed_jaxpr: Any, model: Any, placement: Placement | None, *, mode: Literal["train", "infer"]
) -> LocalJaxpr | None:
    """Return a traced step as one device of a mesh runs it; None where every device holds all variables.

    The batch is that of one replica: of its samples, the device works on all.

    Args:
        closed_jaxpr: Step of a Keras model: `train_step`, or its forward pass.
        model: The built model; its variables may be abstract.
        placement: Placement of its variables; None on one device.
        mode: Training or inference.
    """
    if placement is None or not placement.divided:
        return None
    held = group_variables(model, train=mode == "train")
    variables = [placement.get_spec(variable) for group in held for variable in group]
    jaxpr = closed_jaxpr.jaxpr
    shapes = (one.aval.shape for one in jaxpr.invars[len(variables) :])
    data = [(placement.sample_axes, *build_undivided(shape[1:])) if shape else () for shape in shapes]
    new = variables if mode == "train" else []
    logs = (None for _ in range(len(jaxpr.outvars) - len(new)))
    return divide_step(closed_jaxpr, inputs=[*variables, *data], outputs=[*logs, *new], mesh=placement.mesh)
