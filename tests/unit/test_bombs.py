"""A small file of anybody that would fill the memory is refused by name, and before it does: one of each format."""

from __future__ import annotations

import contextlib
import itertools
import json
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pyarrow as pa
import pytest
from pyarrow import parquet

from verticil.cli.main import main
from verticil.party.backup import _Reader
from verticil.shared.airgap.bundle import read_statement
from verticil.shared.errors import GateFailed

ROWS: Final = 21_000_000
MOST_BYTES: Final = 64 << 20


def equal_rows(folder: Path, n_rows: int = ROWS, name: str = "bomb.parquet") -> Path:
    """Write a Parquet file of equal rows, some hundred kilobytes for tens of millions."""
    part = pa.table({"a": pa.array(["x"] * 1_000_000).dictionary_encode()})
    with parquet.ParquetWriter(folder / name, part.schema, compression="zstd") as writer:
        for _ in range(n_rows // len(part)):
            writer.write_table(part)
    return folder / name


def evaluated(folder: Path) -> list[str]:
    path = equal_rows(folder)
    assert path.stat().st_size < 2_000_000
    return ["evaluate", "--real", str(path), "--synthetic", str(path), "--out", str(folder / "out")]


def drafted(folder: Path) -> list[str]:
    return ["study", "draft", f"owner={equal_rows(folder)}"]


def sparse(path: Path, size: int, head: bytes = b"") -> Path:
    """Write a file with a hole, so that it has a size and takes no disk."""
    with path.open("wb") as file:
        file.write(head)
        file.truncate(size)
    return path


def study(folder: Path) -> list[str]:
    return ["study", "check", str(sparse(folder / "study.toml", 8 << 30))]


def knowledge(folder: Path) -> list[str]:
    sparse(folder / "rules.ttl", 8 << 30)
    (folder / "study.toml").write_text(STUDY)
    return ["knowledge", "show", str(folder / "study.toml")]


def release(folder: Path) -> list[str]:
    sparse(folder / "manifest.json", 8 << 30)
    return ["release", "verify", str(folder)]


def asked(folder: Path) -> list[str]:
    sparse(folder / "model.json", 8 << 30)
    return ["release", "query", str(folder), "smoker"]


def backup(folder: Path) -> list[str]:
    (folder / "words").write_text("words\n")
    path = sparse(folder / "b.backup", 8 << 30, b"verticil backup 1\n")
    return ["party", "restore", str(path), "--dir", str(folder / "new"), "--passphrase-file", str(folder / "words")]


STUDY: Final = """schema = 1
id = "a"
purpose = "p"
expires = 2099-12-31
party = [{ name = "clinic" }, { name = "insurer" }]
variable = [
  { party = "clinic", name = "smoker", categories = ["no", "yes"] },
  { party = "insurer", name = "claims", categories = ["0", "1"] },
]
knowledge = { file = "rules.ttl" }
"""

BOMBS: Final[dict[str, tuple[Callable[[Path], list[str]], str]]] = {
    "a Parquet file that is evaluated": (evaluated, "DATA_UNREADABLE"),
    "a Parquet file that is drafted": (drafted, "DATA_UNREADABLE"),
    "a study": (study, "STUDY_INVALID"),
    "knowledge": (knowledge, "STUDY_INVALID"),
    "a release that is verified": (release, "RELEASE_INVALID"),
    "a release that is asked": (asked, "RELEASE_INVALID"),
    "a backup": (backup, "BACKUP_INVALID"),
}


@contextlib.contextmanager
def measured() -> Iterator[None]:
    """Hold what Python and Arrow allocate meanwhile against `MOST_BYTES`."""
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES
    finally:
        tracemalloc.stop()
    assert pa.total_allocated_bytes() - before < MOST_BYTES


@pytest.mark.parametrize(("made", "code"), BOMBS.values(), ids=BOMBS)
def test_a_bomb_is_refused_before_it_fills_the_memory(
    tmp_path: Path, made: Callable[[Path], list[str]], code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = made(tmp_path)
    with measured():
        assert main([*words, "--format", "json"]) != 0
    assert json.loads(capsys.readouterr().out)["error"]["code"] == code


def test_a_line_of_a_backup_has_a_limit() -> None:
    """Whoever knows the passphrase can seal anything."""
    with measured(), pytest.raises(GateFailed) as caught:
        _Reader(itertools.repeat(bytes(1 << 16), 2000)).line()
    assert caught.value.code == "BACKUP_INVALID"


def test_a_bundle_that_says_it_is_large_is_refused(tmp_path: Path) -> None:
    path = sparse(tmp_path / "b.carried", 8 << 30, b"VERTICIL-CARRIED-1\n" + b"\x7f" * 8)
    with measured(), pytest.raises(GateFailed) as caught:
        read_statement(path)
    assert caught.value.code == "BUNDLE_INVALID"
