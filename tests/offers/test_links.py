"""How the accelerators of instance types are joined: the rows, what they match, and that they reach the step."""

from __future__ import annotations

import shutil
from datetime import date
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from gpuplan.offers.catalog import Catalog, find_links, load_catalog
from gpuplan.offers.check import check_catalog
from gpuplan.plan.question import Filters, select
from gpuplan.predict.interconnect import HOST_SPECS, UNKNOWN_HOST, build_host_spec, find_slowest_link

CATALOG = load_catalog()
AFTER_EVERY_READING = date(2026, 12, 31)


@pytest.mark.parametrize(
    ("instance", "kind", "gb_per_s"),
    [
        ("p3.8xlarge", "nvlink", 100.0),  # four V100 of the cube mesh: four of six links of 25 GB/s
        ("p4d.24xlarge", "nvlink", 300.0),  # NVSwitch: every A100 sends at half of 600 GB/s
        ("a2-highgpu-4g", "nvlink", 300.0),
        ("g4dn.12xlarge", "pcie", 15.75),  # T4 cards in x16 slots of the third generation
        ("Standard_NC24s_v3", "pcie", 15.75),  # Azure's NCv3 holds V100 as cards, though V100 can have NVLink
    ],
)
def test_links_of_instance_types(instance: str, kind: str, gb_per_s: float) -> None:
    """Data sheets of the chips over the topologies of catalog/links.toml."""
    offer = next(offer for offer in CATALOG.offers if offer.instance_type == instance)
    machine = build_host_spec(find_links(CATALOG, offer))
    link = find_slowest_link(CATALOG.accelerators[offer.accelerator], devices=offer.devices, machine=machine)

    assert link is not None
    assert (link.kind, link.bytes_per_s) == (kind, pytest.approx(gb_per_s * 1e9))


def test_machines_of_published_rows_are_wired_as_the_catalog_says() -> None:
    """What scaling was fitted on and what is predicted agree on instance types that both know."""
    compared = set()
    for offer in CATALOG.offers:
        fitted = HOST_SPECS.get(offer.instance_type)
        links = find_links(CATALOG, offer)
        if fitted is not None and links is not None:
            assert links.topology == fitted.topology, offer.instance_type
            assert links.network_gbit_per_s == fitted.network_gbit_per_s, offer.instance_type
            compared.add(offer.instance_type)
    assert len(compared) > 3


def test_every_machine_with_several_gpus_of_the_big_clouds_is_described() -> None:
    """NVIDIA and AMD machines of AWS, Google Cloud and Azure: none is left to a guess."""
    guessed = {
        (offer.provider, offer.instance_type)
        for offer in CATALOG.offers
        if offer.devices > 1
        and offer.provider in ("aws", "gcp", "azure")
        and CATALOG.accelerators[offer.accelerator].kind == "gpu"
        and find_links(CATALOG, offer) is None
    }
    assert guessed == set()


def test_what_nobody_describes_is_unknown() -> None:
    """No row: the devices are joined as their kind usually is, and the network is not guessed."""
    assert build_host_spec(None) is UNKNOWN_HOST


def test_the_selection_carries_the_links() -> None:
    """`estimate` works from selections."""
    chosen = select(Filters(providers=("aws",), accelerators=("T4",), devices=(4,)), catalog=CATALOG)
    assert {one.links.topology for one in chosen.offers if one.links} == {"pcie"}


READ = 'source = "s"\nread_on = 2026-01-01\nconfidence = "low"'


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (f'provider = "nobody"\npattern = "x"\ntopology = "pcie"\n{READ}', "provider"),
        (f'provider = "aws"\npattern = "x"\ntopology = "pcie"\n{READ}'.replace("2026", "2027"), "read_on"),
        (f'provider = "aws"\npattern = "x"\n{READ}', "topology"),
        (f'provider = "aws"\npattern = "x"\ntopology = "ring"\n{READ}', "topology"),
    ],
)
def test_a_broken_row_is_found(tmp_path: Path, row: str, field: str) -> None:
    """`gpuplan catalog check` names the file and the field."""
    with as_file(files("gpuplan.catalog")) as packaged:
        shutil.copytree(packaged, tmp_path / "catalog", ignore=shutil.ignore_patterns("__pycache__", "*.py"))
    with (tmp_path / "catalog" / "links.toml").open("a") as file:
        file.write(f"\n[[links]]\n{row}\n")

    findings = check_catalog(tmp_path / "catalog", today=AFTER_EVERY_READING).findings
    assert [(one.file, one.field) for one in findings] == [("links.toml", field)]


def test_a_folder_without_links_has_none(tmp_path: Path) -> None:
    """A user's own catalog may do without."""
    assert Catalog(tmp_path).links == ()
