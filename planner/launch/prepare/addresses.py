"""Checks of network addresses that may reach a machine."""

from __future__ import annotations

import ipaddress

from ...errors import UsageError

__all__ = ["require_narrow_network"]

# At most 2^16 IPv4 addresses, or an IPv6 /48 (the allocation of one site, RFC 6177).
WIDEST = {4: 16, 6: 48}


def require_narrow_network(text: str, *, option: str) -> None:
    """Raise UsageError when a port would be opened to an unreasonably large network.

    Args:
        text: In CIDR notation; `0.0.0.0/0` and `::/0` are the whole internet.
        option: Name of the option, for the message.
    """
    try:
        network = ipaddress.ip_network(text)
    except ValueError as error:
        raise UsageError(f"`--option {option}={text}`: {error}", hint="try 203.0.113.7/32") from error
    if network.prefixlen < WIDEST[network.version]:
        raise UsageError(
            f"`--option {option}={text}` opens the port to {network.num_addresses} addresses",
            hint=f"give your own address, or a network of /{WIDEST[network.version]} or smaller: 203.0.113.7/32",
        )
