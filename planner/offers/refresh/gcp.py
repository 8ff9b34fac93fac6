"""Google Cloud on-demand and spot prices: the Cloud Billing Catalog through Google's client, with an API key
or ADC.

https://cloud.google.com/billing/v1/how-tos/catalog-api: 5,000 SKUs per page, of Compute Engine (including
GPUs and newer TPUs) and of Cloud TPU (v2 to v4). The key is sent in a header, never in the URL.

Google prices parts, not machines, and only the description of a SKU names the part
(https://cloud.google.com/skus/sku-groups). Other ways to buy (custom and sole-tenant machines, commitments,
calendar mode, virtual workstations) are skipped. Spot SKUs may have the usage type OnDemand: the description
decides. TPU slices are assembled from chips or cores.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from ..rows import CPU, Purchase
from .http import FetchError, FetchErrorKind, classify_status, translate_errors
from .source import (
    NAMES,
    InstanceSpec,
    InstanceSpecs,
    LeftOut,
    ListedPrice,
    PriceSource,
    RefreshRequest,
    parse_decimal,
)

if TYPE_CHECKING:
    from .http import HttpClient


BYTES_OF_GIB, BYTES_OF_GB = Decimal(2**30), Decimal(10**9)
HOURS_PER_MONTH = Decimal(730)  # Google's month: https://cloud.google.com/compute/all-pricing
CORE, RAM, SSD = "core", "ram", "ssd"
EIGHTH_SLICE = "slice 1/8 RTXPRO6000"
LEFT_OUT = re.compile(
    r"Custom|Premium|Reserved|Sole Tenancy|Commitment|Suspended|DWS|Calendar|Extended|Overcommit|"
    r"Capacity Optimized|Subscription|Fixed Price|Virtual Workstation",
    re.IGNORECASE,
)
_SPOT, _ATTACHED = r"^(?:Spot (?:Preemptible )?)?", r"(?:attached to Spot (?:Preemptible )?VMs )?running in "
MACHINE = re.compile(_SPOT + r"(?P<family>.+?)(?: Instance)? (?P<part>Core|Ram) running in ")
# A4 and A4X: a GPU with its share of the machine. G4 with a part of a GPU: an eighth with its share.
SLICE = re.compile(_SPOT + r"A4X? Nvidia (?P<gpu>\S+) \(1 gpu slice\) running in ")
EIGHTH = re.compile(r"^1/8 vGPU no lssd " + _ATTACHED)
# Of the oldest regions, one SKU for all of them, and its description names no place.
DISK = re.compile(
    r"^SSD backed Local Storage(?: attached to Spot (?:Preemptible )?VMs?)?(?: (?:running )?in .+)?$"
)
OLD_TPU = re.compile(r"Tpu-v(?P<version>[234])\b", re.IGNORECASE)
NEW_TPU = re.compile(_SPOT + r"TpuV?(?P<version>5e|5p|6e|7x)\b", re.IGNORECASE)
# Newer GPUs are listed without the maker (`H200 141GB GPU running in ...`, `RTX 6000 96GB running in ...`).
GPU = re.compile(
    rf"^(?:Nvidia (?:Tesla )?)?(?P<gpu>{'|'.join(map(re.escape, NAMES['google']))})(?: GPU)? {_ATTACHED}"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GoogleSku:
    """A Google SKU; ``usd`` is the price per unit of usage (an hour, a GiB for an hour, a GiB for a month)."""

    sku_id: str
    description: str
    resource_group: str
    usage_type: str
    regions: tuple[str, ...]
    unit: str
    usd: Decimal
    currency: str


def parse_part(description: str) -> str | None:
    """Return the machine part priced by a SKU; None if the catalog does not use it.

    Example:
        >>> parse_part("A2 Instance Core running in Americas")
        'a2 core'
        >>> parse_part("Nvidia Tesla T4 GPU attached to Spot Preemptible VMs running in Iowa")
        'gpu T4'
        >>> parse_part("Preemptible Tpu-v3 Pod in Belgium"), parse_part("Custom Instance Core running in Iowa")
        ('tpu v3 pod', None)
    """
    if LEFT_OUT.search(description):
        return None
    for pattern, name in _KINDS:
        found = pattern.search(description)
        if found:
            return name(found)
    return None


def _format_machine_part(found: re.Match[str]) -> str:
    family = NAMES["google_families"].get(found["family"], found["family"].lower().replace(" ", "-"))
    return f"{family} {CORE if found['part'] == 'Core' else RAM}"


_KINDS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (GPU, lambda found: f"gpu {NAMES['google'][found['gpu']]}"),
    (SLICE, lambda found: f"slice {found['gpu']}"),
    (EIGHTH, lambda _: EIGHTH_SLICE),
    (MACHINE, _format_machine_part),
    (DISK, lambda _: SSD),
    (OLD_TPU, lambda found: f"tpu v{found['version']}{' pod' if 'Pod' in found.string else ''}"),
    (NEW_TPU, lambda found: f"tpu v{found['version'].lower()}"),
)


def compute_part_prices(skus: Iterable[GoogleSku]) -> dict[tuple[str, str, Purchase], list[GoogleSku]]:
    """Return SKUs priced per hour by part, region and purchase option; several if they disagree."""
    found: dict[tuple[str, str, Purchase], list[GoogleSku]] = {}
    for sku in skus:
        part = parse_part(sku.description)
        if part is None or not _is_in_scope(sku):
            continue
        is_spot = sku.usage_type == "Preemptible" or re.search("Preemptible|Spot", sku.description)
        purchase: Purchase = "spot" if is_spot else "on_demand"
        # Per hour and GiB: local disks are priced per month, some memory per GB.
        usd = sku.usd * BYTES_OF_GIB / BYTES_OF_GB if sku.unit.startswith("GBy.") else sku.usd
        monthly = sku.unit.endswith(".mo")
        price = replace(sku, usd=parse_decimal(usd / HOURS_PER_MONTH, what=sku.sku_id) if monthly else usd)
        for region in sku.regions:
            known = found.setdefault((part, region, purchase), [])
            if all(other.usd != price.usd for other in known):
                known.append(price)
    return found


def _is_in_scope(sku: GoogleSku) -> bool:
    """Return whether a SKU is priced on demand or as spot."""
    is_other = sku.usage_type.startswith("Commit") or LEFT_OUT.search(sku.description)
    return sku.usd != 0 and not is_other


CORES_OF_OLD_TPU_SKU = 8  # v2, v3 and v4 are priced per eight cores, v5 and v6e per chip
ACCELERATOR_GROUPS = ("GPU", "TPU")  # resource groups
# Machine series with accelerators: https://cloud.google.com/compute/docs/accelerator-optimized-machines
ACCELERATOR_SERIES = re.compile(r"[ag][2-9]\w*[- ]")
SIX_PLACES = Decimal("0.000001")  # rounding of machine prices, as on Google's pages
Prices = Mapping[tuple[str, str, Purchase], Sequence[GoogleSku]]


def find_priced_parts(instance_type: str, shape: InstanceSpec) -> dict[str, Decimal] | None:
    """Return the quantity of each priced part of a machine; None if its pricing is unknown.

    Example:
        >>> a2 = InstanceSpec("A100-40GB", 1, 12, 85)
        >>> {k: str(v) for k, v in find_priced_parts("a2-highgpu-1g", a2).items()}
        {'a2 core': '12', 'a2 ram': '85', 'gpu A100-40GB': '1'}
        >>> {k: str(v) for k, v in find_priced_parts("tpu-v3-32", InstanceSpec("TPU-v3", 16, None, None)).items()}
        {'tpu v3 pod': '4'}
    >>> {k: str(v) for k, v in find_priced_parts("a4-highgpu-8g", InstanceSpec("B200", 8, 224, 3968)).items()}
    {'slice B200': '8'}
    """
    devices = _to_decimal(shape.devices)
    slice_name = re.fullmatch(r"tpu-(v\d\w*?)(litepod)?-(\d+)", instance_type)
    if slice_name is not None:  # v2 to v4 per eight cores (beyond, and on v4, as pods), else chips
        version, size = "v5e" if slice_name[2] else slice_name[1], int(slice_name[3])
        is_old = version in ("v2", "v3", "v4")
        pod = " pod" if is_old and (size > CORES_OF_OLD_TPU_SKU or version == "v4") else ""
        return {f"tpu {version}{pod}": Decimal(size) / CORES_OF_OLD_TPU_SKU if is_old else devices}
    if instance_type.startswith("attach:"):
        return {f"gpu {shape.accelerator}": devices}
    if shape.vcpus is None or shape.memory_gib is None:
        return None
    machine = instance_type.partition("+")[0]
    kind = "-".join(machine.split("-")[:2])
    series = NAMES["google_series"].get(kind, machine.partition("-")[0])
    if series in ("a4", "a4x"):
        return {f"slice {shape.accelerator}": devices}
    if series == "g4" and devices < 1:
        return {EIGHTH_SLICE: 8 * devices}
    parts = {f"{series} {CORE}": _to_decimal(shape.vcpus), f"{series} {RAM}": _to_decimal(shape.memory_gib)}
    if shape.accelerator != CPU:
        mega = " mega" if kind == "a3-megagpu" else ""
        parts[f"gpu {shape.accelerator}{mega}"] = devices
    if kind in NAMES["google_ssd_gib_per_gpu"]:
        parts[SSD] = NAMES["google_ssd_gib_per_gpu"][kind] * devices
    return parts


def assemble_machines(known: Mapping[str, InstanceSpec], prices: Prices, *, url: str) -> Iterator[ListedPrice]:
    """Yield every known machine in every region where all of its parts have a price.

    A part with several prices gives a machine with several prices, which the sanity checks report.
    """
    places = sorted({(region, purchase) for _, region, purchase in prices})
    for instance_type, shape in known.items():
        parts = find_priced_parts(instance_type, shape)
        if parts is None:
            continue
        for region, purchase in places:
            choices = [prices.get((part, region, purchase), ()) for part in parts]
            for choice in islice(product(*choices), 2):
                sum_of = list(zip(parts.values(), choice, strict=True))
                yield _build_price((instance_type, region, purchase), sum_of, url)


def _build_price(
    key: tuple[str, str, Purchase], sum_of: Sequence[tuple[Decimal, GoogleSku]], url: str
) -> ListedPrice:
    """Build a machine's price: Σ quantity × unit price."""
    instance_type, region, purchase = key
    usd = sum((amount * price.usd for amount, price in sum_of), Decimal(0))
    currencies = sorted({price.currency for _, price in sum_of})
    return ListedPrice(
        instance_type=instance_type,
        region=region,
        purchase=purchase,
        usd_per_hour=parse_decimal(usd.quantize(SIX_PLACES), what=instance_type),
        currency=" ".join(currencies),
        sku=" + ".join(f"{amount:f} x {price.sku_id}" for amount, price in sum_of),
        url=url,
    )


