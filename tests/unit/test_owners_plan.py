"""The plan of one owner's release: what one epsilon buys, which columns and relations drown, and nothing of a federation."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from support.documents import study_toml
from verticil.analyst.prediction import drowned_shares
from verticil.cli.main import main
from verticil.curator.plan import plan_of
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study_text

PLAIN = '[randomization_default]\nscheme = "none"\n'


def owners(*sizes: int, epsilon: float = 1.0) -> Study:
    """Read a study of one owner with a column of each size."""
    columns = [f"owner.c{place}: {' '.join(f'v{k}' for k in range(size))}" for place, size in enumerate(sizes)]
    text = study_toml(*columns) + f"{PLAIN}[tables]\nepsilon = {epsilon}\ndelta = 1e-9\n"
    return read_study_text(text, Path(), by_owner=True)


def test_more_epsilon_buys_nearer_records_and_fewer_relations_drown() -> None:
    plan = plan_of(owners(2, 3, 5, 40, 40), n=3000)
    assert [row.epsilon for row in plan.rows] == [0.25, 1.0, 4.0]
    assert plan.n_tables == 10
    distances = [row.prediction.two_way for row in plan.rows if row.prediction is not None]
    assert distances == sorted(distances, reverse=True)
    assert len(distances) == 3
    drowned = [row.n_drowned_pairs for row in plan.rows]
    assert drowned == sorted(drowned, reverse=True)
    assert drowned[0] > drowned[-1] > 0  # 1,600 cells of 3,000 people
    assert "c3" in plan.rows[0].drowned_columns
    assert plan.rows[-1].drowned_columns == ()


@pytest.mark.parametrize("n", [60, 120, 250, 500, 1000, 2000, 4000])
def test_a_column_drowns_where_its_interval_is_wider_than_an_average_category(n: int) -> None:
    sizes = (2, 10, 30)
    row = plan_of(owners(*sizes), n=n).rows[1]
    for place, size in enumerate(sizes):
        precision = sum(1 / (other * row.sigma**2) for k, other in enumerate(sizes) if k != place)
        is_drowned = 1.96 / math.sqrt(precision) > n / size
        assert (f"c{place}" in row.drowned_columns) == is_drowned


def test_shares_that_drown_are_an_error_that_says_how_many_columns_would_work() -> None:
    study = owners(*[12] * 24)
    plan = plan_of(study, n=1500)
    (error,) = plan.errors
    assert error.code == "columns-drown"
    n_columns = int(error.hint.split()[0])
    assert 2 <= n_columns < 24
    assert plan_of(owners(*[12] * n_columns), n=1500).ok
    assert not plan_of(owners(*[12] * (n_columns + 1)), n=1500).ok
    many = plan_of(study, n=100_000)
    assert drowned_shares(many.study, many.n, many.rows[1].prediction) is None
    few = plan_of(study, n=500)
    assert few.rows[1].drowned_columns
    assert [finding.code for finding in few.findings].count("columns-drown") == 1


def test_the_command_says_nothing_of_a_federation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = study_toml(*(f"owner.{name}: x y z" for name in "abc"), keys='title = "A"\n') + PLAIN
    (path := tmp_path / "study.toml").write_text(text)
    assert main(["study", "check", str(path), "--n", "5000"]) == 0
    shown = capsys.readouterr().out
    assert "3 columns of one owner" in shown
    assert "noise on 3 tables" in shown
    assert "nearer to the people than independent columns by" in shown
    for word in ("miner", "randomized", "common", "hashed", "nothing is linked"):
        assert word not in shown
    assert main(["study", "check", str(path), "--n", "60", "--format", "json"]) == 6
    document = json.loads(capsys.readouterr().out)
    assert document["by_epsilon"][1]["epsilon"] == 1.0
    assert [finding["code"] for finding in document["findings"] if finding["severity"] == "error"] == ["columns-drown"]
