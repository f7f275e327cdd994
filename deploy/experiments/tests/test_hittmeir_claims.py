"""What Hittmeir et al. say of their results: their own numbers bear it out, and others do not."""

from __future__ import annotations

import dataclasses

import pytest

from verticil.experiments.claims import Claim
from verticil.experiments.hittmeir import paper
from verticil.experiments.hittmeir.claims import claims
from verticil.experiments.hittmeir.measures import Attack, Correlations, Score
from verticil.experiments.hittmeir.paper import ATTACKS, UTILITY, Printed, Results
from verticil.experiments.hittmeir.scale import Runtime
from verticil.experiments.hittmeir.synthesizer import Method
from verticil.reproduce.hittmeir import average_theirs, row_cells

NOTHING = Results(runtimes={}, scores={}, randomized={}, attacks={}, correlations=None, simulated=frozenset())


def score(printed: Printed, **row: object) -> Score:
    accuracy = {name: value for name, value in printed.mean.items() if name != "average"}
    values = {"trained_on": "synthetic", "deviation": {}, "majority": 0.0, "confusion": {}, **row}
    return Score(accuracy=accuracy, average=printed.mean["average"], **values)  # type: ignore[arg-type]


def utility(part: str) -> tuple[Score, ...]:
    """The paper's rows."""
    rows = [score(UTILITY[part]["Original"], trained_on="original")]
    for name, printed in UTILITY[part].items():
        if name != "Original":
            rows.append(score(printed, k=int(name[0]), method=Method.genetic if "GA" in name else Method.greedy))
    return tuple(rows)


def custom(part: str, **less: float) -> tuple[Score, ...]:
    rows = (
        score(UTILITY[part]["DS"], method=Method.genetic, k=4, without=("s",)),
        score(UTILITY[part]["DSc"], trained_on="custom", method=Method.genetic, k=4, without=("s",)),
    )
    whole = [dataclasses.replace(row, without=(), average=row.average - less.get(row.trained_on, 0)) for row in rows]
    return (*rows, *whole)


def attack(name: str, printed: Printed) -> Attack:
    accuracy = {key: value for key, value in printed.mean.items() if key != "average"}
    return Attack(
        published=name, accuracy=accuracy, deviation={}, average=printed.mean["average"], baseline=40.5,
        gcap=0, members=0, others=0, others_baseline=0,
    )  # fmt: skip


def judged(found: Results, *, quick: bool = False) -> dict[str, Claim]:
    return {claim.name: claim for claim in claims(found, quick=quick)}


def attacks() -> tuple[Attack, ...]:
    names = {"Original": "original", "DS": "ordinary", "DSc": "custom"}
    return tuple(attack(names[name], printed) for name, printed in ATTACKS["table 10"].items())


PUBLISHED = dataclasses.replace(
    NOTHING,
    scores={
        **{part: utility(part) for part in ("table 5", "table 6", "table 7")},
        **{part: custom(part) for part in ("table 11", "table 12")},
    },
    attacks={"table 10": attacks()},
)


def test_the_papers_own_numbers_bear_its_sentences_out() -> None:
    found = judged(PUBLISHED)
    assert len(found) == 13
    assert {claim.verdict for claim in found.values()} == {"found"}


def test_of_a_quick_run_and_of_simulated_records_nothing_is_judged() -> None:
    assert {claim.verdict for claim in judged(PUBLISHED, quick=True).values()} == {"not asked"}
    simulated = judged(dataclasses.replace(PUBLISHED, simulated=frozenset({"table 7"})))
    unjudged = {name for name, claim in simulated.items() if claim.verdict == "not asked"}
    assert unjudged == {"genetic-higher-table-7", "greedy-drops-table-7"}


