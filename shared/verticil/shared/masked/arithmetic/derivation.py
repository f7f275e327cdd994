"""What keys, commitments and transcripts of a round are functions of (model-three.md, section 3).

    X(label; ...) = E("verticil/masked/v1", study, round, label, transcript, pair or table, direction, run, block, part)
    derived(key, label, ...) = HKDF-SHA-256(key, info = X(label; ...))
    commit(label, salt, what, ...) = SHA-256(E(X(label; ...), salt, what))

with E of `verticil.shared.masked.arithmetic.streams`. All ten fields are always there, those that do not apply empty, so no two
uses have one input. A commitment tells nothing of what it is to without the salt, and cannot be opened to anything else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from verticil.shared.masked.arithmetic.streams import Field, encode_fields, key_of

PURPOSE: Final = "verticil/masked/v1"
KEY_BYTES: Final = 32


class Hasher(Protocol):
    """A commitment in the making."""

    def update(self, data: bytes, /) -> None:
        """Add the next piece."""
        ...

    def digest(self) -> bytes:
        """Return the commitment, 32 bytes."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Of:
    """The fields behind the label, in this order; empty: it does not apply.

    Attributes:
        transcript: T0 or T1.
        pair: E of two names, the lesser first; or the index of a table.
        direction: E of the names from and to.
        run: of the check, from 0.
        block: of rows, from 0.
        part: anything else, of one type for each label.
    """

    transcript: bytes = b""
    pair: Field = b""
    direction: bytes = b""
    run: Field = b""
    block: Field = b""
    part: Field = b""

    @property
    def fields(self) -> tuple[Field, ...]:
        """As they stand in X."""
        return self.transcript, self.pair, self.direction, self.run, self.block, self.part


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundName:
    """Which round of which study.

    Attributes:
        study: digest of the proposal, 32 bytes.
        round: from 1.
    """

    study: bytes
    round: int

    def derive(self, key: bytes, label: str, of: Of) -> bytes:
        """Derive a key of one use, 32 bytes.

        Args:
            key: 32 bytes, secret.
            label: of the use.
            of: the rest of X.
        """
        return key_of(key, self.study, self.round, label, *of.fields)

    def commitment(self, label: str, salt: bytes, what: bytes, of: Of) -> bytes:
        """Return the commitment to some bytes, 32 bytes; arguments and errors as of `committer`."""
        digest = self.committer(label, salt, len(what), of)
        digest.update(what)
        return digest.digest()

    def committer(self, label: str, salt: bytes, size: int, of: Of) -> Hasher:
        """Return what makes the commitment to bytes that come in pieces: it is updated with all of them, and its digest
        taken.

        Args:
            label: of what it is to.
            salt: 32 random bytes.
            size: of all pieces together, bytes.
            of: the rest of X.

        Raises:
            ValueError: the salt is not 32 bytes.
        """
        if len(salt) != KEY_BYTES:
            raise ValueError(f"salt: {len(salt)} bytes, expected {KEY_BYTES}")
        digest = hashlib.sha256(encode_fields(encode_fields(PURPOSE, self.study, self.round, label, *of.fields), salt))
        digest.update(size.to_bytes(8, "big"))
        return digest

    def transcript(self, name: str, bodies: Mapping[str, bytes], before: bytes = b"") -> bytes:
        """T0 of the hellos, or T1 of T0 and the statements: SHA-256 over their bodies, by name.

        Args:
            name: ``T0`` or ``T1``.
            bodies: by who sent them.
            before: T0, of T1.
        """
        items = sorted(bodies.items(), key=lambda item: item[0].encode())
        fields: list[Field] = [PURPOSE, self.study, self.round, name, before]
        return hashlib.sha256(encode_fields(*fields, *(part for item in items for part in item))).digest()


def pair_field(one: str, other: str) -> bytes:
    """E of two names, the lesser first, compared as bytes."""
    return encode_fields(*sorted((one, other), key=str.encode))


def direction_field(source: str, target: str) -> bytes:
    """Return E(from, to), the field of a direction."""
    return encode_fields(source, target)


def toss_key(verifier: bytes, dealer: bytes) -> bytes:
    """Return the key of what two nodes tossed: SHA-256 of E of both their bytes, the verifier's first."""
    return hashlib.sha256(encode_fields(verifier, dealer)).digest()
