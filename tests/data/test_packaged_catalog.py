"""The packaged catalog: its laws, its size, and prices that were published."""

from __future__ import annotations

from collections import Counter
from datetime import date
from decimal import Decimal

import pytest
from data.laws import find_broken_laws
from gpuplan.errors import UsageError
from gpuplan.offers.catalog import Catalog, find_device, find_price_files, load_catalog, resolve_accelerator
from gpuplan.offers.check import check_catalog
from gpuplan.offers.rows import AvailabilityRule, Offer

# One row a purchase option. Each machine has an on-demand row, without a price where none is published (p5e and
# trn2 are sold as spot or capacity blocks only, a3-ultragpu-8g in europe-west4 as spot).
ROWS = {
    "aws": 1250, "azure": 912, "coreweave": 13, "digitalocean": 6, "gcp": 1523, "hyperstack": 5, "lambda": 23,
    "nebius": 6, "runpod": 45, "scaleway": 5, "vast": 47, "verda": 14, "vultr": 6,
}  # fmt: skip
ON_DEMAND_ROWS, PRICED_ON_DEMAND_ROWS, SPOT_ROWS = 2578, 2575, 1277


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    """The packaged catalog."""
    return load_catalog()


def offer_of(catalog: Catalog, instance_type: str, region: str, purchase: str) -> Offer:
    """Return the only offer with these three."""
    (found,) = [
        offer
        for offer in catalog.offers
        if (offer.instance_type, offer.region, offer.purchase) == (instance_type, region, purchase)
    ]
    return found


def test_no_law_is_broken(catalog: Catalog) -> None:
    """Every law of the catalog holds for every packaged row on the day of the test."""
    assert [str(finding) for finding in find_broken_laws(catalog.folder)] == []
    report = check_catalog(catalog.folder, today=max(date.today(), date(2026, 11, 23)))

    assert [str(finding) for finding in report.findings] == []
    assert (report.accelerators, report.offers, report.providers) == (81, sum(ROWS.values()), len(ROWS))


def test_every_offer_that_was_read_is_there(catalog: Catalog) -> None:
    """Rows a provider, on demand and spot, as counted in the lists that the prices were taken from."""
    priced = [offer for offer in catalog.offers if offer.provider in ROWS]

    assert Counter(offer.provider for offer in priced) == ROWS
    on_demand = [offer for offer in priced if offer.purchase == "on_demand"]
    assert len(on_demand) == ON_DEMAND_ROWS
    assert sum(offer.usd_per_hour is not None for offer in on_demand) == PRICED_ON_DEMAND_ROWS
    spot = [offer for offer in priced if offer.purchase == "spot"]
    assert len(spot) == SPOT_ROWS
    assert all(offer.usd_per_hour is not None for offer in spot)


def test_no_price_is_an_estimate(catalog: Catalog) -> None:
    """Spot prices that were on demand × (1 - published savings) are gone: a sixth was off by more than twice."""
    assert not [offer for offer in catalog.offers if offer.estimated]


@pytest.mark.parametrize(
    ("instance_type", "region", "purchase", "usd_per_hour"),
    [
        ("p2.xlarge", "us-east-1", "on_demand", "0.9"),
        ("p3.2xlarge", "us-east-1", "on_demand", "3.06"),
        ("p3.2xlarge", "us-east-1", "spot", "0.5509"),
        ("p3.2xlarge", "us-west-2", "spot", "0.7754"),
        ("g4dn.xlarge", "us-east-1", "on_demand", "0.526"),
        ("p4d.24xlarge", "us-east-1", "on_demand", "21.957642"),
        ("p5.48xlarge", "us-east-1", "on_demand", "55.04"),
        ("p5.4xlarge", "us-east-1", "on_demand", "6.88"),
        ("a2-highgpu-1g", "us-central1", "on_demand", "3.673385"),
        ("g2-standard-4", "us-central1", "on_demand", "0.706832"),
        ("a3-highgpu-8g", "us-central1", "on_demand", "88.490001"),
        ("attach:T4", "us-central1", "on_demand", "0.35"),
        ("attach:T4", "us-central1", "spot", "0.175"),
        ("tpu-v3-8", "us-central1", "on_demand", "8.00"),
        ("tpu-v2-8", "us-central1", "on_demand", "4.50"),
        ("Standard_NC6", "eastus", "on_demand", "0.90"),
        ("Standard_NC6s_v2", "eastus", "on_demand", "2.07"),
    ],
)
def test_published_prices(
    catalog: Catalog, instance_type: str, region: str, purchase: str, usd_per_hour: str
) -> None:
    """List prices as the providers publish them; each offer has the date and the file."""
    price = offer_of(catalog, instance_type, region, purchase).usd_per_hour

    assert price is not None
    assert abs(price - Decimal(usd_per_hour)) < Decimal("0.0001")


