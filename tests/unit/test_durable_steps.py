"""What a kill cannot show: that what a node says to be on its disk was flushed, and so was the folder that has its name.

A process that is killed loses nothing that it wrote, flushed or not; a power cut does. So these tests count: each durable step of
the seam (`verticil.shared.storage.durable`) makes its system call on its very file or folder, the whole content is in the file
when it is flushed, and each way of writing takes the steps of its kind in their order.
"""

from __future__ import annotations

import asyncio
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

import pytest

from support.masked_nodes import Keys, Nodes, plan_for, random_tables
from verticil.curator.state import open_state as curator_opened
from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.store import append_durably, remove_durably, replace_durably, write_durably
from verticil.party.audit.log import AuditLog, Event, What
from verticil.party.protocol.randomization import Spool
from verticil.party.site import init_state
from verticil.party.storage.database import Database
from verticil.shared.federation.transport.fetch import fetch_file, send_parts
from verticil.shared.release.formats.table_files import write_atomically
from verticil.shared.storage.disk import create_file, replace_file
from verticil.shared.storage.durable import DurableStep, watch_steps

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)
WHOLE = ["sync-file", "rename", "sync-directory"]
"""A file that appears whole or not at all, and stays."""


@dataclass
class Taken:
    """The steps that were taken, and the flushes that were made.

    Attributes:
        steps: kind and path, in order.
        sizes: of each file when it was flushed, by the path that it had then.
        calls: paths of what was flushed.
        silent: steps that should flush and made another number of calls than one, or on something else.
    """

    steps: list[tuple[str, Path]] = field(default_factory=list)
    sizes: dict[Path, int] = field(default_factory=dict)
    calls: list[Path] = field(default_factory=list)
    silent: list[tuple[str, Path]] = field(default_factory=list)

    def watch(self, step: DurableStep) -> None:
        """Take a step down."""
        if step.moment == "before":
            self.steps.append((step.kind, step.path))
            self._before = len(self.calls)
            if step.kind == "sync-file":
                self.sizes[step.path] = step.path.stat().st_size
        elif step.kind in {"sync-file", "sync-directory"} and self.calls[self._before :] != [step.path.resolve()]:
            self.silent.append((step.kind, step.path))

    @property
    def kinds(self) -> list[str]:
        """The steps' kinds, in order."""
        return [kind for kind, _ in self.steps]


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> Iterator[Taken]:
    found, flush = Taken(), os.fsync

    def counted(descriptor: int) -> None:
        found.calls.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")))
        flush(descriptor)

    monkeypatch.setattr(os, "fsync", counted)
    with watch_steps(found.watch):
        yield found
    assert not found.silent


CONTENT = bytes(range(256)) * 3
"""Less than a buffer of the standard library holds: it is written by a flush, or when the file is closed."""


def _fetched(folder: Path) -> None:
    call = lambda offset: send_parts(CONTENT, offset=offset, what="test")  # noqa: E731
    asyncio.run(fetch_file(call, folder / "it", limit_bytes=10**6, what="test"))


def _spooled(folder: Path) -> None:
    (folder / "it").hardlink_to(folder / Spool(folder).put([CONTENT]).hex())


WRITERS: dict[str, tuple[Callable[[Path], None], list[str]]] = {
    "create_file": (
        lambda folder: create_file(folder / "it", CONTENT, mode=0o600, exists_hint=""),
        ["sync-file", "sync-directory"],
    ),
    "replace_file": (lambda folder: replace_file(folder / "it", CONTENT, part=folder / "part"), WHOLE),
    "replace_file in pieces": (
        lambda folder: replace_file(folder / "it", [CONTENT, CONTENT], part=folder / "part"),
        WHOLE,
    ),
    "write_durably": (lambda folder: write_durably(folder / "it", CONTENT), WHOLE),
    "write_atomically": (
        lambda folder: write_atomically(folder / "it", lambda file: file.write(CONTENT) and None),
        ["sync-file", "rename"],  # whoever makes the folder of a release flushes it once, with all files in it
    ),
    "fetch_file": (_fetched, WHOLE),
    "spool": (_spooled, WHOLE),
}
"""A way of writing -> what writes a file ``it`` in a folder, and its steps."""


