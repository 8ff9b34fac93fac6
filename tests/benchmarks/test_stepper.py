"""The step that is timed is the step that `fit()` runs."""

from __future__ import annotations

import pytest
from measuring.models import batch_for, build
from measuring.stepper import JaxStepper, told_precision

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("keras_as_found")]
CNN = "benchmarks/workloads.py:cifar_cnn?width=4&image_size=16"
MLP = "benchmarks/workloads.py:mlp?width=32&depth=2&features=8"


def run(stepper: JaxStepper, steps: int) -> dict:
    stepper.move()
    for _ in range(steps):
        stepper.step()
    stepper.synchronize()
    return stepper.after()


def test_three_steps_give_the_loss_of_a_real_fit() -> None:
    """Same weights, same batch three times: the mean loss that `fit()` reports, so loss, gradients, optimizer."""
    import numpy as np

    told = run(JaxStepper(CNN, batch_size=4, mode="train", precision="float32"), 3)
    model = build(CNN, precision="float32")
    x, y = batch_for(model, 4)
    history = model.fit(np.tile(x, (3, 1, 1, 1)), np.tile(y, 3), batch_size=4, shuffle=False, verbose=0)

    assert told["loss"] == pytest.approx(history.history["loss"][0], rel=1e-4)
    assert told["loss_is_finite"] is True


def test_mixed_precision_multiplies_in_bfloat16() -> None:
    """The lowered program holds bf16 products under the mixed policy, and none under float32."""
    import jax

    def dots(precision: str) -> str:
        stepper = JaxStepper(MLP, batch_size=4, mode="train", precision=precision)
        specs = jax.tree.map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), (stepper.state, stepper.data))
        text = jax.jit(stepper.model.train_step).lower(*specs).as_text()
        return "\n".join(line for line in text.splitlines() if "dot_general" in line)

    assert "bf16" in dots("mixed_bfloat16")
    assert "bf16" not in dots("float32")


@pytest.mark.parametrize(
    ("precision", "told"), [("float32", "HIGHEST"), ("tf32", "HIGH"), ("mixed_bfloat16", None)]
)
def test_tf32_is_told_explicitly(precision: str, told: str | None) -> None:
    """jax.lax.Precision: on a GPU HIGHEST is float32, HIGH is TF32 where there is TF32."""
    import jax
    import numpy as np

    facts = told_precision("jax", precision)
    a = np.ones((2, 2), np.float32)
    [equation] = jax.make_jaxpr(lambda a: jax.lax.dot(a, a))(a).eqns

    named = equation.params["precision"]
    assert (named[0].name if named else None) == told
    assert (facts["jax_default_matmul_precision"] is None) == (told is None)


def test_inference_runs_the_forward_pass() -> None:
    """The result is what the model returns for that batch, and nothing is trained."""
    import numpy as np

    stepper = JaxStepper(CNN, batch_size=4, mode="infer", precision="float32")
    told = run(stepper, 2)
    model = build(CNN, precision="float32")

    expected = model.predict_on_batch(batch_for(model, 4)[0])
    np.testing.assert_allclose(np.asarray(stepper.result), expected, rtol=1e-4, atol=1e-5)
    assert told["loss"] is None
