"""How far long steps are: rate and time left, on standard error, as events, and for whoever passes a function."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from support.documents import FEDERATION, party_toml
from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.local_dataset import read_holding
from verticil.party.storage.secret import SiteSecret
from verticil.shared.documents.progress import Meter, StepProgress
from verticil.shared.release import records
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.records import draw_release_records
from verticil.shared.study.document import Study
from verticil.shared.synthesis import synthesis
from verticil.shared.synthesis import table_columns as written


def test_rate_and_time_left_follow_from_the_clock() -> None:
    """Ten seconds for 400 of 1,000: forty a second, fifteen seconds left; told no more often than asked, and at the end."""
    seconds, told = iter([100.0, 101.0, 110.0, 112.0, 125.0]), list[StepProgress]()
    meter = Meter("writing", 1000, told.append, every_seconds=5, clock=lambda: next(seconds))
    for done in (50, 400, 500, 1000):
        meter.at(done)
    assert [(item.done, item.per_second, item.seconds_left) for item in told] == [(400, 40.0, 15.0), (1000, 40.0, 0.0)]
    assert told[0].text == "writing: 400 of 1,000, 40 a second, 15 s left"
    assert told[0].document()["seconds_left"] == 15.0


def test_pieces_are_counted_when_they_are_done() -> None:
    told = list[StepProgress]()
    meter = Meter("writing", 5, told.append, every_seconds=0)
    pieces = meter.over([[1, 2], [3], [4, 5]])
    assert next(pieces) == [1, 2]
    assert told == []
    assert list(pieces) == [[3], [4, 5]]
    assert [item.done for item in told] == [2, 3, 5]


def test_a_sample_tells_how_far_it_is(
    release_content: ReleaseContent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_release(tmp_path / "release", release_content)
    monkeypatch.setattr(synthesis, "CHUNK", 100)
    for form in ("json", "text"):
        asked = [
            "release",
            "sample",
            str(folder),
            "-n",
            "250",
            "--out",
            str(tmp_path / f"{form}.csv"),
            "--format",
            form,
        ]
        assert main(asked) == 0
        out, err = capsys.readouterr()
        if form == "json":
            assert json.loads(out)["records"] == 250
            (event,) = map(json.loads, err.splitlines())  # the last one: it was quick
            assert (event["event"], event["done"], event["total"], event["seconds_left"]) == ("progress", 250, 250, 0.0)
        else:
            assert "drawing and writing records: 250 of 250" in err


def test_drawing_and_writing_a_release_call_back(
    release_content: ReleaseContent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn, wrote = list[int](), list[int]()
    for module in (records, written):
        monkeypatch.setattr(module, "PIECE", 300)
    monkeypatch.setattr(records, "IN_ONE_PIECE", 0)
    monkeypatch.setattr(records, "CHUNK", 250)
    content = dataclasses.replace(release_content, n_common=700)
    codes, table = draw_release_records(content.network, content.study, 700, folder=tmp_path, progress=drawn.append)
    assert drawn == [250, 500, 700]
    made = dataclasses.replace(content, codes=codes, synthetic=table)
    write_release(tmp_path / "release", made, progress=wrote.append)
    assert wrote == [300, 600, 700, 1000, 1300, 1400]  # both tables


def test_reading_a_table_calls_back(tmp_path: Path, release_study: Study) -> None:
    """By rows, those that are left out too: 70,000 of them come in two batches of Parquet."""
    import pyarrow as pa
    from pyarrow import parquet

    (tmp_path / "federation.toml").write_text(FEDERATION)
    ids = [f"p{i // 2}" for i in range(70_000)]
    columns = {v.name: np.repeat("x", 70_000) for v in release_study.schema.variables if v.owner == "clinic"}
    parquet.write_table(pa.table({"id": ids, **columns}), tmp_path / "people.parquet")
    datasets = '[dataset.people]\npath = "people.parquet"\nformat = "parquet"\nid = "id"\n'
    (tmp_path / "party.toml").write_text(party_toml(datasets=datasets))
    told = list[int]()
    holding = read_holding(
        load_party(tmp_path / "party.toml"), release_study, proposal_digest=b"p" * 32,
        site_secret=SiteSecret(value=b"s" * 32), linkage_key=b"k" * 32, progress=told.append,
    )  # fmt: skip
    assert told == [65_536, 70_000]
    assert holding.n_records == 0
