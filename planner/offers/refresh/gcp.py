"""Google Cloud, on demand and spot: the Cloud Billing Catalog through Google's own client, with an API key or ADC.

https://cloud.google.com/billing/v1/how-tos/catalog-api: 5,000 SKUs a page, of Compute Engine (GPUs and newer TPUs
among them) and of Cloud TPU (v2 to v4). The key goes into a header, never into an address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from .gcp_machines import assembled
from .gcp_skus import GoogleSku, unit_prices
from .source import ANYWHERE, FetchError, Kind, Listed, Part, Request, decimal_of

if TYPE_CHECKING:
    from .http import Http
    from .shapes import Shapes

__all__ = ["GcpBilling"]

ENDPOINT = "https://cloudbilling.googleapis.com"
SERVICES = ("services/6F81-5844-456A", "services/E000-3F24-B8AA")  # Compute Engine; Cloud TPU
SCOPE = "https://www.googleapis.com/auth/cloud-billing.readonly"
PAGE_SIZE = 5000
MOST_PAGES = 100
NANO = Decimal("1e-9")
KEY_VARIABLES = ("GCP_API_KEY", "GOOGLE_API_KEY")
WHAT = "every machine and TPU from Google's own SKUs"
ADC_VARIABLES = ("GOOGLE_APPLICATION_CREDENTIALS",)


class GcpBilling:
    """The Cloud Billing Catalog: one answer for all regions, from which machines are put together."""

    name = "gcp-billing"
    provider = "gcp"

    def __init__(self, shapes: Shapes) -> None:
        self._shapes = shapes
        self._rows: list[Listed] | None = None

    def missing(self, request: Request) -> str | None:
        """Return which package or credentials are needed."""
        if find_spec("google") is None or find_spec("google.cloud.billing_v1") is None:
            return (
                "every machine and TPU from Google's own SKUs: `pip install 'gpuplan[gcp]'` and GCP_API_KEY"
            )
        if _key(request) or any(request.environ.get(name) for name in ADC_VARIABLES) or _has_adc():
            return None
        return f"{WHAT}: an API key in GCP_API_KEY, or `gcloud auth application-default login`"

    def parts(self, request: Request) -> Sequence[Part]:
        """Return one part, or one a region that was asked for."""
        return request.parts_of("gcp", "on_demand", "spot")

    def read(self, part: Part, request: Request, http: Http) -> Iterable[Listed]:
        """Return every known machine of all regions, or of the part's."""
        if self._rows is None:
            endpoint = request.endpoint(self.name, ENDPOINT)
            with _client(endpoint, request) as client:
                skus = [sku for service in SERVICES for sku in _skus(client, service, http)]
            url = f"{endpoint}/v1/{SERVICES[0]}/skus"
            self._rows = list(assembled(self._shapes.known, unit_prices(skus), url=url))
        return [row for row in self._rows if part.region in (ANYWHERE, row.region)]


def _key(request: Request) -> str | None:
    """Return the API key that the environment has."""
    return next((request.environ[name] for name in KEY_VARIABLES if request.environ.get(name)), None)


def _has_adc() -> bool:
    """Return whether `gcloud auth application-default login` left credentials."""
    from pathlib import Path

    return (Path.home() / ".config/gcloud/application_default_credentials.json").is_file()


@contextmanager
def _client(endpoint: str, request: Request) -> Iterator[Any]:
    """Yield Google's client for an endpoint; FetchError when credentials cannot be used."""
    import google.auth
    import google.auth.api_key
    from google.cloud.billing_v1 import CloudCatalogClient
    from google.cloud.billing_v1.services.cloud_catalog.transports import CloudCatalogRestTransport

    key = _key(request)
    with _translated():
        credentials = google.auth.api_key.Credentials(key) if key else google.auth.default(scopes=[SCOPE])[0]
    address = urlsplit(endpoint)
    transport = CloudCatalogRestTransport(
        host=address.netloc, url_scheme=address.scheme, credentials=credentials
    )
    try:
        yield CloudCatalogClient(transport=transport)
    finally:
        transport.close()


def _skus(client: Any, service: str, http: Http) -> Iterator[GoogleSku]:
    """Yield all SKUs of a service; FetchError when pages repeat or do not end."""
    token, seen = "", {""}
    for _ in range(MOST_PAGES):
        page = http.retry(lambda token=token: _page(client, service, token, http))  # type: ignore[misc]
        yield from (_sku(sku) for sku in page.skus)
        token = page.next_page_token
        if not token:
            return
        if token in seen:
            break
        seen.add(token)
    raise FetchError(f"Google's pages of {service} do not end", kind="disordered")


def _page(client: Any, service: str, token: str, http: Http) -> Any:
    """Return a page as its protocol buffer."""
    from google.cloud.billing_v1 import ListSkusRequest

    question = ListSkusRequest(parent=service, page_size=PAGE_SIZE, page_token=token)
    with _translated():
        pager = client.list_skus(request=question, retry=None, timeout=http.patience.read_s)
        page = next(iter(pager.pages))
        return type(page).pb(page)


def _sku(sku: Any) -> GoogleSku:
    """Return a SKU of Google's client as ours; the newest price, its first tier."""
    expression = sku.pricing_info[0].pricing_expression if sku.pricing_info else None
    rate = expression.tiered_rates[0].unit_price if expression and expression.tiered_rates else None
    usd = Decimal(rate.units) + rate.nanos * NANO if rate else Decimal(0)
    return GoogleSku(
        sku_id=sku.sku_id,
        description=sku.description,
        usage_type=sku.category.usage_type,
        regions=tuple(sku.service_regions),
        unit=expression.usage_unit if expression else "",
        usd=decimal_of(usd, what=f"the price of {sku.sku_id}"),
        currency=rate.currency_code if rate else "USD",
    )


@contextmanager
def _translated() -> Iterator[None]:
    """Turn the errors of Google's client into FetchErrors; the key is in none of them."""
    import requests
    from google.api_core.exceptions import GoogleAPICallError
    from google.auth.exceptions import GoogleAuthError
    from google.protobuf.json_format import ParseError

    try:
        yield
    except GoogleAPICallError as error:
        status = int(error.code or 0)
        kinds: dict[int, Kind] = {
            400: "credentials",
            401: "credentials",
            403: "credentials",
            429: "throttled",
        }
        kind: Kind = kinds.get(status, "server" if status >= 500 else "refused")
        hint = (
            "is the key valid, and the Cloud Billing API enabled for it?" if kind == "credentials" else None
        )
        raise FetchError(
            f"Google answered {status} {_first_line(error.message)}", kind=kind, hint=hint
        ) from error
    except GoogleAuthError as error:
        raise FetchError(
            f"Google's credentials cannot be used: {_first_line(str(error))}",
            kind="credentials",
            hint="`gcloud auth application-default login`",
        ) from error
    except requests.Timeout as error:
        raise FetchError("Google does not answer in time", kind="slow") from error
    except requests.exceptions.ChunkedEncodingError as error:
        raise FetchError("Google's answer ended early", kind="truncated") from error
    except requests.RequestException as error:
        raise FetchError(f"Google cannot be reached ({type(error).__name__})", kind="unreachable") from error
    except (ParseError, ValueError, StopIteration, AttributeError, TypeError) as error:
        # The client stumbles over bodies of errors that are not Google's (a proxy's page) with the last two.
        raise FetchError("Google did not answer in its JSON", kind="malformed") from error


def _first_line(text: str | None) -> str:
    """Return the first line of a message, which may be a page."""
    return " ".join((text or "").split())[:120]
