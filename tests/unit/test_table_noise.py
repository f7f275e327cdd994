"""The noise on a study's tables: drawn once, the same after any kill, another for anything else; and the file that it is in."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.miner_service import N_COMMON, codes_of, make_study
from verticil.miner.learning.exact_tables import counted_tables
from verticil.miner.scheduler import job as jobs
from verticil.miner.scheduler.job import ColumnFile, CountingJob, LearningJob, do_job, job_from
from verticil.miner.scheduler.table_noise import TableNoise, without_digest
from verticil.miner.storage.noisy_table_files import binding_of_tables, read_tables, write_tables
from verticil.miner.storage.records import StoredSignature
from verticil.miner.storage.store import StudyFiles, write_durably
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.record import encode
from verticil.shared.mechanisms.gaussian import derived_key
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.noise import noised
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.storage import durable
from verticil.shared.study import canonical
from verticil.shared.study.document import Study, TablesRule
from verticil.shared.study.protocols import table_deviations
from verticil.shared.study.tables import tables_of, tables_sigma

RULE = TablesRule(epsilon=1.0, delta=1e-9, three_way=(("west_a", "north_a", "south_a"),))
NOW = dt.datetime(2026, 11, 23, 10, 0, tzinfo=dt.UTC)


class Kill(BaseException):
    """As SIGKILL: nothing catches it."""


@pytest.fixture
def study() -> Study:
    return dataclasses.replace(make_study(), tables=RULE)


def columns_in(files: StudyFiles, study: Study, change: int = 0) -> list[ColumnFile]:
    """The stored columns of a study; `change` gives the first person of the first column another category."""
    files.prepare()
    files.learning.mkdir(exist_ok=True)
    columns = []
    for unit in range(len(study.units)):
        codes = codes_of(unit)
        codes[0] = (codes[0] + change * (unit == 0)) % 3
        path = files.write_column(unit, codes.itemsize, [codes])
        columns.append(ColumnFile(path=path, item_bytes=1, sha256=hashlib.sha256(path.read_bytes()).digest()))
    return columns


def counted(noise: TableNoise, study: Study, columns: list[ColumnFile]) -> None:
    counting = CountingJob(
        effective=canonical.to_bytes(study), n_common=N_COMMON, columns=tuple(columns), target=noise.exact
    )
    again = job_from(encode(counting))
    assert again == counting
    do_job(again, progress=lambda *_: None, is_cancelled=lambda: False, clock=lambda: NOW)


def drawn(root: Path, study: Study, *, change: int = 0, again: bool = False, seed: Path | None = None) -> TableNoise:
    files = StudyFiles(root)
    columns = columns_in(files, study, change)
    noise = TableNoise(files, study, columns, N_COMMON, seed=seed)
    if not noise.has_noisy_tables():
        counted(noise, study, columns)
        noise.draw(again=again)
    return noise


def read(noise: TableNoise, study: Study) -> NoisyTables:
    return read_tables(noise.noisy.path, study, N_COMMON, noise.noisy.binding, noisy=True)


def test_what_is_counted_is_what_the_study_names_and_the_noise_is_the_discrete_gaussian(
    tmp_path: Path, study: Study
) -> None:
    """Against another counter; the noise by its moments, false alarm 1e-6 each (normal bounds of 4.9 standard errors)."""
    exact = counted_tables([codes_of(unit) for unit in range(6)], study)
    other = from_columns(
        [codes_of(unit) for unit in range(6)], exact.units, exact.n_states, three_way=((0, 2, 4),), parts=1
    )
    for one, two in zip(exact.tables, other.tables, strict=True):
        assert one.units == two.units
        np.testing.assert_array_equal(one.counts, two.counts)
    assert tuple(table.units for table in exact.tables) == tables_of(study)
    (seed := tmp_path / "noise.seed").write_text("ab" * 32)
    tables = read(drawn(tmp_path / "study", study, seed=seed), study)
    assert tables.n_records == N_COMMON
    assert tables.relation == "replace"
    assert {table.sigma for table in tables.tables} == set(table_deviations(study))
    added = np.concatenate([(a.counts - b.counts).ravel() for a, b in zip(tables.tables, exact.tables, strict=True)])
    np.testing.assert_array_equal(added, np.rint(added))
    sigma, cells = tables_sigma(study), len(added)
    assert cells == 15 * 9 + 27
    assert abs(added.mean()) < 4.9 * sigma / math.sqrt(cells)
    assert abs((added**2).mean() / sigma**2 - 1) < 4.9 * math.sqrt(2 / cells) + 3 / cells


def test_noise_is_a_function_of_key_table_and_sigma_and_of_nothing_else(study: Study) -> None:
    exact = counted_tables([codes_of(unit) for unit in range(6)], study)

    def of(sigma: float, key: bytes) -> list[Any]:
        return [
            table.counts - other.counts
            for table, other in zip(noised(exact, sigma, key).tables, exact.tables, strict=True)
        ]

    one = of(9.0, b"k" * 32)
    assert all(np.array_equal(a, b) for a, b in zip(one, of(9.0, b"k" * 32), strict=True))
    for other in (of(9.5, b"k" * 32), of(9.0, b"l" * 32)):
        assert not any(np.array_equal(a, b) for a, b in zip(one, other, strict=True))
    assert len({table.tobytes() for table in one}) == len(one)  # no two tables of one shape share theirs
    with pytest.raises(ValueError, match="has noise already"):
        noised(noised(exact, 9.0, b"k" * 32), 9.0, b"k" * 32)
    halves = dataclasses.replace(exact.tables[0], counts=exact.tables[0].counts / 2)
    with pytest.raises(ValueError, match="no whole numbers"):
        noised(dataclasses.replace(exact, tables=(halves, *exact.tables[1:])), 9.0, b"k" * 32)


def test_killed_at_any_step_and_drawn_again_it_is_the_same_noise(tmp_path: Path, study: Study) -> None:
    """Once the secret is on the disk, the tables that are learned from are a function of it, whenever the power goes."""
    exact, keys = counted_tables([codes_of(unit) for unit in range(6)], study), set[bytes]()
    moment, killed = 0, True
    while killed:
        files, killed = StudyFiles(tmp_path / str(moment)), False
        columns, left = columns_in(files, study), moment
        noise = TableNoise(files, study, columns, N_COMMON)

        def kill(_step: durable.DurableStep) -> None:
            nonlocal left
            if left == 0:
                raise Kill
            left -= 1

        counted(noise, study, columns)
        try:
            with durable.watch_steps(kill):
                noise.draw(again=False)
        except Kill:
            killed = True
        kept = files.noise_key.read_bytes() if files.noise_key.exists() else None
        if not noise.has_noisy_tables():
            counted(noise, study, columns)
            noise.draw(again=False)
        assert kept in {None, files.noise_key.read_bytes()}
        secret = bytes.fromhex(files.noise_key.read_text())
        key = derived_key(secret, b"verticil/noisy-tables/v1", canonical.digest(study), noise.noisy.binding)
        expected = noised(exact, tables_sigma(study), key)
        for one, two in zip(read(noise, study).tables, expected.tables, strict=True):
            np.testing.assert_array_equal(one.counts, two.counts)
        keys.add(secret)
        moment += 1
    assert moment > 10  # flushes, renamings and removals: before and after each
    assert len(keys) == moment  # each study has a secret of its own


def test_the_secret_lasts_before_the_noise_does(tmp_path: Path, study: Study) -> None:
    """The folder's name, the file and its name are flushed before the first noisy count is written."""
    files = StudyFiles(tmp_path)
    columns = columns_in(files, study)
    noise = TableNoise(files, study, columns, N_COMMON)
    counted(noise, study, columns)
    steps: list[durable.DurableStep] = []
    with durable.watch_steps(steps.append):
        noise.draw(again=False)
    done = [(step.kind, step.path) for step in steps if step.moment == "after"]
    folder, key = ("sync-directory", files.root), ("rename", files.noise_key)
    first = done.index(("rename", files.noisy_tables))
    assert done.index(folder) < done.index(key) < done.index(("sync-directory", files.noise_key.parent)) < first


