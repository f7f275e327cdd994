"""A disk that is really full: whatever writes says DISK_FULL and leaves nothing half done; with room, the same works.

Each case runs on a small file system with less and less of its room taken, so that the first write fails, or a later one.
"""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from verticil.cli.main import main
from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.store import append_durably, write_durably
from verticil.party.protocol.randomization import Spool
from verticil.party.storage.database import Database
from verticil.shared.disk import create_files, is_database_full, is_disk_full
from verticil.shared.errors import DataFault
from verticil.shared.formats.tables import write_csv, write_parquet
from verticil.shared.release.bundle import write_release

PAGE = 4096
NOISE = np.random.default_rng(1).bytes(200_000)  # nothing makes it smaller


def contents(folder: Path) -> dict[str, int]:
    """CRC of every file; SQLite's side files belong to the database beside them."""
    return {
        str(path.relative_to(folder)): zlib.crc32(path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file() and path.name != ".ballast" and not path.name.endswith(("-wal", "-shm"))
    }


# ---- commands that make files: name, arguments after the disk's folder is filled in


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation, a table and a network outside of the small disk."""
    folder = tmp_path_factory.mktemp("made")
    assert main(["pki", "init", "--federation", "trial", "--out", str(folder / "pki"), "--format", "json"]) == 0
    (folder / "clinic.csv").write_text("id,sex\n" + "".join(f"p{i},{'mf'[i % 2]}\n" for i in range(200)))
    (folder / "insurer.csv").write_text("id,plan\n" + "".join(f"p{i},{'ab'[i % 2]}\n" for i in range(200)))
    return folder


COMMANDS: dict[str, str] = {
    "pki init": "pki init --federation trial --out {disk}/pki",
    "pki issue": "pki issue clinic --role party --ca {made}/pki --out {disk}/clinic",
    "linkage new-key": "linkage new-key {disk}/secrets/linkage.key",
    "party init": "party init --name a --dir {disk}/a --federation {made}/pki/federation.toml --table {made}/clinic.csv",
    "miner init": "miner init --dir {disk}/miner --federation {made}/pki/federation.toml",
    "study draft": "study draft clinic={made}/clinic.csv insurer={made}/insurer.csv --out {disk}/study.toml",
}
RESUMED = {"party init"}  # what it has made by then is whole, and is kept


@pytest.mark.parametrize("pages", range(3))
@pytest.mark.parametrize("name", COMMANDS)
def test_commands_on_a_full_disk(
    name: str, pages: int, small_disk: Any, made: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*COMMANDS[name].format(disk=small_disk.path, made=made).split(), "--format", "json"]
    small_disk.fill(leave=pages * PAGE)
    exit_code = main(arguments)
    said = json.loads(capsys.readouterr().out)
    if exit_code == 0:
        assert pages > 0
        return
    assert (exit_code, said["error"]["code"]) == (1, "DISK_FULL")
    assert str(small_disk.path) in said["error"]["message"]
    assert "no space left" in said["error"]["message"]
    assert "make room" in said["error"]["hint"]
    assert name in RESUMED or contents(small_disk.path) == {}
    small_disk.free()
    assert main(arguments) == 0


# ---- what nodes and the release write: prepare, then an action that is tried on the full disk and again with room


def spool(folder: Path) -> Callable[[], object]:
    Spool(folder).put(b"earlier")
    return lambda: Spool(folder).put(NOISE)


def ledger(folder: Path) -> Callable[[], object]:
    def act() -> None:
        with Database(folder) as database:
            database.write("INSERT INTO denial VALUES (?, 'anna', ?, '', 0)", (NOISE[:32], NOISE.hex()))

    with closing(Database(folder, create=True)):
        return act


def catalogue(folder: Path) -> Callable[[], object]:
    def act() -> None:
        with closing(Catalogue(folder / "catalogue.sqlite")) as facts:
            facts.add_study(NOISE[:32], study_id="a", proposal=NOISE, submitter="anna", at="2026-11-21T10:00:00Z")

    with closing(Catalogue(folder / "catalogue.sqlite")):
        return act


def staging(folder: Path) -> Callable[[], object]:
    """What was acknowledged stays; the bytes of a failed write are behind the committed offset."""
    append_durably(folder / "000.part", 0, b"acknowledged")

    def act() -> None:
        try:
            append_durably(folder / "000.part", 12, NOISE)
        finally:
            assert (folder / "000.part").read_bytes()[:12] == b"acknowledged"
            if (folder / "000.part").stat().st_size < 12 + len(NOISE):
                os.truncate(folder / "000.part", 12)

    return act


def column(folder: Path) -> Callable[[], object]:
    write_durably(folder / "000.u8", b"old")
    return lambda: write_durably(folder / "000.u8", NOISE)


FRAME = pd.DataFrame({"noise": np.frombuffer(NOISE, dtype=np.uint32)})
WRITERS: dict[str, Callable[[Path], Callable[[], object]]] = {
    "the party's spool": spool,
    "the party's database": ledger,
    "the miner's catalogue": catalogue,
    "the miner's staging file": staging,
    "the miner's column": column,
    "a CSV file": lambda folder: lambda: write_csv(FRAME, folder / "synthetic.csv"),
    "a Parquet file": lambda folder: lambda: write_parquet(FRAME, folder / "synthetic.parquet"),
    "new files": lambda folder: (
        lambda: create_files({folder / "a": (b"small", 0o600), folder / "b": (NOISE, 0o600)}, exists_hint="")
    ),
}


@pytest.mark.parametrize("pages", [0, 3, 20])
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.machine
def test_writers_on_a_full_disk(name: str, pages: int, small_disk: Any) -> None:
    act = WRITERS[name](small_disk.path)
    before = contents(small_disk.path)
    small_disk.fill(leave=pages * PAGE)
    with pytest.raises(DataFault) as caught:
        act()
    assert (caught.value.code, caught.value.exit_code) == ("DISK_FULL", 1)
    assert caught.value.hint
    assert contents(small_disk.path) == before
    small_disk.free()
    act()
    assert contents(small_disk.path) != before


@pytest.mark.parametrize("pages", [0, 3, 8])
@pytest.mark.machine
def test_a_release_on_a_full_disk(pages: int, small_disk: Any, release_content: Any) -> None:
    small_disk.fill(leave=pages * PAGE)
    with pytest.raises(DataFault) as caught:
        write_release(small_disk.path / "release", release_content)
    assert (caught.value.code, caught.value.exit_code) == ("DISK_FULL", 1)
    assert contents(small_disk.path) == {}
    small_disk.free()
    assert (write_release(small_disk.path / "release", release_content) / "manifest.json").exists()


# ---- the same without a mount


@pytest.fixture
def largest_file() -> Iterator[Callable[[int], None]]:
    """Sets the largest size of a file (ulimit -f): EFBIG is a full disk too."""
    import resource

    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_the_largest_size_of_a_file_is_a_full_disk_too(tmp_path: Path, largest_file: Callable[[int], None]) -> None:
    spool = Spool(tmp_path)
    largest_file(PAGE)
    with pytest.raises(DataFault) as caught:
        spool.put(NOISE)
    largest_file(1 << 30)
    assert caught.value.code == "DISK_FULL"
    assert contents(tmp_path) == {}
    assert spool.holds(spool.put(NOISE))


def test_what_counts_as_full() -> None:
    with Path("/dev/full").open("wb", buffering=0) as file, pytest.raises(OSError, match="space") as caught:
        file.write(b"x")
    assert is_disk_full(caught.value)
    assert not is_disk_full(PermissionError(13, "denied"))
    assert not is_database_full(sqlite3.DatabaseError("file is not a database"))
