"""A backup whose inside was changed by somebody who knows the passphrase ends in a clear error, or in a restored site."""

from __future__ import annotations

import json
import random
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from verticil.party.config import load_party
from verticil.party.operator.backup import Restored, backup, restore
from verticil.party.operator.sealed_file import seal, unseal
from verticil.shared.core.errors import GateFailed, VerticilError
from verticil.simulation.provision import OPEN_LIMITS, csv_site, provision

WORDS = "twelve letters and more"
ODD: list[Any] = ["", ".", "..", "a/../b", "/etc/x", "a\0b", "\ud800", "x" * 300, "party.toml", "party.toml/x", "state"]
ODD += [-1, 10**30, None, True, [], {}, 1.5, "1"]


@dataclass(frozen=True)
class Inside:
    """What a backup holds: the line of each file, and its bytes."""

    files: list[tuple[dict[str, Any], bytes]]

    def restored(
        self, folder: Path, end: object = None, change: Callable[[bytes], bytes] = lambda data: data
    ) -> Restored:
        lines = b"".join(json.dumps(line).encode() + b"\n" + data for line, data in self.files)
        lines += json.dumps({"files": len(self.files)} if end is None else end).encode() + b"\n"
        sealed = folder.with_suffix(".backup")
        sealed.write_bytes(b"".join(seal([change(lines)], WORDS, {"party": "clinic"}, cost=2**4)))
        return restore(sealed, folder, WORDS)


@pytest.fixture(scope="module")
def inside(tmp_path_factory: pytest.TempPathFactory) -> Inside:
    folder = tmp_path_factory.mktemp("site")
    for name in ("clinic", "insurer"):
        (folder / f"{name}.csv").write_text("id,smoker\na,yes\nb,no\n")
    made = provision(
        folder / "federation",
        federation="trial",
        sites=[csv_site(name, folder / f"{name}.csv") for name in ("clinic", "insurer")],
        limits=OPEN_LIMITS,
        endpoint="127.0.0.1:1",
        listen="127.0.0.1:0",
        hosts=("127.0.0.1",),
        seed=1,
    )
    backup(load_party(made.parties["clinic"] / "party.toml"), folder / "made", WORDS)
    with (folder / "made").open("rb") as file:
        left, found = b"".join(unseal(file, WORDS, "made")), []
    while "path" in (line := json.loads(left.partition(b"\n")[0])):
        left = left.partition(b"\n")[2]
        found.append((line, left[: line["size"]]))
        left = left[line["size"] :]
    return Inside(found)


def changed(draw: random.Random, data: bytes) -> bytes:
    """Bytes of which some are others, or too few, or too many."""
    place = draw.randrange(len(data) + 1)
    other = draw.choice([b"", b"\n", b"[" * 9999, b"\x00" * 9, b"\xff\xfe", b"=", b'"', draw.randbytes(20)])
    return data[:place] + other + data[place + draw.choice([0, 1, 20, len(data)]) :]


def run(inside: Inside, folder: Path, seed: int) -> str:
    """Change one thing, restore, and say how it ended."""
    draw = random.Random(seed)
    files = [(dict(line), data) for line, data in inside.files]
    (line, data), what = files[place := draw.randrange(len(files))], draw.randrange(5)
    end: object = None
    if what == 0:
        line[draw.choice(sorted(line))] = draw.choice(ODD)
    elif what in {1, 2}:
        data = changed(draw, data)
        files[place] = ({**line, "size": len(data)}, data)
    elif what == 3:
        end = draw.choice([*({"files": value} for value in ODD if value is not None), [], 3, "files", {"path": 1}])
    try:
        Inside(files).restored(folder, end, lambda lines: changed(draw, lines) if what == 4 else lines)
    except VerticilError as error:
        return error.code if error.message.isprintable() else "unprintable"
    return "restored"


@pytest.mark.whole
def test_every_change_inside_a_backup_ends_in_a_clear_error_or_a_restored_site(inside: Inside, tmp_path: Path) -> None:
    ends = {run(inside, tmp_path / str(seed), seed) for seed in range(60)}
    assert {"BACKUP_INVALID", "restored"} <= ends
    assert not ends & {"INTERNAL", "unprintable"}


@pytest.mark.slow
def test_a_thousand_changes_inside_a_backup_end_so(inside: Inside, tmp_path: Path) -> None:
    assert "INTERNAL" not in {run(inside, tmp_path / str(seed), seed) for seed in range(60, 1060)}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("size", -1),
        ("size", True),
        ("path", ""),
        ("path", "a\0b"),
        ("path", 1),
        ("path", "party.toml/x"),
        ("origin", {}),
    ],
)
def test_a_line_that_this_program_did_not_write_is_refused(
    inside: Inside, tmp_path: Path, key: str, value: object
) -> None:
    """A size below zero never ended."""
    last, data = inside.files[-1]
    with pytest.raises(GateFailed) as found:
        Inside([*inside.files[:-1], ({**last, key: value}, data)]).restored(tmp_path / "site")
    assert found.value.code == "BACKUP_INVALID"
    assert not (tmp_path / "site").exists()


def test_a_name_that_no_terminal_shows_is_restored_as_it_was(inside: Inside, tmp_path: Path) -> None:
    last, data = inside.files[-1]
    odd = "state/\u200b\udc80"
    found = Inside([*inside.files, ({**last, "path": odd, "size": 1}, b"x")]).restored(tmp_path / "site")
    assert found.files == len(inside.files) + 1
    assert (tmp_path / "site" / odd).read_bytes() == b"x"
    assert data


def test_a_row_that_this_program_did_not_write_is_named(inside: Inside, tmp_path: Path) -> None:
    files = []
    for line, data in inside.files:
        if line["path"].endswith("party.sqlite"):
            (tmp_path / "state").write_bytes(data)
            connection = sqlite3.connect(tmp_path / "state")
            connection.execute("PRAGMA ignore_check_constraints = ON")
            of = {"TEXT": "x", "BLOB": b"x", "INTEGER": 1, "REAL": 1.0}
            row = [of[kind] for _, _, kind, *_ in connection.execute("PRAGMA table_info(study)")]
            connection.execute(f"INSERT INTO study VALUES ({', '.join('?' * len(row))})", row)
            connection.commit()
            connection.close()
            data = (tmp_path / "state").read_bytes()
        files.append(({**line, "size": len(data)}, data))
    with pytest.raises(VerticilError) as found:
        Inside(files).restored(tmp_path / "site")
    assert found.value.code == "STATE_CORRUPT"
