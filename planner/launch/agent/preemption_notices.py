"""Preemption notices of spot machines, read from the link-local metadata service of each cloud.

aws    two minutes; 404 until then (docs.aws.amazon.com, spot-instance-termination-notices), IMDSv2
gcp    thirty seconds; the request blocks until the answer differs from that of its ETag, so that no change
       between two requests is missed (cloud.google.com, Compute Engine, preemptible and metadata)
azure  thirty seconds; the first request may take two minutes (learn.microsoft.com, Scheduled Events)

No cloud guarantees the notice; without it, the last checkpoint is used.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Callable

__all__ = ["WATCHERS", "aws", "azure", "gcp"]

POLL_S = 5.0
_AWS = "http://169.254.169.254"
_GCP = "http://metadata.google.internal"
_AZURE = "http://169.254.169.254"


def aws(base: str | None = None) -> bool:
    """Whether EC2 is about to preempt the machine."""
    base = base or os.environ.get("GPUPLAN_METADATA_URL", _AWS)
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = _ask(f"{base}/latest/api/token", lifetime, method="PUT")
    notice = _ask(f"{base}/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token or ""})
    return notice is not None and json.loads(notice).get("action") in {"terminate", "stop", "hibernate"}


def gcp(base: str | None = None) -> bool:
    """Whether Compute Engine is about to preempt the machine; may block for a minute."""
    base = base or os.environ.get("GPUPLAN_METADATA_URL", _GCP)
    path, flavor = "computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"}
    now, etag = _answer(f"{base}/{path}", flavor)
    if now is None or now.strip() == "TRUE":
        return now is not None
    wait = f"wait_for_change=true&timeout_sec=60&last_etag={etag or 0}"
    return (_ask(f"{base}/{path}?{wait}", flavor, timeout_s=70.0) or "").strip() == "TRUE"


def azure(base: str | None = None) -> bool:
    """Whether Azure is about to preempt the machine."""
    base = base or os.environ.get("GPUPLAN_METADATA_URL", _AZURE)
    path = "metadata/scheduledevents?api-version=2020-07-01"
    events = json.loads(_ask(f"{base}/{path}", {"Metadata": "true"}, timeout_s=150.0) or "{}").get(
        "Events", []
    )
    return any(event.get("EventType") == "Preempt" for event in events)


def _ask(url: str, headers: dict[str, str], *, method: str = "GET", timeout_s: float = 5.0) -> str | None:
    """Return the text of an answer, or None."""
    return _answer(url, headers, method=method, timeout_s=timeout_s)[0]


def _answer(
    url: str, headers: dict[str, str], *, method: str = "GET", timeout_s: float = 5.0
) -> tuple[str | None, str | None]:
    """Return the text and ETag of an answer, or None for both."""
    request = urllib.request.Request(url, headers=headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never through a proxy
    try:
        with opener.open(request, timeout=timeout_s) as answer:
            return str(answer.read().decode()), answer.headers.get("ETag")
    except (urllib.error.URLError, OSError, ValueError):
        return None, None


WATCHERS: dict[str, Callable[[], bool]] = {"aws": aws, "gcp": gcp, "azure": azure}
