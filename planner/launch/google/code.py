"""A folder of the user's as an object of the run's bucket, from where the machine fetches it."""

from __future__ import annotations

from ..aws.upload import LEFT_OUT
from ..calls import Call
from ..request import LaunchRequest
from ..startup import archive_name
from .options import GoogleOptions

__all__ = ["FETCH", "code_calls"]

SERVICE = "storage.v1"
FETCH = "gcloud storage cat {source}"


def code_calls(request: LaunchRequest, zone: str, chosen: GoogleOptions) -> tuple[Call, ...]:
    """Return the call that uploads a folder; none when the code is elsewhere. Repeating it changes nothing."""
    kind, _, folder = request.spec.source.partition(":")
    if kind != "folder":
        return ()
    bucket, _, below = chosen.bucket.removeprefix("gs://").partition("/")
    name = "/".join(filter(None, (below, archive_name(request.run))))
    undo = Call(
        step="code", service=SERVICE, operation="objects.delete", region=zone,
        params={"bucket": bucket, "object": name.replace("/", "%2F")},
    )  # fmt: skip
    return (
        Call(
            step="code", service=SERVICE, operation="objects.insert", region=zone, makes="resource", undo=(undo,),
            params={
                "bucket": bucket, "name": name, "uploadType": "media",
                "media": {"tar_gz_of": folder, "except": list(LEFT_OUT)},
            },
        ),
    )  # fmt: skip
