"""Images that machines are launched with: laws over the table, and what is refused before anything is made."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from importlib.metadata import metadata
from pathlib import Path
from typing import Any

import pytest
from gpuplan.errors import NoAnswerError, UsageError
from gpuplan.launch.clouds import create_adapter
from gpuplan.launch.clouds.google.attempt import find_disk_type
from gpuplan.launch.core.clock import Clock
from gpuplan.launch.core.request import LaunchCandidate, LaunchRequest, RunSpec
from gpuplan.launch.planning import make_plan
from gpuplan.launch.select_offer import EstimateOffers, Renter, select_candidates
from gpuplan.offers.catalog import find_image, load_catalog
from gpuplan.offers.images import BEFORE_TURING
from launch.bench_on_sockets import candidate
from packaging.specifiers import SpecifierSet

IMAGES = load_catalog().images.images
ACCOUNTS = {"gcp": {"project": "p1"}, "azure": {"subscription": "11111111-2222-3333-4444-555555555555"}}
REGIONS = {"aws": "us-east-1", "azure": "eastus", "gcp": "us-central1"}
REFUSED = {
    ("aws", "p3.2xlarge", "V100-16GB"): "is Volta",
    ("aws", "p2.xlarge", "K80"): "is Kepler",
    ("aws", "trn1.2xlarge", "Trainium1"): "is NeuronCore-v2",
    ("azure", "Standard_ND96isr_MI300X_v5", "MI300X"): "needs the driver ROCm",
    ("azure", "Standard_NV6ads_A10_v5", "A10"): "needs the driver GRID",
    ("azure", "Standard_ND128isr_NDR_GB200_v6", "GB200"): "has an arm64 CPU",
    ("azure", "Standard_NV12", "M60"): "is Maxwell",
    ("gcp", "n1-standard-8+1xV100", "V100-16GB"): "is Volta",
}
DEFAULTS = {
    ("aws", "g4dn.xlarge", "T4"): "x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04",
    ("aws", "m8g.2xlarge", "CPU"): "arm64/base-oss-nvidia-driver-gpu-ubuntu-24.04",
    ("aws", "p6-b200.48xlarge", "B200"): "x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04",
    ("gcp", "a3-highgpu-8g", "H100-SXM"): "common-cu129-ubuntu-2404-nvidia-580",
    ("gcp", "n1-standard-4", "CPU"): "common-cu129-ubuntu-2404-nvidia-580",
    ("azure", "Standard_NC40ads_H100_v5", "H100-NVL"): "microsoft-dsvm:ubuntu-hpc:2404",
}


def plan_json(provider: str, offer: LaunchCandidate, **options: str) -> dict[str, Any]:
    """Return the plan of a machine as it is printed with `--json`."""
    request = LaunchRequest(
        run="r1234abcd-1",
        owner="me",
        made_at=datetime(2026, 11, 21, 12, tzinfo=UTC),
        provider=provider,
        candidates=(offer,),
        spec=RunSpec(
            script="train.py", source="git:https://example.org/x", packages=("keras==3.15.1", "jax==0.10.2")
        ),
        options={**ACCOUNTS.get(provider, {}), **options},
    )
    adapter = create_adapter(provider, state_dir=Path("/state"), clock=Clock())
    return make_plan(request, adapter).to_json()


def machine(key: tuple[str, str, str]) -> LaunchCandidate:
    """Return an offer of an instance type and its accelerator."""
    provider, instance_type, accelerator = key
    return candidate(instance_type, REGIONS[provider]).model_copy(update={"accelerator": accelerator})


@pytest.mark.parametrize("image", IMAGES, ids=[one.name for one in IMAGES])
def test_packages_install_on_every_image(image: Any) -> None:
    """`Requires-Python` of the installed Keras and JAX; the driver of jax[cuda12] is 525.60.13 or later."""
    for package in ("keras", "jax", "jaxlib"):
        assert f"{image.python}.0" in SpecifierSet(metadata(package)["Requires-Python"])
    assert image.branch >= load_catalog().images.wheels["jax[cuda12]"].branch == 525


def test_open_drivers_serve_nothing_before_turing() -> None:
    """NVIDIA's open kernel modules need a GPU system processor, which Turing was the first to have."""
    served = [name for image in IMAGES if image.driver == "open" for name in image.serves]
    assert served
    assert not BEFORE_TURING & set(served)


