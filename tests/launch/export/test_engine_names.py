"""Names of accelerators in exports, against the engines' own tables; nothing here is taken from ours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gpuplan.errors import NoAnswerError
from gpuplan.launch.export.engines import RENTING
from gpuplan.launch.export.names import describe_shared_name, find_skypilot_name
from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.rows import Offer
from launch.export.plans import export_planned, offer

# github.com/skypilot-org/skypilot, commit 02b01447, sky/provision/runpod/utils.py, GPU_NAME_MAP: what it starts
RUNPOD_STARTS = {
    "MI300X": "AMD Instinct MI300X OAM", "A100-80GB": "NVIDIA A100 80GB PCIe",
    "A100-80GB-SXM": "NVIDIA A100-SXM4-80GB", "A40": "NVIDIA A40", "B200": "NVIDIA B200",
    "RTX3090": "NVIDIA GeForce RTX 3090", "RTX4090": "NVIDIA GeForce RTX 4090",
    "RTX5090": "NVIDIA GeForce RTX 5090", "H100-SXM": "NVIDIA H100 80GB HBM3", "H100-NVL": "NVIDIA H100 NVL",
    "H100": "NVIDIA H100 PCIe", "H200-SXM": "NVIDIA H200", "L4": "NVIDIA L4", "L40": "NVIDIA L40",
    "L40S": "NVIDIA L40S", "RTX6000-Ada": "NVIDIA RTX 6000 Ada Generation", "RTXA5000": "NVIDIA RTX A5000",
    "RTXA6000": "NVIDIA RTX A6000", "RTXPRO6000": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
    "V100-16GB-SXM2": "Tesla V100-SXM2-16GB", "V100-32GB-SXM2": "Tesla V100-SXM2-32GB",
    "V100-16GB-PCIe": "Tesla V100-PCIE-16GB", "RTX3070": "NVIDIA GeForce RTX 3070",
    "RTX3080": "NVIDIA GeForce RTX 3080", "RTX3080Ti": "NVIDIA GeForce RTX 3080 Ti",
    "RTX4070Ti": "NVIDIA GeForce RTX 4070 Ti", "RTX4080": "NVIDIA GeForce RTX 4080",
    "RTX4080SUPER": "NVIDIA GeForce RTX 4080 SUPER", "RTX5080": "NVIDIA GeForce RTX 5080",
    "RTXA4000": "NVIDIA RTX A4000", "RTXPRO4500": "NVIDIA RTX PRO 4500 Blackwell",
}  # fmt: skip
# skypilot-catalog, commit 01b8cdda, catalogs/v8/vast/vms.csv: the vendor's name in InstanceType, AcceleratorName
VAST_NAMES = {
    "H200": "H200", "H100 NVL": "H100", "H100 SXM": "H100", "RTX 5090": "RTX5090", "RTX 4090": "RTX4090",
    "RTX 3090": "RTX3090", "RTX 6000Ada": "RTX6000-Ada", "RTX PRO 6000 S": "RTXPRO6000S", "L40S": "L40S",
    "RTX A6000": "RTXA6000", "B200": "B200", "A40": "A40",
    "A100 SXM4 40GB": "A100", "Tesla V100 16GB": "V100",  # there without the memory, with it in `GpuInfo`
}  # fmt: skip
# sky/catalog/gcp_catalog.py, _ACC_INSTANCE_TYPE_DICTS: machine types of a name begin so
GOOGLE_NAMES = {
    "a2-highgpu-": "A100", "a2-megagpu-16g": "A100", "a2-ultragpu-": "A100-80GB", "g2-standard-": "L4",
    "a3-highgpu-": "H100", "a3-megagpu-8g": "H100-MEGA", "a3-ultragpu-8g": "H200", "a4-highgpu-8g": "B200",
    "g4-standard-48": "RTXPRO6000",
}  # fmt: skip


def offers_of(provider: str) -> list[Offer]:
    """Return a provider's packaged offers."""
    return [one for one in load_catalog().offers if one.provider == provider]


def name_of(one: Offer) -> str:
    """Return SkyPilot's name of an offer's accelerators."""
    return find_skypilot_name(one.provider, one.instance_type, one.accelerator)


