"""Account quotas, read-only, and the check of offers against them: bounded, parallel, kept for ten minutes."""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from queue import Empty
from typing import TYPE_CHECKING, Literal

from ...errors import CredentialsError, GpuplanError, UsageError, near_names_hint
from ...files import get_cache_folder, write_atomically
from ...records import Frozen, to_plain
from ..catalog import find_chosen_accelerator
from ..clouds import CLOUDS, PROVIDER_ALIASES
from .aws_sdk import build_aws_client, has_aws_credentials, translate_aws_errors
from .http import HttpClient, RetryPolicy, map_in_threads
from .source import RefreshRequest

if TYPE_CHECKING:
    from ..rows import Offer


# Codes of the vCPU quotas: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html
AWS_QUOTAS = (
    ("L-DB2E81BA", "on_demand", "G and VT instances"),
    ("L-417A185B", "on_demand", "P instances"),
    ("L-2C3B7624", "on_demand", "Trn instances"),
    ("L-3819A6DF", "spot", "G and VT instances"),
    ("L-7212CCBC", "spot", "P4, P3 and P2 instances"),
)
GOOGLE = "https://compute.googleapis.com"
AZURE = "https://management.azure.com"
GPU_FAMILY = ("standardNC", "standardND", "standardNV", "Standard NC", "Standard ND", "Standard NV")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """Limit on what an account may have running at once in a region."""

    provider: str
    region: str
    what: str  # limited resource: an instance family or an accelerator
    purchase: str  # on demand or spot
    unit: str  # `vCPU` or `device`
    # limit, used: quota and current usage in units; None if not reported
    limit: float
    used: float | None
    link: str  # URL of the form to request an increase

    @property
    def sentence(self) -> str:
        """The quota as a sentence for the user."""
        taken = f", {self.used:g} of them in use" if self.used else ""
        return (
            f"your quota is {self.limit:g} {self.unit}s for {self.what} ({self.purchase.replace('_', ' ')}) in "
            f"{self.provider} {self.region}{taken}: {self.link}"
        )


def read_quotas(provider: str, region: str, *, request: RefreshRequest, http: HttpClient) -> list[Quota]:
    """Read the accelerator quotas of a region; sources of the request are `aws-quotas` and the like.

    Raises:
        UsageError: The provider is not supported.
        CredentialsError: Credentials or SDK are missing.
        GpuplanError: The provider did not answer.
    """
    if provider not in PROVIDERS:
        hint = near_names_hint(provider, PROVIDERS, see_all="gpuplan quota --help", aliases=PROVIDER_ALIASES)
        raise UsageError(f"quotas of `{provider}` cannot be read", hint=hint)
    return list(_READERS[provider](region, request, http))


def _read_aws(region: str, request: RefreshRequest, _http: HttpClient) -> Iterator[Quota]:
    """Yield the vCPU quotas of AWS's accelerated families."""
    if find_spec("boto3") is None or not has_aws_credentials(request.environ):
        hint = "`pip install 'gpuplan[aws]'` and `aws configure`; the role needs servicequotas:GetServiceQuota"
        raise CredentialsError("reading AWS quotas needs boto3 and credentials", hint=hint)
    with translate_aws_errors():
        client = build_aws_client("service-quotas", region, request.endpoint("aws-quotas", ""))
        for code, purchase, what in AWS_QUOTAS:
            quota = client.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]
            yield Quota(
                provider="aws",
                region=region,
                what=what,
                purchase=purchase,
                unit="vCPU",
                limit=float(quota["Value"]),
                used=None,
                link=f"https://{region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{code}",
            )


def _read_gcp(region: str, request: RefreshRequest, http: HttpClient) -> Iterator[Quota]:
    """Yield the GPU and TPU quotas of a Google Cloud region."""
    project, token = request.environ.get("GOOGLE_CLOUD_PROJECT"), request.environ.get("GCP_ACCESS_TOKEN")
    if not project or not token:
        hint = "export GOOGLE_CLOUD_PROJECT=... GCP_ACCESS_TOKEN=$(gcloud auth print-access-token)"
        raise CredentialsError("reading Google Cloud quotas needs a project and a token", hint=hint)
    url = f"{request.endpoint('gcp-quotas', GOOGLE)}/compute/v1/projects/{project}/regions/{region}"
    answer = http.json(url, headers={"Authorization": f"Bearer {token}"})
    for quota in answer.get("quotas", []):
        metric = str(quota["metric"])
        if "GPUS" not in metric and "TPU" not in metric:
            continue
        yield Quota(
            provider="gcp",
            region=region,
            what=metric.removeprefix("PREEMPTIBLE_"),
            purchase="spot" if metric.startswith("PREEMPTIBLE_") else "on_demand",
            unit="device",
            limit=float(quota["limit"]),
            used=float(quota["usage"]),
            link=f"https://console.cloud.google.com/iam-admin/quotas?project={project}",
        )