@pytest.mark.parametrize("how", WRITERS)
def test_each_way_of_writing_flushes_the_whole_file_and_then_its_folder(tmp_path: Path, taken: Taken, how: str) -> None:
    write, steps = WRITERS[how]
    write(tmp_path)
    assert taken.kinds == steps
    (size,) = taken.sizes.values()
    assert size == (tmp_path / "it").stat().st_size >= len(CONTENT)
    assert [path for kind, path in taken.steps if kind == "sync-directory"] == [tmp_path] * steps.count(
        "sync-directory"
    )


def test_bytes_that_a_miner_acknowledges_are_flushed_and_a_new_file_has_its_name(tmp_path: Path, taken: Taken) -> None:
    staging = tmp_path / "staging"
    append_durably(staging, 0, CONTENT)
    assert (taken.kinds, taken.sizes) == (["sync-file", "sync-directory"], {staging: len(CONTENT)})
    append_durably(staging, len(CONTENT), CONTENT)
    assert (taken.kinds[2:], taken.sizes) == (["sync-file"], {staging: 2 * len(CONTENT)})
    (tmp_path / "columns").mkdir()
    replace_durably(staging, tmp_path / "columns" / "0")
    assert taken.steps[3:] == [
        ("rename", tmp_path / "columns" / "0"),
        ("sync-directory", tmp_path / "columns"),
        ("sync-directory", tmp_path),
    ]
    remove_durably(tmp_path / "columns" / "0")
    assert taken.kinds[6:] == ["remove", "sync-directory"]


def test_a_line_of_the_audit_log_is_flushed_before_its_transaction_is_committed(tmp_path: Path, taken: Taken) -> None:
    init_state(tmp_path / "state")
    with closing(Database(tmp_path / "state")) as database:
        audit = AuditLog(database, tmp_path / "state")
        audit.record(Event(what=What.FAILURE, who="test", detail="first"), AT)
        del taken.steps[:]
        audit.record(Event(what=What.FAILURE, who="test", detail="second"), AT)
    log = tmp_path / "state" / "audit.jsonl"
    assert [(kind, path.name) for kind, path in taken.steps] == [("sync-file", log.name), ("commit", "party.sqlite")]
    assert taken.sizes[log] == log.stat().st_size


@pytest.mark.parametrize("whose", ["party", "miner", "curator"])
def test_a_transaction_that_returned_is_on_the_disk(tmp_path: Path, whose: str) -> None:
    """2 is FULL: SQLite flushes its log with each commit; with NORMAL (1) a power cut takes the last ones back."""
    asked = ("PRAGMA synchronous", "PRAGMA journal_mode")
    if whose == "curator":
        with curator_opened(tmp_path / "state", "clinic", now=AT) as state:
            found = [state.database.rows(pragma) for pragma in asked]
    elif whose == "miner":
        with closing(Catalogue(tmp_path / "catalogue.sqlite")) as catalogue:
            found = [catalogue._database.rows(pragma) for pragma in asked]
    else:
        init_state(tmp_path / "state")
        with closing(Database(tmp_path / "state")) as database:
            found = [database.rows(pragma) for pragma in asked]
    assert found == [[(2,)], [("wal",)]]


def test_every_message_of_a_round_is_flushed_before_it_counts_as_made_or_as_received(
    tmp_path: Path, taken: Taken
) -> None:
    sizes = {"north": (2, 3), "south": (3,)}
    tables = random_tables(sizes, 3000)
    nodes = Nodes(tmp_path, Keys(tmp_path / "keys", tuple(sizes)), plan_for(sizes, 3000), tables)
    del taken.steps[:]
    nodes.run()
    assert all(node.is_finished for node in nodes.rounds.values())
    steps: defaultdict[Path, list[str]] = defaultdict(list)
    for number, (kind, path) in enumerate(taken.steps):
        if kind != "rename" or path.parent.name not in {"sent", "got"}:
            continue
        (before, part), (after, folder) = taken.steps[number - 1], taken.steps[number + 1]
        steps[path] += [before, kind, after]
        assert folder == path.parent
        whole = path.stat().st_size if path.exists() else taken.sizes[part]  # deleted when nobody needs it any more
        assert taken.sizes[part] == whole, path
    made = {name: node._sent for name, node in nodes.rounds.items()}
    got = {name: node._got for name, node in nodes.rounds.items()}
    named = {(path.parts[-3], path.parent.name, int(path.name)) for path in steps}
    assert named == {(name, "sent", index) for name, all_of in made.items() for index in all_of} | {
        (name, "got", index) for name, all_of in got.items() for index in all_of
    }
    assert all(found == WHOLE for found in steps.values())
