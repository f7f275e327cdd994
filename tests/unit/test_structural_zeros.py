"""Combinations that rules leave impossible are 0 in every estimate, whatever was released."""

from __future__ import annotations

import numpy as np
import pytest

from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.estimation.estimators import ESTIMATORS, em_projection
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit, family_design
from verticil.shared.numerics.estimation.parameters import family_parameters, joint_shares
from verticil.shared.numerics.knowledge.rules import Condition, Knowledge, Rule
from verticil.shared.numerics.knowledge.support import support
from verticil.shared.numerics.model import elimination
from verticil.shared.numerics.model.schema import Schema, Variable

STATES = (2, 3, 3)
ALLOWED = np.ones(STATES, dtype=np.bool_)
ALLOWED[0, :, 2] = ALLOWED[1, 0] = False  # of the first parent's 0 the child is not 2; the parents are not (1, 0)
TRUE = (
    np.where(ALLOWED, np.arange(1, 19).reshape(STATES), 0)
    / np.where(ALLOWED, np.arange(1, 19).reshape(STATES), 0).sum()
)


def zero(variable: int) -> Condition:
    return Condition(variable=f"v{variable}", values=("0",))


def units_of(epsilon: float | None, *, compound: bool = False) -> list[ColumnUnit]:
    def channel(k: int):
        return quantize(identity(k) if epsilon is None else symmetric(k, epsilon=epsilon))

    if compound:  # the child and the second parent are drawn together, without one combination
        domain = tuple((a, b) for a in range(3) for b in range(3) if (a, b) != (2, 2))
        return [
            ColumnUnit(variables=(0,), domain=None, channel=channel(2)),
            ColumnUnit(variables=(1, 2), domain=domain, channel=channel(8)),
        ]
    return [ColumnUnit(variables=(v,), domain=None, channel=channel(k)) for v, k in enumerate(STATES)]


def released(design, n: int, seed: int, true: np.ndarray = TRUE) -> np.ndarray:
    """Counts of randomized records."""
    categories = true
    if len(design.axes) == 2:  # the compound's domain
        categories = true.reshape(2, 9)[:, :8]
    share = categories / categories.sum()
    for place, axis in enumerate(design.axes):
        if axis.forward is not None:
            share = np.moveaxis(np.moveaxis(share, place, -1) @ axis.forward, -1, place)
    return np.random.default_rng(seed).multinomial(n, share.ravel() / share.sum()).reshape(share.shape)


@pytest.mark.parametrize("compound", [False, True])
@pytest.mark.parametrize("epsilon", [None, 1.0])
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_gives_impossible_combinations_nothing(name, epsilon, compound) -> None:
    design = family_design(units_of(epsilon, compound=compound), STATES, (0, 1, 2))
    observed = released(design, 5000, 1)
    plain, found = (
        ESTIMATORS[name].estimate(observed, each, prior_count=0.5) for each in (design, design.under(ALLOWED))
    )
    assert (plain[~ALLOWED] != 0).any()  # noise, and the prior's mass
    assert (found[~ALLOWED] == 0).all()
    assert found.sum() == pytest.approx(5000)
    np.testing.assert_array_equal(design.under(None).possible is None, design.possible is None)


@pytest.mark.parametrize("compound", [False, True])
@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_the_mode_under_a_prior_gives_impossible_combinations_nothing(epsilon, compound) -> None:
    design = family_design(units_of(epsilon, compound=compound), STATES, (0, 1, 2)).under(ALLOWED)
    fitted = em_projection(released(design, 5000, 1), design, prior_count=0.5)
    assert (fitted[~ALLOWED] == 0).all()
    assert fitted.sum() == pytest.approx(5000)


@pytest.mark.whole
def test_known_zeros_bring_an_estimate_nearer_to_the_truth() -> None:
    """The mean distance of 40 estimates; were they as far apart as independent ones, the sign of none would be certain."""
    design = family_design(units_of(1.0), STATES, (0, 1, 2))
    apart = np.array(
        [
            [np.abs(em_projection(observed, each) / 4000 - TRUE).sum() for each in (design, design.under(ALLOWED))]
            for observed in (released(design, 4000, seed) for seed in range(40))
        ]
    )
    assert apart[:, 1].mean() < 0.9 * apart[:, 0].mean()


