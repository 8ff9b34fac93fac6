"""Evaluation settings: held-out groups and scored rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from gpuplan.plan.accuracy import require_settings
from gpuplan.predict.measurements import OWN, Measurement

from .evaluation import Evaluator, HeldOutPredictions

PROFET = "profet_keras_aws"
TRANSFORMERS = ("bert", "mpt", "transformer", "transformer_xl")
KNOWN_PRECISIONS = ("float32", "tf32", "mixed_float16", "mixed_bfloat16")
DATASHEET_CHIPS = ("P100", "V100", "T4", "A100", "H100")
SINCE_PASCAL = (*DATASHEET_CHIPS, "RTX3090", "RTX4090", "RTX6000Ada", "A10", "A6000")


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSetting:
    """An evaluation setting.

    Args:
        name: What `--setting` takes.
        title: A few words.
        protocol: One sentence: what was fitted on, what was held out, which rows are counted.
        predict: Makes the predictions, out of a bench that shares them between settings.
        among: Rows among which machines are chosen, group by group, where they are not those that are counted.
    """

    name: str
    title: str
    protocol: str
    predict: Callable[[Evaluator], HeldOutPredictions]
    among: Callable[[Evaluator], Sequence[HeldOutPredictions]] | None = None


def _is_profet(m: Measurement) -> bool:
    return m.collection == PROFET


def _is_own(m: Measurement) -> bool:
    return m.collection == OWN


def _is_published(m: Measurement) -> bool:
    return m.collection != OWN


def _is_transformer(m: Measurement) -> bool:
    return m.family in TRANSFORMERS and _is_published(m)


def _has_known_stack(m: Measurement) -> bool:
    return m.chip in SINCE_PASCAL and m.precision in KNOWN_PRECISIONS and not m.assumed


def _is_one_host(m: Measurement) -> bool:
    return m.devices in (2, 4, 8) and m.hosts == 1


def keeps_global_batch(corpus: Iterable[Measurement]) -> Callable[[Measurement], bool]:
    """Return whether a step's batch over all devices is one that the same publisher ran on one device, too."""

    def work(m: Measurement) -> tuple[object, ...]:
        return (m.collection, m.model, m.accelerator, m.precision, m.compiled, m.batch_size * m.devices)

    singles = {work(m) for m in corpus if m.mode == "train" and m.devices == 1}
    return lambda m: work(m) in singles


def _from_datasheets(evaluator: Evaluator) -> HeldOutPredictions:
    return evaluator.without_accelerator.where(lambda m: m.chip in DATASHEET_CHIPS)


def build_profile_setting(source: str) -> EvaluationSetting:
    """Return the setting that knows of each architecture only what it took on one accelerator."""
    return EvaluationSetting(
        name=f"from-{source.lower()}",
        title=f"From a profile on {source}, architecture left out",
        protocol=f"PROFET's rows on the other GPUs, each network predicted by coefficients fitted without it "
        f"and by its measured steps on {source} at the same image size and every batch size; how errors carry "
        "over is learnt from the other networks.",
        predict=lambda evaluator: evaluator.from_profile(_is_profet, source=source, batches="all"),
    )


