"""One training step (or inference call) of a Keras model, on JAX and on PyTorch: the step that `fit()` runs.

What is left out, on purpose: reading data, copying it to the device (the batch stays there), progress bars and
callbacks. What is kept: loss, gradients, optimizer, the loss metric, random states.
"""

from __future__ import annotations

import math
import time
from typing import Any, Protocol

from .models import batch_for, build

__all__ = ["JaxStepper", "Stepper", "TorchStepper", "stepper_for", "told_precision"]

# What float32 products are computed with: the value of `jax_default_matmul_precision`.
JAX_MATMUL_PRECISION = {"float32": "highest", "tf32": "tensorfloat32"}


class Stepper(Protocol):
    """A step that can be started and waited for."""

    facts: dict[str, Any]

    def move(self) -> None:
        """Put model and batch on the device."""

    def step(self) -> None:
        """Start one step."""

    def synchronize(self) -> None:
        """Wait for every step that was started."""

    def after(self) -> dict[str, Any]:
        """Return the final state: loss and peak device memory."""


def stepper_for(backend: str, model: str, *, batch_size: int, mode: str, precision: str) -> Stepper:
    """Build, trace and compile a step; on JAX all of it but the compiler's own trials stays on the CPU."""
    kind = {"jax": JaxStepper, "torch": TorchStepper}[backend]
    return kind(model, batch_size=batch_size, mode=mode, precision=precision)


def told_precision(backend: str, precision: str) -> dict[str, Any]:
    """Say explicitly how float32 is multiplied, and return what was said.

    float32 means 24-bit products (TF32 off), tf32 means TF32 on. Under a mixed policy the products are 16-bit, and
    what little float32 remains is left to the framework's default, which is told as `null`.
    """
    if backend == "jax":
        import jax

        chosen = JAX_MATMUL_PRECISION.get(precision)
        jax.config.update("jax_default_matmul_precision", chosen)
        return {"jax_default_matmul_precision": chosen}
    if precision not in ("float32", "tf32"):
        return {"torch_fp32_precision": None}
    return _tell_torch(allow=precision == "tf32")


def _tell_torch(*, allow: bool) -> dict[str, Any]:
    import torch

    if hasattr(torch.backends, "fp32_precision"):  # PyTorch 2.9 and later
        value = "tf32" if allow else "ieee"
        for part in (torch.backends.cuda.matmul, torch.backends.cudnn.conv, torch.backends.cudnn.rnn):
            part.fp32_precision = value
        return {"torch_fp32_precision": value}
    torch.backends.cuda.matmul.allow_tf32 = allow
    torch.backends.cudnn.allow_tf32 = allow
    return {"torch_allow_tf32": allow}


class JaxStepper:
    """The jitted `train_step` that Keras's JAX trainer calls, its state donated from step to step."""

    def __init__(self, model: str, *, batch_size: int, mode: str, precision: str) -> None:
        import jax

        self.facts: dict[str, Any] = told_precision("jax", precision)
        self.device = jax.devices()[0]
        started = time.perf_counter()
        with jax.default_device(jax.local_devices(backend="cpu")[0]):  # nothing disturbs a neighbour's timing
            self.model = build(model, precision=precision)
            self.data = batch_for(self.model, batch_size)
            if mode == "train":
                _build_for_training(self.model, self.data)
            self.state = self._state(mode)
        self.facts["build_s"] = time.perf_counter() - started
        self.facts["parameters"] = self.model.count_params()
        self.training = mode == "train"
        self._compile()

    def _state(self, mode: str) -> Any:
        model = self.model
        groups = [model.trainable_variables, model.non_trainable_variables]
        if mode == "train":
            groups += [model.optimizer.variables, model.metrics_variables]
        return tuple([variable.value for variable in group] for group in groups)

    def _compile(self) -> None:
        import jax

        def infer(state: Any, data: Any) -> Any:
            return self.model.stateless_call(*state, data[0], training=False)[0]

        function = jax.jit(self.model.train_step, donate_argnums=0) if self.training else jax.jit(infer)
        specs = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (self.state, self.data))
        started = time.perf_counter()
        lowered = function.lower(*specs)
        traced = time.perf_counter()
        self.run = lowered.compile()
        self.facts["trace_s"] = traced - started
        self.facts["compile_s"] = time.perf_counter() - traced
        self.facts["compiled_memory"] = _compiled_memory(self.run)

    def move(self) -> None:
        """Put state and batch on the device."""
        import jax

        self.state, self.data = jax.device_put((self.state, self.data), self.device)
        jax.block_until_ready((self.state, self.data))
        self.result = None

    def step(self) -> None:
        """Start one step; its new state replaces the old one."""
        if self.training:
            self.result, self.state = self.run(self.state, self.data)
        else:
            self.result = self.run(self.state, self.data)

    def synchronize(self) -> None:
        """Wait for the updated state."""
        import jax

        jax.block_until_ready((self.state, self.result))

    def after(self) -> dict[str, Any]:
        """Return the loss and the peak of memory that JAX allocated [bytes]."""
        loss = float(self.result["loss"]) if self.training and self.result else None
        memory = self.device.memory_stats() or {}
        return {**_told_loss(loss), "memory_peak_bytes": memory.get("peak_bytes_in_use")}


