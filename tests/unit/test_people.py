"""People gathered in batches: once each, in the order of their links, the same in memory and outside; nothing is left behind."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import weakref
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from verticil.party.dataset import gathered_records as module
from verticil.party.dataset.gathered_records import Gathering, IdSpool, in_both
from verticil.party.dataset.local_person_keys import PersonMacs
from verticil.party.dataset.perturb import fingerprint
from verticil.party.dataset.pseudonyms import packed_ids
from verticil.shared.core.errors import DataFault
from verticil.shared.storage import sorting
from verticil.shared.storage import unlinked_files as nameless
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.sorting import Sorter, ascending, keys_of

COLUMNS = {"sex": 1, "area": 2}


def rows_of(generator: np.random.Generator, n: int, width: int, *, alike: int = 0) -> np.ndarray:
    """Random rows, of which some begin with the same bytes."""
    rows = generator.integers(0, 256, (n, width), dtype=np.uint8)
    rows[generator.integers(0, n, alike), :9] = 7
    return rows


# ---- sorting


@pytest.mark.parametrize("key_bytes", [8, 14, 16, 32])
def test_rows_ascend_as_python_sorts_bytes(key_bytes: int) -> None:
    rows = rows_of(np.random.default_rng(1), 500, 40, alike=200)
    rows[::7, key_bytes - 1] = 0  # zeros at the end are part of a key
    order = ascending(rows, key_bytes)
    assert sorted(order.tolist()) == list(range(500))
    assert [rows[i, :key_bytes].tobytes() for i in order] == sorted(row[:key_bytes].tobytes() for row in rows)


@pytest.mark.parametrize(
    ("n", "memory_rows"), [(0, 10), (1, 10), (10, 10), (11, 10), (5000, 700), (5000, 64), (5000, 5000)]
)
def test_sorted_outside_memory_as_inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int, memory_rows: int
) -> None:
    """Batches of any size, many runs, heads of few rows; every row comes back once."""
    monkeypatch.setattr(sorting, "_LEAST_OF_A_RUN", 3)
    generator = np.random.default_rng(n + memory_rows)
    rows = rows_of(generator, n, 20, alike=n // 3) if n else np.empty((0, 20), dtype=np.uint8)
    sorter = Sorter(tmp_path, width=20, key_bytes=14, memory_rows=memory_rows)
    for part in np.array_split(rows, 13):
        sorter.add(part)
    blocks = [np.array(block) for block in sorter.blocks()]
    found = np.concatenate([*blocks, np.empty((0, 20), dtype=np.uint8)])
    assert sorter.n_rows == n
    assert Counter(row.tobytes() for row in found) == Counter(row.tobytes() for row in rows)
    keys = keys_of(found, 14)
    assert (keys[1:] >= keys[:-1]).all()
    assert list(tmp_path.iterdir()) == []


def test_no_block_is_larger_than_memory_allows(tmp_path: Path) -> None:
    """Rows that arrive in ascending order make runs one behind the other; those of a hostile order, runs that overlap."""
    for order in (1, -1):
        sorter = Sorter(tmp_path, width=8, key_bytes=8, memory_rows=4096)
        for start in range(0, 40_000, 1000):
            sorter.add(np.arange(start, start + 1000)[::order].astype(">u8").view(np.uint8).reshape(-1, 8))
        assert max(map(len, sorter.blocks())) <= 4096 + sorting._LEAST_OF_A_RUN * 10


# ---- people


def gathered(folder: Path, ids: list[str], codes: dict[str, np.ndarray], *, memory_rows: int, batch: int = 37):
    macs, links = (module_macs(key) for key in (b"t" * 32, b"l" * 32))
    people_macs = PersonMacs(b"s" * 32)
    gathering = Gathering(folder, link_bytes=16, columns=COLUMNS, memory_rows=memory_rows)
    for start in range(0, len(ids), batch):
        some = slice(start, start + batch)
        packed = packed_ids(ids[some], ["trim"])
        tags, own = macs.of(packed), links.of(packed)
        keys, _ = people_macs.of(ids[some])
        gathering.take(tags[:, :14], own, keys, {name: column[some] for name, column in codes.items()}, ~packed.empty)
    return gathering.finish({0: lambda columns: columns["sex"], 1: lambda columns: columns["area"]})


def module_macs(key: bytes):
    from verticil.party.dataset.macs import Macs

    return Macs(key, size=16)


@pytest.mark.parametrize("memory_rows", [10_000, 300, 40])
def test_people_are_those_whose_id_is_there_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_rows: int
) -> None:
    """Against a dictionary of Python; repeated ids are anywhere, also next to each other and more than twice."""
    monkeypatch.setattr(sorting, "_LEAST_OF_A_RUN", 4)
    monkeypatch.setattr(sorting, "BLOCK_ROWS", 16)
    generator = np.random.default_rng(3)
    numbers = [*range(900), *generator.integers(0, 900, 150), *[17] * 5]
    ids = [f" p{n} " if n % 10 else "" for n in generator.permutation(numbers)]
    codes: dict[str, Any] = {
        "sex": generator.integers(0, 2, len(ids)).astype(np.uint8),
        "area": generator.integers(0, 900, len(ids)).astype(np.uint16),
    }
    found = gathered(tmp_path, ids, codes, memory_rows=memory_rows)
    times = Counter(text.strip() for text in ids)
    rows = [row for row, text in enumerate(ids) if text and times[text.strip()] == 1]
    packed = packed_ids([ids[row] for row in rows], ["trim"])
    tags, links = module_macs(b"t" * 32).of(packed)[:, :14], module_macs(b"l" * 32).of(packed)
    order = sorted(range(len(rows)), key=lambda i: links[i].tobytes())
    assert 400 < len(rows) < len(set(ids)) - 1
    assert found.links.tobytes() == links[order].tobytes()
    assert found.tags.tobytes() == tags[order].tobytes()
    assert found.keys.tobytes() == PersonMacs(b"s" * 32).of([ids[rows[i]] for i in order])[0].tobytes()
    for index, name in enumerate(COLUMNS):
        own = codes[name][rows]
        assert found.codes[name].tolist() == own[order].tolist()
        assert found.codes[name].dtype.itemsize == COLUMNS[name]
        assert not found.codes[name].flags.writeable
        assert found.fingerprints[index] == fingerprint(np.ascontiguousarray(tags), own)
    assert list(tmp_path.iterdir()) == []


def test_a_row_without_an_id_is_nobody(tmp_path: Path) -> None:
    """One alone, which has no other one like it."""
    codes = {"sex": np.array([1, 0, 1], dtype=np.uint8), "area": np.array([3, 4, 5], dtype=np.uint16)}
    found = gathered(tmp_path, ["a", " ", "b"], codes, memory_rows=10)
    assert sorted(found.codes["area"].tolist()) == [3, 5]


def test_nobody(tmp_path: Path) -> None:
    nothing = {"sex": np.empty(0, dtype=np.uint8), "area": np.empty(0, dtype=np.uint16)}
    found = gathered(tmp_path, [], nothing, memory_rows=10)
    assert (found.tags.shape, found.links.shape) == ((0, 14), (0, 16))
    assert found.fingerprints[0] == fingerprint(np.empty((0, 14), dtype=np.uint8), nothing["sex"])


@pytest.mark.parametrize("memory_rows", [1000, 7])
def test_in_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory_rows: int) -> None:
    monkeypatch.setattr(sorting, "_LEAST_OF_A_RUN", 3)
    generator = np.random.default_rng(0)
    tags = rows_of(generator, 300, 14, alike=0)
    one, other = tags[:200], generator.permutation(tags[120:])
    n, blocks = in_both(one, other, tmp_path, memory_rows=memory_rows)
    ours, theirs = (np.concatenate(places) for places in zip(*blocks, strict=True))
    assert (n, ours.tolist()) == (80, list(range(120, 200)))
    assert (one[ours] == other[theirs]).all()
    for some, others in ((one[:0], other), (one, other[:0]), (one[:100], other)):
        n, blocks = in_both(some, others, tmp_path, memory_rows=memory_rows)
        assert n == sum(len(ours) for ours, _ in blocks) == 0


@pytest.mark.parametrize("limit", [1 << 20, 10])
def test_ids_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    monkeypatch.setattr(module, "_IDS_IN_MEMORY", limit)
    spool = IdSpool(tmp_path)
    ids = [f"pérson-{n}" * (n % 3) for n in range(50)]
    for start in range(0, 50, 7):
        some = ids[start : start + 7]
        spool.take(
            packed_ids(sorted(set(some)), []),
            np.array([sorted(set(some)).index(text) for text in some], dtype=np.int32),
        )
    wanted = np.array([0, 6, 7, 20, 48, 49], dtype=np.uint64)
    for _ in range(2):
        assert list(spool.at(wanted)) == [ids[int(n)] for n in wanted]
    assert list(tmp_path.iterdir()) == []


# ---- kills and disks


def test_killed_while_people_wait_outside_memory_nothing_is_left(tmp_path: Path) -> None:
    """At two points: with runs on the disk, and with the people themselves there."""
    program = """
