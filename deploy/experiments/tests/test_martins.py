"""The experiments of Martins, Gonçalves & Galletti: exact probabilities, the three ways, and the calibration of the prior."""

from __future__ import annotations

import math

import numpy as np
import pytest

from support.posterior import FOUR, MIXED, THREE, sets_of
from verticil.experiments.martins import datasets, exact, experiment, figures, methods, paper
from verticil.experiments.martins.claims import claims
from verticil.experiments.martins.experiment import QUICK, Panel, Results, Scale
from verticil.experiments.martins.methods import MethodAnswer
from verticil.shared.core.arrays import Counts
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.posterior.exact import exact_posterior
from verticil.shared.numerics.posterior.local_scores import bdeu_score, dirichlet_score
from verticil.shared.numerics.posterior.statistics import ChiSquare, Records, Share

TINY = Scale(replicates=2, draws=100, steps=400)


@pytest.mark.parametrize("counts", [THREE, FOUR, MIXED], ids=["3", "4", "mixed"])
@pytest.mark.parametrize("gamma", [0.0, 1.5])
def test_the_sum_over_all_graphs_is_that_of_a_list_of_them(counts: Counts, gamma: float) -> None:
    listed = exact_posterior(sets_of(counts, bdeu_score, gamma=gamma))
    table = exact.penalized(exact.weight_table(sets_of(counts, bdeu_score)), gamma)
    assert exact.log_total(table) == pytest.approx(listed.log_normalizer, abs=1e-8)
    graph = Dag(parents=((), (0,), *((),) * (counts.ndim - 2)))
    masks = [0, 1, *[0] * (counts.ndim - 2)]
    assert math.exp(exact.log_weight(table, graph) - exact.log_total(table)) == pytest.approx(listed.of(*masks))
    both = listed.of(*masks) + listed.of(2, 0, *masks[2:])
    assert math.exp(exact.log_merged_weight(table, graph) - exact.log_total(table)) == pytest.approx(both)


def test_weights_that_differ_by_thousands_of_nats_are_summed() -> None:
    """Two variables, each with an edge that is worth 2,000 nats: one of both directions is left."""
    table = np.array([[0.0, -np.inf, 2000.0, -np.inf], [0.0, 2000.0, -np.inf, -np.inf]])
    assert exact.log_total(table) == pytest.approx(2000 + math.log(2))


def test_graphs_are_counted() -> None:
    counted = [experiment.graphs_of(nodes) for nodes in range(1, 11)]
    wrong = [place for place, pair in enumerate(zip(counted, paper.GRAPH_COUNTS, strict=True), 1) if pair[0] != pair[1]]
    assert (counted[:4], wrong) == ([1, 3, 25, 543], [2])
    for d in (1, 2, 3, 4):
        own = ((np.arange(2**d) >> np.arange(d)[:, None]) & 1).astype(bool)
        assert math.exp(exact.log_total(np.where(own, -np.inf, 0.0))) == pytest.approx(counted[d - 1])


def test_only_lone_edges_are_turned() -> None:
    true = {d: len(list(exact.turned_pairs(graph))) for d, graph in paper.TRUE_GRAPHS.items()}
    assert true == {3: 2, 4: 4, 7: 2}
    chain = Dag(parents=((), (0,), (1,)))
    assert list(exact.turned_pairs(chain)) == [chain]


def test_the_prior_of_the_parameters_that_meets_table_3() -> None:
    """The true network's mean probability, uniform prior: with U(0, 1) .60, .62 and .80, with BDeu(1) .86, .86 and .93.

    Those are of 60 other replications; a mean of 40 has a standard error of at most .035: .14 are four of them.
    """
    for n, uniform, bdeu in ((500, 0.60, 0.864), (1000, 0.62, 0.858), (5000, 0.80, 0.931)):
        found = {score: [] for score in methods.SCORES}
        for replicate in range(40):
            records = datasets.simulated(3, n, seed=11, replicate=replicate)
            for score, values in found.items():
                table = exact.weight_table(experiment.sets_for(records, score, 0.0))
                values.append(math.exp(exact.log_merged_weight(table, paper.TRUE_GRAPHS[3]) - exact.log_total(table)))
        assert np.mean(found["dirichlet"]) == pytest.approx(uniform, abs=0.14)
        assert np.mean(found["bdeu"]) == pytest.approx(bdeu, abs=0.14)
        assert np.mean(found["bdeu"]) > np.mean(found["dirichlet"]) + 0.05


