"""Account quotas, read-only: AWS Service Quotas, Google Cloud region quotas, Azure usages.

A quota is necessary but not sufficient for a launch: 0 vCPUs for G instances rules them out, while 96 do not
guarantee capacity. Reading quotas is free and needs the provider's credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from ..errors import CredentialsError, UsageError, near_names_hint
from .aliases import PROVIDER_ALIASES
from .refresh.http import HttpClient
from .refresh.sources.aws_sdk import build_aws_client, has_aws_credentials, translate_aws_errors

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
    """Limit on what an account may have running at once in a region.

    Args:
        provider, region: Provider and region.
        what: Limited resource: an instance family or an accelerator.
        purchase: On demand or spot.
        unit: `vCPU` or `device`.
        limit, used: Quota and current usage in units; None if not reported.
        link: URL of the form to request an increase.
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
        """The quota as a sentence for the user."""
        taken = f", {self.used:g} of them in use" if self.used else ""
        return (
            f"your quota is {self.limit:g} {self.unit}s for {self.what} ({self.purchase.replace('_', ' ')}) in "
            f"{self.provider} {self.region}{taken}: {self.link}"
        )


def read_quotas(
    provider: str, region: str, *, environ: Mapping[str, str], endpoints: Mapping[str, str], http: HttpClient
) -> list[Quota]:
    """Read the accelerator quotas of a region.

    Args:
        provider: `aws`, `gcp` or `azure`.
        region: Region name of the provider.
        environ: Environment variables with credentials.
        endpoints: Base URLs that replace the defaults: `aws-quotas`, `gcp-quotas`, `azure-quotas`.
        http: HTTP client for Google and Azure.

    Raises:
        UsageError: The provider is not supported.
        CredentialsError: Credentials or SDK are missing.
        GpuplanError: The provider did not answer.
    """
    if provider not in PROVIDERS:
        hint = near_names_hint(provider, PROVIDERS, see_all="gpuplan quota --help", aliases=PROVIDER_ALIASES)
        raise UsageError(f"quotas of `{provider}` cannot be read", hint=hint)
    return list(_READERS[provider](region, environ, endpoints, http))


def get_quota_endpoints(environ: Mapping[str, str], settings: Mapping[str, str]) -> dict[str, str]:
    """Return endpoints from the settings, overridden by `GPUPLAN_ENDPOINT_AWS_QUOTAS` and the like."""
    variables = {f"{name}-quotas": f"GPUPLAN_ENDPOINT_{name.upper()}_QUOTAS" for name in PROVIDERS}
    told = {name: environ[variable] for name, variable in variables.items() if variable in environ}
    return {**settings, **told}


def _read_aws(
    region: str, environ: Mapping[str, str], endpoints: Mapping[str, str], _http: HttpClient
) -> Iterator[Quota]:
    """Yield the vCPU quotas of AWS's accelerated families."""
    if find_spec("boto3") is None or not has_aws_credentials(environ):
        hint = (
            "`pip install 'gpuplan[aws]'` and `aws configure`; the role needs servicequotas:GetServiceQuota"
        )
        raise CredentialsError("reading AWS quotas needs boto3 and credentials", hint=hint)
    with translate_aws_errors():
        client = build_aws_client("service-quotas", region, endpoints.get("aws-quotas", ""))
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


def _read_gcp(
    region: str, environ: Mapping[str, str], endpoints: Mapping[str, str], http: HttpClient
) -> Iterator[Quota]:
    """Yield the GPU and TPU quotas of a Google Cloud region."""
    project, token = environ.get("GOOGLE_CLOUD_PROJECT"), environ.get("GCP_ACCESS_TOKEN")
    if not project or not token:
        hint = "export GOOGLE_CLOUD_PROJECT=... GCP_ACCESS_TOKEN=$(gcloud auth print-access-token)"
        raise CredentialsError("reading Google Cloud quotas needs a project and a token", hint=hint)
    base = endpoints.get("gcp-quotas", GOOGLE)
    url = f"{base}/compute/v1/projects/{project}/regions/{region}"
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


def _read_azure(
    region: str, environ: Mapping[str, str], endpoints: Mapping[str, str], http: HttpClient
) -> Iterator[Quota]:
    """Yield the vCPU quotas of Azure's GPU families."""
    subscription, token = environ.get("AZURE_SUBSCRIPTION_ID"), environ.get("AZURE_ACCESS_TOKEN")
    if not subscription or not token:
        hint = (
            "export AZURE_SUBSCRIPTION_ID=... "
            "AZURE_ACCESS_TOKEN=$(az account get-access-token --query accessToken -o tsv)"
        )
        raise CredentialsError("reading Azure quotas needs a subscription and a token", hint=hint)
    base = endpoints.get("azure-quotas", AZURE)
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


Reader = Callable[[str, Mapping[str, str], Mapping[str, str], HttpClient], Iterator[Quota]]
_READERS: Mapping[str, Reader] = {"aws": _read_aws, "azure": _read_azure, "gcp": _read_gcp}
PROVIDERS: Sequence[str] = tuple(_READERS)
