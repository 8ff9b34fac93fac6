"""What is left out together, and how settings are named."""

from __future__ import annotations

import re
from collections import Counter

import pytest
from gpuplan.errors import UsageError
from gpuplan.offers.catalog import load_catalog
from gpuplan.plan.accuracy import HEADLINE
from gpuplan.predict.measurements import FAMILIES, load_published_measurements
from gpuplan.predict.scores import summarize

from lab.dataset import read_published_file
from lab.evaluation import Evaluator, judged_rows
from lab.evaluation_protocols import SETTINGS, find_settings


def test_one_network_under_several_names_is_left_out_as_one() -> None:
    """ResNet-50 of six sources is one family, so is BERT with its heads; ResNet-18 is another."""
    names: dict[str, set[str]] = {}
    for m in load_published_measurements():
        names.setdefault(m.family, set()).add(m.architecture)
    assert names["resnet50"] == {"resnet50", "resnet50_keras", "resnet50_mxnet", "resnet50_v1", "resnet50_v15"}
    assert names["bert"] == {"bert_classification", "bert_pretraining", "bert_span", "bert_tagging"}
    assert "resnet50" not in names["resnet18"]


def test_no_family_is_made_up() -> None:
    """Every name in the table begins the name of an architecture of the corpus."""
    names = {m.architecture for m in load_published_measurements()}
    assert all(any(name.startswith(family) for name in names) for family in FAMILIES)


def test_no_other_network_hides_under_two_names() -> None:
    """Names that differ only in a version or in whose implementation it is belong to one family.

    The versions of Inception are two networks.
    """
    told_apart = {"inception_v1", "inception_v4"}
    families: dict[str, set[str]] = {}
    for m in load_published_measurements():
        if m.architecture not in told_apart:
            stem = re.sub(r"(_(keras|mxnet|tensorpack|bvlc|cifar|tf_benchmarks|v1|v2|v15))+$", "", m.architecture)
            families.setdefault(stem, set()).add(m.family)
    assert {stem: f for stem, f in families.items() if len(f) > 1} == {}


def test_files_of_one_publisher_are_one_source() -> None:
    """NVIDIA's three files are left out together, and so are timm's two; every source keeps all its rows."""
    corpus = load_published_measurements()
    assert {m.collection for m in corpus if m.origin == "nvidia_dle"} == {
        "nvidia_dle_vision",
        "nvidia_dle_language",
        "nvidia_dle_infer",
    }
    assert {m.collection for m in corpus if m.origin == "timm"} == {"timm_train_rtx3090", "timm_infer"}
    assert not any(m.origin.endswith(("_vision", "_language", "_infer")) for m in corpus)


def test_rows_that_are_fitted_on_are_those_of_one_gpu() -> None:
    """No CPU, no second device; at least 1,200 training steps and 400 inference calls."""
    rows = judged_rows()
    assert Counter(m.mode for m in rows) >= Counter(train=1200, infer=400)
    assert {m.devices for m in rows} == {1}
    assert "CPU" not in {m.accelerator for m in rows}


def test_settings_come_by_name_in_their_order() -> None:
    """All without a name; an unknown one is a usage error that says what may have been meant."""
    assert [s.name for s in find_settings([])] == list(SETTINGS)
    assert HEADLINE in SETTINGS
    assert [s.name for s in find_settings(["source", "architecture"])] == ["architecture", "source"]
    with pytest.raises(UsageError, match="unknown setting `sorce`") as raised:
        find_settings(["sorce"])
    assert "`source`" in (raised.value.hint or "")


def test_nothing_is_predicted_when_nothing_is_left_to_fit_on() -> None:
    """One architecture of one source on one chip: no setting has rows."""
    rows = [
        m
        for m in read_published_file("profet_keras_aws")
        if (m.architecture, m.accelerator) == ("mnist_cnn", "T4")
    ]
    evaluator = Evaluator(measurements=rows[:1], accelerators=load_catalog().accelerators, progress=lambda _: None)
    assert {name: setting.predict(evaluator).rows for name, setting in SETTINGS.items()} == dict.fromkeys(
        SETTINGS, ()
    )


def test_scaling_is_judged_on_sources_left_out() -> None:
    """Every all-reduce row of one host, each in its place, and nearer than perfect scaling is.

    Parameter servers are judged apart: no row is in both settings.
    """
    evaluator = Evaluator(
        measurements=(),
        corpus=load_published_measurements(),
        accelerators=load_catalog().accelerators,
        progress=lambda _: None,
    )
    predicted = SETTINGS["devices"].predict(evaluator)
    assert len(predicted.rows) >= 300
    assert {row.measurement.devices for row in predicted.rows} == {2, 4, 8}
    assert not {row.measurement.distribution for row in predicted.rows} & {"parameter_server", "kvstore"}
    own, rule = (summarize(rows) for rows in (predicted.rows, predicted.baselines["perfect_scaling"]))
    assert own.n == rule.n
    assert own.mean_ape < rule.mean_ape
