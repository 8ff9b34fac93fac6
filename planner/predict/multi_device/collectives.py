"""Time of the collectives of data-parallel training."""

from __future__ import annotations

import math


def ring_pass_s(*, message_bytes: float, devices: float, link_bytes_per_s: float) -> float:
    """Return the time of one ring all-gather or reduce-scatter, half that of an all-reduce, without latency [s].

    Every device sends (N - 1) / N of the message: Patarasuk and Yuan, 2009, "Bandwidth optimal all-reduce
    algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69(2), doi:10.1016/j.jpdc.2008.09.002,
    section 3. Valid for one message at a time over equal links.

    Args:
        message_bytes: Size of the whole, of which a device holds 1 / N before or after [bytes].
        devices: Number of devices, N; 1 and less need no link [-].
        link_bytes_per_s: Bandwidth of a device in one direction [bytes/s].

    Example:
        >>> ring_pass_s(message_bytes=100e6, devices=4, link_bytes_per_s=10e9)
        0.0075
    """
    return 0.0 if devices <= 1 else (devices - 1.0) / devices * message_bytes / link_bytes_per_s


def exposed_s(*, exchange_s: float, hidden_at_most_s: float) -> float:
    """Return the part of an exchange that is not hidden by the backward pass [s].

    The part that hides is a smooth minimum of both (a p-norm of order -3): gradients come late in the pass, so
    that an exchange as long as the pass does not hide whole. Never negative, never more than the exchange.

    Args:
        exchange_s: The exchange on its own [s].
        hidden_at_most_s: Upper bound of the hidden time [s].

    Example:
        >>> exposed_s(exchange_s=0.015, hidden_at_most_s=0.0)
        0.015
    """
    if exchange_s <= 0.0 or hidden_at_most_s <= 0.0:
        return max(exchange_s, 0.0)
    smaller, larger = sorted((exchange_s, hidden_at_most_s))
    hidden_s = smaller / math.cbrt(1.0 + (smaller / larger) ** 3)
    return exchange_s - hidden_s
