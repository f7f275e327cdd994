"""The study as bytes: UTF-8 JSON with sorted keys and RFC 8785 numbers, and its digest.

One study has exactly one form: `from_bytes` accepts only what `to_bytes` would write, so a digest has one meaning. The bytes
come from other nodes: size, shape, type and range of every field are checked, and whatever is wrong is one clean error.
Matrices are whole numbers of units of 2^-64 as decimal strings, because JSON numbers cannot hold them (contract.md section 1).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib

from verticil.shared.core.errors import Misuse
from verticil.shared.documents.record import MAX_BYTES, encode, parse, peer_fault, read
from verticil.shared.documents.toml_table import Table
from verticil.shared.study import rules
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import PROTOCOLS


def to_bytes(study: Study) -> bytes:
    """Return the canonical bytes of a study.

    Raises:
        Misuse: STUDY_INVALID, the study is larger than 16 MiB.
    """
    data = encode(study)
    if len(data) > MAX_BYTES:
        raise Misuse("STUDY_INVALID", f"study '{study.id}': {len(data)} bytes, expected at most {MAX_BYTES}")
    return data


def digest(study: Study) -> bytes:
    """SHA-256 of the canonical bytes (32 bytes): the name of the study for programs."""
    return hashlib.sha256(to_bytes(study)).digest()


def from_bytes(data: bytes, *, source: str = "study", wire: bool = True) -> Study:
    """Read and check the canonical bytes of a study.

    Args:
        data: the bytes, from anyone.
        source: name of the document, for messages.
        wire: the bytes come from another node: what is wrong with them is the peer's fault.

    Raises:
        PeerFault: MESSAGE_INVALID, with `wire`.
        Misuse: STUDY_INVALID, STUDY_UNSUPPORTED, MATRIX_INVALID or MATRIX_SINGULAR, without.
    """
    try:
        study = _read(parse(data, source=source))
        rules.check(study, source=source)
        if to_bytes(study) != data:
            raise Misuse(
                "STUDY_INVALID",
                f"{source}: not in canonical form",
                hint="only the bytes of a resolved study are accepted",
            )
    except Misuse as error:
        if wire:
            raise peer_fault(error) from None
        raise
    return study


@functools.lru_cache(maxsize=16)
def parse_canonical(data: bytes) -> Study:
    """Return the study of canonical bytes from another node; the last few are kept: each step of a study's way needs it.

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    return from_bytes(data)


def _read(table: Table) -> Study:
    study = read(Study, table)
    table.one_of(study.model, "model", PROTOCOLS.names)
    if not study.parameters.prior_tables:
        return study
    return dataclasses.replace(study, parameters=study.parameters.in_order_of(study.schema.names))
