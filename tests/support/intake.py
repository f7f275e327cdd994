"""A miner's state folder with one study that is ready to receive."""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from support.studies import numbered, study_of
from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.intake import Intake
from verticil.miner.storage.records import StoredColumn, StoredList, StoredSignature
from verticil.miner.storage.store import Store
from verticil.shared.numerics.model.artifact import pack
from verticil.shared.study.document import (
    Study,
)

DIGEST = bytes(range(32))


N = 1000


PSEUDONYMS = b"".join(sorted(hashlib.sha256(b"%d" % i).digest()[:16] for i in range(N)))


STATES = {0: 5, 1: 300}


CODES: dict[int, Any] = {
    0: np.random.default_rng(0).integers(0, 5, N).astype(np.uint8),
    1: np.random.default_rng(1).integers(0, 300, N).astype(np.uint16),
}


ARTIFACTS = {unit: pack(codes, STATES[unit]) for unit, codes in CODES.items()}


def make_study() -> Study:
    return study_of(
        numbered(tuple(STATES.values()), "north"),
        epsilon=3.0,
        id="trial",
        expires=dt.date(2030, 1, 1),
        linkage={"minimum_common_records": 10},
        structure={"max_family_cells": 1000, "seed": 1},
        release={"seed": 5},
    )


STUDY = make_study()


class Opened:
    """A state directory, opened."""

    def __init__(
        self, folder: Path, *, quota: int = 2**30, reserve: int = 0, free: int = 2**40, sync: bool = True
    ) -> None:
        self.store = Store(folder, max_bytes_per_study=quota, disk_reserve_bytes=reserve, free_bytes=lambda _path: free)
        self.catalogue = Catalogue(folder / "catalogue.sqlite")
        if not sync:
            self.catalogue.database.rows("PRAGMA synchronous = OFF")
        self.catalogue.add_study(DIGEST, study_id="trial", proposal=b"{}", submitter="a", at="2026-11-21T10:00:00Z")
        self.catalogue.set_effective(DIGEST, b"{}", b"e" * 32)
        self.intake = Intake(self.store, self.catalogue)

    def __enter__(self) -> Opened:
        return self

    def __exit__(self, *_: object) -> None:
        self.catalogue.close()

    @property
    def record(self):
        return self.catalogue.study(DIGEST)

    def begin_list(self, data: bytes = PSEUDONYMS, minimum: int = 10):
        sha256 = hashlib.sha256(data).digest()
        announced = StoredList(size=len(data), sha256=sha256)
        return self.intake.begin_list(self.arriving, self.record, STUDY, announced, minimum=minimum)

    @property
    def arriving(self):
        return self.intake.pseudonyms(self.record, STUDY, "north")

    def send_list(self, data: bytes = PSEUDONYMS) -> None:
        held = self.begin_list(data)
        for start in range(held.committed, len(data), 9000):
            self.intake.append_list(self.arriving, sha256=held.sha256, offset=start, data=data[start : start + 9000])
        self.intake.complete_list(self.arriving)

    def align(self) -> None:
        self.catalogue.align(DIGEST, n_common=N, common_sha256=b"c" * 32, bitmaps={})

    def begin(self, unit: int, data: bytes | None = None):
        data = ARTIFACTS[unit] if data is None else data
        return self.intake.begin_upload(self.record, STUDY, unit, size=len(data), sha256=hashlib.sha256(data).digest())

    def finish(self, upload_id: str, at: str = "2026-11-21T10:00:00Z") -> StoredColumn:
        return self.intake.finish_upload(
            upload_id,
            self.record,
            STUDY,
            miner="miner",
            received_at=at,
            sign=lambda body: StoredSignature(body=body, signature=hashlib.sha256(body).digest(), certificate=b"c"),
        )

    def send(self, unit: int, data: bytes | None = None, *, at: str = "2026-11-21T10:00:00Z") -> StoredColumn:
        data = ARTIFACTS[unit] if data is None else data
        begun = self.begin(unit, data)
        if isinstance(begun, StoredColumn):
            return begun
        for start in range(begun.committed, len(data), 600):
            self.intake.append_upload(begun.upload_id, offset=start, data=data[start : start + 600])
        return self.finish(begun.upload_id, at)
