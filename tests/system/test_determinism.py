"""Sticky randomization, seen from outside: what repeats, what changes, and what a change of key or name must not do."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verticil.shared.formats.artifact import unpack
from verticil.simulation import provision, simulate
from verticil.wire.v1 import common_pb2, coordinator_pb2

STATES = {"smoker": 2, "age": 5, "town": 3, "claims": 3, "plan": 4, "premium-plan": 4}


class Eavesdropper:
    """Keeps what a party uploads: its pseudonyms, the bitmap it is told, and its artifacts by unit."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.pseudonyms = bytearray()
        self.bitmap = bytearray()
        self.artifacts: dict[int, bytearray] = {}
        self._unit = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def put_pseudonyms(self, requests: Any) -> Any:
        def keep() -> Iterator[coordinator_pb2.PutPseudonymsRequest]:
            for request in requests:
                self.pseudonyms += plain(request.chunk)
                yield request

        return self._inner.put_pseudonyms(keep())

    async def get_alignment(self, request: Any) -> Any:
        async for part in self._inner.get_alignment(request):
            self.bitmap += plain(part.chunk)
            yield part

    async def begin_upload(self, request: Any) -> Any:
        reply = await self._inner.begin_upload(request)
        self._unit[reply.upload_id] = request.unit
        return reply

    def put_chunks(self, chunks: Any) -> Any:
        def keep() -> Iterator[common_pb2.Chunk]:
            for chunk in chunks:
                self.artifacts.setdefault(self._unit[chunk.upload_id], bytearray()).extend(plain(chunk))
                yield chunk

        return self._inner.put_chunks(keep())

    def by_pseudonym(self, unit: int, n_states: int) -> dict[bytes, int]:
        """The released value of every common person."""
        listed = [bytes(self.pseudonyms[16 * row : 16 * row + 16]) for row in range(len(self.pseudonyms) // 16)]
        common = [name for row, name in enumerate(listed) if self.bitmap[row // 8] >> (row % 8) & 1]
        codes = unpack(bytes(self.artifacts[unit]), n_states, len(common))
        return dict(zip(common, codes.tolist(), strict=True))


def plain(chunk: common_pb2.Chunk) -> bytes:
    import zlib

    return zlib.decompress(chunk.data) if chunk.encoding == common_pb2.ENCODING_ZLIB else chunk.data


Run = Callable[..., dict[str, Eavesdropper]]


@pytest.fixture
def run(tmp_path: Path, study_text: str, write_federation_tables: Callable[..., dict[str, Path]]) -> Run:
    counter = iter(range(100))

    def go(*, seed: int = 1, study: str = study_text, shuffle: int | None = None) -> dict[str, Eavesdropper]:
        folder = tmp_path / str(next(counter))
        tables = write_federation_tables(folder, 2500)
        if shuffle is not None:
            for path in tables.values():
                head, *rows = path.read_text().splitlines()
                random.Random(shuffle).shuffle(rows)
                path.write_text("\n".join([head, *rows]) + "\n")
        if "premium-plan" in study:
            path = tables["insurer"]
            path.write_text(path.read_text().replace("id,claims,plan", "id,claims,premium-plan", 1))
        (document := folder / "study.toml").write_text(study)
        ears: dict[str, Eavesdropper] = {}

        def wrap(party: str, line: Any) -> Any:
            ears[party] = Eavesdropper(line)
            return ears[party]

        simulate(document, tables, seed=seed, wrap=wrap)
        return ears

    return go


def artifacts(ears: dict[str, Eavesdropper]) -> dict[int, bytes]:
    return {unit: bytes(content) for ear in ears.values() for unit, content in ear.artifacts.items()}


def test_same_secrets_same_artifacts_under_any_row_order(run: Run) -> None:
    first = artifacts(run())
    assert set(first) == {0, 1, 2, 3, 4}
    assert artifacts(run(shuffle=8)) == first


def test_a_new_site_secret_changes_every_artifact(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first = artifacts(run())
    derived = provision.derived_secret

    def other_site(seed: int | None, purpose: str) -> bytes:
        return derived(seed if purpose == "linkage" else 99, purpose)

    monkeypatch.setattr(provision, "derived_secret", other_site)
    second = artifacts(run())
    assert all(first[unit] != second[unit] for unit in first)


def test_a_new_linkage_key_leaves_every_records_value(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run()
    derived = provision.derived_secret
    monkeypatch.setattr(
        provision, "derived_secret", lambda seed, purpose: derived(2 if purpose == "linkage" else seed, purpose)
    )
    second = run()
    assert artifacts(first) != artifacts(second)  # another order
    assert first["clinic"].pseudonyms != second["clinic"].pseudonyms
    for party, units in {"clinic": {0: 2, 1: 5, 2: 3}, "insurer": {3: 3, 4: 4}}.items():
        for unit, n_states in units.items():
            before, after = first[party].by_pseudonym(unit, n_states), second[party].by_pseudonym(unit, n_states)
            assert before.keys() != after.keys()
            assert np.array_equal(np.bincount(list(before.values())), np.bincount(list(after.values())))
    # and record by record: the pair of a party's columns stays together
    assert joint(first["clinic"]) == joint(second["clinic"])


def joint(ear: Eavesdropper) -> list[tuple[int, ...]]:
    columns = [ear.by_pseudonym(unit, n_states) for unit, n_states in {0: 2, 1: 5, 2: 3}.items()]
    return sorted(tuple(column[name] for column in columns) for name in columns[0])


def test_renaming_a_study_variable_leaves_every_value(run: Run, study_text: str) -> None:
    # The local column keeps its name (the party maps it); in a simulation the column is renamed with it, so the noise's key must
    # see the same source: here only the study's id and title change besides.
    first = run()
    renamed = study_text.replace('id = "hearts"', 'id = "hearts-again"').replace("Smoking and claims", "Other words")
    second = run(study=renamed)
    assert first["clinic"].pseudonyms != second["clinic"].pseudonyms  # pseudonyms are per study
    assert joint(first["clinic"]) == joint(second["clinic"])


def test_the_manifest_says_that_the_noise_comes_from_a_seed(
    tmp_path: Path, study_text: str, write_federation_tables: Callable[..., dict[str, Path]]
) -> None:
    tables = write_federation_tables(tmp_path / "tables", 2000)
    (study := tmp_path / "study.toml").write_text(study_text)
    simulate(study, tables, seed=4, out=tmp_path / "seeded" / "release")
    simulate(study, tables, out=tmp_path / "free" / "release")
    manifests = [json.loads((tmp_path / name / "release" / "manifest.json").read_text()) for name in ("seeded", "free")]
    assert [manifest["simulation"] for manifest in manifests] == [True, True]
    assert [manifest["seed_derived"] for manifest in manifests] == [True, False]
