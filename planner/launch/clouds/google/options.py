"""Options of a launch on Google Cloud, zones and machine types, and the bucket that a folder is uploaded to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ....errors import UsageError
from ....offers.aliases import get_chip_name
from ....offers.catalog import find_chosen_accelerator, load_chosen_catalog
from ...core.api_call import Call, build_call
from ...core.cloud_adapter import Leftover
from ...core.request import TAG_RUN, parse_owner_tags
from ...core.startup import build_archive_name
from ...core.upload import LEFT_OUT
from ..base import Draft, parse_options

LABEL = re.compile(r"[a-z0-9_-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleOptions:
    """Options and their defaults."""

    project: str = ""  # project that pays; default `GOOGLE_CLOUD_PROJECT`
    zones: str = ""  # zones in order, separated by commas; default: all of the offer's region
    image: str = ""  # image of a GPU machine; empty: by the table of images
    disk_gb: str = "100"  # size of its disk [GB]
    network: str = "default"  # network of the project; its rules are not changed
    external_ip: str = "true"  # `false` for a machine without an external address
    service_account: str = ""  # service account of the machine; none by default
    bucket: str = ""  # `gs://…` for checkpoints and logs
    wait_s: str = "900"  # maximum time to wait for a TPU [s]

    @property
    def has_address(self) -> bool:
        return self.external_ip != "false"


def read_options(options: Mapping[str, str], *, project: str) -> GoogleOptions:
    """Return validated options, or raise UsageError; `project` is that of the environment, or empty."""
    typed = {name: text.rstrip("/") if name == "bucket" else text for name, text in options.items()}
    chosen = parse_options(GoogleOptions, typed, provider="gcp", needs={}, project=project)
    if not chosen.project:
        raise UsageError(
            "no project is given to pay for the machine", hint="`-O project=NAME`, or set GOOGLE_CLOUD_PROJECT"
        )
    if not chosen.wait_s.isdecimal():
        raise UsageError(f"`--option wait_s={chosen.wait_s}` is not a number of seconds", hint="try 900")
    if chosen.bucket and not (chosen.bucket.startswith("gs://") and chosen.service_account):
        raise UsageError(
            "`-O bucket` needs a `gs://…` address and `-O service_account=…` that may write there",
            hint="give both, or no bucket: then checkpoints are lost with the machine",
        )
    return chosen


# Most regions have zones a, b and c (https://cloud.google.com/memorystore/docs/memcached/regions). These have
# others: us-central1 as listed there; us-east1 and europe-west1 as `gcloud compute zones list` printed them
# (https://gist.github.com/maurer/cb14d5badf112b5fb984); us-central2, for TPU v4, [unverified]. A wrong one is
# refused, and the next is tried.
_OTHER_ZONES = {"us-central1": "abcf", "us-east1": "bcd", "europe-west1": "bcd", "us-central2": "b"}
_USUAL_RUNTIME = "tpu-ubuntu2204-base"  # of TPUs: https://docs.cloud.google.com/tpu/docs/runtimes


def list_zones(region: str) -> tuple[str, ...]:
    """Return the zones of a region.

    Example:
        >>> list_zones("us-east1")
        ('us-east1-b', 'us-east1-c', 'us-east1-d')
    """
    if not re.fullmatch(r"[a-z]+-[a-z]+\d+", region):
        raise UsageError(f"`{region}` is not a region of Google Cloud", hint="choose an offer with a region")
    return tuple(f"{region}-{letter}" for letter in _OTHER_ZONES.get(region, "abc"))


def parse_region(zone: str) -> str:
    """Return the region of a zone, such as `us-east1-b`."""
    return zone.rpartition("-")[0]


def machine_type(instance_type: str) -> tuple[str, tuple[str, int] | None]:
    """Return the machine type of a catalog name, and its attached accelerators.

    Example:
        >>> machine_type("n1-standard-8+2xT4")
        ('n1-standard-8', ('nvidia-tesla-t4', 2))
        >>> machine_type("a2-highgpu-1g")
        ('a2-highgpu-1g', None)
    """
    base, plus, attached = instance_type.partition("+")
    if not plus:
        return base, None
    count, _, name = attached.partition("x")
    rows = load_chosen_catalog().accelerators.values()
    types = {get_chip_name(row.name): row.google_type for row in rows if row.google_type}
    if name not in types or not count.isdecimal():
        raise UsageError(
            f"`{attached}` cannot be attached to {base}: unknown accelerator name", hint="choose another offer"
        )
    return base, (types[name], int(count))


def runtime_version(accelerator: str) -> str:
    """Return the runtime version of a slice of TPUs.

    Example:
        >>> runtime_version("TPU-v6e"), runtime_version("TPU-v4")
        ('v2-alpha-tpuv6e', 'tpu-ubuntu2204-base')
    """
    known = find_chosen_accelerator(accelerator)
    return (known and known.google_runtime) or _USUAL_RUNTIME


STORAGE = "storage.v1"
COPYING = {  # parts of the start-up script
    "notices": "gcp",
    "copy_": "gcloud storage rsync -r {source} {target}",
    "stream": "gcloud storage cp {source} {target}",
}


def build_upload_calls(draft: Draft[GoogleOptions]) -> list[Call]:
    """Return the idempotent call that uploads a folder; none for another source."""
    kind, _, folder = draft.request.spec.source.partition(":")
    if kind != "folder":
        return []
    bucket, name = find_object(draft.chosen.bucket, build_archive_name(draft.request.run))
    tags = {TAG_RUN: draft.request.run, "gpuplan-owner": draft.request.owner}
    params = {
        "bucket": bucket,
        "uploadType": "multipart",
        "body": {"name": name, "metadata": tags},
        "media": {"tar_gz_of": folder, "except": list(LEFT_OUT)},
    }
    undo = (_removal(bucket, name, region=draft.zone or ""),)
    return [draft.call("code", STORAGE, "objects.insert", params, region=draft.zone, makes="resource", undo=undo)]


def parse_archive(row: Mapping[str, Any]) -> Leftover | None:
    """Return an uploaded archive as a leftover resource; None for another object."""
    tags, bucket, name = row.get("metadata") or {}, str(row["bucket"]), str(row["name"])
    if TAG_RUN not in tags:
        return None
    return Leftover(
        kind="uploaded archive",
        id=f"gs://{bucket}/{name}",
        region="",
        **parse_owner_tags(tags),
        undo=(_removal(bucket, name, region=""),),
    )


def _removal(bucket: str, name: str, *, region: str) -> Call:
    params = {"bucket": bucket, "object": name.replace("/", "%2F")}
    return build_call("code", STORAGE, "objects.delete", params, region=region)


def find_object(address: str, name: str) -> tuple[str, str]:
    """Return the bucket and the full name of an object below a `gs://` address."""
    bucket, _, folder = address.removeprefix("gs://").partition("/")
    return bucket, f"{folder}/{name}" if folder else name