def test_simplex_is_the_nearest_without_what_is_impossible() -> None:
    design = family_design(units_of(1.0), STATES, (0, 1, 2)).under(ALLOWED)
    observed = released(design, 300, 3)
    found, unbiased = ESTIMATORS["simplex"].estimate(observed, design), design.estimate(observed)
    generator = np.random.default_rng(4)
    for _ in range(200):
        other = np.zeros(STATES)
        other[ALLOWED] = generator.dirichlet(np.ones(int(ALLOWED.sum()))) * 300
        for share in (0.01, 0.5, 1.0):
            between = found + share * (other - found)
            assert ((found - unbiased) ** 2).sum() <= ((between - unbiased) ** 2).sum() + 1e-6


@pytest.mark.parametrize("prior_count", [None, 0.5])
@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_parameters_and_their_intervals(epsilon, prior_count) -> None:
    design = family_design(units_of(epsilon), STATES, (0, 1, 2)).under(ALLOWED)
    observed = released(design, 40_000, 5)
    family = family_parameters(observed, design, 2, (0, 1), prior_count=prior_count, level=0.95)
    inside = ALLOWED.reshape(-1, 3)
    some = inside.any(axis=1)
    for table in (
        family.probability,
        family.estimate,
        family.standard_error,
        family.interval_low,
        family.interval_high,
    ):
        assert (table[some][~inside[some]] == 0).all()
    assert family.unstable[~some].all()  # parents that cannot be
    assert np.isnan(family.estimate[~some]).all()
    np.testing.assert_allclose(family.estimate[some].sum(axis=1), 1.0, atol=1e-9)
    true = TRUE.reshape(-1, 3)[some] / TRUE.reshape(-1, 3)[some].sum(axis=1, keepdims=True)
    off = np.abs(family.estimate[some] - true) / np.where(
        family.standard_error[some] > 0, family.standard_error[some], 1
    )
    assert off.max() < 5  # of 10 free cells: once in a million


@pytest.mark.parametrize("noise", [0.0, pytest.param(30.0, marks=pytest.mark.slow)])
def test_standard_errors_are_those_of_many_repetitions(noise: float) -> None:
    """The ratio of the mean variance to the variance of 1,500 estimates is within 6 of its own errors, sqrt(2 / 1500)."""
    design = family_design(units_of(2.0), STATES, (0, 1, 2)).under(ALLOWED)
    generator = np.random.default_rng(6)
    runs = []
    for seed in range(1500):
        observed = released(design, 30_000, seed) + noise * generator.standard_normal(STATES)
        family = family_parameters(observed, design, 2, (0, 1), prior_count=0.5, level=0.95, noise_variance=noise**2)
        runs.append((family.estimate, family.standard_error**2))
    estimates, variances = (np.stack(each)[:, [1, 2, 4, 5]] for each in zip(*runs, strict=True))
    free = ALLOWED.reshape(-1, 3)[[1, 2, 4, 5]]
    ratio = variances.mean(axis=0)[free] / estimates.var(axis=0)[free]
    assert np.abs(ratio - 1).max() < 6 * np.sqrt(2 / 1500)


def test_pairs_of_exact_columns_do_not_show_who_breaks_a_rule() -> None:
    design = family_design(units_of(None), STATES, (0, 2))
    allowed = ALLOWED.any(axis=1)
    observed = np.array([[50, 30, 2], [20, 20, 20]])
    shown = joint_shares(observed, design.under(allowed), level=0.95)
    assert all(table[0, 2] == 0 for table in shown)
    assert shown[0][0, 0] > 0


def test_too_wide_knowledge_leaves_the_rules_among_a_tables_own_variables(monkeypatch) -> None:
    schema = Schema(variables=tuple(Variable(name=f"v{v}", owner="a", labels=("0", "1", "2")) for v in range(4)))
    rules = tuple(
        Rule(name=f"{a}{b}", when=(zero(a),), then=(zero(b),))
        for a, b in ((0, 1), (1, 2), (2, 3), (3, 0))
    )  # fmt: skip
    found = support(Knowledge(rules=rules), schema)
    assert not found.zeros((0, 2))[0, 1]
    assert support(Knowledge(rules=rules), schema).zeros((0, 1))[1, 1]
    monkeypatch.setattr(elimination, "MAX_CLIQUE_CELLS", 9)
    narrow = support(Knowledge(rules=rules), schema)
    assert narrow.zeros((0, 2)) is None
    assert not narrow.zeros((0, 1))[0, 1]