def _to_decimal(number: float) -> Decimal:
    """Return a quantity as an exact Decimal."""
    return Decimal(f"{number:g}")


def find_left_out(skus: Iterable[GoogleSku], specs: InstanceSpecs) -> Iterator[LeftOut]:
    """Yield the priced accelerators and machine series that no machine of the catalog has.

    Google does not price machine types, so new sizes of a known series are not found.
    """
    used = {part for name, spec in specs.known.items() for part in find_priced_parts(name, spec) or ()}
    for sku in filter(_is_in_scope, skus):
        part = parse_part(sku.description)
        name = _name_part(sku.description)
        if part is None:
            if sku.resource_group in ACCELERATOR_GROUPS:
                is_known = specs.names.find(name.removesuffix(" GPU"))
                yield LeftOut(reason="unknown machine" if is_known else "unknown accelerator", name=name)
        elif part not in used and part.endswith(f" {CORE}"):
            has_accelerator = ACCELERATOR_SERIES.match(part)
            yield LeftOut(reason="unknown machine" if has_accelerator else "no accelerator", name=name)
        elif part not in used and part.startswith(("gpu ", "slice ", "tpu ")):
            yield LeftOut(reason="unknown machine", name=name)


def _name_part(description: str) -> str:
    """Return Google's name of a part, without its region and purchase option.

    Example:
        >>> _name_part("Nvidia L40 GPU attached to Spot Preemptible VMs running in Iowa")
        'Nvidia L40 GPU'
        >>> _name_part("Spot Preemptible A9 Instance Core running in Iowa"), _name_part("TPU7x in Iowa")
        ('A9 Instance', 'TPU7x')
    """
    return re.sub(r"^(Spot )?(Preemptible )?|( Core)? (attached to|running in|in) .*", "", description)