def test_scores_are_of_the_records() -> None:
    records = datasets.simulated(4, 500, seed=1, replicate=0)
    table = records.counts(0, 3, 1).reshape(4, 2)
    assert methods.family_value(records, "bdeu")(1, (0, 3)) == bdeu_score(table)
    assert methods.family_value(records, "dirichlet")(1, (0, 3)) == dirichlet_score(table)


# ---- what the paper says


def panel(figure: int, values: dict[str, list[MethodAnswer]], truths: list[float]) -> Panel:
    return Panel(
        figure=figure, shown=paper.FIGURES[figure], d=3, n=5000, prior="P1", truths=tuple(truths),
        answers={way: tuple(answers) for way, answers in values.items()},
    )  # fmt: skip


def test_overlaps_below_the_interval_are_counted_and_the_claim_is_named() -> None:
    own = MethodAnswer(value=0.7, low=0.3, high=1.0)
    for below, verdict in ((2, "found"), (1, "not found")):
        others = [MethodAnswer(value=0.2)] * below + [MethodAnswer(value=0.8)] * (3 - below)
        found = Results(replicates=3, panels=(panel(2, {"S1": [own] * 3, "S2": others, "S3": others}, [1.0] * 3),))
        (claim,) = claims(found)
        assert (claim.name, claim.verdict) == ("overlaps", verdict)
        assert f"S2 in {below} and S3 in {below} of 3" in claim.ours
    one = Results(replicates=1, panels=(panel(2, {way: [own] for way in ("S1", "S2", "S3")}, [1.0]),))
    assert [(claim.verdict, claim.reason) for claim in claims(one)] == [
        ("not asked", "one replication says nothing of how often")
    ]


def test_a_conclusion_that_s2_shares_is_not_s1s_alone() -> None:
    near, far = MethodAnswer(value=0.5, low=0.0, high=1.0), MethodAnswer(value=0.01, low=0.0, high=0.02)
    ways = {"S1": [near, near], "S2": [near, near], "S3": [far, near]}
    found = {claim.name: claim for claim in claims(Results(replicates=2, panels=(panel(4, ways, [0.6, 0.5]),)))}
    assert found["p-values-agree"].verdict == "not found"
    assert "of 2: S1 2, S2 2, S3 1" in found["p-values-agree"].ours
    assert found["s2-points"].verdict == "not found"
    ways["S2"] = [far, near]
    found = {claim.name: claim for claim in claims(Results(replicates=2, panels=(panel(4, ways, [0.6, 0.5]),)))}
    assert found["p-values-agree"].verdict == "found"


# ---- the three ways


def test_fitting_gives_the_two_way_tables_and_no_interaction_of_three() -> None:
    records = datasets.simulated(7, 5000, seed=1, replicate=0)
    shares = methods.fitted(records)
    for pair in ((0, 1), (2, 3), (4, 6)):
        others = tuple(v for v in range(7) if v not in pair)
        assert np.abs(shares.sum(axis=others) - records.counts(*pair) / 5000).max() < 1e-6
    logs = np.log(shares)[0, 0, :, :, :, 0, 0]  # X3, X4 and X5, whose interaction the records have
    real = np.log(records.counts(2, 3, 4))
    signs = np.array([1, -1])
    sign = signs[:, None, None] * signs[:, None] * signs
    assert abs(float((logs * sign).sum())) < 1e-6
    assert abs(float((real * sign).sum())) > 1


