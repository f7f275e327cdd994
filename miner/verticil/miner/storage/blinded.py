"""Blinded lists on their way from party to party (linkage ``dh-psi``): taken in, checked, kept until the people are found.

A list belongs to its owner and makes one hop after the other, see `verticil.shared.alignment.statements.sender`; tokens keep the
order in which the owner sent them. The owner's own list is strictly ascending, so its order says nothing; no list has a token
twice. Whether a token is a point, the next party finds out when it blinds it: the miner computes nothing with it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

import numpy as np

from verticil.miner.storage.alignment import first_disorder, read_list
from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.records import StoredBlinded, StoredSignature, StudyRecord
from verticil.miner.storage.store import Store, append_durably, remove_durably, replace_durably
from verticil.shared.alignment.statements import sender
from verticil.shared.errors import PeerFault, Refusal
from verticil.shared.study.document import Study

TOKEN_BYTES: Final = 32


class BlindedLists:
    """Blinded lists on their way to the disk.

    Args:
        store: files and quotas.
        catalogue: facts.
        exclusive: the only writer of a path, see `Intake`.
        used_bytes: of a study.
    """

    def __init__(
        self,
        store: Store,
        catalogue: Catalogue,
        exclusive: Callable[[bytes, Path], AbstractContextManager[None]],
        used_bytes: Callable[[StudyRecord, Study], int],
    ) -> None:
        self._store = store
        self._catalogue = catalogue
        self._exclusive = exclusive
        self._used_bytes = used_bytes

    def begin(
        self,
        record: StudyRecord,
        study: Study,
        owner: int,
        hop: int,
        *,
        size: int,
        sha256: bytes,
        statement: StoredSignature,
        minimum: int,
    ) -> StoredBlinded:
        """Say how much of a list is stored already.

        Args:
            record: facts of the study.
            study: the study.
            owner: whose records, by position in the study.
            hop: station.
            size: bytes of the whole list.
            sha256: of the whole list.
            statement: what its sender signed, checked.
            minimum: the smallest common count that the study and its approvals accept.

        Raises:
            PeerFault: NOT_READY, the hop before is not there; MESSAGE_INVALID for a size that is no list, or not that of the hop
                before; ARTIFACT_INVALID when another list is stored already; RESOURCE_EXHAUSTED.
            Refusal: LINKAGE_TOO_SMALL, the list alone is shorter than the minimum.
        """
        name = _name(study, owner, hop)
        if size % TOKEN_BYTES or size == 0 or len(sha256) != 32:
            raise PeerFault(
                "MESSAGE_INVALID",
                f"{name}: {size} bytes and a digest of {len(sha256)} bytes, expected a positive multiple of 32 and 32",
            )
        if size < minimum * TOKEN_BYTES:
            raise Refusal(
                "LINKAGE_TOO_SMALL",
                f"{name}: fewer records than the {minimum} that are expected in common",
                hint="is the party's table whole? Otherwise the study asks for too many common records",
            )
        if hop:
            before = record.blinded.get((owner, hop - 1))
            if before is None or not before.complete:
                raise PeerFault("NOT_READY", f"{name}: the hop before it is not there yet", hint="poll for the state")
            if before.size != size:
                raise PeerFault("MESSAGE_INVALID", f"{name}: {size} bytes, expected {before.size}, as it came")
        held = record.blinded.get((owner, hop))
        if held is not None and held.complete:
            if (held.size, held.sha256) != (size, sha256):
                raise PeerFault(
                    "ARTIFACT_INVALID",
                    f"{name}: another list is stored already, expected the same bytes",
                    hint="table or state of the party changed after it was sent; the study must be submitted anew",
                )
            return held
        files = self._store.study(record.digest)
        with self._exclusive(record.digest, files.blinded(owner, hop, complete=False)):
            used = self._used_bytes(record, study) - (held.size if held else 0)
            committed = held.committed if held and (held.size, held.sha256) == (size, sha256) else 0
            self._store.ensure_room(name, needed=size - committed, used=used + committed)
            files.prepare()
            return self._catalogue.linkage.begin(
                record.digest, owner, hop, size=size, sha256=sha256, statement=statement
            )

    def append(
        self, record: StudyRecord, study: Study, owner: int, hop: int, *, sha256: bytes, offset: int, data: bytes
    ) -> int:
        """Write and commit bytes of the list with this digest; returns the committed offset.

        Raises:
            PeerFault: OFFSET_MISMATCH, also when another list took its place; MESSAGE_INVALID, more bytes than announced.
            DataFault: DISK_FULL.
        """
        path = self._store.study(record.digest).blinded(owner, hop, complete=False)
        name = _name(study, owner, hop)
        with self._exclusive(record.digest, path):
            held = self._held(record.digest, owner, hop)
            if held is None or held.complete or held.sha256 != sha256 or held.committed != offset:
                raise _moved(name, offset, held.committed if held else 0)
            end = offset + len(data)
            if end > held.size:
                raise PeerFault("MESSAGE_INVALID", f"{name}: {end} bytes, expected at most the announced {held.size}")
            try:
                append_durably(path, offset, data)
            except FileNotFoundError:
                self._catalogue.linkage.commit(record.digest, owner, hop, 0)  # somebody removed the file: start over
                raise _moved(name, offset, 0) from None
            self._catalogue.linkage.commit(record.digest, owner, hop, end)
        return end

    def complete(self, record: StudyRecord, study: Study, owner: int, hop: int) -> None:
        """Check a list that has arrived, and record it. Repeating it is harmless.

        Raises:
            PeerFault: ARTIFACT_INVALID, digest or order are wrong, or tokens are there twice (the list is forgotten and may be
                sent again); OFFSET_MISMATCH, bytes are missing.
        """
        files, name = self._store.study(record.digest), _name(study, owner, hop)
        part, whole = (files.blinded(owner, hop, complete=flag) for flag in (False, True))
        with self._exclusive(record.digest, part):
            held = self._held(record.digest, owner, hop)
            if held is not None and held.complete:
                return
            if held is None or held.committed != held.size:
                raise _moved(name, held.size if held else 0, held.committed if held else 0)
            source = part if part.exists() else whole  # killed between the renaming and the fact
            problem = _problem(source, held, own=hop == 0)
            if problem:
                remove_durably(source)
                self._catalogue.linkage.forget(record.digest, owner, hop)
                party = sender(study.parties, owner, hop)
                raise PeerFault("ARTIFACT_INVALID", f"{name}, sent by party '{party}': {problem}")
            if source == part:
                replace_durably(part, whole)
            self._catalogue.linkage.complete(record.digest, owner, hop)

    def _held(self, study: bytes, owner: int, hop: int) -> StoredBlinded | None:
        record = self._catalogue.study(study)
        return record.blinded.get((owner, hop)) if record else None


def _name(study: Study, owner: int, hop: int) -> str:
    return f"blinded list of party '{study.parties[owner]}', hop {hop}"


def _moved(what: str, offset: int, committed: int) -> PeerFault:
    return PeerFault(
        "OFFSET_MISMATCH",
        f"{what}: at offset {offset}, expected {committed}",
        hint="ask for the committed offset and go on from there",
    )


def _problem(path: Path, held: StoredBlinded, *, own: bool) -> str:
    if not path.exists() or path.stat().st_size != held.size:
        return "bytes are missing"
    with path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").digest() != held.sha256:
            return "the bytes do not have the announced SHA-256"
    tokens = read_list(path, item_bytes=TOKEN_BYTES)
    n_repeated = len(tokens) - len(np.unique(tokens))
    if n_repeated:
        return f"{n_repeated} of {len(tokens)} tokens are there twice"
    if own and (position := first_disorder(tokens)) is not None:
        return f"token {position} is not above the one before, expected an ascending list"
    return ""
