"""Addresses of the Internet in rules: one IPv4 or IPv6 address, a network (CIDR), or a range from one address to another.

A rule writes addresses in short; knowledge as the digest binds it has every address by itself, in the form of RFC 5952 (IPv6) or
with four decimal numbers (IPv4). So whoever reads knowledge later needs no type of addresses: they are texts as all others.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

MAX_ADDRESSES: Final = 4096
"""Of one network or range in a property: every address becomes a value of its own."""
EXPECTED: Final = "an IPv4 or IPv6 address, a network such as 192.0.2.0/24, or a range such as 192.0.2.1-192.0.2.9"


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressRange:
    """Addresses of one version, one after the other.

    Attributes:
        version: 4 or 6.
        first, last: as numbers; first <= last.
    """

    version: int
    first: int
    last: int

    @property
    def size(self) -> int:
        """Number of the addresses in the range."""
        return self.last - self.first + 1

    def texts(self) -> Iterator[str]:
        """Yield every address as it is written, in order."""
        kind = ipaddress.IPv4Address if self.version == 4 else ipaddress.IPv6Address
        return (str(kind(number)) for number in range(self.first, self.last + 1))

    def holds(self, text: str) -> bool:
        """Tell whether a text is an address of the range; what is no address is not."""
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        return address.version == self.version and self.first <= int(address) <= self.last


def read_range(text: str) -> AddressRange:
    """Read an address, a network or a range.

    >>> [read_range(text).size for text in ("192.0.2.7", "192.0.2.0/24", "2001:db8::1-2001:db8::4")]
    [1, 256, 4]

    Raises:
        ValueError: what is wrong, without the text.
    """
    first, dash, last = (part.strip() for part in text.partition("-"))
    if not dash and "/" in text:
        return _network(text)
    one = _address(first)
    other = _address(last) if dash else one
    if one.version != other.version:
        raise ValueError("a range from IPv4 to IPv6, expected both ends of one version")
    if int(one) > int(other):
        raise ValueError("the range ends before it begins, expected the lower address first")
    return AddressRange(version=one.version, first=int(one), last=int(other))


def canonical_address(text: str) -> str | None:
    """Return an address as knowledge has it; None: the text is no address.

    >>> canonical_address("2001:DB8:0::1"), canonical_address("192.0.2.300")
    ('2001:db8::1', None)
    """
    try:
        return str(ipaddress.ip_address(text.strip()))
    except ValueError:
        return None


def _network(text: str) -> AddressRange:
    try:
        network = ipaddress.ip_network(text.strip())
    except ValueError:
        try:
            right = ipaddress.ip_network(text.strip(), strict=False)
        except ValueError:
            raise ValueError(f"this is no network, expected {EXPECTED}") from None
        raise ValueError(
            f"the network has bits behind its prefix of {right.prefixlen}, expected its first address, or an address alone"
        ) from None
    return AddressRange(
        version=network.version, first=int(network.network_address), last=int(network.broadcast_address)
    )


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        raise ValueError(f"this is no address, expected {EXPECTED}") from None
    if isinstance(address, ipaddress.IPv6Address) and address.scope_id is not None:
        raise ValueError("the address names an interface (%), which holds on one machine alone")
    return address
