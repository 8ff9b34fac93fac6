"""How much of what an account may start, read and never changed: AWS Service Quotas, Google regions, Azure usages.

A price says nothing about whether a machine can be had. A quota says half of it: 0 vCPUs for G instances is a no,
96 is a maybe, since a quota is no capacity. Asking costs nothing and needs the vendor's own credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from ..errors import CredentialsError, UsageError, near_names_hint
from .refresh.aws_sdk import aws_client, aws_errors, has_aws_credentials
from .refresh.http import Http

__all__ = ["PROVIDERS", "Quota", "quotas_of"]

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
    """How much an account may have running at once in a region.

    Args:
        provider, region: Where.
        what: Of what: a family, an accelerator.
        purchase: On demand or spot.
        unit: `vCPU` or `device`.
        limit, used: How much, and how much of it is taken; None: not told.
        link: Where to ask for more.
    """

    provider: str
    region: str
    what: str
    purchase: str
    unit: str
    limit: float
    used: float | None
    link: str

    @property
    def sentence(self) -> str:
        """What a person is told."""
        taken = f", {self.used:g} of them taken" if self.used else ""
        return (
            f"you have {self.limit:g} {self.unit}s for {self.what} ({self.purchase.replace('_', ' ')}) in "
            f"{self.provider} {self.region}{taken}: {self.link}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the quota under the keys of the JSON contract."""
        return asdict(self)


def quotas_of(
    provider: str, region: str, *, environ: Mapping[str, str], endpoints: Mapping[str, str], http: Http
) -> list[Quota]:
    """Return the quotas of accelerators in a region.

    Args:
        provider: `aws`, `gcp` or `azure`.
        region: As the provider spells it.
        environ: Where credentials are.
        endpoints: Other addresses: `aws-quotas`, `gcp-quotas`, `azure-quotas`.
        http: Asks Google and Azure.

    Raises:
        UsageError: Another provider.
        CredentialsError: What is needed is not there.
        GpuplanError: The provider did not answer.
    """
    if provider not in PROVIDERS:
        hint = near_names_hint(provider, PROVIDERS, see_all="gpuplan quota --help")
        raise UsageError(f"quotas of `{provider}` cannot be read", hint=hint)
    return list(_READERS[provider](region, environ, endpoints, http))


def _aws(
    region: str, environ: Mapping[str, str], endpoints: Mapping[str, str], _http: Http
) -> Iterator[Quota]:
    """Yield the vCPU quotas of AWS's accelerated families."""
    if find_spec("boto3") is None or not has_aws_credentials(environ):
        hint = (
            "`pip install 'gpuplan[aws]'` and `aws configure`; the role needs servicequotas:GetServiceQuota"
        )
        raise CredentialsError("AWS's quotas need boto3 and credentials", hint=hint)
    with aws_errors():
        client = aws_client("service-quotas", region, endpoints.get("aws-quotas", ""))
        for code, purchase, what in AWS_QUOTAS:
            quota = client.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]
            yield Quota(
                provider="aws", region=region, what=what, purchase=purchase, unit="vCPU",
                limit=float(quota["Value"]), used=None,
                link=f"https://{region}.console.aws.amazon.com/servicequotas/home/services/ec2/quotas/{code}",
            )  # fmt: skip


def _gcp(
    region: str, environ: Mapping[str, str], endpoints: Mapping[str, str], http: Http
) -> Iterator[Quota]:
    """Yield the GPU and TPU quotas of a Google Cloud region."""
    project, token = environ.get("GOOGLE_CLOUD_PROJECT"), environ.get("GCP_ACCESS_TOKEN")
    if not project or not token:
        hint = "export GOOGLE_CLOUD_PROJECT=... GCP_ACCESS_TOKEN=$(gcloud auth print-access-token)"
        raise CredentialsError("Google's quotas need a project and a token", hint=hint)
    base = endpoints.get("gcp-quotas", GOOGLE)
    url = f"{base}/compute/v1/projects/{project}/regions/{region}"
    answer = http.json(url, headers={"Authorization": f"Bearer {token}"}).data
    for quota in answer.get("quotas", []):
        metric = str(quota["metric"])
        if "GPUS" not in metric and "TPU" not in metric:
            continue
        yield Quota(
            provider="gcp", region=region, what=metric.removeprefix("PREEMPTIBLE_"),
            purchase="spot" if metric.startswith("PREEMPTIBLE_") else "on_demand", unit="device",
            limit=float(quota["limit"]), used=float(quota["usage"]),
            link=f"https://console.cloud.google.com/iam-admin/quotas?project={project}",
        )  # fmt: skip


def _azure(
    region: str, environ: Mapping[str, str], endpoints: Mapping[str, str], http: Http
) -> Iterator[Quota]:
    """Yield the vCPU quotas of Azure's GPU families."""
    subscription, token = environ.get("AZURE_SUBSCRIPTION_ID"), environ.get("AZURE_ACCESS_TOKEN")
    if not subscription or not token:
        hint = (
            "export AZURE_SUBSCRIPTION_ID=... "
            "AZURE_ACCESS_TOKEN=$(az account get-access-token --query accessToken -o tsv)"
        )
        raise CredentialsError("Azure's quotas need a subscription and a token", hint=hint)
    base = endpoints.get("azure-quotas", AZURE)
    path = f"subscriptions/{subscription}/providers/Microsoft.Compute/locations/{region}/usages"
    headers = {"Authorization": f"Bearer {token}"}
    answer = http.json(f"{base}/{path}", params={"api-version": "2024-07-01"}, headers=headers).data
    for usage in answer.get("value", []):
        name = usage["name"]
        if str(name["value"]).startswith(GPU_FAMILY) or str(name["localizedValue"]).startswith(GPU_FAMILY):
            yield Quota(
                provider="azure", region=region, what=name["localizedValue"], purchase="on_demand", unit="vCPU",
                limit=float(usage["limit"]), used=float(usage["currentValue"]),
                link="https://portal.azure.com/#view/Microsoft_Azure_Capacity/QuotaMenuBlade/~/myQuotas",
            )  # fmt: skip


Reader = Callable[[str, Mapping[str, str], Mapping[str, str], Http], Iterator[Quota]]
_READERS: Mapping[str, Reader] = {"aws": _aws, "azure": _azure, "gcp": _gcp}
PROVIDERS: Sequence[str] = tuple(_READERS)
