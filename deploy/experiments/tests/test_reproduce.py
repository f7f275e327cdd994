"""The paper's experiments by one command: quick forms, and the full form behind ``-m slow``.

Expected numbers are those that Ma & Sivakumar print (Tables 1 and 2), closed forms, and an earlier simulation of the same
experiments by other code (4,000 runs of Table 2, 1,000 of figure 4), named `SIMULATED`.
"""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from verticil.cli.main import main
from verticil.experiments import accuracy, ma_sivakumar, published
from verticil.experiments.ma_sivakumar import Point
from verticil.experiments.ma_sivakumar_claims import claims
from verticil.experiments.published import FIGURE_2, FIGURE_3, PrintedNetwork, PublishedVariable, as_network
from verticil.experiments.randomization import (
    Model,
    draw_records,
    drawn_tables,
    family_channels,
    row_level_tables,
    true_table,
)
from verticil.shared.mechanisms.transition import binary, identity, quantize, symmetric

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "measured.md").read_text(encoding="utf-8")
TYPED = re.findall(r"^<!-- run -->\n```sh\nverticil (reproduce .*)\n```$", PAGE, re.MULTILINE)

# Standard deviations x 100 in the order of the printed lists.
SIMULATED = {
    "A": (0.61,),
    "S": (0,),
    "T": (0.46, 1.50),
    "L": (0.71, 0.78, 0.73, 0.68),
    "B": (0.80, 0.68, 0.67, 0.75),
    "X": (1.05, 1.03),
    "E": (1.83, 1.35, 2.89, 2.16, 3.43, 2.59),
    "D": (3.07, 3.81, 5.07, 2.68, 4.27, 5.24),
    "C": (2.05, 2.24, 2.36, 2.30),
    "F": (1.13, 1.16),
    "G": (0.36, 0.41),
}
SIMULATED_PEER = {
    "E": (0.77, 0.63, 1.31, 1.12, 1.62, 1.42),
    "D": (0.78, 0.74, 0.82, 0.66, 0.83, 0.90),
    "C": (1.36, 1.37, 1.47, 1.41),
    "F": (0.69, 0.77),
}
SIMULATED_DISTANCE = {
    ("C", 0.1): 5.0e-4, ("C", 0.2): 3.1e-3, ("C", 0.3): 3.7e-2,
    ("D", 0.1): 1.1e-3, ("D", 0.2): 8.9e-3, ("D", 0.3): 6.8e-2,
    ("F", 0.1): 1.7e-4, ("F", 0.2): 7.5e-4, ("F", 0.3): 3.6e-3,
}  # fmt: skip


def points_of(slope: float, means: tuple[float, float] = (1e-3, 1e-2), runs: int = 1_000) -> tuple[Point, ...]:
    """Distances of one node: at two levels of the same size, or by size at one level with this slope."""
    by_level = [(0.1, 10_000, means[0]), (0.3, 10_000, means[1])]
    by_size = [(0.1, size, 1e3 * size**slope) for size in (5_000, 10_000, 20_000, 40_000)]
    return tuple(
        Point(node="C", p=p, records=n, runs=runs, mean=mean, deviation=0.0, median=mean, clipped=0.0, theory=mean)
        for p, n, mean in (by_size if slope else by_level)
    )


def test_a_slope_or_a_curve_that_is_not_the_papers_is_named() -> None:
    (claim,) = claims(None, {"figure 5": points_of(-1.02)})
    assert (claim.name, claim.verdict) == ("one-over-n", "found")
    (claim,) = claims(None, {"figure 5": points_of(-1.3)})
    assert claim.verdict == "not found"
    assert "C at p = 0.1 (-1.30)" in claim.reason
    (claim,) = claims(None, {"figure 5": points_of(-1.3, runs=20)})
    assert (claim.verdict, "20 draws" in claim.reason) == ("not asked", True)  # chance moves it so far
    rising = {claim.name: claim.verdict for claim in claims(None, {"figure 4": points_of(0)})}
    assert rising == {"trade-off": "found", "good-at-a-third": "not asked"}
    assert claims(None, {"figure 4": points_of(0, (1e-2, 1e-3))})[0].verdict == "not found"


def deviations(found: ma_sivakumar.Table2, node: str) -> list[float]:
    return [100 * cell.deviation for cell in found.cells if cell.node == node]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["reproduce", "ma-sivakumar", *arguments, "--format", "json"]) == 0
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


