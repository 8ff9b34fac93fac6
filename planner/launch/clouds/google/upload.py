"""Upload of a folder to the run's bucket, from where the machine fetches it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.api_call import Call, build_call, look_up
from ...core.cloud_adapter import Leftover
from ...core.request import TAG_RUN, LaunchRequest
from ...prepare.startup import build_archive_name
from ...prepare.upload import LEFT_OUT
from .options import GoogleOptions

SERVICE = "storage.v1"
FETCH = "gcloud storage cat {source}"


def build_upload_calls(request: LaunchRequest, zone: str, chosen: GoogleOptions) -> tuple[Call, ...]:
    """Return the idempotent call that uploads a folder; none for another source."""
    kind, _, folder = request.spec.source.partition(":")
    if kind != "folder":
        return ()
    bucket, below = _split(chosen.bucket)
    name = "/".join(filter(None, (below, build_archive_name(request.run))))
    tags = {TAG_RUN: request.run, "gpuplan-owner": request.owner}
    params = {
        "bucket": bucket,
        "uploadType": "multipart",
        "body": {"name": name, "metadata": tags},
        "media": {"tar_gz_of": folder, "except": list(LEFT_OUT)},
    }
    undo = (_removal(bucket, name, region=zone),)
    return (build_call("code", SERVICE, "objects.insert", params, region=zone, makes="resource", undo=undo),)


def build_archive_query(address: str) -> dict[str, Any]:
    """Return the parameters that list the archives of a bucket.

    Example:
        >>> build_archive_query("gs://mine/below")
        {'bucket': 'mine', 'matchGlob': 'below/*-source.tar.gz'}
    """
    bucket, below = _split(address)
    return {"bucket": bucket, "matchGlob": "/".join(filter(None, (below, build_archive_name("*"))))}


def parse_archive(row: Mapping[str, Any]) -> Leftover | None:
    """Return an uploaded archive as a leftover resource; None for another object."""
    run, bucket, name = look_up(row, f"metadata.{TAG_RUN}"), str(row["bucket"]), str(row["name"])
    if run is None:
        return None
    return Leftover(
        kind="uploaded archive",
        id=f"gs://{bucket}/{name}",
        region="",
        run=str(run),
        attempt=0,
        owner=str(look_up(row, "metadata.gpuplan-owner") or ""),
        undo=(_removal(bucket, name, region=""),),
    )


def build_folder_address(params: Mapping[str, Any]) -> str:
    """Return the `gs://` address of an upload's folder.

    Example:
        >>> build_folder_address({"bucket": "mine", "body": {"name": "below/r1-source.tar.gz"}})
        'gs://mine/below'
    """
    return f"gs://{params['bucket']}/{params['body']['name']}".rpartition("/")[0]


def _removal(bucket: str, name: str, *, region: str) -> Call:
    """Return the call that removes an object."""
    params = {"bucket": bucket, "object": name.replace("/", "%2F")}
    return build_call("code", SERVICE, "objects.delete", params, region=region)


def _split(address: str) -> tuple[str, str]:
    """Return bucket and folder of a `gs://` address."""
    bucket, _, below = address.removeprefix("gs://").partition("/")
    return bucket, below