@pytest.mark.parametrize(
    ("instance_type", "chips"),
    [
        ("tpu-v2-8", 4),
        ("tpu-v2-512", 256),
        ("tpu-v3-8", 4),
        ("tpu-v3-32", 16),
        ("tpu-v4-8", 4),
        ("tpu-v5p-8", 4),
        ("tpu-v5litepod-1", 1),
        ("tpu-v5litepod-8", 8),
        ("tpu-v6e-1", 1),
        ("tpu-v6e-8", 8),
        ("tpu-v3-8@2019", 4),
    ],
)
def test_tpu_slices_count_chips(catalog: Catalog, instance_type: str, chips: int) -> None:
    """docs.cloud.google.com/tpu: -N is cores on v2, v3, v4, v5p (two a chip) and chips on v5e and v6e."""
    assert {offer.devices for offer in catalog.offers if offer.instance_type == instance_type} == {chips}


def test_a_k80_is_one_die(catalog: Catalog) -> None:
    """p2.xlarge, p2.8xlarge and p2.16xlarge have 1, 8 and 16 GK210, as AWS and the frameworks count."""
    counts = {o.instance_type: o.devices for o in catalog.offers if o.instance_type.startswith("p2.")}

    assert counts == {"p2.xlarge": 1, "p2.8xlarge": 8, "p2.16xlarge": 16}


AVAILABILITY = [
    ("a3-highgpu-1g", "us-central1", "on_demand", "reserved"),
    ("a3-highgpu-1g", "us-central1", "spot", "spot"),
    ("a4-highgpu-8g", "us-central1", "on_demand", "reserved"),
    ("a3-highgpu-8g", "us-central1", "on_demand", "scarce"),
    ("p5.48xlarge", "us-west-1", "on_demand", "reserved"),
    ("p5.48xlarge", "us-east-1", "on_demand", "scarce"),
    ("trn2.3xlarge", "sa-east-1", "on_demand", "reserved"),
    ("g5.xlarge", "us-east-1", "on_demand", "quota"),
    ("m5.xlarge", "us-east-1", "on_demand", "now"),
    ("tpu-v5litepod-1", "us-central1", "on_demand", "quota"),
    ("tpu-v7x-8", "us-central1", "on_demand", "reserved"),
    ("kaggle-free-t4x2", "any", "on_demand", "account"),
    ("NVIDIA H100 80GB HBM3 [secure]", "any", "on_demand", "now"),
    ("NVIDIA H100 80GB HBM3 [community]", "any", "on_demand", "now"),
    ("1x RTX 4090 [lowest]", "any", "on_demand", "scarce"),
    ("1x H100 SXM [verified]", "any", "on_demand", "now"),
]


def test_whether_every_machine_can_be_had_is_stated(catalog: Catalog) -> None:
    """Each instance type in each region has a rule or a default of its provider, with a source and a date."""
    states: dict[tuple[str, str, str], str] = {}
    known: dict[tuple[str, str, str], list[AvailabilityRule]] = {}
    for offer in catalog.offers:
        kind = (offer.provider, offer.instance_type, offer.purchase)
        if kind not in known:
            known[kind] = [rule for rule in catalog.availability if rule.matches(offer)]
        if offer.status not in ("retired", "historical"):
            rule = next(rule for rule in known[kind] if not rule.regions or offer.region in rule.regions)
            assert rule.source
            assert rule.as_of
            states[offer.key] = rule.state

    assert len(states) > 3000
    assert {key: states[key[:3]] for key in AVAILABILITY} == {key: key[3] for key in AVAILABILITY}
    regions = {region for rule in catalog.availability for region in rule.regions}
    assert regions <= {offer.region for offer in catalog.offers}


def test_parts_of_machines_are_marked(catalog: Catalog) -> None:
    """A GCP add-on is a GPU without a host: not complete, and its vCPUs and memory are unknown, not 0."""
    parts = [offer for offer in catalog.offers if not offer.complete]

    assert len(parts) == 94
    assert all(part.instance_type.startswith("attach:") for part in parts)
    assert all(part.vcpus is None and part.memory_gib is None for part in parts)


def test_unpublished_prices_are_unknown(catalog: Catalog) -> None:
    """p5e has no on-demand price, Colab names no rate for H100 and TPU v5e-1: listed, and priceless."""
    unknown = {o.instance_type for o in catalog.offers if o.usd_per_hour is None}

    assert {"p5e.48xlarge", "trn2.3xlarge", "colab-payg-h100", "colab-payg-tpu-v5e-1"} <= unknown
    assert {name for name in unknown if not name.startswith("colab-")} == {
        "p5e.48xlarge", "trn2.3xlarge", "a3-ultragpu-8g",
    }  # fmt: skip


def test_only_free_notebooks_cost_nothing(catalog: Catalog) -> None:
    """$0 stands on free notebook plans and nowhere else among what can be rented."""
    free = {offer.instance_type for offer in catalog.offers if offer.usd_per_hour == 0}

    assert free == {
        "colab-free-cpu",
        "colab-free-t4",
        "colab-free-tpu-v5e-1",
        "colab-free-k80",
        "colab-free-tpu-v2-8",
        "kaggle-free-t4x2",
        "kaggle-free-tpu-v5e-8",
        "kaggle-free-p100",
        "kaggle-free-tpu-v3-8",
    }


