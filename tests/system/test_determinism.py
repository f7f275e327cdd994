"""Sticky randomization, seen from outside: what repeats, what changes, and what a change of key or name must not do."""

from __future__ import annotations

import asyncio
import json
import random
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.linking import pseudonyms
from verticil.party.dataset.pseudonyms import linkage_context
from verticil.shared.numerics.model.artifact import unpack
from verticil.shared.study.canonical import digest
from verticil.shared.study.reading import read_study
from verticil.simulation import provision, simulate
from verticil.simulation.in_process import run_federation
from verticil.wire.v1 import common_pb2, coordinator_pb2

UNITS = {"clinic": {0: 2, 1: 5, 2: 3}, "insurer": {3: 3, 4: 4}}  # unit -> number of categories


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

    def released(self, unit: int, n_states: int) -> dict[bytes, int]:
        """The released value of every common person, by pseudonym."""
        listed = [bytes(self.pseudonyms[16 * row : 16 * row + 16]) for row in range(len(self.pseudonyms) // 16)]
        common = [name for row, name in enumerate(listed) if self.bitmap[row // 8] >> (row % 8) & 1]
        codes = unpack(bytes(self.artifacts[unit]), n_states, len(common))
        return dict(zip(common, codes.tolist(), strict=True))


def plain(chunk: common_pb2.Chunk) -> bytes:
    return zlib.decompress(chunk.data) if chunk.encoding == common_pb2.ENCODING_ZLIB else chunk.data


class Trial:
    """One study on the same people, with this or that changed; what left each party, by id."""

    def __init__(self, folder: Path, tables: dict[str, Path], study: str) -> None:
        self.folder, self.tables, self.study = folder, tables, study
        self.site_seed = self.linkage_seed = 1
        self.party_toml: dict[str, str] = {}
        self.ears: dict[str, Eavesdropper] = {}

    def shuffle(self, seed: int) -> None:
        for path in self.tables.values():
            head, *rows = path.read_text().splitlines()
            random.Random(seed).shuffle(rows)
            path.write_text("\n".join([head, *rows]) + "\n")

    def run(self) -> Trial:
        made = provision.provision(
            self.folder / "federation",
            federation="trial",
            sites=[provision.csv_site(name, path) for name, path in self.tables.items()],
            limits=provision.OPEN_LIMITS,
            endpoint="localhost:1",
            listen="127.0.0.1:0",
            hosts=("localhost",),
            seed=self.site_seed,
        )
        self.key = provision.derived_secret(self.linkage_seed, "linkage")
        for name, folder in made.parties.items():
            (folder / "secrets" / "linkage.key").write_text(self.key.hex() + "\n")
            with (folder / "party.toml").open("a", encoding="utf-8") as file:
                file.write(self.party_toml.get(name, ""))
        (document := self.folder / "study.toml").write_text(self.study)
        proposal = read_study(document)
        self.context = linkage_context(digest(proposal))

        def wrap(party: str, line: Any) -> Any:
            self.ears[party] = Eavesdropper(line)
            return self.ears[party]

        asyncio.run(run_federation(made, proposal, self.folder / "release", is_seeded=True, wrap=wrap))
        return self

    def artifacts(self) -> dict[int, bytes]:
        return {unit: bytes(content) for ear in self.ears.values() for unit, content in ear.artifacts.items()}

    def values(self) -> dict[str, dict[int, int]]:
        """For every id the released value of every unit."""
        found: dict[str, dict[int, int]] = {}
        for party, units in UNITS.items():
            ids = [line.split(",")[0] for line in self.tables[party].read_text().splitlines()[1:]]
            listed, order = pseudonyms(self.key, self.context, ids)
            name_of = {bytes(row): ids[position] for row, position in zip(listed, order, strict=True)}
            for unit, n_states in units.items():
                for pseudonym, value in self.ears[party].released(unit, n_states).items():
                    found.setdefault(name_of[pseudonym], {})[unit] = value
        return found


@pytest.fixture
def trial(
    tmp_path: Path, study_text: str, write_federation_tables: Callable[..., dict[str, Path]]
) -> Callable[[], Trial]:
    counter = iter(range(100))

    def make() -> Trial:
        folder = tmp_path / str(next(counter))
        return Trial(folder, write_federation_tables(folder / "tables", 2500), study_text)

    return make


@pytest.mark.whole
def test_same_secrets_same_artifacts_under_any_row_order(trial: Callable[[], Trial]) -> None:
    first = trial().run()
    assert set(first.artifacts()) == {0, 1, 2, 3, 4}
    (second := trial()).shuffle(8)
    assert second.run().artifacts() == first.artifacts()


@pytest.mark.whole
def test_a_new_site_secret_changes_every_artifact(trial: Callable[[], Trial]) -> None:
    first = trial().run().artifacts()
    (second := trial()).site_seed = 2
    changed = second.run().artifacts()
    assert all(first[unit] != changed[unit] for unit in first)


@pytest.mark.whole
def test_a_new_linkage_key_leaves_every_records_value(trial: Callable[[], Trial]) -> None:
    first = trial().run()
    (second := trial()).linkage_seed = 2
    second.run()
    assert first.artifacts() != second.artifacts()  # the common order is another
    assert not {bytes(first.ears["clinic"].pseudonyms[:16])} & {bytes(second.ears["clinic"].pseudonyms[:16])}
    assert len(first.values()) > 2000
    assert first.values() == second.values()


@pytest.mark.whole
def test_a_renamed_study_variable_leaves_every_records_value(trial: Callable[[], Trial]) -> None:
    first = trial().run()
    second = trial()
    second.study = second.study.replace('name = "smoker"', 'name = "smoking"').replace('id = "hearts"', 'id = "lungs"')
    second.party_toml["clinic"] = '\n[dataset.people.columns.smoking]\nsource = "smoker"\n'
    second.run()
    assert first.ears["clinic"].pseudonyms != second.ears["clinic"].pseudonyms  # they are per study
    assert first.values() == second.values()


@pytest.mark.whole
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
