"""``verticil release sample``: file types, evidence, ways of drawing, the same bytes for a seed, and memory that stays flat."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.releases import random_mixture
from verticil.cli.main import main
from verticil.shared.core.errors import GateFailed, Misuse
from verticil.shared.numerics.model import elimination
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.drawing import draw_record_tables, open_models
from verticil.shared.release.formats import model_json
from verticil.shared.release.formats.table_files import write_table
from verticil.shared.study.vocabulary import SAMPLING
from verticil.shared.synthesis import synthesis
from verticil.shared.synthesis.record_checks import read_records


def write_model(folder: Path, content: ReleaseContent, joint: JointModel | None = None) -> None:
    context = model_json.ModelContext(
        study=content.study, study_digest="ab" * 32, effective_digest=content.effective_digest,
        n_common=content.n_common, search=content.search, simulation=True, joint=joint,
    )  # fmt: skip
    (folder / "model.json").write_bytes(model_json.write(content.network, content.marginals, context))


@pytest.fixture
def folder(tmp_path: Path, release_content) -> Path:
    """A release, of which only the model is there."""
    write_model(tmp_path, release_content)
    return tmp_path


def sample(folder: Path, out: str, *arguments: str, n: int = 3000) -> Path:
    path = folder / out
    assert main(["release", "sample", str(folder), "-n", str(n), "--out", str(path), *arguments]) == 0
    return path


@pytest.mark.parametrize("method", SAMPLING)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_the_same_seed_gives_the_same_bytes_in_chunks_of_any_way(folder, monkeypatch, method, suffix):
    monkeypatch.setattr(synthesis, "CHUNK", 700)
    arguments = ("--sampling", method, "--given", "smoker=yes")
    one, two, other = (
        sample(folder, f"{name}{suffix}", "--seed", seed, *arguments).read_bytes() for name, seed in ("a1", "b1", "c2")
    )
    assert one == two
    assert one != other
    path = folder / f"a{suffix}"
    table = pd.read_csv(path) if suffix == ".csv" else pd.read_parquet(path)
    assert len(table) == 3000
    assert set(table["smoker"]) == {"yes"}


def test_csv_and_parquet_hold_the_same_records(folder):
    csv = pd.read_csv(sample(folder, "a.csv", "--seed", "4"), dtype=str, keep_default_na=False)
    parquet = pd.read_parquet(sample(folder, "a.parquet", "--seed", "4"))
    pd.testing.assert_frame_equal(csv, parquet.astype(str).where(parquet.notna(), ""))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_ten_times_the_records_need_no_more_memory(folder, monkeypatch, suffix):
    """Arrays of numpy and pandas, by tracemalloc: chunks of 2,000 records; a whole table would need ten times as much."""
    monkeypatch.setattr(synthesis, "CHUNK", 2000)
    sample(folder, f"first{suffix}", n=1000)  # imports
    peaks = []
    for n in (2000, 20_000):
        tracemalloc.start()
        sample(folder, f"{n}{suffix}", n=n)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


@pytest.mark.parametrize("method", SAMPLING)
def test_records_come_from_the_joint_model_where_there_is_one(folder, release_content, monkeypatch, capsys, method):
    """With evidence, in chunks, and from the network when it is named; each as its shares are."""
    from_network = sample(folder, "network.csv", "--sampling", method).read_bytes()
    schema = release_content.study.schema
    model = random_mixture(schema.n_states)
    write_model(folder, release_content, model)
    named = sample(folder, "named.csv", "--sampling", method, "--from", "network").read_bytes()
    assert named == from_network
    monkeypatch.setattr(synthesis, "CHUNK", 1300)
    table = pd.read_csv(sample(folder, "joint.csv", "--sampling", method, "--given", "smoker=yes"))
    assert set(table["smoker"]) == {"yes"}
    income = schema.index("income")
    expected = model.condition_on({schema.index("smoker"): 1}).shares([income])
    found = [(table["income"] == label).mean() for label in schema[income].labels]
    assert max(abs(found - expected)) < 5 * (0.25 / 3000) ** 0.5  # five standard deviations
    write_model(folder, release_content)
    capsys.readouterr()
    arguments = ["release", "sample", str(folder), "-n", "5", "--out", str(folder / "none.csv"), "--from", "joint"]
    assert main(arguments) == 2
    assert "has no joint model" in capsys.readouterr().err


def test_a_network_too_wide_is_refused_with_what_asked_for_it(folder, monkeypatch, capsys):
    monkeypatch.setattr(elimination, "MAX_CLIQUE_CELLS", 3)
    arguments = ["release", "sample", str(folder), "-n", "5", "--out", str(folder / "a.csv"), "--format", "json"]
    for more, where in (
        (["--given", "income=>50K"], "--given: "),
        (["--sampling", "without-replacement"], "--sampling without-replacement: "),
    ):
        assert main([*arguments, *more]) == 2
        message = json.loads(capsys.readouterr().out)["error"]["message"]
        assert message.startswith(where)
        assert "expected at most 3" in message
    assert not (folder / "a.csv").exists()


def test_a_place_that_cannot_be_written_is_named_before_anything_is_drawn(folder, capsys):
    assert main(["release", "sample", str(folder), "-n", "5", "--out", "/proc/a.csv"]) == 2
    assert "/proc/a.csv: cannot be written" in capsys.readouterr().err
    with pytest.raises(Misuse, match="cannot be written"):
        write_table(pd.DataFrame({"a": ["x"]}), Path("/proc/a.CSV"), schema=open_models(folder).schema)


def test_evidence_of_probability_zero_is_refused(folder, capsys):
    model = json.loads((folder / "model.json").read_text())
    smoker = next(f for f in model["families"] if f["child"] == "smoker")
    smoker["probability"] = [[1.0, 0.0] for _ in smoker["probability"]]
    (folder / "model.json").write_text(json.dumps(model))
    out = str(folder / "a.csv")
    assert main(["release", "sample", str(folder), "-n", "5", "--given", "smoker=yes", "--out", out]) == 2
    assert "probability 0" in capsys.readouterr().err
    assert not Path(out).exists()


def test_a_foreign_table_whose_dictionary_is_too_short_is_refused(tmp_path, monkeypatch):
    """Bytes that were changed can decode to an index that points nowhere; the reader must not follow it."""
    schema = Schema(variables=(Variable(name="smoker", owner="clinic", labels=("no", "yes")),))
    column = pa.DictionaryArray.from_arrays(pa.array([0, 3], pa.int8()), ["no", "yes"], safe=False)
    pq.write_table(pa.table({"smoker": ["no", "yes"]}), tmp_path / "synthetic.parquet")
    batch = pa.RecordBatch.from_arrays([column], ["smoker"])
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", lambda *_args, **_options: iter([batch]))
    with pytest.raises(GateFailed) as caught:
        read_records(tmp_path / "synthetic.parquet", schema, 2)
    assert caught.value.code == "RELEASE_INVALID"


def test_a_source_or_a_way_of_drawing_that_does_not_exist_is_refused(folder):
    models = open_models(folder)
    for asked, message in (
        ({"source": "jiont"}, "source: got 'jiont', expected joint, network or posterior"),
        (
            {"sampling": "independant"},
            "sampling: got 'independant', expected systematic, independent or without-replacement",
        ),
    ):
        with pytest.raises(Misuse, match=message) as caught:
            draw_record_tables(models, 3, seed=0, given={}, **asked)
        assert caught.value.hint.startswith("did you mean")