def test_another_study_other_columns_or_another_secret_have_other_noise(tmp_path: Path, study: Study) -> None:
    (tmp_path / "noise.seed").write_text("ab" * 32 + "\n")

    def noise_in(name: str, asked: Study, **how: Any) -> bytes:
        files = StudyFiles(tmp_path / name)
        noise = drawn(files.root, asked, seed=tmp_path / "noise.seed", **how)
        exact = counted_tables([np.asarray(column) for column in jobs._columns(_counting(files, asked), asked)], asked)
        return b"".join(
            (one.counts - two.counts).tobytes()
            for one, two in zip(read(noise, asked).tables, exact.tables, strict=True)
        )

    def _counting(files: StudyFiles, asked: Study) -> CountingJob:
        columns = tuple(
            ColumnFile(path=path, item_bytes=1, sha256=hashlib.sha256(path.read_bytes()).digest())
            for path in sorted((files.root / "columns").iterdir())
        )
        return CountingJob(
            effective=b"", n_common=N_COMMON, columns=columns, target=jobs.TablesFile(path=files.learning, binding=b"")
        )

    one = noise_in("one", study)
    assert one == noise_in("again", study)  # a trial with a seed
    assert one != noise_in("renamed", dataclasses.replace(study, id="other"))
    assert one != noise_in("changed", study, change=1)


def test_a_secret_that_is_lost_or_damaged_is_never_replaced(tmp_path: Path, study: Study) -> None:
    files = StudyFiles(tmp_path)
    drawn(tmp_path, study)
    files.noisy_tables.unlink()
    files.noise_key.unlink()
    with pytest.raises(DataFault, match=r"the secret of the noise on its tables .* is gone") as caught:
        drawn(tmp_path, study, again=True)
    assert caught.value.code == "STATE_CORRUPT"
    assert not files.noise_key.exists()
    files.noise_key.write_text("ab" * 31)
    with pytest.raises(DataFault, match="is not 64 hexadecimal digits"):
        drawn(tmp_path, study)
    assert files.noise_key.read_text() == "ab" * 31