SETTINGS: dict[str, EvaluationSetting] = {
    setting.name: setting
    for setting in (
        EvaluationSetting(
            name="architecture",
            title="PROFET's rows, architecture left out",
            protocol="Each of PROFET's nine Keras networks on K80, M60, T4 and V100, predicted by coefficients "
            "fitted on the training steps and inference calls of all other architectures on one GPU.",
            predict=lambda evaluator: evaluator.without_architecture.where(_is_profet),
        ),
        EvaluationSetting(
            name="profet",
            title="PROFET's rows alone, architecture left out",
            protocol="The same rows, predicted by coefficients fitted on PROFET's other eight networks only. "
            "Small enough that every test run recomputes it.",
            predict=lambda evaluator: evaluator.architecture_left_out(_is_profet),
        ),
        EvaluationSetting(
            name="all",
            title="Every row, architecture left out",
            protocol="Every single-device training row, predicted by coefficients fitted on the rows of all "
            "other architectures; those with few rows are left out several at a time.",
            predict=lambda evaluator: evaluator.without_architecture.where(_is_published),
        ),
        EvaluationSetting(
            name="keras3",
            title="Keras 3, architecture left out",
            protocol="Every step of Keras 3 that was timed for this project, predicted by coefficients fitted on "
            "the rows of all other architectures, published and our own. Rules of some slow kernels were found in "
            "the kernels of these steps.",
            predict=lambda evaluator: evaluator.without_architecture.where(_is_own),
        ),
        EvaluationSetting(
            name="keras3-accelerator",
            title="Keras 3, accelerator left out",
            protocol="The same steps, predicted from the datasheet by coefficients fitted on the rows of all "
            "other chips: with one chip measured, on published rows alone.",
            predict=lambda evaluator: evaluator.without_accelerator.where(_is_own),
        ),
        EvaluationSetting(
            name="source",
            title="Source left out",
            protocol="Every single-device training row on chips since Pascal in float32, TF32 or mixed precision "
            "whose precision and compilation were published, predicted by coefficients fitted on the rows of "
            "all other publishers. Machines are chosen among all chips.",
            predict=lambda evaluator: evaluator.without_source.where(_has_known_stack),
            among=lambda evaluator: (evaluator.without_source,),
        ),
        EvaluationSetting(
            name="source-agreement",
            title="Source left out, beside another source's measurement",
            protocol="The single-device training rows whose network, batch size, precision, compilation and chip "
            "another publisher measured, too (FLOPs within 5 %, traffic within 10 %). The rule `other_publisher` "
            "predicts a row by the other publishers' measurements of the same workload: how far they agree among "
            "themselves.",
            predict=lambda evaluator: evaluator.measured_by_others,
        ),
        EvaluationSetting(
            name="accelerator",
            title="Accelerator left out",
            protocol="Every single-device training row on P100, V100, T4, A100 and H100, predicted from the "
            "datasheet by coefficients fitted on the rows of all other chips; all memory sizes and forms of a "
            "chip are left out together. Machines are chosen among all chips, each left out in its turn.",
            predict=_from_datasheets,
            among=lambda evaluator: (evaluator.without_accelerator,),
        ),
        EvaluationSetting(
            name="accelerator-new",
            title="One accelerator left out, the others known",
            protocol="The same rows and fits. Machines are chosen with one new chip: P100, V100, T4, A100 and "
            "H100 in turn, which the fit has not seen, next to the other chips that a workload was measured on, "
            "which it has.",
            predict=_from_datasheets,
            among=lambda evaluator: evaluator.with_one_chip_new(DATASHEET_CHIPS),
        ),
        EvaluationSetting(
            name="transformers",
            title="Transformers, architecture left out",
            protocol="BERT, MPT, Transformer and Transformer-XL, each predicted by coefficients fitted on the "
            "steps and calls of all other architectures on one GPU; BERT's heads are left out together.",
            predict=lambda evaluator: evaluator.without_architecture.where(_is_transformer),
        ),
        EvaluationSetting(
            name="transformers-accelerator",
            title="Transformers, accelerator left out",
            protocol="The same networks, predicted from the datasheet by coefficients fitted on the rows of all "
            "other chips.",
            predict=lambda evaluator: evaluator.without_accelerator.where(_is_transformer),
        ),
        build_profile_setting("T4"),
        EvaluationSetting(
            name="from-each",
            title="From two batch sizes on any other GPU, architecture left out",
            protocol="The same for every ordered pair of PROFET's four GPUs, from the smallest and the largest "
            "batch size measured on the first. Machines are chosen by the profile on T4.",
            predict=lambda evaluator: evaluator.from_profile(_is_profet, source=None, batches="two"),
            among=lambda evaluator: (evaluator.from_profile(_is_profet, source="T4", batches="two"),),
        ),
        EvaluationSetting(
            name="devices",
            title="2, 4 and 8 devices of one host, source left out",
            protocol="Every training step on 2, 4 or 8 devices of one host that average their gradients among "
            "themselves, predicted from the step on one device published beside it, by constants fitted on the "
            "rows of all other publishers.",
            predict=lambda evaluator: evaluator.scaling_without_source(("all_reduce",)).where(_is_one_host),
        ),
        EvaluationSetting(
            name="devices-older",
            title="Parameter servers and one process for all devices, source left out",
            protocol="The same for parameter servers and for one process that splits each batch, which most "
            "frameworks no longer use.",
            predict=lambda evaluator: evaluator.scaling_without_source(("parameter_server", "one_process")).where(
                _is_one_host
            ),
        ),
        EvaluationSetting(
            name="devices-modelled",
            title="2, 4 and 8 devices of one host from the modelled step on one, source left out",
            protocol="The rows of averaged gradients once more, and those without a published step on one device: "
            "the step on one is predicted by coefficients, and what several devices add by constants, both fitted "
            "on the rows of all other publishers.",
            predict=lambda evaluator: evaluator.devices_without_source.where(_is_one_host),
        ),
        EvaluationSetting(
            name="devices-strong",
            title="The batch of one device shared by 2, 4 or 8, source left out",
            protocol="Of these rows, those whose global batch the same publisher also ran on one device: what "
            "sharing a batch gains, as gpuplan does by default.",
            predict=lambda evaluator: evaluator.devices_without_source.where(_is_one_host).where(
                keeps_global_batch(evaluator.corpus)
            ),
        ),
        EvaluationSetting(
            name="inference",
            title="Inference, architecture left out",
            protocol="Every published inference call on GPUs, one or several that each work for themselves, "
            "predicted as a forward pass by coefficients fitted on the training steps and inference calls of all "
            "other architectures on one GPU.",
            predict=lambda evaluator: evaluator.inference,
        ),
        EvaluationSetting(
            name="inference-source",
            title="Inference, source left out",
            protocol="Every published inference call on one GPU, predicted by coefficients fitted on the training "
            "steps and inference calls of all other publishers.",
            predict=lambda evaluator: evaluator.inference_without_source,
        ),
        EvaluationSetting(
            name="tpu",
            title="TPU slices, no TPU and not the architecture fitted",
            protocol="Every training step on a TPU v2-8 or v3-8, predicted from the chip's datasheet by "
            "coefficients fitted on the rows of all other architectures on GPUs, and by constants for several "
            "devices fitted on the rows of all other publishers.",
            predict=lambda evaluator: evaluator.tpus,
        ),
    )
}


def find_settings(names: Iterable[str]) -> tuple[EvaluationSetting, ...]:
    """Return settings by name, in the order of the register; all of them when none is named.

    UsageError for a name that is unknown.
    """
    wanted = list(names)
    require_settings(wanted, SETTINGS)
    return tuple(setting for setting in SETTINGS.values() if not wanted or setting.name in wanted)
