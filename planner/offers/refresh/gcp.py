"""Google Cloud on-demand and spot prices: the Cloud Billing Catalog through Google's client, with an API key
or ADC.

https://cloud.google.com/billing/v1/how-tos/catalog-api: 5,000 SKUs per page, of Compute Engine (including
GPUs and newer TPUs) and of Cloud TPU (v2 to v4). The key is sent in a header, never in the URL.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .errors import FetchError, FetchErrorKind, classify_status, translate_errors
from .gcp_prices import GoogleSku, assemble_machines, compute_part_prices, find_left_out
from .source import LeftOut, ListedPrice, PriceSource, RefreshRequest, parse_decimal

if TYPE_CHECKING:
    from .http import HttpClient
    from .instance_types import InstanceSpecs


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

    def __init__(self, specs: InstanceSpecs) -> None:
        self._specs = specs

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