import os, signal, sys
from pathlib import Path
import numpy as np
from verticil.party.dataset.gathered_records import Gathering
folder, late = Path(sys.argv[1]), sys.argv[2] == "late"
gathering = Gathering(folder, link_bytes=16, columns={"sex": 1}, memory_rows=50)
generator = np.random.default_rng(0)
def some(width): return generator.integers(0, 256, (500, width), dtype=np.uint8)
gathering.take(some(14), some(16), some(16), {"sex": np.zeros(500, np.uint8)}, np.ones(500, bool))
found = gathering.finish({}) if late else None
open_files = [os.readlink(entry.path) for entry in os.scandir("/proc/self/fd") if os.path.lexists(entry.path)]
print(sum(str(folder) in name for name in open_files), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    for when in ("early", "late"):
        done = subprocess.run([sys.executable, "-c", program, str(tmp_path), when], capture_output=True, text=True)
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert int(done.stdout) > 0, "nothing was outside memory"
        assert list(tmp_path.iterdir()) == []


def test_a_disk_is_not_filled_to_the_brim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger and the catalogue are on it, too: what would leave less than their room is not written."""
    kept = nameless.RESERVE + 1000
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: SimpleNamespace(free=kept))
    nameless.KeptRows(tmp_path, 10, {"some": 96})
    with pytest.raises(OSError, match="No space left"):
        nameless.KeptRows(tmp_path, 11, {"some": 96})
    sorter = Sorter(tmp_path, width=100, key_bytes=14, memory_rows=11)
    sorter.add(np.zeros((11, 100), dtype=np.uint8))
    with pytest.raises(OSError, match="No space left"):
        sorter.add(np.zeros((1, 100), dtype=np.uint8))


def test_a_full_disk_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(owner: Any, folder: Path):
        file = open("/dev/full", "r+b", buffering=0)  # noqa: SIM115  every write to it says ENOSPC
        weakref.finalize(owner, file.close)
        return file

    monkeypatch.setattr(sorting, "nameless_file", full)
    generator = np.random.default_rng(0)
    rows = rows_of(generator, 100, 31)
    with pytest.raises(DataFault) as caught, disk_faults(tmp_path):
        Sorter(tmp_path, width=31, key_bytes=14, memory_rows=10).add(rows)
    assert caught.value.code == "DISK_FULL"
