"""How far what was released moves graphs from the prior: said where it is next to nothing, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from support import studies
from verticil.miner.learning.learn import learn
from verticil.miner.learning.publication import published_posterior
from verticil.shared.numerics.posterior.exact import exact_posterior
from verticil.shared.numerics.posterior.influence import edges_moved, most_moved
from verticil.shared.numerics.posterior.parent_sets import ParentSets, parent_sets
from verticil.shared.numerics.posterior.prior import StructurePrior
from verticil.shared.release.formats.posterior import PublishedPosterior
from verticil.shared.release.posterior import posterior_remarks
from verticil.shared.study.document import PosteriorRule, Study

PENALTY = StructurePrior(gamma=0.7)


def learned(d: int, epsilon: float, *, n: int = 1000, constant: bool = False) -> tuple[Study, PublishedPosterior]:
    """Columns in a row, each like the one before it in three of four; of few columns true counts are sampled, too."""
    study = studies.study_of(
        studies.numbered((2,) * d),
        epsilon=epsilon,
        structure={"method": "posterior", "score": "bdeu", "max_parents": 1 if d == 2 else 2},
        posterior=PosteriorRule(steps=400, data_sets=1),
    )
    rng = np.random.default_rng(d)
    true = [rng.integers(0, 2, n)]
    while len(true) < d:
        true.append(np.where(rng.random(n) < 0.25, 1 - true[-1], true[-1]))
    columns = []
    for column, unit in zip(true, study.units, strict=True):
        ends = np.cumsum(unit.transition.probabilities, axis=1)[:, :-1]
        columns.append((rng.random(n)[:, None] >= ends[column]).sum(axis=1).astype(np.uint8))
    if constant:
        columns[0][:] = 1
    found = published_posterior(learn(columns, study).posterior, study)
    assert found is not None
    return study, found


@pytest.mark.whole
@pytest.mark.parametrize("d", [pytest.param(2, marks=pytest.mark.whole), pytest.param(3, marks=pytest.mark.whole), 6])
def test_the_prior_speaks_where_the_likelihood_is_flat_and_only_there(d: int) -> None:
    study, flat = learned(d, 0.01)
    assert flat.agreement.moved is not None
    assert flat.agreement.moved < 0.05
    assert posterior_remarks(flat, study.schema.names)[0].startswith("the prior speaks")
    if d > 2:
        mean = sum(edge.probability for edge in flat.edges)
        assert mean > 0.3 * d  # graphs without any arrow are not what the prior has most of
    study, told = learned(d, 4.0)
    assert told.agreement.moved is not None
    assert told.agreement.moved > 0.1
    assert posterior_remarks(told, study.schema.names) == ()


def test_a_constant_column_is_named_and_the_others_are_learned() -> None:
    study, found = learned(3, 4.0, constant=True)
    assert found.constant == (0,)
    (said,) = posterior_remarks(found, study.schema.names)
    assert said.startswith("column 'v0' has one value in all released records")
    assert found.edge(1, 2).probability + found.edge(2, 1).probability > 0.95


def scored(weight: float) -> ParentSets:
    """Three variables; a set of parents is worth `weight` nats for each, beside the prior."""
    return parent_sets(
        lambda _child, parents: weight * len(parents),
        (2, 2, 2),
        max_parents=2,
        max_family_cells=100,
        prior=PENALTY,
    )


def test_the_bound_holds_and_the_prior_is_not_in_it() -> None:
    """Of two nats between the sets of a variable no event moves by more than tanh(1/2); summed over all graphs of the prior."""
    prior = scored(0.0)
    assert most_moved(prior, PENALTY) == pytest.approx(0, abs=1e-9)
    assert edges_moved(exact_posterior(prior).edge_probability, prior) == pytest.approx(0, abs=1e-9)
    assert most_moved(scored(1.0), PENALTY) == pytest.approx(np.tanh(0.5))
    alone = parent_sets(lambda *_: 0.0, (2, 2), max_parents=1, max_family_cells=3, prior=PENALTY)
    assert most_moved(alone, PENALTY) is None
    assert edges_moved(np.zeros((2, 2)), alone) is None
    edge = exact_posterior(scored(1.0)).edge_probability
    assert edges_moved(edge, prior) == pytest.approx(np.abs(edge - exact_posterior(prior).edge_probability).max())