ENDPOINT = "https://cloudbilling.googleapis.com"
SERVICES = ("services/6F81-5844-456A", "services/E000-3F24-B8AA")  # Compute Engine; Cloud TPU
SCOPE = "https://www.googleapis.com/auth/cloud-billing.readonly"
PAGE_SIZE = 5000
MOST_PAGES = 100
NANO = Decimal("1e-9")
KEY_VARIABLES = ("GCP_API_KEY", "GOOGLE_API_KEY")
WHAT = "every machine and TPU from Google's own SKUs"
ADC_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"


class GcpBilling(PriceSource):
    """Cloud Billing Catalog: one response for all regions; machine prices are assembled from unit prices."""

    name = "gcp-billing"
    provider = label = "gcp"

    def missing(self, request: RefreshRequest) -> str | None:
        """Return the missing package or credentials."""
        if find_spec("google") is None or find_spec("google.cloud.billing_v1") is None:
            return f"{WHAT}: `pip install 'gpuplan[gcp]'` and GCP_API_KEY"
        adc_file = Path.home() / ".config/gcloud/application_default_credentials.json"
        if _find_api_key(request) or request.environ.get(ADC_VARIABLE) or adc_file.is_file():
            return None
        return f"{WHAT}: an API key in GCP_API_KEY, or `gcloud auth application-default login`"

    def read_all(self, request: RefreshRequest, http: HttpClient) -> Iterable[ListedPrice | LeftOut]:
        """Return every known machine of all regions, and other priced items."""
        endpoint = request.endpoint(self.name, ENDPOINT)
        with _open_client(endpoint, request) as client:
            skus = [sku for service in SERVICES for sku in _read_skus(client, service, http)]
        url = f"{endpoint}/v1/{SERVICES[0]}/skus"
        machines = assemble_machines(self._specs.known, compute_part_prices(skus), url=url)
        return [*set(find_left_out(skus, self._specs)), *machines]


