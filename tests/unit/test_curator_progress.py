"""How far `synthesize` is: on a terminal one line with per cent and the time to come, else a plain line for each stage."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from verticil.cli import synthesize as command
from verticil.cli.main import main
from verticil.curator.progress import LearningProgress
from verticil.shared.core.compiled import compiled, compiling_told
from verticil.shared.numerics.joint.estimate import share_of_noisy

PIECES = (
    "tables as they are",
    "tables shrunk",
    "guard 1",
    "guard 2",
    "guard 3",
    "guard 4",
    "size 1",
    "size 2",
    "possible",
)


def progress_at(times: list[float], *, has_course: bool) -> tuple[LearningProgress, list[str], list[str]]:
    lines: list[str] = []
    shown: list[str] = []
    clock = iter(times).__next__
    return LearningProgress(lines.append, shown.append, has_course=has_course, clock=clock), lines, shown


def test_the_time_to_come_counts_the_stages_that_are_foreseen() -> None:
    progress, lines, shown = progress_at([0, 0, 7, 14, 14, 14, 27], has_course=True)
    for stage, percent in (
        ("estimating", 2),
        ("estimating", 50),
        ("estimating", 100),
        ("searching", 50),
        ("parameters", 50),
    ):
        progress.report(stage, percent)
        progress.report(stage, percent)
    assert lines == ["fitting the joint model", "searching a structure", "computing intervals"]
    assert shown == [
        "fitting the joint model: 2 %",
        "fitting the joint model: 50 %, about 40 s left",  # 7 s of this stage, and 14 s times 7 / 3
        "fitting the joint model: 100 %, about 33 s left",
        "searching a structure: 50 %",
        "computing intervals: 50 %, about 23 s left",
    ]


def test_where_nothing_is_foreseen_the_time_is_that_of_the_step() -> None:
    progress, lines, shown = progress_at([0, 0, 5], has_course=False)
    progress.report("searching", 0)
    progress.report("searching", 25)
    assert shown[-1] == "searching a structure: 25 %, about 15 s left in this step"
    quiet = LearningProgress(lines.append, None, has_course=True)
    quiet.report("unheard of", 50)
    assert lines[-1] == "unheard of"


def test_the_share_of_an_estimate_only_grows() -> None:
    shares = [share_of_noisy(piece, done, 300) for piece in PIECES for done in (0, 150, 300)]
    assert shares == sorted(shares)
    assert (shares[0], shares[-1]) == (0.0, 1.0)


def test_compiling_is_told_once_and_only_where_something_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    def doubled(number: int) -> int:
        return 2 * number

    monkeypatch.setattr("numba.core.caching.CacheImpl._locator_classes", [])  # as on a read-only disk: nothing is kept
    kernel, told = compiled(doubled), []
    with compiling_told(lambda: told.append("compiling")):
        assert (kernel(1), kernel(2.0)) == (2, 4.0)
    assert told == ["compiling"]
    with compiling_told(lambda: told.append("again")):
        assert kernel(3) == 6
    assert told == ["compiling"]


STUDY = """schema = 1
id = "alone"
purpose = "test"
expires = 2099-01-01
[[party]]
name = "clinic"
[[variable]]
party = "clinic"
name = "a"
categories = ["x", "y"]
from = "public"
[[variable]]
party = "clinic"
name = "b"
categories = ["x", "y"]
from = "public"
[randomization_default]
scheme = "symmetric"
epsilon = 3.0
"""


@pytest.fixture
def run(tmp_path: Path) -> Callable[[], int]:
    draw = np.random.default_rng(1)
    frame = pd.DataFrame({name: np.array(["x", "y"])[draw.integers(0, 2, 300)] for name in "ab"})
    frame.to_csv(tmp_path / "people.csv", index=False)
    (tmp_path / "study.toml").write_text(STUDY)
    words = ["synthesize", "people.csv", "--study", "study.toml", "--out", "out.csv", "--format", "json"]
    return lambda: main([str(tmp_path / word) if "." in word else word for word in words])


def in_order(wanted: list[str], text: str) -> bool:
    places = [text.find(word) for word in wanted]
    return -1 not in places and places == sorted(places)


STAGES = [
    "reading the table",
    "counting",
    "fitting the joint model",
    "computing intervals",
    "drawing records",
    "writing",
]


def test_a_file_gets_a_plain_line_for_each_stage(run: Callable[[], int], capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    streams = capsys.readouterr()
    assert in_order(STAGES, streams.err)
    assert "%" not in streams.err
    assert len(streams.err.splitlines()) <= len(STAGES) + 2  # a search, and compiling


def test_a_terminal_gets_one_line_with_per_cent(run: Callable[[], int], monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    @contextlib.contextmanager
    def watched(console: Console) -> Iterator[Callable[[str], None]]:
        assert console.is_terminal
        yield shown.append

    monkeypatch.setattr(command, "errors_console", lambda: Console(file=io.StringIO(), force_terminal=True))
    monkeypatch.setattr(command, "progress", watched)
    assert run() == 0
    assert in_order(STAGES, "\n".join(shown))
    assert any(line.startswith("computing intervals: 50 %") for line in shown)
