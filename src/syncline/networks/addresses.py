"""Which IP addresses a stranger may make us connect to: public unicast ones, and those an operator allows.

Addresses that carry an IPv4 address inside (mapped, 6to4, NAT64, Teredo …) are judged by what they carry. The tables
follow the IANA special-purpose registries; the answer of `ipaddress.is_global` depends on the Python release.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

from syncline.core.errors import SettingsError

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_SPECIAL_V4: Final = tuple(
    IPv4Network(text)
    for text in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT
        "127.0.0.0/8",  # loopback
        "169.254.0.0/16",  # link-local, where clouds keep their credentials service
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, broadcast
    )
)
_PUBLIC_V6: Final = IPv6Network("2000::/3")  # all that is handed out for global unicast; the rest is special
_SPECIAL_V6: Final = tuple(
    IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: judged by the address inside
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)
# Prefixes that carry an IPv4 address, and how many low bits follow it.
_CARRIERS: Final = (
    (IPv6Network("::ffff:0:0/96"), 0),  # mapped
    (IPv6Network("::ffff:0:0:0/96"), 0),  # translated (SIIT)
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64
    (IPv6Network("2002::/16"), 80),  # 6to4
)


def is_public(address: Address) -> bool:
    """Whether anybody on the Internet could be at this address."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_V4)
    inner = carried(address)
    if inner is not None:
        return is_public(inner)
    return address in _PUBLIC_V6 and not any(address in network for network in _SPECIAL_V6)


def carried(address: IPv6Address) -> IPv4Address | None:
    """The IPv4 address an IPv6 one leads to, if it is of a kind that does."""
    for prefix, low_bits in _CARRIERS:
        if address in prefix:
            return IPv4Address((int(address) >> low_bits) & 0xFFFFFFFF)
    return None


def may_connect(text: str, allowed: Iterable[str] = ()) -> bool:
    """Whether a connection may go to this numeric address: a public one, or one in the `allowed` networks.

    A mapped form (`::ffff:10.0.0.1`) is not allowed by its IPv4 network: nobody honest needs to write it so.
    """
    address = ip_address(text.partition("%")[0])
    if is_public(address):
        return True
    return any(network.version == address.version and address in network for network in networks(tuple(allowed)))


@lru_cache(maxsize=16)
def networks(allowed: tuple[str, ...]) -> tuple[Network, ...]:
    """Networks as an operator writes them (`10.0.0.0/8`, `127.0.0.1`, `::1`)."""
    try:
        return tuple(ip_network(text) for text in allowed)
    except ValueError as error:
        raise SettingsError(f"not a network: {error}", hint="write for example 10.0.0.0/8 or ::1") from None
