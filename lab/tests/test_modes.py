"""Inference calls are fitted beside training steps, with rates of their own, and judged apart."""

from __future__ import annotations

import math

import pytest
from gpuplan.offers.catalog import load_catalog
from gpuplan.predict.coefficients import HostCoefficients, StackCoefficients, load_coefficients
from gpuplan.predict.run_config import name_user_stack

from lab.calibrate import complete_hosts, complete_stacks, compute_class_means
from lab.cross_validation import CrossValidation, cross_validate
from lab.dataset import build_samples, read_published_file

pytestmark = pytest.mark.slow


def rates(value: float) -> StackCoefficients:
    return StackCoefficients(contraction=value, tensor=value, stream=value, launch=value)


def host(fixed_s: float, dispatch_s: float) -> HostCoefficients:
    return HostCoefficients(fixed_s=fixed_s, dispatch_s=dispatch_s, feed_bytes_per_s=1e9)


def test_a_class_that_nobody_inferred_with_is_the_mean_of_the_others() -> None:
    """By hand: Keras on TensorFlow 1 is no guide to Keras today; 1 and 4 have the mean 2 where 3 was trained."""
    found = compute_class_means({
        "": rates(9.0), "tensorflow2 keras": rates(3.0), "pytorch eager": rates(1.5), "mxnet tuned": rates(2.0),
        "tensorflow1 keras infer": rates(7.0), "pytorch eager infer": rates(1.0), "mxnet tuned infer": rates(4.0),
    })  # fmt: skip

    assert found["keras"].tensor == pytest.approx(3.0)
    assert found["eager infer"].tensor == pytest.approx(1.0)
    assert found["keras infer"].tensor == pytest.approx(2.0)


def test_calls_of_keras_3_have_the_rates_of_what_launches_them() -> None:
    """A program of XLA those of its steps; calls on PyTorch, of which none was measured, those of its modules."""
    fitted = {"": rates(1.0), "xla": rates(2.0), "mxnet tuned": rates(4.0), "pytorch eager infer": rates(5.0)}
    found = complete_stacks(fitted)

    assert found["xla"] == found["xla infer"] == rates(2.0)
    assert found["pytorch keras infer"] == rates(5.0)
    assert complete_stacks(fitted | {"xla infer": rates(3.0)})["xla infer"] == rates(3.0)


def test_the_loop_of_keras_on_pytorch_adds_to_its_step() -> None:
    """By hand: 6 ms of a step and 2 ms of a loop; a call takes the loop alone, and dispatches as a step does."""
    hosts = {
        "": host(1e-3, 1e-5), "pytorch keras": host(6e-3, 8e-5), "pytorch eager": host(2e-3, 4e-5),
        "pytorch eager infer": host(1e-3, 3e-5),
    }  # fmt: skip
    found = complete_hosts(hosts)

    for name, expected in (("keras torch", host(8e-3, 8e-5)), ("keras torch infer", host(1e-3, 8e-5))):
        assert vars(found[name]) == pytest.approx(vars(expected))
    assert "keras torch" not in complete_hosts({name: hosts[name] for name in ("", "pytorch eager")})


def test_the_packaged_rates_tell_training_from_inference() -> None:
    """Each class of stacks and of hosts is there for both; no call of Keras was measured on XLA or TensorFlow."""
    coefficients = load_coefficients()
    for stack in ("keras", "eager", "tuned"):
        assert coefficients.hosts[stack] != coefficients.hosts[f"{stack} infer"]
        for compiled in (True, False):
            step, call = (name_user_stack(stack, mode=mode, compiled=compiled) for mode in ("train", "infer"))
            mean = coefficients.stacks[""]  # of a stack that was measured in one mode only
            alike = coefficients.stacks.get(step, mean) == coefficients.stacks.get(call, mean)
            assert alike is (step in ("xla", "tensorflow2 keras"))


@pytest.fixture(scope="module")
def torch7() -> CrossValidation:
    """Torch7's rows of two networks, each predicted by a fit of the other: training and inference together."""
    rows = [m for m in read_published_file("cnn_benchmarks_cloud") if m.family in ("resnet50", "vgg16")]
    samples = build_samples(rows, load_catalog().accelerators, progress=lambda _: None)
    return cross_validate(samples, group_of=lambda e: e.measurement.family, progress=lambda _: None)


def test_what_is_left_out_is_left_out_in_both_modes(torch7: CrossValidation) -> None:
    """A fit without a network has seen neither its steps nor its calls: both have the group's fit."""
    modes = {(group, e.measurement.mode) for group, e in zip(torch7.groups, torch7.samples, strict=True)}
    assert modes == {(family, mode) for family in ("resnet50", "vgg16") for mode in ("train", "infer")}
    assert set(torch7.fits) == {"", "resnet50", "vgg16"}
    assert {"torch7 eager", "torch7 eager infer"} < set(torch7.fits["vgg16"].stacks)


def test_a_rule_of_thumb_has_a_constant_for_each_mode(torch7: CrossValidation) -> None:
    """By hand: FLOPs over peak of the one network, times the other's median ratio at the same mode."""
    for mode in ("train", "infer"):

        def ratio(i: int) -> float:
            fit_sample = torch7.samples[i].fit_sample
            flops = float((fit_sample.table.flops * fit_sample.table.count).sum())
            return fit_sample.step_s / (flops / float(fit_sample.chip.peak_flop_per_s.max()))

        of = {
            family: [
                i
                for i, e in enumerate(torch7.samples)
                if e.measurement.family == family and e.measurement.mode == mode
            ]
            for family in ("resnet50", "vgg16")
        }
        ratios = sorted(map(ratio, of["vgg16"]))
        middle = math.sqrt(ratios[(len(ratios) - 1) // 2] * ratios[len(ratios) // 2])
        assert of["resnet50"]
        for i in of["resnet50"]:
            rule_s = torch7.baseline_s["flops_ratio"][i]
            assert rule_s == pytest.approx(torch7.samples[i].fit_sample.step_s / ratio(i) * middle)