def _find_api_key(request: RefreshRequest) -> str | None:
    """Return the API key from the environment."""
    return next((request.environ[name] for name in KEY_VARIABLES if request.environ.get(name)), None)


@contextmanager
def _open_client(endpoint: str, request: RefreshRequest) -> Iterator[Any]:
    """Yield Google's client for an endpoint; FetchError if the credentials are unusable."""
    import google.auth
    import google.auth.api_key
    from google.cloud.billing_v1 import CloudCatalogClient
    from google.cloud.billing_v1.services.cloud_catalog.transports import CloudCatalogRestTransport

    key = _find_api_key(request)
    with _translate_errors():
        credentials = google.auth.api_key.Credentials(key) if key else google.auth.default(scopes=[SCOPE])[0]
    address = urlsplit(endpoint)
    transport = CloudCatalogRestTransport(host=address.netloc, url_scheme=address.scheme, credentials=credentials)
    try:
        yield CloudCatalogClient(transport=transport)
    finally:
        transport.close()


def _read_skus(client: Any, service: str, http: HttpClient) -> Iterator[GoogleSku]:
    """Yield all SKUs of a service; FetchError if pages repeat or do not end."""
    token, seen = "", {""}
    for _ in range(MOST_PAGES):
        page = http.retry(partial(_fetch_page, client, service, token))
        yield from (_convert_sku(sku) for sku in page.skus)
        token = page.next_page_token
        if not token:
            return
        if token in seen:
            break
        seen.add(token)
    raise FetchError(f"Google returned more than {MOST_PAGES} pages for {service}", kind="disordered")


def _fetch_page(client: Any, service: str, token: str, left_s: float) -> Any:
    """Fetch a page as protocol buffer."""
    from google.cloud.billing_v1 import ListSkusRequest

    question = ListSkusRequest(parent=service, page_size=PAGE_SIZE, page_token=token)
    with _translate_errors():
        pager = client.list_skus(request=question, retry=None, timeout=left_s)
        page = next(iter(pager.pages))
        return type(page).pb(page)


def _convert_sku(sku: Any) -> GoogleSku:
    """Convert a SKU of Google's client at its latest price, in the first tier that is not free."""
    expression = sku.pricing_info[-1].pricing_expression if sku.pricing_info else None
    rates = [tier.unit_price for tier in expression.tiered_rates] if expression else []
    rate = next((rate for rate in rates if rate.units or rate.nanos), rates[0] if rates else None)
    usd = Decimal(rate.units) + rate.nanos * NANO if rate else Decimal(0)
    return GoogleSku(
        sku_id=sku.sku_id,
        description=sku.description,
        resource_group=sku.category.resource_group,
        usage_type=sku.category.usage_type,
        regions=tuple(sku.service_regions),
        unit=expression.usage_unit if expression else "",
        usd=parse_decimal(usd, what=f"the price of {sku.sku_id}"),
        currency=rate.currency_code if rate else "USD",
    )


@contextmanager
def _translate_errors() -> Iterator[None]:
    """Convert errors of Google's client to FetchErrors that do not contain the key."""
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError
    from google.protobuf.json_format import ParseError

    try:
        with translate_errors("Google"):
            yield
    except GoogleAPICallError as error:
        status = int(error.code or 0)
        kind: FetchErrorKind = "credentials" if status == 400 else classify_status(status)
        hint = "is the key valid, and the Cloud Billing API enabled for it?" if kind == "credentials" else None
        why = f"Google answered {status} {_first_line(error.message)}"
        raise FetchError(why, kind=kind, hint=hint) from error
    except GoogleAuthError as error:
        raise FetchError(
            f"Google's credentials cannot be used: {_first_line(str(error))}",
            kind="credentials",
            hint="`gcloud auth application-default login`",
        ) from error
    except (ParseError, ValueError, StopIteration, AttributeError, TypeError) as error:
        # The client raises the last two for error bodies that are not Google's (a proxy's page).
        raise FetchError("the response of Google is not the expected JSON", kind="malformed") from error


def _first_line(text: str | None) -> str:
    """Return the first 120 characters of a message, which may be an HTML page."""
    return " ".join((text or "").split())[:120]