def test_every_price_file_and_provider_is_registered(catalog: Catalog) -> None:
    """A provider without a test over its data does not get in: files, rows and the counts above agree."""
    files = {file.name.removesuffix(".csv") for file in find_price_files(catalog.folder)}

    assert files == set(ROWS)
    assert {offer.provider for offer in catalog.offers} == set(catalog.providers)
    assert files | {"colab", "kaggle"} == set(catalog.providers)


def test_every_source_is_spelled_out_and_used(catalog: Catalog) -> None:
    """Each price resolves to the full text of its source, and no source is left over."""
    texts = {offer.price_source for offer in catalog.offers if offer.provider in ROWS}

    assert texts == set(catalog.sources.values())


def test_the_newest_price_dates_the_catalog(catalog: Catalog) -> None:
    """A spot price of Azure of 2026-11-18 is the newest number; free plans do not date a price."""
    assert catalog.as_of == "2026-11-18"


@pytest.mark.parametrize(
    ("measured", "name"),
    [
        ("A100-PCIE-40GB", "A100-40GB-PCIe"),
        ("A100-SXM4-40GB", "A100-40GB"),
        ("A100-SXM4-80GB", "A100-80GB"),
        ("K80", "K80"),
        ("M60", "M60"),
        ("P100-PCIE-16GB", "P100-PCIe"),
        ("P100-SXM2-16GB", "P100-SXM2"),
        ("RTX-3090", "RTX3090"),
        ("T4", "T4"),
        ("TPUv2-8", "TPU-v2"),
        ("TPUv2-32", "TPU-v2"),
        ("TPUv3-8", "TPU-v3"),
        ("TPUv3-32", "TPU-v3"),
        ("TPUv5p-1024", "TPU-v5p"),
        ("V100-16GB", "V100-16GB"),
        ("V100-SXM2-16GB", "V100-16GB"),
        ("V100-SXM2-32GB", "V100-32GB"),
        ("V100-SXM3-32GB", "V100-SXM3-32GB"),
        ("V100-SXM3-32GB-450W", "V100-SXM3-32GB"),
        ("Tesla K80", "K80"),
        ("NVIDIA H100 80GB HBM3", "H100-SXM"),
        ("v5litepod-16", "TPU-v5e"),
        ("TPU v5 lite", "TPU-v5e"),
        ("NVIDIA GeForce RTX 4090", "RTX4090"),
    ],
)
def test_names_of_published_measurements_resolve(catalog: Catalog, measured: str, name: str) -> None:
    """Whatever name with one meaning a published measurement or a driver uses leads to its accelerator."""
    assert resolve_accelerator(catalog, measured).name == name


@pytest.mark.parametrize(("name", "candidates"), [("A100", 4), ("V100", 5), ("H100", 3), ("P100-16GB", 2)])
def test_a_family_names_all_of_its_accelerators(catalog: Catalog, name: str, candidates: int) -> None:
    """As a filter it selects them; where one is needed, the error lists them, and each one resolves."""
    with pytest.raises(UsageError, match=f"`{name}` names {candidates} accelerators") as caught:
        resolve_accelerator(catalog, name)

    named = (caught.value.hint or "").split("`")[1::2]
    assert len(named) == candidates
    assert catalog.names.resolve_all(name) == tuple(named)
    assert [resolve_accelerator(catalog, candidate).name for candidate in named] == named


def test_every_canonical_name_and_alias_resolves(catalog: Catalog) -> None:
    """Each row answers to its own name and to all of its other spellings."""
    assert any(accelerator.aliases for accelerator in catalog.accelerators.values())
    for name, accelerator in catalog.accelerators.items():
        spellings = (name, name.lower(), *(alias.replace("*", "8") for alias in accelerator.aliases))
        assert {resolve_accelerator(catalog, spelling).name for spelling in spellings} == {name}


def test_cpu_hosts_are_known_where_the_facts_say_so(catalog: Catalog) -> None:
    """Azure Fsv2 and GCP e2 run on whatever is free: unknown. Every other CPU host has a family."""
    hosts = [offer for offer in catalog.offers if offer.accelerator == "CPU"]
    unknown = {offer.instance_type for offer in hosts if find_device(catalog, offer) is None}

    assert unknown == {"Standard_F8s_v2", "Standard_F16s_v2", "e2-standard-8"}
    assert len({offer.instance_type for offer in hosts} - unknown) == 29


def test_every_offer_with_an_accelerator_has_a_device(catalog: Catalog) -> None:
    """What is rented leads to the row that says what it can compute."""
    rented = [offer for offer in catalog.offers if offer.accelerator != "CPU"]
    assert len(rented) > 1000
    for offer in rented:
        device = find_device(catalog, offer)
        assert device is not None
        assert device.name == offer.accelerator
