"""Contract: SkyPilot's hosted catalog, from servers on loopback."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path

from gpuplan.offers.catalog import load_catalog
from gpuplan.offers.refresh.run import RefreshOutcome, build_jobs
from gpuplan.offers.refreshed_prices import PriceStore
from gpuplan.offers.rows import Offer
from vendors import others
from vendors.server import Asked, impatient, refresh_provider, vendor

CATALOG = load_catalog()


def run(store: PriceStore, url: str, *, packaged: Sequence[Offer] | None = None) -> RefreshOutcome:
    """Return how a refresh of Google Cloud without a key went."""
    (job,) = build_jobs(CATALOG, providers=("gcp",), environ={}, endpoints={"skypilot-gcp": url})
    job = job if packaged is None else replace(job, packaged=packaged)
    return refresh_provider(job, store=store, http=impatient())


def skypilot(asked: Asked) -> bytes | None:
    """Answer with the catalog of Google Cloud."""
    return others.SKYPILOT_CATALOG.read_bytes() if asked.path == "/gcp/vms.csv" else None


def test_a_catalog_with_far_fewer_machines_is_refused(tmp_path: Path) -> None:
    """The document lists a part of what is packaged."""
    with vendor(skypilot) as server:
        outcome = run(PriceStore(tmp_path), server.url)

    assert outcome.refused == ["gcp (SkyPilot)"]
    assert [s.code for s in outcome.anomalies] == ["far fewer rows"]


def test_skypilot_s_rows_are_put_together(tmp_path: Path) -> None:
    """Without a key: add-on GPUs, with hosts, and TPU slices; never 700, 0 or a rate of the scheduler."""
    store = PriceStore(tmp_path)
    with vendor(skypilot) as server:
        outcome = run(store, server.url, packaged=())

    assert outcome.anomalies == []
    assert outcome.names_left_out == {
        "no accelerator": ["n1-highmem-8", "n1-standard-16", "n4-highmem-4"],
        "unknown machine": ["a3-edgegpu-8g", "tpu-v5p-6144"],
    }
    assert all("SkyPilot" in offer.note for offer in store.offers("gcp"))
    found: dict[str, dict[tuple[str, str], Decimal | None]] = {"on_demand": {}, "spot": {}}
    for offer in store.offers("gcp"):
        found[offer.purchase][offer.instance_type, offer.region] = offer.usd_per_hour
    assert found["on_demand"] == {
        ("attach:P100", "us-central1"): Decimal("1.46"),
        ("attach:P4", "us-central1"): Decimal("0.6"),
        ("attach:T4", "us-central1"): Decimal("0.35"),
        ("attach:T4", "us-west4"): Decimal("0.37"),
        ("n1-standard-4", "us-central1"): Decimal("0.19"),
        ("n1-standard-8", "us-central1"): Decimal("0.38"),
        ("n1-standard-4+1xP4", "us-central1"): Decimal("0.79"),
        ("n1-standard-8+2xP4", "us-central1"): Decimal("1.58"),
        ("n1-standard-16+4xP4", "us-central1"): Decimal("3.16"),
        ("n1-standard-8+1xP100", "us-central1"): Decimal("1.84"),
        ("n1-standard-4+1xT4", "us-central1"): Decimal("0.54"),
        ("n1-standard-8+2xT4", "us-central1"): Decimal("1.08"),
        ("n1-standard-16+4xT4", "us-central1"): Decimal("2.16"),
        # 8 GPUs at 78.37241 and their host at 9.46006; in Iowa, 33.60609 is not the rate on demand
        ("a3-highgpu-8g", "us-east4"): Decimal("87.83247"),
        ("a3-megagpu-8g", "us-central1"): Decimal("92.21427"),
        ("a3-megagpu-8g", "us-east4"): Decimal("92.2143"),
        ("tpu-v6e-1", "southamerica-west1"): Decimal("2.7"),
        ("tpu-v6e-1", "us-central1"): Decimal("2.7"),
        ("tpu-v6e-1", "us-south1"): Decimal("2.7"),
        ("tpu-v6e-8", "us-central1"): Decimal("21.6"),
        ("tpu-v6e-64", "us-east5"): Decimal("172.8"),
    }
    assert found["spot"] == {
        ("attach:P100", "us-central1"): Decimal("0.7034"),
        ("attach:P4", "us-central1"): Decimal("0.2236"),
        ("attach:T4", "us-central1"): Decimal("0.175"),
        ("attach:T4", "us-west4"): Decimal("0.1258"),
        ("n1-standard-4", "us-central1"): Decimal("0.04"),
        ("n1-standard-8", "us-central1"): Decimal("0.08"),
        ("n1-standard-4+1xP4", "us-central1"): Decimal("0.2636"),
        ("n1-standard-8+2xP4", "us-central1"): Decimal("0.5272"),
        ("n1-standard-16+4xP4", "us-central1"): Decimal("1.0544"),
        ("n1-standard-8+1xP100", "us-central1"): Decimal("0.7834"),
        ("n1-standard-4+1xT4", "us-central1"): Decimal("0.215"),
        ("n1-standard-8+2xT4", "us-central1"): Decimal("0.43"),
        ("n1-standard-16+4xT4", "us-central1"): Decimal("0.86"),
        ("a3-highgpu-8g", "us-central1"): Decimal("26.83013"),
        ("a3-highgpu-8g", "us-east4"): Decimal("20.04446"),
        ("a3-megagpu-8g", "us-central1"): Decimal("28.17013"),
        ("a3-megagpu-8g", "us-east4"): Decimal("17.05486"),
        ("tpu-v6e-1", "us-central1"): Decimal("0.54421"),
        ("tpu-v6e-1", "us-south1"): Decimal("1.35"),
        ("tpu-v6e-8", "us-central1"): Decimal("4.35366"),
        ("tpu-v6e-64", "us-east5"): Decimal("77.76"),
    }


def test_a_catalog_that_has_not_changed_is_not_sent_again(tmp_path: Path) -> None:
    """The ETag of the last answer goes along; its prices count as read now, and no other request is made."""
    store = PriceStore(tmp_path)
    with vendor(skypilot) as server:
        server.etag = 'W/"one"'
        run(store, server.url, packaged=())
        first = store.offers("gcp")
        later = datetime.now(UTC) + timedelta(days=8)
        (job,) = build_jobs(CATALOG, providers=("gcp",), environ={}, endpoints={"skypilot-gcp": server.url})
        outcome = refresh_provider(job, store=store, http=impatient(), now=lambda: later)
        assert [asked.headers.get("if-none-match") for asked in server.asked] == [None, 'W/"one"']

    second = store.offers("gcp")
    assert outcome.accepted == ["gcp (SkyPilot)"]
    assert (outcome.same, outcome.new, outcome.anomalies) == (len(first), 0, [])
    assert [(o.key, o.usd_per_hour) for o in second] == [(o.key, o.usd_per_hour) for o in first]
    assert {o.price_as_of for o in second} == {later.date().isoformat()}


def test_an_old_etag_gets_the_new_catalog(tmp_path: Path) -> None:
    """A T4 costs a cent more; the ETag of an answer that was refused is not kept."""
    store = PriceStore(tmp_path)
    text = others.SKYPILOT_CATALOG.read_bytes()
    texts = [text, text.replace(b",0.35,", b",0.36,"), text[: len(text) // 4].rsplit(b"\n", 1)[0] + b"\n"]
    with vendor(lambda _: texts[0]) as server:
        for number in range(3):
            server.etag = f'"{number}"'
            outcome = run(store, server.url, packaged=())
            texts[:] = texts[1:] or texts
        assert [asked.headers.get("if-none-match") for asked in server.asked] == [None, '"0"', '"1"']

    assert [found.code for found in outcome.anomalies] == ["far fewer rows"]
    assert list(store.etags("gcp").values()) == ['"1"']
    prices = {offer.key: offer.usd_per_hour for offer in store.offers("gcp")}
    assert prices["attach:T4", "us-central1", "on_demand"] == Decimal("0.36")


def test_clouds_with_one_price_everywhere_keep_their_one_region(tmp_path: Path) -> None:
    """Nebius, as SkyPilot lists it: one row in each region, of which the catalog has `any`."""
    machine = "gpu-h100-sxm_1gpu-16vcpu-200gb,H100,1,16,200"
    head = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,Price,Region,GpuInfo,SpotPrice"
    rows = [f"{machine},2.95,eu-north1,,1.25", f"{machine},2.95,us-central1,,1.25"]
    store = PriceStore(tmp_path)
    with vendor(lambda asked: "\n".join([head, *rows, ""]).encode()) as server:
        (job,) = build_jobs(CATALOG, providers=("nebius",), environ={}, endpoints={"skypilot-nebius": server.url})
        refresh_provider(replace(job, packaged=()), store=store, http=impatient())
        assert server.asked[0].path == "/nebius/vms.csv"

    assert {(o.region, o.purchase, o.accelerator, o.usd_per_hour) for o in store.offers("nebius")} == {
        ("any", "on_demand", "H100-SXM", Decimal("2.95")),
        ("any", "spot", "H100-SXM", Decimal("1.25")),
    }
