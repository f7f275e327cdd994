"""What goes through very many people leaves no page of a mapped file behind, and gives what it gives of few.

Memory is the pages of mapped files that the kernel counts as this process's (RssFile, RssShmem): of files that stay mapped all
the while, so that whoever goes through one and gives nothing back holds all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

from verticil.miner.learning.scoring.scores import pair_scores
from verticil.miner.storage.linkage import first_disorder, intersect, read_list
from verticil.party.audit import common_sets
from verticil.party.audit.common_sets import CommonSets
from verticil.party.audit.set_sums import count_left
from verticil.party.dataset.pseudonyms import common_from_bitmap, digest_of
from verticil.party.protocol.with_miner import upload
from verticil.party.storage.database import Database
from verticil.shared.core.arrays import give_back, taken
from verticil.shared.core.errors import DataFault
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.model import artifact
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.folder.writing import write_release
from verticil.shared.storage import unlinked_files as nameless
from verticil.shared.storage.unlinked_files import join_parts
from verticil.shared.synthesis import record_checks
from verticil.shared.synthesis.record_checks import read_both
from verticil.shared.synthesis.table_columns import PiecewiseTable, WrittenColumn, cell_counts
from verticil.wire.v1 import coordinator_pb2

MIB = 1 << 20
LEFT = 6 * MIB
"""More than what a pass holds of a file at a time, and less than any of the files here."""
N = 1 << 20

T = TypeVar("T")


def rss_file() -> int:
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * sum(int(lines[kind].split()[0]) for kind in ("RssFile", "RssShmem"))  # the latter: files of a tmpfs


def flat(work: Callable[[], T]) -> T:
    """Do it, and check that no more pages of files are here than before."""
    before = rss_file()
    found = work()
    assert rss_file() - before < LEFT
    return found


def mapped(folder: Path, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The same array in a file without a name."""
    return join_parts(folder, len(array), [array], array.dtype)


def test_pages_of_a_mapped_file_go_and_come_again(tmp_path: Path) -> None:
    numbers = np.arange(2 * N)
    array = mapped(tmp_path, numbers)
    before = rss_file()
    assert int(array.sum()) == int(numbers.sum())
    assert rss_file() - before > 14 * MIB
    flat(lambda: give_back(array[N:]))
    give_back(array[: N + 5])
    assert rss_file() - before < LEFT
    assert np.array_equal(taken(array, np.array([5, 3, 2 * N - 1])), [5, 3, 2 * N - 1])
    give_back(numbers)  # of no file: nothing happens
    assert numbers[7] == 7


def test_the_miner_goes_through_lists(tmp_path: Path) -> None:
    generator, found = np.random.default_rng(1), []
    words = np.cumsum(generator.integers(1, 1 << 30, N))
    there = generator.random((3, N)) < 0.9
    for number, own in enumerate(there):
        path = tmp_path / f"{number}.list"
        np.stack([words[own], words[own]], axis=1).astype(">u8").tofile(path)
        found.append(read_list(path))
    flat(lambda: [first_disorder(one) for one in found])
    told = flat(lambda: intersect(found))
    assert told.n_common == np.count_nonzero(there.all(axis=0))


async def test_a_party_sends_its_pseudonyms(tmp_path: Path) -> None:
    pseudonyms = mapped(tmp_path, np.arange(2 * N, dtype=np.uint64)).view(np.uint8)
    sent = 0

    class Miner:
        async def put_pseudonyms(self, messages: Any) -> Any:
            nonlocal sent
            sent += sum(len(artifact_data(message)) for message in messages if message.HasField("chunk"))
            return coordinator_pb2.PutPseudonymsReply(committed_offset=sent, complete=sent == pseudonyms.size)

    def artifact_data(message: Any) -> bytes:
        return vars(upload)["plain_data"](message.chunk)

    async def nothing(_: int) -> None:
        pass

    before = rss_file()
    await upload.send_pseudonyms(Miner(), bytes(32), pseudonyms.data, chunk_bytes=2**19, progress=nothing)  # type: ignore[arg-type]
    assert sent == pseudonyms.size
    assert rss_file() - before < LEFT


