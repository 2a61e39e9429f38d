"""Which hosts are this machine: a token may go there in the clear."""

from __future__ import annotations

import ipaddress


def is_loopback_host(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