def test_a_custom_network_that_costs_or_shows_more_is_not_what_the_paper_found() -> None:
    """Ours loses 1.2 points where the classifiers have the hidden variable, which stands beside the paper's rows."""
    costly = judged(dataclasses.replace(PUBLISHED, scores={"table 12": custom("table 12", custom=0.7)}))
    assert costly["custom-useful-table-12"].verdict == "not found"
    assert "all predictors, the hidden one too: +1.3 points lost" in costly["custom-useful-table-12"].ours
    original, ordinary, hidden = attacks()
    shown = dataclasses.replace(hidden, accuracy={**hidden.accuracy, "NB": 44.0})
    told = judged(dataclasses.replace(PUBLISHED, attacks={"table 10": (original, ordinary, shown)}))
    assert told["custom-hides-table-10"].verdict == "not found"
    assert "the best attacker, NB, +3.5 points" in told["custom-hides-table-10"].ours
    as_safe = dataclasses.replace(ordinary, average=43.0)
    told = judged(dataclasses.replace(PUBLISHED, attacks={"table 10": (original, as_safe, hidden)}))
    assert told["ordinary-discloses-table-10"].verdict == "not found"


def test_other_searches_are_not_what_the_paper_found() -> None:
    original, *rows = utility("table 5")
    swapped = {Method.greedy: Method.genetic, Method.genetic: Method.greedy}
    other = (original, *(dataclasses.replace(row, method=swapped[row.method]) for row in rows if row.method))
    found = judged(dataclasses.replace(PUBLISHED, scores={"table 5": other}))
    assert {name: claim.verdict for name, claim in found.items() if "table-5" in name} == {
        "genetic-higher-table-5": "not found",
        "close-to-original-table-5": "not found",  # the greedy search's k = 2, 1.8 points below
        "greedy-drops-table-5": "not found",
    }


def bar(method: Method, k: int, describe: float, generate: float) -> Runtime:
    return Runtime(method=method, k=k, records=1, describe=describe, generate=generate, fitness=0, edges=0)


def test_times_are_compared_for_every_k() -> None:
    theirs = tuple(
        bar(method, k, k * (2 if method is Method.greedy else 1), 10 * k * (2 if method is Method.greedy else 1))
        for method in Method
        for k in (1, 2, 3, 4)
    )
    names = {"description-faster", "description-linear", "generation-faster", "generation-dearer"}
    found = judged(dataclasses.replace(NOTHING, runtimes={"table 3": theirs}))
    assert {name: claim.verdict for name, claim in found.items()} == dict.fromkeys(names, "found")
    slower = [
        dataclasses.replace(row, describe=50.0, generate=20.1) if (row.method, row.k) == (Method.genetic, 4) else row
        for row in theirs
    ]
    slower[[(row.method, row.k) for row in slower].index((Method.genetic, 1))] = bar(Method.genetic, 1, 3.0, 30.0)
    found = judged(dataclasses.replace(NOTHING, runtimes={"table 3": tuple(slower)}))
    assert {name: claim.verdict for name, claim in found.items()} == dict.fromkeys(names, "not found")


@pytest.mark.parametrize(("custom_row", "verdict"), [(0.05, "found"), (0.15, "not found")])
def test_correlations_of_the_hidden_variable_are_halved_at_least(custom_row: float, verdict: str) -> None:
    def matrix(others: float) -> list[list[float]]:
        return [[1.0, -0.2, others], [-0.2, 1.0, 0.1], [others, 0.1, 1.0]]

    three = Correlations(
        names=("s", "t", "o"), sensitive="s", target="t", original=matrix(0.2), ordinary=matrix(0.2), custom=matrix(custom_row),
    )  # fmt: skip
    assert judged(dataclasses.replace(NOTHING, correlations=three))["correlations"].verdict == verdict


def test_an_average_over_other_classifiers_than_the_papers_is_marked() -> None:
    printed = UTILITY["table 5"]["Original"]
    all_five: dict[str, float] = dict.fromkeys(("NB", "SV", "KN", "RF", "LR"), 50.0)
    four: dict[str, float] = dict.fromkeys(("NB", "SV", "KN", "LR"), 50.0)
    assert row_cells("table 5", all_five, {}, 50.0, printed)[-1] == "50.0 (49.8)"
    assert row_cells("table 5", four, {}, 50.0, printed)[-1] == "50.0 of 4 (49.8 of 5)"
    assert row_cells("table 9", {"GCAP": 50.0, **four}, {}, 50.0, None)[-1] == "50.0 of 5"
    assert average_theirs("table 5", all_five, printed) == 49.8
    assert average_theirs("table 5", four, printed) is None  # no bar beside ours
    assert paper.n_averaged("table 10") == 6
