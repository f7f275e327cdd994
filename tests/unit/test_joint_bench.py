"""The bench of the joint model: the distance of measured tables, and the file of rows from which a run goes on."""

from __future__ import annotations

import importlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "bench"))
    return importlib.import_module("joint")


def test_measured_tables_are_compared_channels_taken_back_and_negative_counts_as_0(bench: Any) -> None:
    """100 people: 40, 20, 10, 30 in four cells."""
    columns = [np.repeat(np.array(codes, np.uint8), [40, 20, 10, 30]) for codes in ([0, 0, 1, 1], [0, 1, 0, 1])]
    truth = bench.Truth((2, 2), columns)
    for channels, counts, wanted in (
        ([identity(2), identity(2)], [[50.0, 25.0], [-5.0, 30.0]], 0.125),  # .1, .05, .1 and 0, halved
        ([identity(2), identity(2)], [[40.0, 20.0], [10.0, 30.0]], 0.0),
        ([symmetric(2, epsilon=1.0), identity(2)], None, 0.0),
    ):
        units = bench.units_of([quantize(channel) for channel in channels])
        if counts is None:  # what the channel is expected to give
            counts = units[0].channel.probabilities.T @ np.array([[40.0, 20.0], [10.0, 30.0]])
        table = MeasuredTable(units=(0, 1), counts=np.asarray(counts))
        pairs, triples = bench.truncated(
            NoisyTables(n_states=(2, 2), units=tuple(units), tables=(table,), n_records=100), truth
        )
        assert pairs == pytest.approx(wanted, abs=1e-9)
        assert math.isnan(triples)


def test_a_row_that_a_stop_cut_off_is_measured_again(bench: Any, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert bench.stored(path) == {}
    row = json.dumps({"title": "dense cmc, central 1", "seeds": 3, "lines": []})
    path.write_text(f"{row}\n{row.replace('central 1', 'central 5')[:-9]}", encoding="utf-8")
    assert set(bench.stored(path)) == {("dense cmc, central 1", 3)}
    bench.append_line(path, {"title": "dense cmc, central 5", "seeds": 3, "lines": []})
    assert set(bench.stored(path)) == {("dense cmc, central 1", 3), ("dense cmc, central 5", 3)}
    line = bench.Line(row="", method="tables", bound=(1.0, math.inf))
    line.add((0.02, math.nan), 0.5)
    assert line.verdicts() == [True]
    assert bench.figures(line)["three"] == [None]
    assert "nan" not in line.text()
