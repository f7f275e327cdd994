"""Learning where nobody may look at the records again: from noisy tables."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from support.noisy_tables import N_STATES, PEOPLE, SIGMA, empty, redrawn, study, truth
from verticil.miner.learning.from_tables import learn_from_tables
from verticil.miner.learning.search.protocol import Checkpoint, Interruption, LearningCancelled
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.joint.checkpoints import ForeignCheckpoint
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable
from verticil.shared.numerics.privbayes.measuring import automatic_tau


@pytest.fixture(scope="module")
def measured():
    return redrawn(empty(study()), truth(), np.random.default_rng(8))


@pytest.mark.whole
def test_what_was_measured_has_exact_intervals_and_what_is_implied_is_marked(measured) -> None:
    learned = learn_from_tables(measured, study())
    assert learned.joint is not None
    assert learned.joint.reached
    assert {family.implied for family in learned.network.families} == {True, False}
    for family in learned.network.families:
        assert family.implied == (len(family.parents) > 1)
        shares = learned.joint.model.shares((*family.parents, family.child)).reshape(family.probability.shape)
        assert family.probability == pytest.approx(shares / shares.sum(axis=1, keepdims=True), abs=1e-6)
        known = ~np.isnan(family.interval_low)
        assert (family.interval_low <= family.interval_high)[known].all()
        if not family.implied and not family.parents:  # sampling and noise, by hand
            counts, variance = measured.one_way(family.child)
            share = counts / counts.sum()  # of a family: a ratio
            error = np.sqrt((np.maximum(share * (1 - share), 0) * PEOPLE + variance) / PEOPLE**2)
            assert family.estimate[0] == pytest.approx(share)
            assert family.standard_error[0] == pytest.approx(error, rel=0.1)
    assert all(0 <= strength.strength <= 1 for strength in learned.edge_strength.values())
    assert not any(pair.exact for pair in learned.pairs)


@pytest.mark.whole
def test_a_given_structure_is_kept_and_weak_edges_go(measured) -> None:
    parents = (("v0", ()), ("v1", ("v0",)), ("v2", ()), ("v3", ("v0",)), ("v4", ()))
    given = study(method="given", parents=parents, minimum_strength=None)
    assert learn_from_tables(measured, given).network.dag.parents == ((), (0,), (), (0,), ())
    noisier = redrawn(empty(study(), sigma=40.0), truth(), np.random.default_rng(8))
    weaker = learn_from_tables(noisier, study(minimum_strength=0.99))
    assert weaker.weak_edges
    assert all(strength.strength >= 0.99 for strength in weaker.edge_strength.values())


@pytest.mark.whole
def test_privbayes_scores_tables_that_others_have_noised(measured) -> None:
    """A table is within tau, n over 5 sigma, here 83 cells; a pair that may not be one is not."""
    rule = {"method": "privbayes", "score": "total-variation", "minimum_strength": None}
    learned = learn_from_tables(measured, study(**rule))
    dag = learned.network.dag
    sizes = [np.prod([N_STATES[v] for v in (child, *parents)]) for child, parents in enumerate(dag.parents)]
    assert max(map(len, dag.parents)) == 2  # max_parents
    assert max(sizes) <= automatic_tau(PEOPLE, SIGMA)
    assert learned.way is not None
    assert learned.way.text == "privbayes with total-variation"
    first, second = next(iter(dag.edges()))
    names = (f"v{first}", f"v{second}")
    without = learn_from_tables(measured, study(**rule, forbidden=(names, names[::-1]))).network.dag
    assert {(first, second), (second, first)}.isdisjoint(without.edges())
    # Where the noise is a tenth of the people no table but of one column is allowed.
    loud = dataclasses.replace(
        measured, tables=tuple(dataclasses.replace(table, sigma=PEOPLE / 10) for table in measured.tables)
    )
    assert not learn_from_tables(loud, study(**rule)).network.dag.edges()


@pytest.mark.whole
def test_the_same_tables_give_the_same_release(measured) -> None:
    one, other = (learn_from_tables(measured, study(method="tree", score="mutual-information")) for _ in range(2))
    assert one.network.dag == other.network.dag
    for a, b in zip(one.network.families, other.network.families, strict=True):
        assert np.array_equal(a.standard_error, b.standard_error)


def test_it_goes_on_in_the_estimate_and_in_the_search(measured) -> None:
    kept: dict[str, Checkpoint] = {}

    def keep(make) -> None:
        made = make()
        kept["search" if any(name.startswith("search:") for name in made) else "joint"] = made

    given = study(minimum_strength=None)
    whole = learn_from_tables(measured, given, interruption=Interruption(keep=keep))
    for stage in ("joint", "search"):
        stages: list[str] = []
        again = learn_from_tables(
            measured,
            given,
            progress=lambda stage, _percent, stages=stages: stages.append(stage),
            interruption=Interruption(checkpoint=kept[stage]),
        )
        assert "estimating" not in stages  # it had ended
        assert ("searching" in stages) == (stage == "joint")
        assert again.search == whole.search
        for one, other in zip(whole.network.families, again.network.families, strict=True):
            assert np.array_equal(one.probability, other.probability)
    foreign = {**kept["joint"], "joint:work": np.zeros(32, np.uint8)}
    with pytest.raises(ForeignCheckpoint):
        learn_from_tables(measured, given, interruption=Interruption(checkpoint=foreign))


def test_too_few_people_and_a_stop_are_said(measured) -> None:
    tables = tuple(
        MeasuredTable(units=table.units, counts=table.counts / PEOPLE, sigma=table.sigma) for table in measured.tables
    )
    with pytest.raises(DataFault, match="fewer than 50 people"):
        learn_from_tables(dataclasses.replace(measured, tables=tables, n_records=None), study())
    with pytest.raises(LearningCancelled):
        learn_from_tables(measured, study(), interruption=Interruption(cancelled=lambda: True))
