"""What a node says to all: its hello and its statement, whose bodies are hashed to the transcripts T0 and T1, and the opened
tables.

model-three.md, sections 2 and 3. A body is one canonical JSON document, the same for every recipient, signed inside its box so
that it can be shown to others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from verticil.shared.documents.record import Sha256

Key32 = Annotated[bytes, 32]
DOCUMENT_BYTES: Final = 1 << 20
"""At most, of a signed document in its frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Message 0a.

    Attributes:
        study: digest of the proposal.
        round: from 1.
        name: whose it is.
        plan: SHA-256 of the plan's canonical bytes.
        order: digest of the common order; empty of the miner, who has no list.
        data: salted commitment to the randomized columns; empty of the miner.
        signing: public key by which everything of the round is signed.
        pins: by name, the public sealing key that is pinned here for every contributor, its own, too.
        sealing: public key of the round, to which what is secret is sealed; of the miner for the shares.
        dealing: of a miner that deals, for steps 1 to 4; else empty.
        padding: public key of the round for the pads; empty of the miner.
        masks: by the number of the pair, the commitment to the mask seed.
        triples: by the index of a triple's table, those to the mask seeds of all its sets.
    """

    MARK: ClassVar = {"kind": "verticil/masked-hello", "version": 1}

    study: Sha256
    round: int
    name: str
    plan: Sha256
    order: bytes
    data: bytes
    signing: Key32
    pins: Mapping[str, Key32]
    sealing: Key32
    dealing: bytes
    padding: bytes
    masks: Mapping[str, Sha256]
    triples: Mapping[str, tuple[Sha256, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Packets:
    """Commitments to the two packets of one run of a check.

    Attributes:
        verifier, dealer: for whom.
    """

    verifier: Sha256
    dealer: Sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class TripleStatement:
    """Of one triple (section 8).

    Attributes:
        masked: commitment to the masked rows, the same for both others.
        dealt: of the greatest name, to all words that were dealt to it; else empty.
        packets: by the other party that checks the rows, for each run.
    """

    masked: Sha256
    dealt: bytes
    packets: Mapping[str, tuple[Packets, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Message 2a.

    Attributes:
        name: whose it is.
        transcript: T0.
        masked: by the number of the pair, the commitment to the masked rows.
        packets: by the number of the pair, for each run.
        triples: by the index of a triple's table.
    """

    MARK: ClassVar = {"kind": "verticil/masked-statement", "version": 1}

    name: str
    transcript: Sha256
    masked: Mapping[str, Sha256]
    packets: Mapping[str, tuple[Packets, ...]]
    triples: Mapping[str, TripleStatement]


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What the miner signs of message 7a.

    Attributes:
        study: digest of the proposal.
        round: from 1.
        transcript: T1.
        plan: SHA-256 of the plan's canonical bytes.
        tables: SHA-256 of the counts with their noise, each table in the plan's order, each cell int64 little-endian.
    """

    MARK: ClassVar = {"kind": "verticil/masked-tables", "version": 1}

    study: Sha256
    round: int
    transcript: Sha256
    plan: Sha256
    tables: Sha256
