"""Addresses that may reach a machine."""

from __future__ import annotations

import ipaddress

from ...errors import UsageError

__all__ = ["require_narrow_network"]

# 2^16 addresses of IPv4, a /48 of IPv6 (what one site gets, RFC 6177): more is no place that one logs in from.
WIDEST = {4: 16, 6: 48}


def require_narrow_network(text: str, *, option: str) -> None:
    """Raise UsageError unless a port is opened to a network that somebody can mean.

    Args:
        text: In CIDR notation; `0.0.0.0/0` and `::/0` are the whole internet.
        option: Its name, for the message.
    """
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(f"`--option {option}={text}`: {error}", hint="try 203.0.113.7/32") from error
    if network.prefixlen < WIDEST[network.version]:
        raise UsageError(
            f"`--option {option}={text}` opens the port to {network.num_addresses} addresses",
            hint=f"name your own, or a network of /{WIDEST[network.version]} or smaller: 203.0.113.7/32",
        )
