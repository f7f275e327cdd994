"""Numbers from the draft to the release: bins and means of last year's table, numbers in both files, null where one lacks."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from verticil.analyst.draft import Wording, draft
from verticil.cli.main import main
from verticil.shared.core.errors import DataFault
from verticil.simulation import simulate

DATA = Path(__file__).parents[1] / "data"
PARTIES = {"registry": ["AGEP", "SEX"], "tax": ["PINCP", "EDU"]}


def halves(folder: Path, year: int) -> dict[str, Path]:
    with gzip.open(DATA / f"ma{year}.csv.gz", "rt", encoding="utf-8") as file:
        table = pd.read_csv(file, dtype=str, keep_default_na=False)
    table["id"] = [f"{row}" for row in range(len(table))]
    paths = {}
    for party, columns in PARTIES.items():
        paths[party] = folder / f"{party}-{year}.csv"
        table[["id", *columns]].to_csv(paths[party], index=False)
    return paths


def exactly(text: str, path: Path) -> Path:
    """The drafted study with nothing randomized and a given structure."""
    head, _, rest = text.partition("[structure]")
    release = rest[rest.index("[release]") :]
    head = re.sub(r'scheme = "symmetric"\nepsilon = .*', 'scheme = "none"', head)
    path.write_text(
        f'{head}[structure]\nmethod = "given"\n[structure.parents]\nPINCP = ["AGEP"]\n\n{release}', encoding="utf-8"
    )
    return path


@pytest.mark.whole
def test_the_mean_income_of_a_year_is_near_with_the_study_drafted_from_the_year_before(tmp_path: Path) -> None:
    text = draft(halves(tmp_path, 2018), wording=Wording(means=True))
    tables = halves(tmp_path, 2019)
    simulate(exactly(text, tmp_path / "study.toml"), tables, seed=1, out=tmp_path / "release", unreviewed=True)
    real = pd.to_numeric(pd.read_csv(tables["tax"])["PINCP"], errors="coerce")
    assert real.mean() == pytest.approx(66_616, abs=1)
    file = parquet.read_table(tmp_path / "release" / "synthetic.parquet")
    assert file.schema.field("PINCP").type == pa.int64()
    assert file.schema.field("AGEP").type == pa.int64()
    of_csv = pd.read_csv(tmp_path / "release" / "synthetic.csv", dtype={"PINCP": "Int64"})["PINCP"]
    of_parquet = file["PINCP"].to_pandas()
    for released in (of_csv, of_parquet):
        assert released.mean() == pytest.approx(real.mean(), rel=0.15)
        assert released.isna().mean() == pytest.approx(real.isna().mean(), abs=0.01)
    assert np.array_equal(of_csv.astype("float64").to_numpy(na_value=np.nan), of_parquet.to_numpy(), equal_nan=True)


STUDY = """schema = 1
id = "s"
purpose = "p"
expires = 2099-12-31
[[party]]
name = "a"
[[party]]
name = "b"
[linkage]
minimum_common_records = 100
[[variable]]
party = "a"
name = "x"
categories = ["n", "y"]
[[variable]]
party = "b"
name = "z"
categories = ["n", "y"]
[randomization_default]
scheme = "symmetric"
epsilon = 2.0
[structure]
method = "given"
[structure.parents]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    rows = [f"{row};{'ny'[row % 2]}\n" for row in range(200)]
    (tmp_path / "a.csv").write_bytes(("id;x\n" + "".join(rows)).encode("utf-16"))
    (tmp_path / "b.csv").write_text("id,z,z\n" + "".join(f"{row},n,y\n" for row in range(200)), encoding="utf-8")
    return tmp_path / "study.toml"


def test_a_simulation_names_the_party_whose_table_is_wrong_and_not_the_one_that_was_told(study: Path) -> None:
    with pytest.raises(DataFault) as caught:
        simulate(study, {"a": study.with_name("a.csv"), "b": study.with_name("b.csv")}, seed=1)
    assert (caught.value.code, caught.value.message) == (
        "DATA_UNREADABLE",
        "party 'b': b.csv: column 'z' occurs 2 times, expected once",
    )


def test_a_simulation_tells_its_steps_and_raises_no_alarm(
    study: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    study.with_name("b.csv").write_text("id|z\n" + "".join(f"{row}|{'ny'[row % 3 % 2]}\n" for row in range(200)))
    tables = [text for name in "ab" for text in ("--data", f"{name}={study.with_name(name + '.csv')}")]
    assert main(["simulate", str(study), *tables, "--seed", "1", "--out", str(study.parent / "out")]) == 0
    steps = capsys.readouterr().err.split("\n")
    assert steps[0] == "awaiting approval"
    assert steps[-2:] == ["published", ""]
    assert [record for record in caplog.records if "certificate" in record.getMessage()] == []