def test_a_party_finds_the_common_people(tmp_path: Path) -> None:
    generator = np.random.default_rng(2)
    own = mapped(tmp_path, generator.integers(0, 256, 16 * N, dtype=np.uint8)).reshape(-1, 16)
    marks = generator.random(N - 3) < 0.8
    own = own[: N - 3]
    places = np.flatnonzero(marks)
    told = {"expected_sha256": digest_of(own, places), "n_common": places.size, "minimum": 1}
    bitmap = np.packbits(marks, bitorder="little").tobytes()
    in_memory = flat(lambda: common_from_bitmap(own, bitmap, **told))

    def keep(n: int, parts: Iterable[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
        return join_parts(tmp_path, n, parts, np.dtype(np.int64))

    outside = flat(lambda: common_from_bitmap(own, bitmap, **told, keep=keep))
    assert np.array_equal(in_memory, places)
    assert np.array_equal(outside, places)
    assert not outside.flags.writeable


def test_people_are_compared_with_those_of_earlier_studies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = mapped(tmp_path, np.random.default_rng(3).integers(0, 256, 16 * N, dtype=np.uint8)).reshape(-1, 16)
    rows = mapped(tmp_path, np.arange(N - 7, dtype=np.int64))
    with Database(tmp_path, create=True) as database:
        database.write(
            "INSERT INTO study (digest, study_id, proposal, seen_at, version, remote_state, effective, effective_digest,"
            " remote_approved, pseudonyms_complete, alignment_confirmed, units_received, remote_failure, stage, percent)"
            " VALUES (?, 'one', x'', '', 0, 0, x'', x'', 0, 0, 0, '[]', '', '', 0)",
            (bytes(32),),
        )
        sets = CommonSets(database, tmp_path)
        few = sets.people(pairs, rows)
        monkeypatch.setattr(common_sets, "MEMORY_PEOPLE", 1 << 16)
        whom = flat(lambda: sets.people(pairs, rows))
        assert np.array_equal(few.keys, whom.keys)
        assert few.exact_sum == whom.exact_sum
        flat(lambda: sets.remember(bytes(32), whom, ()))
        (file,) = (tmp_path / "common").iterdir()
        assert file.read_bytes() == few.keys.tobytes()
        assert flat(lambda: sets.keeps(bytes(32), whom, ()))
        everybody = sets.people(pairs)
        assert flat(lambda: count_left([whom.keys], [everybody.keys], enough=N)) == 7
        compare = partial(sets.similar, b"1" * 32, everybody)
        assert [item.study_ids for item in flat(lambda: compare(minimum=8))] == [("one",)]
        assert not compare(minimum=7)


def test_a_column_that_arrives_is_unpacked_part_by_part(tmp_path: Path) -> None:
    codes = np.random.default_rng(4).integers(0, 200, 16 * N, dtype=np.uint8)
    packed = mapped(tmp_path, np.frombuffer(artifact.pack(codes, 200), dtype=np.uint8))
    parts = flat(lambda: [part[::1000].copy() for part in artifact.unpack_parts(packed.data, 200, codes.size)])
    assert np.array_equal(parts[0], codes[: 1 << 18 : 1000])


def test_randomized_columns_are_counted(tmp_path: Path) -> None:
    generator, n = np.random.default_rng(6), 8 * N
    codes = [generator.integers(0, 2, n, dtype=np.uint8) for _ in range(2)]
    columns = [mapped(tmp_path, column) for column in codes]
    units = [ColumnUnit(variables=(v,), domain=None, channel=quantize(symmetric(2, epsilon=2.0))) for v in range(2)]
    flat(lambda: pair_scores(columns, units, (2, 2)))
    counted = flat(lambda: from_columns(columns, units, (2, 2)))
    assert counted.tables[0].counts[1, 1] == np.count_nonzero(codes[0] & codes[1])


def test_the_records_of_a_release_are_written_and_counted(tmp_path: Path) -> None:
    variable = Variable(name="age", owner="a", labels=("0-1", "1-2"), bins=(0.0, 1.0, 2.0))
    drawn = np.random.default_rng(5).random(2 * N)
    column = WrittenColumn(
        variable=variable,
        codes=mapped(tmp_path, np.zeros(2 * N, dtype=np.uint8)),
        numbers=mapped(tmp_path, drawn),
    )
    table = PiecewiseTable([column], with_labels=False)
    assert flat(lambda: sum(float(piece["age"].sum()) for piece in table)) == pytest.approx(drawn.sum())
    codes = [mapped(tmp_path, np.full(8 * N, code, dtype=np.uint8)) for code in (1, 2)]
    assert flat(lambda: cell_counts(codes, (2, 3))).tolist() == [0, 0, 0, 0, 0, 8 * N]


def test_the_tables_of_a_release_are_read_outside_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release_content: ReleaseContent
) -> None:
    write_release(tmp_path / "release", release_content)
    schema, n = release_content.study.schema, len(release_content.synthetic)
    in_memory, _ = read_both(tmp_path / "release", schema, n)
    monkeypatch.setattr(record_checks, "IN_MEMORY", 0)
    before = {path.name for path in (tmp_path / "release").iterdir()}
    outside, problem = read_both(tmp_path / "release", schema, n)
    assert problem == ""
    for one, other in zip(in_memory, outside, strict=True):
        assert np.array_equal(one, other)
        assert one.dtype == other.dtype
    assert {path.name for path in (tmp_path / "release").iterdir()} == before
    monkeypatch.setattr(nameless, "RESERVE", 1 << 60)
    with pytest.raises(DataFault) as caught:
        read_both(tmp_path / "release", schema, n)
    assert caught.value.code == "DISK_FULL"
