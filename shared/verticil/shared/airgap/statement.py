"""What the maker of a bundle signs: whose it is, for whom, which in the row, what it answers, and every byte of it.

A bundle travels in one of two directions, between the miner and one party. Each side numbers its own bundles 1, 2, 3, and each
names the last one of the other side that its maker had taken in (`answers`), by number and SHA-256. The SHA-256 of a bundle is
that of its statement, which lists the SHA-256 of every piece of its content; so it names all of it.

The statement is in clear in the file: who finds it learns the federation's and the party's name, when it was made, and how
large it is. What it is about is in the content.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, Literal

from verticil.shared.errors import GateFailed
from verticil.shared.record import Count, Sha256, decode, tame

Direction = Literal["to-miner", "to-party"]
STATEMENT_LIMIT: Final = 64 * 2**20
"""Most bytes of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One bundle of one side: its number there, and its SHA-256."""

    number: Count
    sha256: Sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What is signed; `record.encode` makes its bytes.

    Attributes:
        federation: in which it counts.
        direction: who made it for whom.
        party: the party's name, in either direction.
        number: of this bundle among those of its maker for this party.
        answers: the last bundle of the other side that its maker had taken in; None: none yet.
        made_at: UTC, whole seconds.
        protocol: version that its maker speaks.
        sealed: whether the content is sealed for the recipient.
        size: bytes of the content before it was sealed.
        pieces: SHA-256 of every piece as it stands in the file.
    """

    MARK: ClassVar = {"form": "verticil/carried/v1"}

    federation: Annotated[str, 80]
    direction: Direction
    party: Annotated[str, 80]
    number: Count
    answers: Reference | None
    made_at: dt.datetime
    protocol: Count
    sealed: bool
    size: Count
    pieces: tuple[Sha256, ...]

    @property
    def name(self) -> str:
        """For people: which bundle it is."""
        maker = f"party '{self.party}'" if self.direction == "to-miner" else f"the miner for party '{self.party}'"
        return f"bundle {self.number} of {maker}"


def digest_of(body: bytes) -> bytes:
    """The SHA-256 that names a bundle."""
    return hashlib.sha256(body).digest()


def parse_statement(body: bytes) -> Statement:
    """Read a statement; the signature is checked by the caller.

    >>> from verticil.shared.record import encode
    >>> at = dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC)
    >>> said = Statement(federation="hearts", direction="to-miner", party="clinic", number=2,
    ...     answers=Reference(number=1, sha256=bytes(32)), made_at=at, protocol=2, sealed=True, size=7, pieces=(bytes(32),))
    >>> parse_statement(encode(said)) == said
    True

    Raises:
        GateFailed: BUNDLE_INVALID.
    """
    return decode(
        Statement,
        body,
        source="the signed statement at its beginning",
        limit=STATEMENT_LIMIT,
        fault=lambda error: GateFailed("BUNDLE_INVALID", tame(error.message), hint=tame(error.hint)),
    )
