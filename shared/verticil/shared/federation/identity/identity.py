"""Who a node is: the one URI in its certificate, ``verticil://FEDERATION/ROLE/NAME``.

Identity is that subject alternative name and nothing else (contract.md section 2): no request field, subject name,
address or host name ever names a sender. This module only reads and writes the URI; `pki` takes it from certificates.

TLS compares host names, not URIs. So that a caller speaks to one node and to no other of the federation, whatever the address,
the certificate of every server also carries `peer_host`: a DNS name that follows from the identity and that nothing resolves.
"""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass
from typing import Final

from verticil.shared.documents.toml_table import is_name

_SCHEME: Final = "verticil://"

PEER_DOMAIN: Final = ".verticil"
"""Ends every `peer_host`, and no host that people name: there is no such top-level domain."""


class Role(enum.StrEnum):
    """What a certificate is for. A certificate has exactly one role; `access` says what each may do."""

    PARTY = "party"
    MINER = "miner"
    ANALYST = "analyst"
    CONSUMER = "consumer"
    AUDITOR = "auditor"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A node of a federation.

    >>> Identity.parse("verticil://adult-demo/party/census_bureau").name
    'census_bureau'

    Attributes:
        federation: name of the federation.
        role: what the node may do.
        name: the node's name, unique in its federation and role.

    Raises:
        ValueError: a name is not one that `is_name` accepts.
    """

    federation: str
    role: Role
    name: str

    def __post_init__(self) -> None:
        for what, text in (("federation", self.federation), ("name", self.name)):
            if not is_name(text):
                raise ValueError(
                    f"{what}: got {text[:80]!r}, expected 1 to 63 of A-Z a-z 0-9 _ -, the first a letter or digit"
                )

    @property
    def uri(self) -> str:
        """The URI that certificates carry."""
        return f"{_SCHEME}{self.federation}/{self.role}/{self.name}"

    def __str__(self) -> str:
        return self.uri

    @classmethod
    def parse(cls, uri: str) -> Identity:
        """Read a URI.

        Raises:
            ValueError: it is not exactly ``verticil://FEDERATION/ROLE/NAME`` with a known role.
        """
        parts = uri.removeprefix(_SCHEME).split("/")
        if not uri.startswith(_SCHEME) or len(parts) != 3:
            raise ValueError(f"got {uri[:200]!r}, expected verticil://FEDERATION/ROLE/NAME")
        federation, role, name = parts
        if role not in set(Role):
            raise ValueError(f"role: got {role[:80]!r}, expected one of {', '.join(Role)}")
        return cls(federation=federation, role=Role(role), name=name)


def peer_host(identity: Identity) -> str:
    """Return the DNS name that stands for an identity in a server's certificate: 160 bits of SHA-256 of its URI.

    >>> peer_host(Identity.parse("verticil://adult-demo/party/employer"))
    '9a9e5c11de4b67460257c7cf43938661ee0d0b3e.verticil'
    """
    return hashlib.sha256(identity.uri.encode("ascii")).hexdigest()[:40] + PEER_DOMAIN
