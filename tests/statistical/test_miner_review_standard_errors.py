"""Standard errors and intervals against repeated randomization of four columns: binary, ternary, a general matrix, none at all.

Null: over 400 samples of 6,000 records, each randomized anew, the deviation of an estimate is its reported standard error, and
95 % of the intervals hold the true value. False alarms, for each of 60 cells: a sample deviation of 400 normal numbers off by
20 % is |N(0,1)| > .2 sqrt(800) = 5.66, 1.5e-8; a coverage of 400 intervals of .87 or less (binomial, p = .95) 4.7e-10, of 1
1.2e-9. Together 1e-6. Planted fault: the binomial errors of the released table, as if it were not randomized, are rejected.
"""

from __future__ import annotations

import numpy as np
import pytest

from verticil.shared.mechanisms.transition import binary, identity, quantize, symmetric
from verticil.shared.numerics.estimation import contingency
from verticil.shared.numerics.estimation.parameters import family_parameters, marginal_parameters

RUNS, N = 400, 6000
STATES = (2, 3, 3, 4)
GENERAL = np.array([[0.75, 0.15, 0.10], [0.20, 0.60, 0.20], [0.05, 0.25, 0.70]])
TRANSITIONS = (
    quantize(binary(0.1, 0.25)),
    quantize(symmetric(3, epsilon=2.0)),
    quantize(GENERAL),
    quantize(identity(4)),
)
FAMILIES = (((), 0), ((), 3), ((0,), 2), ((2,), 3), ((3,), 1), ((0, 3), 1))
LEVEL = 0.95


@pytest.fixture(scope="module")
def runs() -> dict[str, dict[tuple[tuple[int, ...], int], np.ndarray]]:
    """For each family (runs, J, K): estimate, standard_error, covered; and the true conditional probabilities."""
    generator = np.random.default_rng(20261121)
    joint = generator.dirichlet(np.full(int(np.prod(STATES)), 4.0))
    collected: dict[str, dict[tuple[tuple[int, ...], int], list[np.ndarray]]] = {
        key: {family: [] for family in FAMILIES} for key in ("estimate", "standard_error", "covered", "naive")
    }
    for _ in range(RUNS):
        columns = np.unravel_index(generator.choice(joint.size, N, p=joint), STATES)
        released = []
        for codes, transition in zip(columns, TRANSITIONS, strict=True):
            edges = transition.probabilities.cumsum(axis=1)[:, :-1]
            released.append((generator.random(N)[:, None] >= edges[codes]).sum(axis=1).astype(np.uint8))
        for parents, child in FAMILIES:
            axes = (*parents, child)
            observed = contingency.family_table([released[a] for a in axes], [STATES[a] for a in axes])
            transitions = [TRANSITIONS[a] for a in axes]
            family = family_parameters(observed, transitions, child, parents, prior_count=0.5, level=LEVEL)
            truth = conditional(joint, parents, child)
            key = (parents, child)
            assert not family.unstable.any()
            collected["estimate"][key].append(family.estimate)
            collected["standard_error"][key].append(family.standard_error)
            collected["covered"][key].append((family.interval_low <= truth) & (truth <= family.interval_high))
            rows = observed.reshape(-1, STATES[child])
            share = rows / rows.sum(axis=1, keepdims=True)
            collected["naive"][key].append(np.sqrt(share * (1 - share) / rows.sum(axis=1, keepdims=True)))
    stacked = {key: {family: np.array(values) for family, values in item.items()} for key, item in collected.items()}
    return {**stacked, "truth": {(p, c): conditional(joint, p, c) for p, c in FAMILIES}}


def conditional(joint: np.ndarray, parents: tuple[int, ...], child: int) -> np.ndarray:
    axes = (*parents, child)
    others = tuple(axis for axis in range(4) if axis not in axes)
    table = joint.reshape(STATES).sum(axis=others)
    rows = table.transpose([sorted(axes).index(axis) for axis in axes]).reshape(-1, STATES[child])
    return rows / rows.sum(axis=1, keepdims=True)


def _ratio(runs, family, key: str) -> np.ndarray:
    return runs["estimate"][family].std(axis=0, ddof=1) / np.median(runs[key][family], axis=0)


@pytest.mark.whole
@pytest.mark.parametrize("family", FAMILIES)
def test_the_reported_standard_error_is_the_deviation(runs, family):
    ratio = _ratio(runs, family, "standard_error")
    assert (np.abs(ratio - 1) < 0.2).all(), ratio


@pytest.mark.whole
@pytest.mark.parametrize("family", FAMILIES)
def test_intervals_hold_the_true_value_as_often_as_they_say(runs, family):
    coverage = runs["covered"][family].mean(axis=0)
    assert ((coverage > 0.87) & (coverage < 1)).all(), coverage


@pytest.mark.whole
def test_errors_that_ignore_the_randomization_are_rejected(runs):
    for family in FAMILIES:
        if any(not TRANSITIONS[axis].is_identity for axis in (*family[0], family[1])):
            assert (np.abs(_ratio(runs, family, "naive") - 1) > 0.2).any()


def test_shares_of_one_column_agree_with_its_family_without_parents():
    """Two ways to the same number: the share's standard error, and that of the family of a root."""
    observed = np.array([310, 420, 270])
    transition = TRANSITIONS[2]
    family = family_parameters(observed, [transition], 0, (), prior_count=0.5, level=LEVEL)
    share = marginal_parameters(observed, transition, variable=0, model=np.full(3, 1 / 3), level=LEVEL)
    np.testing.assert_allclose(family.estimate[0], share.estimate, rtol=1e-12)
    np.testing.assert_allclose(family.standard_error[0], share.standard_error, rtol=1e-9)