def _read_azure(region: str, request: RefreshRequest, http: HttpClient) -> Iterator[Quota]:
    """Yield the vCPU quotas of Azure's GPU families."""
    subscription, token = request.environ.get("AZURE_SUBSCRIPTION_ID"), request.environ.get("AZURE_ACCESS_TOKEN")
    if not subscription or not token:
        hint = (
            "export AZURE_SUBSCRIPTION_ID=... "
            "AZURE_ACCESS_TOKEN=$(az account get-access-token --query accessToken -o tsv)"
        )
        raise CredentialsError("reading Azure quotas needs a subscription and a token", hint=hint)
    base = request.endpoint("azure-quotas", AZURE)
    path = f"subscriptions/{subscription}/providers/Microsoft.Compute/locations/{region}/usages"
    headers = {"Authorization": f"Bearer {token}"}
    answer = http.json(f"{base}/{path}", params={"api-version": "2024-07-01"}, headers=headers)
    for usage in answer.get("value", []):
        name = usage["name"]
        if str(name["value"]).startswith(GPU_FAMILY) or str(name["localizedValue"]).startswith(GPU_FAMILY):
            yield Quota(
                provider="azure",
                region=region,
                what=name["localizedValue"],
                purchase="on_demand",
                unit="vCPU",
                limit=float(usage["limit"]),
                used=float(usage["currentValue"]),
                link="https://portal.azure.com/#view/Microsoft_Azure_Capacity/QuotaMenuBlade/~/myQuotas",
            )


_READERS: Mapping[str, Callable[[str, RefreshRequest, HttpClient], Iterator[Quota]]] = {
    "aws": _read_aws,
    "azure": _read_azure,
    "gcp": _read_gcp,
}
PROVIDERS: Sequence[str] = tuple(_READERS)


ANSWER_S = 8.0
REMEMBERED_S = 600.0
REGIONS_ASKED = 8
_POLICY = RetryPolicy(connect_s=3.0, answer_s=6.0, attempts=1)
_IDENTITY = {cloud.name: cloud.account_variables for cloud in CLOUDS if cloud.account_variables}
Place = tuple[str, str]
State = Literal["enough", "too_small", "unknown"]


class QuotaCheck(Frozen):
    """Comparison of an offer with the account's quota."""

    state: State  # whether the quota is large enough; `unknown` if it could not be read
    why: str  # reason as a phrase, with the address of the request form
    link: str | None = None  # URL of the form to request an increase; None if unknown


class AccountQuotas(Frozen):
    """Quotas of the user's accounts, by provider and region."""

    quotas: Mapping[Place, Sequence[Quota]]  # quotas that were read
    problems: Mapping[Place, str]  # reasons why others could not be read

    def check(self, offer: Offer) -> QuotaCheck | None:
        """Return the comparison of an offer with its quota; None for providers without readable quotas."""
        place = (offer.provider, offer.region)
        if offer.provider not in PROVIDERS:
            return None
        if place not in self.quotas:
            why = self.problems.get(place, f"the quotas of {' '.join(place)} were not read")
            return QuotaCheck(state="unknown", why=why)
        found = _MATCHERS[offer.provider](offer, self.quotas[place])
        if not found:
            why = f"{' '.join(place)} reports no quota for {offer.instance_type}"
            return QuotaCheck(state="unknown", why=why)
        return _compare(offer, found)


def _compare(offer: Offer, quotas: Sequence[Quota]) -> QuotaCheck:
    """Compare an offer with the largest quota under which it could be launched."""
    best = max(quotas, key=lambda one: one.limit - (one.used or 0.0))
    left = best.limit - (best.used or 0.0)
    needed = offer.devices if best.unit == "device" else offer.vcpus
    if left <= 0 or (needed is not None and needed > left):
        need = "" if needed is None else f"it takes {needed:g} {best.unit}s, and "
        return QuotaCheck(state="too_small", why=f"{need}{best.sentence}", link=best.link)
    if needed is None:
        return QuotaCheck(state="unknown", why=f"the vCPUs of {offer.instance_type} are unknown", link=best.link)
    return QuotaCheck(state="enough", why=best.sentence, link=best.link)


