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
from typing import Final, Literal, cast, get_args

import rfc8785

from verticil.shared.errors import GateFailed
from verticil.shared.formats.json_document import Node, parse

Direction = Literal["to-miner", "to-party"]

_FORM: Final = "verticil/carried/v1"
_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"
_SHA256_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One bundle of one side: its number there, and its SHA-256."""

    number: int
    sha256: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What is signed.

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

    federation: str
    direction: Direction
    party: str
    number: int
    answers: Reference | None
    made_at: dt.datetime
    protocol: int
    sealed: bool
    size: int
    pieces: tuple[bytes, ...]

    @property
    def name(self) -> str:
        """For people: which bundle it is."""
        maker = f"party '{self.party}'" if self.direction == "to-miner" else f"the miner for party '{self.party}'"
        return f"bundle {self.number} of {maker}"


def statement_body(statement: Statement) -> bytes:
    """The canonical JSON (RFC 8785) that is signed.

    >>> at = dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC)
    >>> said = Statement(federation="hearts", direction="to-miner", party="clinic", number=2,
    ...     answers=Reference(number=1, sha256=bytes(32)), made_at=at, protocol=2, sealed=True, size=7, pieces=(bytes(32),))
    >>> parse_statement(statement_body(said)) == said
    True
    """
    answers = statement.answers
    return rfc8785.dumps(
        {
            "form": _FORM,
            "federation": statement.federation,
            "direction": statement.direction,
            "party": statement.party,
            "number": statement.number,
            "answers": None if answers is None else {"number": answers.number, "sha256": answers.sha256.hex()},
            "made_at": statement.made_at.astimezone(dt.UTC).strftime(_TIME),
            "protocol": statement.protocol,
            "sealed": statement.sealed,
            "size": statement.size,
            "pieces": [piece.hex() for piece in statement.pieces],
        }
    )


def digest_of(body: bytes) -> bytes:
    """The SHA-256 that names a bundle."""
    return hashlib.sha256(body).digest()


def parse_statement(body: bytes) -> Statement:
    """Read what `statement_body` wrote; the signature is checked by the caller.

    Raises:
        GateFailed: BUNDLE_INVALID.
    """
    try:
        return _read(parse(body, source="bundle"))
    except (GateFailed, ValueError) as error:
        problem = error.message if isinstance(error, GateFailed) else "a digest or a time is not one"
        raise GateFailed("BUNDLE_INVALID", f"the signed statement at its beginning: {problem}") from None


def _read(node: Node) -> Statement:
    if (form := node["form"].text()) != _FORM:
        node["form"].fail(f"got '{form[:80]}', expected '{_FORM}'")
    direction, directions = node["direction"].text(), get_args(Direction)
    if direction not in directions:
        node["direction"].fail(f"expected one of {', '.join(directions)}")
    answers = node.get("answers")
    return Statement(
        federation=node["federation"].text()[:80],
        direction=cast("Direction", direction),
        party=node["party"].text()[:80],
        number=node["number"].integer(),
        answers=None
        if answers is None
        else Reference(number=answers["number"].integer(), sha256=_sha256(answers["sha256"])),
        made_at=dt.datetime.strptime(node["made_at"].text(), _TIME).replace(tzinfo=dt.UTC),
        protocol=node["protocol"].integer(),
        sealed=node["sealed"].boolean(),
        size=node["size"].integer(),
        pieces=tuple(_sha256(piece) for piece in node["pieces"].items()),
    )


def _sha256(node: Node) -> bytes:
    value = bytes.fromhex(node.text())
    if len(value) != _SHA256_BYTES:
        node.fail("expected the 64 hexadecimal digits of a SHA-256")
    return value
