"""A disk that is really full: whatever writes says DISK_FULL and leaves nothing half done; with room, the same works.

Each case runs on a small file system with less and less of its room taken, so that the first write fails, or a later one.
"""

from __future__ import annotations

import gc
import json
import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from support.documents import FEDERATION, party_toml, study_toml
from verticil.cli.main import main
from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.store import append_durably, write_durably
from verticil.party import local_dataset
from verticil.party.config import load_party
from verticil.party.protocol.randomization import Spool
from verticil.party.storage.database import Database
from verticil.party.storage.secret import SiteSecret
from verticil.pki.files import write_secret
from verticil.shared.core.errors import DataFault
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.formats.table_files import write_csv, write_parquet
from verticil.shared.storage import sorting
from verticil.shared.storage import unlinked_files as nameless
from verticil.shared.storage.disk import create_files, is_database_full, is_disk_full
from verticil.shared.study.reading import read_study

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
    Spool(folder).put([b"earlier"])
    return lambda: Spool(folder).put([NOISE])


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


# ---- what does not fit into memory waits on a disk, wherever the table is

PEOPLE = 12_000


def people_of(source: str, folder: Path, postgresql: Callable[[], Any]) -> str:
    """The same table in a source; what party.toml says of it."""
    rows = [(f"p{i:06d}", "yes" if i % 3 else "no") for i in range(PEOPLE)]
    if source == "csv":
        (folder / "people.csv").write_text("id,smoker\n" + "".join(f"{person},{smoker}\n" for person, smoker in rows))
        return 'path = "people.csv"\n'
    if source == "sqlite":
        with closing(sqlite3.connect(folder / "people.sqlite")) as database:
            database.execute("CREATE TABLE people (id TEXT, smoker TEXT)")
            database.executemany("INSERT INTO people VALUES (?, ?)", rows)
            database.commit()
        return 'path = "people.sqlite"\ntable = "people"\n'
    server = postgresql()
    person, smoker = "'p' || to_char(i, 'FM000000')", "CASE WHEN i % 3 = 0 THEN 'no' ELSE 'yes' END"
    server.run(
        "DROP TABLE IF EXISTS full_disk",
        f"CREATE TABLE full_disk AS SELECT {person} AS id, {smoker} AS smoker FROM generate_series(0, {PEOPLE - 1}) i",
    )
    write_secret(folder / "word", server.password)
    return f'url = "{server.url(password="")}"\npassword_file = "word"\ntable = "full_disk"\n'


@pytest.mark.parametrize(
    ("source", "noticed"),
    [
        pytest.param("csv", "before", marks=pytest.mark.whole),
        pytest.param("csv", "while it writes", marks=pytest.mark.whole),
        pytest.param("sqlite", "before", marks=pytest.mark.slow),
        pytest.param("sqlite", "while it writes", marks=pytest.mark.whole),
        pytest.param("postgresql", "before", marks=pytest.mark.slow),
        pytest.param("postgresql", "while it writes", marks=pytest.mark.whole),
    ],
)
@pytest.mark.machine
def test_people_for_whom_the_disk_has_no_room(
    source: str,
    noticed: str,
    small_disk: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """They are asked for again, and come; nothing of the first attempt takes room. They are those who were read in memory."""
    state, places = (
        small_disk.path / "state",
        people_of(source, tmp_path, lambda: request.getfixturevalue("postgresql")),
    )
    (tmp_path / "federation.toml").write_text(FEDERATION)
    datasets = f'[dataset.people]\n{places}id = "id"\n'
    (tmp_path / "party.toml").write_text(party_toml(datasets=datasets).replace('"state"', f'"{state}"'))
    (tmp_path / "study.toml").write_text(
        study_toml("clinic.smoker: no yes", "insurer.plan: a b", epsilon=1, minimum=50)
    )
    state.mkdir()

    def read() -> list[bytes]:
        found = local_dataset.read_holding(
            load_party(tmp_path / "party.toml"),
            read_study(tmp_path / "study.toml"),
            proposal_digest=b"p" * 32,
            site_secret=SiteSecret(value=b"s" * 32),
            linkage_key=b"k" * 32,
        )
        parts = (found.pseudonyms, found.tags, found.codes["smoker"])
        return [*map(np.ndarray.tobytes, parts), *found.fingerprints.values()]

    expected = read()
    assert len(expected[2]) == PEOPLE
    monkeypatch.setattr(local_dataset, "MEMORY_ROWS", 1000)
    monkeypatch.setattr(nameless, "RESERVE", 1 << 20)
    if noticed == "while it writes":
        monkeypatch.setattr(sorting, "check_room", lambda folder, n_bytes: None)
        monkeypatch.setattr(nameless, "check_room", lambda folder, n_bytes: None)
    for leave in (0, 40 * PAGE, 140 * PAGE):  # people are sorted twice, 31 bytes each time
        room = leave + (nameless.RESERVE if noticed == "before" else 0)
        small_disk.fill(leave=room)
        with pytest.raises(DataFault) as caught:
            read()
        assert caught.value.code == "DISK_FULL"
        assert str(state) in caught.value.message
        assert caught.value.hint
        del caught
        gc.collect()
        assert shutil.disk_usage(state).free >= room
        small_disk.free()
    assert read() == expected
    gc.collect()
    assert contents(small_disk.path) == {}
    assert shutil.disk_usage(state).used <= 2 * PAGE


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
        spool.put([NOISE])
    largest_file(1 << 30)
    assert caught.value.code == "DISK_FULL"
    assert contents(tmp_path) == {}
    assert spool.holds(spool.put([NOISE]))


def test_what_counts_as_full() -> None:
    with Path("/dev/full").open("wb", buffering=0) as file, pytest.raises(OSError, match="space") as caught:
        file.write(b"x")
    assert is_disk_full(caught.value)
    assert not is_disk_full(PermissionError(13, "denied"))
    assert not is_database_full(sqlite3.DatabaseError("file is not a database"))