def test_table_2_as_in_the_paper_with_five_runs(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    answer = run(capsys, "--table", "2")
    found = answer["table_2"]
    assert (found["runs"], found["records"], found["model"]) == (5, 20_000, "central")
    assert len(found["cells"]) == 34
    data = draw_records(FIGURE_2, 20_000, np.random.default_rng([answer["seed"], 2]))
    for node in FIGURE_2.nodes:
        cells = [cell for cell in found["cells"] if cell["node"] == node.name]
        n = true_table(FIGURE_2, data, node.name).reshape(-1, node.n_states).sum(axis=1)
        for position, (cell, sd) in enumerate(zip(cells, SIMULATED[node.name], strict=True)):
            theta, of_parents = cell["theta"], n[position % len(n)]
            bound = 4 * math.sqrt((sd / 100) ** 2 / 5 + theta * (1 - theta) / of_parents) + 0.005
            assert abs(cell["mean"] - theta) < bound
            assert abs(cell["paper_mean"] - theta) < bound
            assert cell["expected_deviation"] == pytest.approx(sd / 100, rel=0.1, abs=1e-4)
            assert cell["within"]
    # Five runs say little about one deviation (chi-square, 4 degrees of freedom), but 33 of them say something together.
    ratios = [(c["deviation"] / c["expected_deviation"]) ** 2 for c in found["cells"] if c["node"] != "S"]
    assert 0.5 < float(np.mean(ratios)) < 1.7
    assert found["undefined"] == 0
    assert answer["files"] == []
    assert list(tmp_path.iterdir()) == []


def test_table_1_corrects_the_printed_gamma(capsys: pytest.CaptureFixture[str]) -> None:
    answer = run(capsys, "--table", "2", "--runs", "2")
    rows = {tuple(row["variables"]): row for row in answer["table_1"]}
    assert rows["C", "F"]["printed_gamma"] == 9
    assert rows["C", "F"]["gamma"] == pytest.approx(7.5)
    for variables, row in rows.items():
        if variables != ("C", "F"):
            assert row["gamma"] == pytest.approx(row["printed_gamma"], abs=0.004)
    assert [row["k_measure"] for row in answer["table_1"]] == [2, 3, 2, 2, 2]
    assert answer["table_2"]["epsilon"] == pytest.approx(2 * math.log(3 * 0.7 / 0.15 * 4 * 7.5))
    assert any("7.5" in erratum["corrected"] for erratum in answer["errata"])
    assert any("convention" in sentence for sentence in answer["inferred"])


def test_model_1_randomizes_cross_parents_only(capsys: pytest.CaptureFixture[str]) -> None:
    found = run(capsys, "--model", "peer", "--runs", "40")["table_2"]
    assert found["released"] == ["L", "E", "D"]
    assert found["epsilon"] == pytest.approx(math.log(3) + math.log(4) + math.log(0.7 / 0.15))
    for cell in found["cells"]:
        assert cell["within"]
        assert cell["paper_mean"] is None
        if cell["node"] in SIMULATED_PEER:
            assert 0 < cell["expected_deviation"] < cell["central_deviation"]
        else:
            assert max(cell["deviation"], cell["expected_deviation"]) < 1e-12
            assert cell["mean"] == pytest.approx(cell["target"], abs=1e-12)
    for node, expected in SIMULATED_PEER.items():
        theory = [100 * cell["expected_deviation"] for cell in found["cells"] if cell["node"] == node]
        assert theory == pytest.approx(expected, rel=0.1)


def test_the_same_seed_gives_the_same_numbers() -> None:
    first, again, other = (ma_sivakumar.table_2(runs=2, seed=seed, records=2_000) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_figures_are_drawn_and_numbers_kept(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    answer = run(capsys, "--figure", "4", "--runs", "3", "--out", str(tmp_path / "out"))
    assert sorted(Path(path).name for path in answer["files"]) == ["figure-4.png", "figure-4.svg", "numbers.json"]
    assert (tmp_path / "out" / "figure-4.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (tmp_path / "out" / "figure-4.svg").read_bytes()
    kept = json.loads((tmp_path / "out" / "numbers.json").read_text(encoding="utf-8"))
    assert kept["figure_4"] == answer["figure_4"]
    assert {(point["node"], point["p"]) for point in kept["figure_4"]} >= set(SIMULATED_DISTANCE)
    assert all(point["runs"] == 3 and point["records"] == 10_000 for point in kept["figure_4"])
    assert main(["reproduce", "ma-sivakumar", "--figure", "4", "--out", str(tmp_path / "out")]) == 2
    assert "FILE_EXISTS" in capsys.readouterr().err


def test_figure_5_is_drawn_the_same_twice() -> None:
    from verticil.experiments.figures import draw_figure_5

    points = ma_sivakumar.figure_5(
        runs=20, seed=1, levels=(0.2, 0.4), sizes=(500, 1_000, 2_000, 4_000), row_level_runs=2
    )
    assert len(points) == 3 * 2 * 4
    assert draw_figure_5(points, "svg") == draw_figure_5(points, "svg")
    assert draw_figure_5(points, "png").startswith(b"\x89PNG")


@pytest.mark.parametrize(("words", "title"), list(zip(TYPED, ["Table 2", "Table IX"], strict=True)))
def test_a_command_of_the_page_runs(
    words: str, title: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(words.split()) == 0
    assert title in capsys.readouterr().out


def test_the_page_has_no_command_that_is_not_run() -> None:
    assert len(TYPED) == len(re.findall(r"^```\w+$", PAGE, re.MULTILINE))


def test_text_shows_theirs_beside_ours_and_the_errata(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "ma-sivakumar", "--table", "2", "--runs", "2"]) == 0
    shown = capsys.readouterr().out
    for text in (
        "theirs",
        "P(D = 0 | E = 1, B = 2)",
        "0.39 (5.65)",
        "7.5 (erratum)",
        "Inferred",
        "gamma = 9",
        "34 of 34",
    ):
        assert text in shown


def test_a_figure_of_model_1_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "ma-sivakumar", "--figure", "5", "--model", "peer", "--format", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "USAGE"


def test_drawn_tables_are_distributed_as_randomized_records() -> None:
    """Mean and covariance of the drawn tables against Theorem 1, written out as a dense Kronecker product.

    n = 20,000 draws, 36 entries; each mean within 6 of its standard errors (false alarm below 1e-7), covariances within 6 %
    of the largest (a standard error is 0.7 to 1 %). A channel with 2 % more noise, the planted fault, is rejected.
    """
    true = np.array([[30, 10, 60], [20, 40, 5]])
    channels = (quantize(binary(0.1, 0.25)), quantize(symmetric(3, flip=0.15)))
    dense = np.kron(channels[0].probabilities, channels[1].probabilities)
    n = true.ravel().astype(float)
    mean, covariance = n @ dense, np.diag(n @ dense) - dense.T @ np.diag(n) @ dense

    def fits(drawn: np.ndarray) -> bool:
        flat = drawn.reshape(len(drawn), -1)
        off = np.abs(flat.mean(axis=0) - mean) / np.sqrt(np.diag(covariance) / len(flat))
        return off.max() < 6 and np.abs(np.cov(flat.T) - covariance).max() < 0.06 * covariance.max()

    generator = np.random.default_rng(7)
    assert fits(drawn_tables(true, channels, runs=20_000, generator=generator))
    planted = (quantize(binary(0.12, 0.25)), channels[1])
    assert not fits(drawn_tables(true, planted, runs=20_000, generator=generator))


def test_drawn_tables_give_the_distances_of_randomized_records() -> None:
    """Means of ln CKL, 300 record-level runs against 1,000 draws: within 5.5 standard errors (false alarm below 1e-7 for 3).

    The planted fault, draws with p = .25 in the place of .2, is rejected.
    """
    generator = np.random.default_rng(5)
    data = draw_records(FIGURE_3, 10_000, generator)
    designs = {p: {node.name: quantize(symmetric(2, flip=p)) for node in FIGURE_3.nodes} for p in (0.2, 0.25)}
    released = row_level_tables(FIGURE_3, designs[0.2], data, ("C", "D", "F"), runs=300, generator=generator)
    for name in "CDF":
        true = true_table(FIGURE_3, data, name)
        channels, planted = (family_channels(FIGURE_3, designs[p], name, Model.central) for p in (0.2, 0.25))
        a = np.log(accuracy.distances(true, released[name][0], channels).each)
        for drawn_by, agrees in ((channels, True), (planted, False)):
            tables = drawn_tables(true, drawn_by, runs=1_000, generator=generator)
            b = np.log(accuracy.distances(true, tables, drawn_by).each)
            z = (a.mean() - b.mean()) / math.sqrt(a.var() / len(a) + b.var() / len(b))
            assert bool(abs(z) < 5.5) is agrees, name


def test_sizes_share_records_and_their_release() -> None:
    data = draw_records(FIGURE_3, 3_000, np.random.default_rng(5))
    design = {node.name: quantize(symmetric(2, flip=0.2)) for node in FIGURE_3.nodes}
    sizes = (500, 1_000, 3_000)
    nested = row_level_tables(FIGURE_3, design, data, ("D",), runs=2, generator=np.random.default_rng(6), sizes=sizes)[
        "D"
    ]
    whole = row_level_tables(FIGURE_3, design, data, ("D",), runs=2, generator=np.random.default_rng(6))["D"]
    assert nested.shape == (3, 2, 2, 2, 2)
    assert (nested.sum(axis=(2, 3, 4)) == np.array(sizes)[:, None]).all()
    assert (nested[-1] == whole[0]).all()
    assert (np.diff(nested, axis=0) >= 0).all()


def test_expected_deviation_is_the_dense_formula() -> None:
    """Theorem 2 and the delta method; child binary(.1, .25), parent binary(.25, .25), [parent][child] = [[30, 20], [10, 40]]."""
    true = np.array([[30, 20], [10, 40]])
    channels = (quantize(symmetric(2, flip=0.25)), quantize(binary(0.1, 0.25)))
    found = accuracy.expected_deviation(true, channels)
    assert found[:, 0] == pytest.approx([0.15827, 0.16400], abs=1e-5)  # the dense formula, evaluated by other code
    assert found[:, 1] == pytest.approx(found[:, 0])


def test_distance_of_a_known_table() -> None:
    """Nothing randomized: the released counts are the estimate, and CKL has its definition as closed form."""
    true, released = (
        np.array([[30, 10], [20, 40]]),
        np.array([[[20, 20], [30, 30]], [[40, 0], [20, 40]], [[0, 0], [50, 50]]]),
    )
    untouched = (quantize(identity(2)),) * 2
    found = accuracy.distances(true, released, untouched)
    first = 0.3 * math.log(0.75 / 0.5) + 0.1 * math.log(0.25 / 0.5) + 0.2 * math.log(2 / 3) + 0.4 * math.log(4 / 3)
    low, high = accuracy.CLIP / (1 + accuracy.CLIP), 1 / (1 + accuracy.CLIP)
    second = 0.3 * math.log(0.75 / high) + 0.1 * math.log(0.25 / low)
    assert found.each == pytest.approx(
        [first, second, first]
    )  # the third: a lost configuration takes the child's share
    assert found.clipped == pytest.approx(2 / 3)


@pytest.mark.parametrize("network", [FIGURE_2, FIGURE_3], ids=["figure 2", "figure 3"])
def test_records_follow_the_printed_parameters(network: PrintedNetwork) -> None:
    """60,000 records: each printed parameter within 6 standard errors (false alarm over 48 cells below 1e-7)."""
    data = draw_records(network, 60_000, np.random.default_rng(11))
    for node in network.nodes:
        rows = true_table(network, data, node.name).reshape(-1, node.n_states)
        theta, n = network.theta(node.name), rows.sum(axis=1, keepdims=True)
        assert (np.abs(rows / n - theta) < 6 * np.sqrt(theta * (1 - theta) / n)).all()
        swapped = theta[:, ::-1]
        if node.name not in "SA":
            assert (np.abs(rows / n - swapped) > 6 * np.sqrt(theta * (1 - theta) / n)).any()


def test_networks_are_the_printed_ones() -> None:
    assert FIGURE_2.theta("L").tolist() == [[0.3, 0.4, 0.3], [0.7, 0.15, 0.15]]
    assert FIGURE_2.theta("E")[2 * 1 + 0].tolist() == [0.15, 0.85]  # L = 1, T = 0
    dag = as_network(FIGURE_2).dag
    assert sum(map(len, dag.parents)) == 12
    assert set(map(FIGURE_2.site, "ATEX")) == {0}
    with pytest.raises(ValueError, match="does not say"):
        family_channels(FIGURE_3, {"B": quantize(symmetric(2, flip=0.2))}, "B", Model.peer)
    with pytest.raises(ValueError, match="sum to 1"):
        PrintedNetwork(nodes=(PublishedVariable(name="A", printed=(0.5, 0.4)),), sites=(), inferred=())
    with pytest.raises(ValueError, match="expected 2"):
        PrintedNetwork(nodes=(PublishedVariable(name="A", printed=(0.5, 0.4, 0.1)),), sites=(), inferred=())


def test_the_published_table_has_a_number_for_every_parameter() -> None:
    for node in FIGURE_2.nodes:
        assert len(published.TABLE_2[node.name]) == len(SIMULATED[node.name]) == FIGURE_2.theta(node.name)[:, 1:].size


@pytest.mark.slow
def test_full_table_2() -> None:
    """R = 1,000. 33 cells; a mean leaves its bound with probability below 33 x 6e-5, a deviation (2.2 % error) with 1e-9."""
    found = ma_sivakumar.table_2(runs=1_000, seed=1)
    for node, expected in SIMULATED.items():
        cells = [cell for cell in found.cells if cell.node == node]
        for cell, sd in zip(cells, expected, strict=True):
            assert abs(cell.mean - cell.target) < 4 * sd / 100 / math.sqrt(1_000) + 0.003
            assert 100 * cell.deviation == pytest.approx(sd, rel=0.15, abs=1e-9)


@pytest.mark.slow
def test_full_table_2_of_model_1() -> None:
    found = ma_sivakumar.table_2(runs=1_000, seed=1, model=Model.peer)
    for node, central in SIMULATED.items():
        expected = SIMULATED_PEER.get(node, (0,) * len(central))
        assert deviations(found, node) == pytest.approx(expected, rel=0.15, abs=1e-9)
    assert all(cell.within for cell in found.cells)


@pytest.mark.slow
def test_full_figure_4() -> None:
    """R = 1,000 randomizations record by record: medians, which hardly know the clip, within the bounds of theory.

    To second order a distance is a sum of squares of normal errors, a weighted sum of chi-squares whose mean is `theory`. Its
    median is at most the mean, and at least .4549 of it, the median of one chi-square with one degree of freedom.
    """
    points = ma_sivakumar.figure_4(runs=1_000, seed=1, levels=(0.1, 0.2, 0.3))
    for point in points:
        assert 0.4549 * point.theory < point.median < point.theory, (point.node, point.p)
    median = {(point.node, point.p): point.median for point in points}
    for p in (0.1, 0.2, 0.3):
        assert 2 * median["F", p] < median["C", p] < median["D", p]
    for node in "CDF":
        assert 3.5 < median[node, 0.2] / median[node, 0.1] < 9
    # Where nothing is clipped the means are those of other code.
    means = {(point.node, point.p): point.mean for point in points if point.clipped == 0}
    assert len(means) >= 5
    for place, mean in means.items():
        assert mean == pytest.approx(SIMULATED_DISTANCE[place], rel=0.2), place
    # Growth to p = .3 by theory.
    theory = {(point.node, point.p): point.theory for point in points}
    assert 40 < theory["C", 0.3] / theory["C", 0.1] < 80
    assert 40 < theory["D", 0.3] / theory["D", 0.1] < 80
    assert 18 < theory["F", 0.3] / theory["F", 0.1] < 25


@pytest.mark.slow
def test_full_figure_5() -> None:
    """R = 1,000 draws: slope -1 at p = .2, means at the theory where nothing is clipped, and the record-level path beside."""
    points = ma_sivakumar.figure_5(runs=1_000, seed=1, levels=(0.2, 0.4))
    slopes = ma_sivakumar.slopes(points)
    for node in "CDF":
        assert slopes[node][0.2] == pytest.approx(-1, abs=0.05)
    curve = [point for point in points if (point.node, point.p) == ("C", 0.2)]
    closed_form = (5.5e-3, 2.8e-3, 1.4e-3, 6.9e-4, 3.5e-4, 1.7e-4, 8.6e-5, 4.3e-5)  # of the printed network
    assert [point.theory for point in curve] == pytest.approx(closed_form, rel=0.05)
    assert curve[0].mean == pytest.approx(closed_form[0], rel=0.3)
    assert [point.mean for point in curve[1:]] == pytest.approx(closed_form[1:], rel=0.15)
    last = {point.node: point.mean for point in points if (point.p, point.records) == (0.4, 640_000)}
    assert last == pytest.approx({"C": 2.8e-2, "D": 5.4e-2, "F": 8.3e-4}, rel=0.2)  # simulated by other code
    for point in points:
        if point.p == 0.2:
            # Ten runs scatter by a factor e, so their median by e^0.4: 6 is 4.5 of that. Means are ruled by single runs.
            assert point.row_level_median is not None
            assert point.row_level_runs == 10
            assert 1 / 6 < point.row_level_median / point.median < 6