def _match_aws(offer: Offer, quotas: Sequence[Quota]) -> list[Quota]:
    """Return the quota of an instance family."""
    family = re.match(r"[a-z]+(?=\d)|[a-z]+", offer.instance_type)
    letters = "" if family is None else family[0]
    names = {"g": "G and VT", "gr": "G and VT", "vt": "G and VT", "trn": "Trn"}
    if letters == "p":
        is_old = offer.instance_type.startswith(("p2.", "p3.", "p3dn.", "p4d.", "p4de."))
        names["p"] = "P4, P3 and P2" if is_old and offer.purchase == "spot" else "P instances"
    name = names.get(letters)
    if name is None:
        return []
    return [one for one in quotas if one.what.startswith(name) and one.purchase == offer.purchase]


def _match_gcp(offer: Offer, quotas: Sequence[Quota]) -> list[Quota]:
    """Return the quota of an accelerator; spot machines may also use the on-demand quota."""
    accelerator = find_chosen_accelerator(offer.accelerator)
    metric = accelerator.google_quota if accelerator else None
    purchases = {offer.purchase, "on_demand"}
    return [one for one in quotas if one.what == metric and one.purchase in purchases]


def _match_azure(offer: Offer, quotas: Sequence[Quota]) -> list[Quota]:
    """Return the quota of a machine family; spot quotas are not per family."""
    if offer.purchase == "spot":
        return []
    machine = re.sub(r"^Standard_([A-Z]+)\d+", r"\1", offer.instance_type)
    return [one for one in quotas if _name_family(one.what) == _name_family(machine)]


def _name_family(text: str) -> str:
    """Return the letters of an Azure family in a common form, its version at the end."""
    short = re.sub(r"standard|family|vcpus|[\s_]", "", text.lower())
    version = re.search(r"v\d", short)
    return short if version is None else short.replace(version[0], "", 1) + version[0]


_MATCHERS: Mapping[str, Callable[[Offer, Sequence[Quota]], list[Quota]]] = {
    "aws": _match_aws,
    "azure": _match_azure,
    "gcp": _match_gcp,
}


def read_account_quotas(
    offers: Iterable[Offer], request: RefreshRequest, *, answer_s: float = ANSWER_S
) -> AccountQuotas:
    """Read the quotas of the regions of some offers in parallel; a region without an answer is no error.

    Only the cheapest regions of each provider are queried, all together for `answer_s` at most.
    """
    quotas: dict[Place, Sequence[Quota]] = {}
    problems: dict[Place, str] = {}
    cache = get_cache_folder("quotas")  # a thread would not see the folder of the settings

    def ask(place: Place) -> None:
        try:
            quotas[place] = _read(place, request, cache)
        except CredentialsError as error:
            problems[place] = f"{error} ({error.hint})"
        except GpuplanError as error:
            problems[place] = str(error)
        except Exception as error:  # an answer in another form must not end an estimate
            problems[place] = f"the quotas of {' '.join(place)} cannot be read: {type(error).__name__}"

    best: dict[Place, float] = {}  # price per device
    for offer in offers:
        if offer.provider in PROVIDERS and offer.usd_per_hour is not None:
            place, price = (offer.provider, offer.region), float(offer.usd_per_hour) / offer.devices
            best[place] = min(price, best.get(place, price))
    ordered = sorted(best, key=lambda place: best[place])
    by_provider = ([one for one in ordered if one[0] == provider] for provider in PROVIDERS)
    places = [place for cheapest in by_provider for place in cheapest[:REGIONS_ASKED]]
    with suppress(Empty):
        list(map_in_threads(ask, places, most=len(places), limit_s=answer_s))
    return AccountQuotas(quotas=dict(quotas), problems=dict(problems))


def _read(place: Place, request: RefreshRequest, cache: Path) -> Sequence[Quota]:
    """Return the quotas of a region, from the cache if they are recent."""
    provider, region = place
    account = [request.environ.get(name, "") for name in _IDENTITY[provider]]
    key = json.dumps([provider, region, account, request.endpoint(f"{provider}-quotas", "")])
    path = cache / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    with suppress(OSError, ValueError, TypeError):
        if 0 <= time.time() - path.stat().st_mtime < REMEMBERED_S:
            return [Quota(**row) for row in json.loads(path.read_text(encoding="utf-8"))]
    with closing(HttpClient(_POLICY)) as http:
        found = read_quotas(provider, region, request=request, http=http)
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(to_plain(found)), private=True)
    return found