@pytest.mark.parametrize(("key", "reason"), REFUSED.items(), ids=[key[1] for key in REFUSED])
def test_a_machine_that_no_image_serves_is_refused_with_the_reason(key: tuple[str, str, str], reason: str) -> None:
    """In one line, before anything is made; an image that the user brings is taken."""
    with pytest.raises(NoAnswerError, match=reason) as caught:
        plan_json(key[0], machine(key))
    assert "\n" not in str(caught.value)
    mine = {"aws": "ami-12345678", "azure": "a:b:c:d", "gcp": "projects/p1/global/images/mine"}[key[0]]
    planned = plan_json(key[0], machine(key), image=mine)
    assert planned["exposure"]["image"] == mine
    assert any("nothing is known of the image" in note for note in planned["notes"])


@pytest.mark.parametrize(("key", "name"), DEFAULTS.items(), ids=[key[1] for key in DEFAULTS])
def test_the_default_image_is_ubuntu_24_04_of_the_machines_architecture(
    key: tuple[str, str, str], name: str
) -> None:
    """Python 3.12 at all three clouds; Graviton gets the arm64 image."""
    planned = plan_json(key[0], machine(key))
    assert name in planned["exposure"]["image"]
    (image,) = [one for one in IMAGES if one.name == planned["exposure"]["image"]]
    assert (image.os, image.python) == ("Ubuntu 24.04", "3.12")


def test_an_image_of_the_table_is_checked_when_it_is_typed() -> None:
    """The arm64 image on an x86 machine."""
    with pytest.raises(NoAnswerError, match="has an x86_64 CPU"):
        plan_json("aws", machine(("aws", "g4dn.xlarge", "T4")), image=IMAGES[1].name)


def test_a_disk_that_the_image_does_not_fit_on_is_refused() -> None:
    """About 57 of 64 GB are taken on Azure's HPC image."""
    with pytest.raises(UsageError, match="disk_gb=64"):
        plan_json("azure", machine(("azure", "Standard_NC4as_T4_v3", "T4")), disk_gb="64")


def test_all_accelerators_of_the_catalog_are_decided() -> None:
    """Every offer of the three clouds either has an image or a reason; slices have runtimes instead."""
    catalog = load_catalog()
    decided = {
        (one.provider, one.instance_type): find_image(
            catalog, provider=one.provider, instance_type=one.instance_type, accelerator=one.accelerator
        )
        for one in catalog.offers
        if one.provider in REGIONS and not one.accelerator.startswith("TPU")
    }
    assert len(decided) > 150
    assert all((image is None) == bool(why) for image, why in decided.values())


def test_a_launch_takes_the_next_offer_that_an_image_serves() -> None:
    """The estimate's rows are marked, and the message names the reason and the best that can be launched."""
    rows = [
        {
            **dict.fromkeys(("train_time_s", "step_time_s", "spot", "price_as_of", "memory_fits", "runs")),
            "provider": "azure",
            "instance_type": name,
            "accelerator": accelerator,
            "devices": 1,
            "region": "eastus",
            "purchase": "on_demand",
            "usd_per_hour": Decimal(1),
            "complete": True,
            "status": "active",
        }
        for name, accelerator in (("Standard_NV36ads_A10_v5", "A10"), ("Standard_NC4as_T4_v3", "T4"))
    ]
    planned = EstimateOffers(
        path=Path("plan.json"), model="x", offers=tuple(rows), chosen=(0,), written_at=datetime.now(UTC)
    )
    with pytest.raises(NoAnswerError, match="needs the driver GRID") as caught:
        select_candidates(planned, Renter(image=""), rank=None, fallbacks=0)
    assert "Standard_NC4as_T4_v3" in str(caught.value.hint)
    own = Renter(image="/subscriptions/s/images/mine")
    assert select_candidates(planned, own, rank=None, fallbacks=0)[1][0].accelerator == "A10"


@pytest.mark.parametrize(
    ("machine_type", "disk"),
    [
        ("n1-standard-8", "pd-balanced"),
        ("g2-standard-4", "pd-balanced"),
        ("a2-highgpu-1g", "pd-balanced"),
        ("a3-highgpu-8g", "pd-balanced"),
        ("a3-ultragpu-8g", "hyperdisk-balanced"),
        ("a4-highgpu-8g", "hyperdisk-balanced"),
        ("g4-standard-48", "hyperdisk-balanced"),
        ("c4-standard-8", "hyperdisk-balanced"),
    ],
)
def test_google_boots_from_a_disk_type_that_the_machine_takes(machine_type: str, disk: str) -> None:
    """N1 refuses Hyperdisk, C4 and A4 refuse Persistent Disk, and none gets pd-standard by default."""
    assert find_disk_type(machine_type) == disk


def test_the_disk_type_is_in_the_request() -> None:
    """With its zone, as Compute Engine writes it."""
    planned = plan_json("gcp", machine(("gcp", "g2-standard-4", "L4")))
    text = json.dumps(planned)
    assert "zones/us-central1-a/diskTypes/pd-balanced" in text