def test_skypilot_starts_the_gpu_of_runpod_that_was_planned() -> None:
    """RunPod's id, the name in the export, the id that SkyPilot asks RunPod for: the same. Three have no name."""
    named, without = [], set()
    for one in offers_of("runpod"):
        try:
            named.append((one.instance_type.partition(" [")[0], RUNPOD_STARTS[name_of(one)]))
        except NoAnswerError:
            without.add(one.instance_type.partition(" [")[0])

    assert len(named) > 15
    assert [planned for planned, started in named if planned != started] == []
    assert without == {"NVIDIA A100-SXM4-40GB", "NVIDIA B300 SXM6 AC", "NVIDIA H200 NVL"}


@pytest.mark.parametrize(("gpu_name", "name"), VAST_NAMES.items())
def test_names_at_vast_are_those_of_its_catalog(gpu_name: str, name: str) -> None:
    """Pairs of the vendor's name, from the instance type, and its accelerator in SkyPilot's catalog."""
    (found,) = [one for one in offers_of("vast") if one.instance_type == f"1x {gpu_name} [lowest]"]

    assert name_of(found) == name


def test_names_at_google_fit_the_machine_types() -> None:
    """SkyPilot refuses a name that does not belong to the machine type: H100 with a3-megagpu-8g."""
    found = {
        (prefix, name_of(one))
        for one in offers_of("gcp")
        for prefix in GOOGLE_NAMES
        if one.instance_type.startswith(prefix)
    }

    assert found == set(GOOGLE_NAMES.items())


def test_a_name_with_several_meanings_is_told(tmp_path: Path) -> None:
    """Vast's A100 of 40 GB and of 80 GB are one name; RunPod's have names of their own."""
    planned = offer("vast", "1x A100 SXM4 40GB [lowest]", "A100-40GB", region="any")
    document = json.dumps(export_planned(tmp_path, planned, "skypilot")["open"])

    assert "`A100` also means A100-40GB-PCIe, A100-80GB, A100-80GB-PCIe" in document
    assert describe_shared_name("RTX4090", "vast") == ()


def test_dstack_tells_of_a_shared_name_where_it_chooses_the_machine(tmp_path: Path) -> None:
    """At RunPod `H100` may be the PCIe card, which costs less than planned; at AWS the machine type is given."""
    by_name = offer("runpod", "NVIDIA H100 80GB HBM3 [secure]", "H100-SXM", region="any")
    by_type = offer("aws", "p5.4xlarge", "H100-SXM")

    assert "`H100` also means H100-PCIe" in json.dumps(export_planned(tmp_path, by_name, "dstack")["open"])
    assert "also means" not in json.dumps(export_planned(tmp_path, by_type, "dstack")["open"])


def test_runpods_tiers_are_asked_for_with_their_price_as_a_cap(tmp_path: Path) -> None:
    """Secure: SkyPilot's own type, dstack's data centers. Community: dstack's cap; SkyPilot has none of it."""
    secure = offer("runpod", "NVIDIA H100 80GB HBM3 [secure]", "H100-SXM", region="any", usd_per_hour="3.99")
    community = {**secure, "instance_type": "NVIDIA H100 80GB HBM3 [community]", "usd_per_hour": "2.69"}
    sky = export_planned(tmp_path, secure, "skypilot")["document"]["resources"]
    dstack = export_planned(tmp_path, secure, "dstack")["document"]
    cheap = export_planned(tmp_path, community, "dstack")

    assert (sky["instance_type"], sky["max_hourly_cost"]) == ("1x_H100-SXM_SECURE", 4.389)
    assert "accelerators" not in sky
    assert "CA-MTL-1" in dstack["regions"]
    assert all("-" in region for region in dstack["regions"])
    assert dstack["max_price"] == pytest.approx(4.389)
    assert cheap["document"]["max_price"] == pytest.approx(2.959)
    assert "regions" not in cheap["document"]
    assert "community_cloud: true" in json.dumps(cheap["open"])
    with pytest.raises(NoAnswerError, match="is of the tier `community`, which SkyPilot does not rent"):
        export_planned(tmp_path, community, "skypilot")


def test_engines_rent_at_these_clouds() -> None:
    """Neither rents notebooks; CoreWeave is a Kubernetes context to SkyPilot."""
    assert set(RENTING) == {"aws", "gcp", "azure", "lambda", "runpod", "vast"}