def _told_loss(loss: float | None) -> dict[str, Any]:
    """Return the mean loss since the first step, as proof that training ran; JSON knows no infinity."""
    finite = None if loss is None else math.isfinite(loss)
    return {"loss": loss if finite else None, "loss_is_finite": finite}


def _build_for_training(model: Any, data: Any) -> None:
    """Create the variables of optimizer and metrics, as the first step of `fit()` does."""
    if hasattr(model, "_symbolic_build"):
        model._symbolic_build(data_batch=data)
    if not model.optimizer.built:
        model.optimizer.build(model.trainable_variables)


def _compiled_memory(compiled: Any) -> dict[str, int] | None:
    """Return XLA's own account of the program's memory [bytes], None where it gives none."""
    analysis = compiled.memory_analysis()
    if analysis is None:
        return None
    names = ("argument", "output", "alias", "temp", "generated_code")
    return {f"{name}_bytes": int(getattr(analysis, f"{name}_size_in_bytes")) for name in names}


class TorchStepper:
    """Keras's own `train_step` on PyTorch, kernel by kernel, as `fit()` calls it by default."""

    def __init__(self, model: str, *, batch_size: int, mode: str, precision: str) -> None:
        self.facts: dict[str, Any] = told_precision("torch", precision)
        started = time.perf_counter()
        self.model = build(model, precision=precision)
        self.batch = batch_for(self.model, batch_size)
        self.training = mode == "train"
        if self.training:
            _build_for_training(self.model, self.batch)
        self.facts["build_s"] = time.perf_counter() - started
        self.facts["parameters"] = self.model.count_params()

    def move(self) -> None:
        """Put the batch on the device; the model is there since it was built."""
        import keras
        import torch

        self.data = keras.tree.map_structure(keras.ops.convert_to_tensor, self.batch)
        self.on_gpu = keras.tree.flatten(self.data)[0].is_cuda
        if self.on_gpu:
            torch.cuda.reset_peak_memory_stats()
        self.logs: Any = {}

    def step(self) -> None:
        """Start one step."""
        import torch

        if self.training:
            self.logs = self.model.train_step(self.data)
        else:
            with torch.no_grad():
                self.model(self.data[0], training=False)

    def synchronize(self) -> None:
        """Wait for the device; on a CPU nothing runs ahead."""
        import torch

        if self.on_gpu:
            torch.cuda.synchronize()

    def after(self) -> dict[str, Any]:
        """Return the loss and the peak of memory that PyTorch allocated [bytes]."""
        import torch

        peak = torch.cuda.max_memory_allocated() if self.on_gpu else None
        loss = float(self.logs["loss"]) if self.training else None
        return {**_told_loss(loss), "memory_peak_bytes": peak}