def test_what_s1_says_has_the_networks_uncertainty_and_s2_has_not() -> None:
    """The share of X2 in 1,000 records: S1's interval is wider than sampling alone by about the square root of 2."""
    records = datasets.simulated(3, 1000, seed=3, replicate=0)
    generator = np.random.default_rng(4)
    share = Share(variable=0, code=1)
    (answer,) = methods.s1(records, [paper.TRUE_GRAPHS[3]] * 1500, [share], generator)
    real = share(records)
    width = 2 * 2.326 * math.sqrt(2 * real * (1 - real) / 1000)
    assert answer.holds(real)
    assert answer.high is not None
    assert answer.low is not None
    assert answer.high - answer.low == pytest.approx(width, rel=0.12)
    (second,) = methods.s2(records, paper.TRUE_GRAPHS[3], [share], generator)
    assert second.holds(second.value)
    (third,) = methods.s3(records, [share], generator)
    assert (third.low, third.holds(third.value)) == (None, False)
    assert abs(third.value - real) < 5 * math.sqrt(real * (1 - real) / 1000)


def test_s2_draws_nobody_of_parents_that_nobody_has() -> None:
    records = Records(columns=[np.zeros(50, np.uint8), np.arange(50, dtype=np.uint8) % 2], n_states=(2, 2))
    (answer,) = methods.s2(records, Dag(parents=((), (0,))), [Share(variable=0, code=1)], np.random.default_rng(1))
    assert answer.value == 0.0


# ---- the run


def test_the_stand_in_is_of_people_with_an_income() -> None:
    records = datasets.stand_in()
    assert (len(records.columns), len(records.columns[0])) == (5, 6514)
    assert [round(float(column.mean()), 2) for column in records.columns] == [0.07, 0.47, 0.5, 0.12, 0.5]


def test_parts_that_are_asked_for_are_run() -> None:
    told: list[str] = []
    found = experiment.run([3], [2, 8], TINY, seed=1, tell=told.append)
    assert len(told) == 7
    assert [(each.d, each.prior, each.n) for each in found.estimated if each.score == "bdeu"] == [
        (d, prior, n) for d, sizes in paper.SIZES.items() for n in sizes for prior in ("P1", "P2")
    ]
    assert all(each.found <= 2 and (each.mean is None) == (each.found == 0) for each in found.estimated)
    assert max(each.sampling_error for each in found.estimated) < 0.2
    shown = [(panel.figure, panel.d, panel.n) for panel in found.panels if panel.prior == "P1"]
    assert sorted(shown) == [(2, 3, 5000), (2, 4, 5000), (2, 7, 5000), (8, 3, 1000), (8, 4, 1000)]
    assert all(len(panel.truths) == 2 for panel in found.panels)
    again = experiment.run([], [8], TINY, seed=1, tell=told.append)
    assert again.panels == tuple(panel for panel in found.panels if panel.figure == 8)
    pictures = figures.draw_answers([panel for panel in found.panels if panel.figure == 2], "Figure 2")
    assert sorted(pictures) == ["png", "svg"]
    assert sorted(figures.draw_gammas(found.calibrations, "Figure 1")) == ["png", "svg"]


def test_the_survey_is_marked_and_has_its_networks() -> None:
    found = experiment.run([6], [6, 7], TINY, seed=1, tell=lambda _: None)
    assert found.survey is not None
    (first, by), (second, _) = found.survey.networks
    assert first != second
    assert 0 < by["P2"] < 1
    assert [panel.figure for panel in found.panels] == [6] * 6 + [7] * 6
    assert b"stand-in" in figures.draw_survey(found.panels[:6], "a stand-in")["svg"]
    records = datasets.stand_in()
    assert found.panels[2].truths == (ChiSquare(first=0, second=2)(records),)


def test_the_quick_form_is_smaller_than_the_papers() -> None:
    assert experiment.FULL.replicates == paper.REPLICATES > QUICK.replicates
    assert experiment.FULL.draws >= QUICK.draws >= 500
