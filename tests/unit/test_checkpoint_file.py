"""Checkpoints on disk: whole or not used, of this search or not used, and never in the way of the search."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from verticil.miner.learning.search.genetic import GeneticSearch
from verticil.miner.learning.search.protocol import (
    UNINTERRUPTED,
    Checkpoint,
    Interruption,
    LearningCancelled,
    SearchProblem,
    SearchResult,
    run_search,
)
from verticil.miner.storage.checkpoint import CheckpointFile, binding_of, resume

BINDING = binding_of(["columns"], b"study")
SOME: Checkpoint = {
    "search": np.arange(32, dtype=np.uint8),
    "stream": np.array([2**64 - 1], dtype=np.uint64),
    "seed": np.array(7),
    "held_out": np.array([-0.1, np.nan, -np.inf]),
    "nothing": np.empty((0, 3), dtype=np.int32),
}


class Seconds:
    """A clock that stands until it is set, or goes on by a step whenever it is looked at."""

    now = step = 0.0

    def __call__(self) -> float:
        self.now += self.step
        return self.now


def file_at(path: Path, *, binding: bytes = BINDING, seconds: float = 0.0, clock: Seconds | None = None):
    return CheckpointFile(path, binding, what="study 7", seconds=seconds, clock=clock or Seconds())


def same(one: Checkpoint | None, other: Checkpoint | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.keys() == other.keys() and all(
        array.dtype == other[name].dtype and array.tobytes() == other[name].tobytes() for name, array in one.items()
    )


def test_what_is_read_is_what_was_written_bit_by_bit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "checkpoint"
    assert file_at(path).read() is None
    assert not caplog.messages  # a search that begins has none: nothing to tell
    file_at(path).write(SOME)
    assert same(file_at(path).read(), SOME)
    file_at(path).write({"search": np.zeros(1)})
    assert same(file_at(path).read(), {"search": np.zeros(1)})
    assert [item.name for item in tmp_path.iterdir()] == ["checkpoint"]
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_torn_or_changed_file_is_not_used_and_the_log_tells(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "checkpoint"
    file_at(path).write(SOME)
    whole = path.read_bytes()
    lengths = [0, 1, 7, 8, 39, 40, 71, 72, 73, len(whole) // 2, len(whole) - 1]
    flipped = [bytes([*whole[:at], whole[at] ^ 1, *whole[at + 1 :]]) for at in range(0, len(whole), 97)]
    damaged = [whole[:length] for length in lengths] + flipped + [whole + b"\0", whole[:72] + os.urandom(200)]
    for data in damaged:
        caplog.clear()
        path.write_bytes(data)
        assert file_at(path).read() is None
        (record,) = caplog.records
        assert record.levelno == logging.WARNING
        assert "study 7: the checkpoint is not used: " in record.message
        assert "the search begins anew" in record.message
    path.write_bytes(whole)
    assert same(file_at(path).read(), SOME)


@pytest.mark.parametrize(
    "other",
    [binding_of(["other columns"], b"study"), binding_of(["columns"], b"other study"), binding_of(["columns"], b"")],
)
def test_the_checkpoint_of_another_search_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, other: bytes
) -> None:
    file_at(tmp_path / "checkpoint", binding=other).write(SOME)
    assert file_at(tmp_path / "checkpoint").read() is None
    assert "it is of another search" in caplog.text


def test_objects_are_neither_written_nor_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"allow_pickle|Object arrays"):
        file_at(tmp_path / "checkpoint").write({"search": np.array([{}])})
    assert not list(tmp_path.iterdir())


def test_one_is_made_only_when_due_and_less_often_on_a_slow_disk(tmp_path: Path) -> None:
    clock, made = Seconds(), []

    def make() -> Checkpoint:
        made.append(clock.now)
        return SOME

    file = file_at(tmp_path / "checkpoint", seconds=2.0, clock=clock)
    for now in (0.0, 1.9, 2.0, 2.1, 3.9, 4.0):
        clock.now = now
        file.keep(make)
    assert made == [2.0, 4.0]
    clock.now, clock.step = 10.0, 0.5
    file.keep(make)  # writing ends at 11.5 and took 0.5, so ten seconds pass without
    clock.step = 0.0
    for now in (21.0, 21.5, 23.0):
        clock.now = now
        file.keep(make)
    assert made == [2.0, 4.0, 10.5, 21.5]


def test_where_none_can_be_written_the_search_goes_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file_at(tmp_path / "absent" / "checkpoint").write(SOME)
    assert "no checkpoint can be written (FileNotFoundError); the search goes on without" in caplog.text


PROBLEM = SearchProblem(
    weights=np.triu(np.ones((6, 6)), 1), n_states=(2,) * 6, max_parents=2, max_family_cells=99
)  # fmt: skip
GENETIC = GeneticSearch(population=10, selected=3, generations=30)


def search(interruption: Interruption = UNINTERRUPTED) -> SearchResult:
    return run_search(GENETIC, PROBLEM, seed=3, interruption=interruption)


def never() -> bool:
    return False


def test_a_cancelled_search_leaves_its_checkpoint_and_goes_on_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "checkpoint"
    caplog.set_level(logging.INFO)
    for _ in range(2):  # the second run stops where it has made 10 more generations
        steps = iter(range(100))
        with pytest.raises(LearningCancelled):
            resume(
                search,
                path,
                BINDING,
                is_cancelled=lambda steps=steps: next(steps) == 10,  # type: ignore[misc]
                what="study 7",
                seconds=3600,
            )
    stored = file_at(path).read()
    assert stored is not None
    assert stored["generation"] == 20
    assert "study 7: the search goes on from its checkpoint" in caplog.text
    assert resume(search, path, BINDING, is_cancelled=never, what="study 7") == search()


def test_a_checkpoint_that_the_searcher_refuses_is_begun_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "checkpoint"
    other = GeneticSearch(population=10, selected=3, generations=31)
    file_at(path).write(other.checkpoint(other.start(PROBLEM, 3)))
    assert resume(search, path, BINDING, is_cancelled=never, what="study 7") == search()
    assert "the checkpoint is of another search; the search begins anew" in caplog.text


def test_a_binding_depends_on_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = {BINDING, binding_of(["columns", 1], b"study"), binding_of(["columns"], b"study2"), binding_of([], b"study")}
    assert len(seen) == 4
    monkeypatch.setattr("verticil.miner.storage.checkpoint.version", lambda name: f"{name} 99")
    assert binding_of(["columns"], b"study") not in seen  # other software may search otherwise
