"""``verticil reproduce privbayes``: the quick form, the scores by hand, and the figure on Adult behind ``-m slow``."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from verticil.cli.main import main
from verticil.experiments.privbayes import datasets, experiment, figures, nist
from verticil.experiments.privbayes.datasets import INCOME, Table
from verticil.experiments.privbayes.experiment import QUICK, Scale, adult_distance
from verticil.experiments.privbayes.lines import LINES
from verticil.shared.model.schema import Schema, Variable


@pytest.mark.slow
def test_every_line_is_run_and_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["reproduce", "privbayes", "--quick", "--out", str(tmp_path / "out")]) == 0
    shown = capsys.readouterr().out
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"numbers.json", "scores.svg", "scores.png"}
    answer = json.loads((tmp_path / "out" / "numbers.json").read_text(encoding="utf-8"))
    for line in LINES:
        assert line.words in shown
        rows = [row for row in answer["rows"] if row["line"] == line.name]
        assert [row["epsilon"] for row in rows] == (list(QUICK.epsilons) if line.private else [None])
    for text in ("A quick run", "Adult, 32,561 x 13", "CPU seconds", "the best of those with an ε", "written:"):
        assert text in shown
    floor = next(row["mean"] for row in answer["rows"] if row["line"] == "resample")
    for row in answer["rows"]:
        assert row["mean"]["clustering"] <= floor["clustering"]
        assert row["mean"]["k_marginal"] <= floor["k_marginal"]


@pytest.mark.parametrize(
    "arguments", [["--table", "2"], ["--figure", "1"], ["--runs", "5"], ["--model", "peer"]], ids=str
)
def test_options_of_other_papers_are_named(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "privbayes", *arguments]) == 2
    assert "no options but --quick" in capsys.readouterr().err


def test_lines_that_need_no_search_are_measured() -> None:
    """On 300 records, without the federation's line, which learns for seconds."""
    few = tuple(line for line in LINES if line.name in {"resample", "shuffled", "columns", "simplex-dealt"})
    small = Scale(rows=300, epsilons=(1.0, 8.0), seeds=2, adult_seeds=0)
    found = experiment.run(small, seed=1, tell=lambda _: None, lines=few)
    assert [(row.line, row.epsilon) for row in found.rows] == [
        ("resample", None), ("shuffled", None),
        *((name, epsilon) for name in ("columns", "simplex-dealt") for epsilon in (1.0, 8.0)),
    ]  # fmt: skip
    floor, shuffled, *private = found.rows
    assert floor.mean.clustering > shuffled.mean.clustering > max(row.mean.clustering for row in private)
    assert all(low.mean.clustering < high.mean.clustering for low, high in (private[:2], private[2:]))
    assert all(row.deviation.clustering > 0 for row in found.rows)
    assert sorted(figures.draw_scores(found.rows, "few")) == ["png", "svg"]


# ---- the tables


def test_numbers_are_in_twenty_ranges_of_one_width() -> None:
    texts = {
        "number": np.array(["0", "1", "1.99", "2", "40", "N"], dtype=object),
        "word": np.array(["b", "a", "?", "b", "", "a"], dtype=object),
    }
    table = datasets.binned("a table", texts, numbers=["number"])
    assert table.columns[0].tolist() == [0, 0, 0, 1, 19, 20]
    assert table.schema.n_states == (21, 4)
    assert table.columns[1].tolist() == [3, 2, 1, 3, 0, 2]
    assert table.middles[0][:2].tolist() == [1.0, 3.0]
    assert math.isnan(table.middles[0][20])
    with pytest.raises(ValueError, match="column 'number': a number outside of the declared ranges"):
        datasets.binned("a table", texts, numbers=["number"], edges={"number": [0, 10]})


def test_the_tables_are_those_that_are_named() -> None:
    survey = datasets.survey()
    assert (survey.n_records, len(survey.columns)) == (7_634, 24)
    assert max(survey.schema.n_states) == 21


# ---- NIST's scores


def people() -> Table:
    """Eight in two cities: city, sex (0 men), income in ranges with the middles 10 and 30, and a number that follows the city."""
    columns = [[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 1, 1], [1, 1, 0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1, 1]]
    names = (nist.CITY, nist.SEX, INCOME, "number")
    return Table(
        name="people",
        schema=Schema(variables=tuple(Variable(name=name, owner="o", labels=("a", "b")) for name in names)),
        columns=tuple(np.array(column, dtype=np.uint8) for column in columns),
        numbers=(2, 3),
        middles={2: np.array([10.0, 30.0]), 3: np.array([0.0, 1.0])},
    )


def test_equal_records_have_the_highest_scores_and_others_less() -> None:
    table = people()
    same = nist.scores(table, table.columns, seed=1)
    assert (same.clustering, same.classification, same.regression, same.k_marginal) == (1e6, 1e6, 1e6, 1e3)
    turned = [table.columns[0], table.columns[1], table.columns[2], 1 - table.columns[3]]
    other = nist.scores(table, turned, seed=1)
    # Of six pairs (0, 3) has nothing in common any more, (1, 3) has the same table, of (2, 3) a quarter moves.
    assert other.k_marginal == pytest.approx(1e3 * (1 - (1 + 1 / 4) / 6))
    assert other.clustering < 1e6
    # Events have one column of four here, and no column has other shares; cities, sexes and incomes are as they were.
    assert other.classification == other.regression == 1e6
    alone = [np.zeros(8, dtype=np.uint8), *table.columns[1:]]
    assert nist.scores(table, alone, seed=1).classification < 1e6


def test_the_regression_by_hand() -> None:
    """Of city 0 men have 30, 30 and women 10, 30; in city 1 everybody has 30. The Gini coefficient of (10, 30) is 1/4.

    With everybody at 30 the coefficients differ by 1/4 in one of four groups, and the cities' order by the gap is lost.
    """
    table = people()
    level = [table.columns[0], table.columns[1], np.ones(8, dtype=np.uint8), table.columns[3]]
    apart = math.sqrt(1 / 16 / 4)
    # The gaps are 10 and 0, so the ranks 1 and 0; of equal ones 0 and 1: the reversed order. Men alone have equal means.
    assert nist.regression(table, level) == pytest.approx((1 - apart + 0) / 2)
    assert nist.gini(np.array([10.0, 30.0])) == 0.25


def test_an_event_that_nobody_is_in_counts_half_a_record() -> None:
    table = people()
    nobody = [np.ones(1, dtype=np.uint8)] * 4
    assert 0 < nist.log_difference(table, nobody, seed=1) <= math.log(1 / (0.5 / 8))


@pytest.mark.slow
def test_privbayes_on_adult_reaches_its_figure() -> None:
    """Mean of 5 seeds and one standard error, add/remove epsilon = 1, delta = 1e-9; and clipping does not."""
    adult = datasets.adult()
    assert (adult.n_records, adult.schema.n_states) == (32_561, (20, 9, 20, 7, 15, 6, 5, 2, 20, 20, 20, 42, 2))
    found = adult_distance(1.0, relation="add-remove", projection="simplex", seeds=range(1, 6), table=adult)
    for values, bar in ((found.two_way, 0.042), (found.three_way, 0.087)):
        assert np.mean(values) + np.std(values, ddof=1) / math.sqrt(5) <= bar
    clipped = adult_distance(1.0, relation="add-remove", projection="clip", seeds=range(1, 6), table=adult)
    assert np.mean(clipped.two_way) > 0.042
