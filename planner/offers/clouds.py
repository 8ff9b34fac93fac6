"""Registry of clouds: one row for each that is launched on, searched for credentials, or has other names."""

from __future__ import annotations

from collections.abc import Mapping

from ..records import Frozen


class Cloud(Frozen):
    """A cloud or vendor."""

    name: str  # name in offers
    title: str = ""  # name in sentences and tables
    other_names: tuple[str, ...] = ()  # other names, in lower case
    # adapter that launches on it, `module:Class` within `launch.clouds`; empty: gpuplan does not
    adapter: str = ""
    is_hyperscaler: bool = False  # whether `cloud:` of a comparison means it, and engines run Kubernetes there
    is_rented: bool = False  # whether SkyPilot and dstack rent its machines
    needed_for: str = ""  # what its credentials are needed for; empty: none are searched for
    variables: tuple[str, ...] = ()  # environment variables that contain credentials or select them
    files: tuple[str, ...] = ()  # files with credentials, relative to the home folder
    files_named_by: tuple[str, ...] = ()  # variables that name such a file
    account_variables: tuple[str, ...] = ()  # variables that select the account whose quotas are remembered
    extra: str = ""  # purpose of the extra with its clients; empty without one
    modules: tuple[str, ...] = ()  # modules of that extra


COLAB = "colab"
NOTEBOOKS, OWNED = frozenset({COLAB, "kaggle"}), frozenset({"local", "own"})  # hosted; the user's
_AWS_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE")
CLOUDS = (
    Cloud(name="local", other_names=("this", "localhost"), adapter=".local:LocalAdapter"),
    Cloud(
        name="aws",
        title="AWS",
        other_names=("amazon", "amazon web services", "ec2", "sagemaker"),
        adapter=".aws.adapter:AwsAdapter",
        is_hyperscaler=True,
        is_rented=True,
        needed_for="launch, quota, spot history",
        variables=_AWS_VARIABLES,
        files=(".aws/credentials", ".aws/config"),
        files_named_by=("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"),
        account_variables=_AWS_VARIABLES,
        extra="prices with a key, quotas, launching on EC2",
        modules=("boto3",),
    ),
    Cloud(
        name="gcp",
        title="Google",
        other_names=("google", "google cloud", "google-cloud", "googlecloud", "gce"),
        adapter=".google.adapter:GoogleAdapter",
        is_hyperscaler=True,
        is_rented=True,
        needed_for="launch, quota, Google's own price list",
        variables=("GCP_API_KEY", "GOOGLE_API_KEY", "GCP_ACCESS_TOKEN"),
        files=(".config/gcloud/application_default_credentials.json",),
        files_named_by=("GOOGLE_APPLICATION_CREDENTIALS",),
        account_variables=("GOOGLE_CLOUD_PROJECT",),
        extra="prices with a key, launching on Google Cloud",
        modules=("google.auth", "google.cloud.billing_v1"),
    ),
    Cloud(
        name="azure",
        title="Azure",
        other_names=("microsoft", "microsoft azure", "ms"),
        adapter=".azure.adapter:AzureAdapter",
        is_hyperscaler=True,
        is_rented=True,
        needed_for="launch, quota",
        variables=("AZURE_ACCESS_TOKEN", "AZURE_CLIENT_ID"),
        files=(".azure/msal_token_cache.json",),
        account_variables=("AZURE_SUBSCRIPTION_ID",),
        extra="launching on Azure",
        modules=("azure.identity",),
    ),
    Cloud(
        name="lambda",
        title="Lambda",
        other_names=("lambdalabs", "lambda labs", "lambda-labs"),
        is_rented=True,
    ),
    Cloud(name="runpod", title="RunPod", other_names=("runpod.io",), is_rented=True),
    Cloud(name="vast", title="Vast", other_names=("vast.ai", "vastai"), is_rented=True),
    Cloud(name="coreweave", title="CoreWeave", other_names=("core weave",)),
    Cloud(name="colab", title="Colab", other_names=("google colab", "colaboratory")),
    Cloud(name="kaggle", title="Kaggle"),
    Cloud(name="nebius", title="Nebius"),
    Cloud(name="verda", title="Verda", other_names=("datacrunch",)),
    Cloud(name="scaleway", title="Scaleway"),
    Cloud(name="digitalocean", title="DigitalOcean", other_names=("digital ocean",)),
    Cloud(name="vultr", title="Vultr"),
    Cloud(name="hyperstack", title="Hyperstack", other_names=("nexgen",)),
)  # fmt: skip
PROVIDER_ALIASES: Mapping[str, str] = {other: cloud.name for cloud in CLOUDS for other in cloud.other_names}
TITLES: Mapping[str, str] = {cloud.name: cloud.title for cloud in CLOUDS if cloud.title}
HYPERSCALERS = tuple(cloud.name for cloud in CLOUDS if cloud.is_hyperscaler)


def find_tier(instance_type: str) -> str:
    """Return the tier in which a marketplace sells a machine, in brackets after its name; empty without one.

    Example:
        >>> find_tier("NVIDIA H100 PCIe [secure]"), find_tier("g5.xlarge")
        ('secure', '')
    """
    return instance_type[:-1].rpartition(" [")[2] if instance_type.endswith("]") else ""