def test_the_file_is_read_whole_and_of_its_own_study_or_not_at_all(tmp_path: Path, study: Study) -> None:
    exact, path = counted_tables([codes_of(unit) for unit in range(6)], study), tmp_path / "tables"
    binding = binding_of_tables(study, [b"c" * 32], N_COMMON, 0.0)
    write_tables(path, exact, binding)
    back = read_tables(path, study, N_COMMON, binding, noisy=False)
    assert all(np.array_equal(a.counts, b.counts) for a, b in zip(back.tables, exact.tables, strict=True))
    whole = path.read_bytes()
    assert len(whole) == 72 + 8 * sum(table.counts.size for table in exact.tables)
    others = {
        binding_of_tables(dataclasses.replace(study, id="other"), [b"c" * 32], N_COMMON, 0.0),
        binding_of_tables(study, [b"d" * 32], N_COMMON, 0.0),
        binding_of_tables(study, [b"c" * 32], N_COMMON + 1, 0.0),
        binding_of_tables(study, [b"c" * 32], N_COMMON, tables_sigma(study)),
    }
    assert len({binding, *others}) == 5
    for other in others:
        with pytest.raises(DataFault, match="they are of another study"):
            read_tables(path, study, N_COMMON, other, noisy=False)
    flipped = bytes([*whole[:80], whole[80] ^ 1, *whole[81:]])
    for data in (whole[:-8], whole + bytes(8), flipped, whole[:40], b"", b"VTCHECK1" + whole[8:]):
        path.write_bytes(data)
        with pytest.raises(DataFault) as caught:
            read_tables(path, study, N_COMMON, binding, noisy=False)
        assert caught.value.code == "STATE_CORRUPT"
    shorter = dataclasses.replace(study, tables=dataclasses.replace(RULE, three_way=()))
    write_tables(path, exact, binding_of_tables(shorter, [], N_COMMON, 0.0))
    with pytest.raises(DataFault):
        read_tables(path, shorter, N_COMMON, binding_of_tables(shorter, [], N_COMMON, 0.0), noisy=False)
    write_tables(path, dataclasses.replace(exact, tables=exact.tables[:-1]), binding)
    with pytest.raises(DataFault, match="not those that were written"):
        read_tables(path, study, N_COMMON, binding, noisy=False)


@pytest.mark.whole
def test_a_release_is_a_function_of_the_noisy_tables(tmp_path: Path, study: Study) -> None:
    """Two inputs that differ in one person, given the same noisy tables: the same job, without a column, and the same release."""
    lines: list[bytes] = []
    releases: list[dict[str, bytes]] = []
    for change in (0, 1):
        files = StudyFiles(tmp_path / str(change))
        noise = TableNoise(files, study, columns_in(files, study, change), N_COMMON)
        exact = counted_tables([codes_of(unit) for unit in range(6)], study)
        files.noise_key.parent.mkdir()
        write_tables(noise.noisy.path, noised(exact, tables_sigma(study), b"k" * 32), noise.noisy.binding)
        learning = LearningJob(
            proposal_digest=bytes(32), effective=canonical.to_bytes(study), n_common=N_COMMON, columns=(),
            receipts=(), target=tmp_path / str(change) / "release", started_at=NOW, tables=noise.noisy,
        )  # fmt: skip
        line = encode(learning)
        do_job(job_from(line), progress=lambda *_: None, is_cancelled=lambda: False, clock=lambda: NOW)
        lines.append(
            line.replace(str(tmp_path / str(change)).encode(), b"").replace(noise.noisy.binding.hex().encode(), b"")
        )
        releases.append({path.name: path.read_bytes() for path in learning.target.iterdir()})
    assert lines[0] == lines[1]
    assert len(releases[0]) > 8
    assert releases[0] == releases[1]


def test_receipts_of_a_release_of_noisy_tables_do_not_name_the_bytes() -> None:
    said = {"artifact_sha256": "ab" * 32, "received_at": "2026-11-21T10:00:00Z", "unit": 3}
    receipt = StoredSignature(body=json.dumps(said).encode(), signature=b"", certificate=b"old")
    for certificate, at in ((b"old", said["received_at"]), (b"new", "2026-11-23T10:00:00Z")):
        made = without_digest(
            receipt,
            lambda body, c=certificate: StoredSignature(body=body, signature=b"s", certificate=c),
            NOW,
        )
        assert json.loads(made.body) == {"received_at": at, "unit": 3}


def test_the_secret_and_the_noisy_tables_go_with_the_columns(tmp_path: Path, study: Study) -> None:
    files = StudyFiles(tmp_path)
    drawn(tmp_path, study)
    write_durably(files.checkpoint, b"")
    files.remove_linkage()
    assert files.noise_key.exists()
    files.remove_columns()
    assert not files.noise_key.parent.exists()
