"""Mixtures with classes: every record is possible, weights are fitted, and the gradient for them is the numerical one."""

from __future__ import annotations

import numpy as np

from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint import mixture
from verticil.shared.numerics.joint.checkpoints import Work
from verticil.shared.numerics.joint.classes import Division, Weighing, classes_of
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.estimate import as_mixture, estimate
from verticil.shared.numerics.joint.layout import Layout
from verticil.shared.numerics.joint.noise import noised
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.joint.one_way import one_way_shares
from verticil.shared.numerics.joint.stopping import Discrepancy
from verticil.shared.numerics.joint.targets import targets
from verticil.shared.numerics.model.joint import Mixture

STATES = (3, 3, 3)
"""A count of 0 to 2, and two slots with the values 0 and 1, and 2 for none."""
DIVISION = Division(
    variable=0,
    allowed=np.array(
        [
            [1, 0, 0, 0, 0, 1, 0, 0, 1],
            [0, 1, 0, 1, 1, 0, 0, 0, 1],
            [0, 0, 1, 1, 1, 0, 1, 1, 0],
        ],
        dtype=np.bool_,
    ),
)


def people(n: int, epsilon: float | None = None) -> tuple[list[np.ndarray], NoisyTables]:
    """People whose second row mostly has the value of the first, as they are or randomized."""
    draw = np.random.default_rng(1)
    count = draw.choice(3, n, p=[0.2, 0.3, 0.5])
    first, stay = draw.choice(2, n, p=[0.7, 0.3]), draw.random(n) < 0.9
    second = np.where(stay, first, 1 - first)
    columns = [count, np.where(count > 0, first, 2), np.where(count > 1, second, 2)]
    codes = [column.astype(np.uint8) for column in columns]
    matrix = quantize(identity(3) if epsilon is None else symmetric(3, epsilon=epsilon))
    units = [ColumnUnit(variables=(v,), domain=None, channel=matrix) for v in range(3)]
    released = codes
    if epsilon is not None:
        rows = matrix.probabilities.cumsum(axis=1)
        released = [(draw.random(n)[:, None] > rows[c]).sum(axis=1).astype(np.uint8) for c in codes]
    return codes, from_columns(released, units, STATES, parts=1 if epsilon is None else 4)


def is_possible(model: Mixture) -> bool:
    """Return whether no component has a category of the count with one of a slot that is impossible beside it."""
    used = model.weights > 0
    for slot in (1, 2):
        allowed = DIVISION.allowed[:, 3 * slot : 3 * slot + 3]
        together = np.einsum("mr,mk->rk", model.probability[0][used] > 0, model.probability[slot][used] > 0)
        if (together & ~allowed).any():
            return False
    return True


def test_every_record_of_a_fit_to_noisy_tables_is_possible_and_follows_the_people() -> None:
    codes, exact = people(20_000)
    tables = noised(exact, 20.0, bytes(32)).without(lambda members: None)
    found = estimate(tables, seed=1, divisions=(DIVISION,))
    assert isinstance(found.model, Mixture)
    assert is_possible(found.model)
    table = found.model.shares((1, 2))[:2, :2]
    real = np.array([[np.mean((codes[1] == a) & (codes[2] == b)) for b in range(2)] for a in range(2)])
    assert np.abs(table - real).max() < 0.01
    assert np.abs(found.model.shares((0,)) - np.bincount(codes[0]) / 20_000).max() < 0.01


def test_randomized_columns_keep_their_classes() -> None:
    _, tables = people(2_000, epsilon=2.0)
    found = estimate(tables, seed=1, divisions=(DIVISION,))
    assert isinstance(found.model, Mixture)
    assert is_possible(found.model)


def test_where_nothing_goes_together_classes_still_do() -> None:
    """A model that is believed by half is mixed with one of the same classes, which keeps their shares and their zeros."""
    _, exact = people(2_000)
    tables = noised(exact, 10.0, bytes(32))
    layout, start = Layout(tables.n_states, tables.units), one_way_shares(tables)
    found = mixture.fit([targets(tables, start, layout=layout)], start, seed=[1], divisions=(DIVISION,))
    assert found.weights is not None
    whole, half = (as_mixture(layout, found.rows, start, alpha, found.weights.astype(float)) for alpha in (1.0, 0.5))
    assert len(half.weights) == len(whole.weights) + 3
    assert is_possible(half)
    assert np.allclose(half.shares((0,)), whole.shares((0,)), atol=1e-6)
    tied, loose = (float(model.shares((1, 2))[0, 0]) for model in (whole, half))
    assert loose < tied  # less of the second row's value goes with the first's


def test_a_fit_that_was_stopped_goes_on_bit_for_bit() -> None:
    _, exact = people(2_000)
    tables = noised(exact, 10.0, bytes(32))
    kept: list[dict[str, np.ndarray]] = []

    def keep(offer: object) -> None:
        kept.append(dict(offer() if callable(offer) else offer))  # type: ignore[call-overload]  # a mapping

    whole = estimate(tables, seed=1, divisions=(DIVISION,), keep=keep)
    again = estimate(tables, seed=1, divisions=(DIVISION,), checkpoint=kept[len(kept) // 2])
    assert isinstance(whole.model, Mixture)
    assert isinstance(again.model, Mixture)
    assert np.array_equal(whole.model.weights, again.model.weights)
    assert all(np.array_equal(a, b) for a, b in zip(whole.model.probability, again.model.probability, strict=True))


def test_the_gradient_for_the_weights_is_the_numerical_one() -> None:
    """Of half the weighted sum of squares of all measured cells, each once, in double precision."""
    _, exact = people(5_000)
    tables = noised(exact, 10.0, bytes(32))
    layout, start = Layout(tables.n_states, tables.units), one_way_shares(tables)
    aims = targets(tables, start, layout=layout, with_twin=False)
    classes = classes_of((DIVISION,), layout, start, fits=1, components=8, seed=[1])
    weighing = Weighing(classes, 0, None)
    draw = np.random.default_rng(2)
    logits = np.where(weighing.possible, draw.normal(0, 1, weighing.possible.shape), -np.inf).astype(np.float32)
    rows = mixture.probabilities(layout, logits)
    mixture.residual_gradient([aims], rows, Discrepancy([aims]), Work(), weighing=weighing)

    def loss(weights: np.ndarray) -> float:
        own = layout.released(rows)[0].astype(np.float64)
        residual = (own * weights[:, None]).T @ own - aims.shares
        upper = np.triu(np.ones(residual.shape), 1)
        return float((upper * aims.weight * residual**2).sum() / 2)

    weights = weighing.weights()[0].astype(np.float64)
    step = 1e-4
    numerical = [
        (loss(weights + step * np.eye(8)[m]) - loss(weights - step * np.eye(8)[m])) / (2 * step) for m in range(8)
    ]
    assert np.allclose(weighing.gradient[0], numerical, rtol=1e-3, atol=1e-3 * np.abs(numerical).max())


def test_every_category_of_a_division_has_a_component() -> None:
    """Also where there are more classes than components: two divisions of 40 categories among 60 components."""
    layout = Layout(
        (40, 40), tuple(ColumnUnit(variables=(v,), domain=None, channel=quantize(identity(40))) for v in (0, 1))
    )
    allowed = [np.ones((40, 80), np.bool_), np.ones((40, 80), np.bool_)]
    allowed[0][:, :40], allowed[1][:, 40:] = np.eye(40, dtype=np.bool_), np.eye(40, dtype=np.bool_)
    divisions = [Division(variable=v, allowed=allowed[v]) for v in (0, 1)]
    start = [np.r_[0.97, np.full(39, 0.03 / 39)]] * 2
    found = classes_of(divisions, layout, start, fits=2, components=60, seed=[1])
    assert found.possible.reshape(2, 60, 2, 40).any(axis=1).all()
    assert np.allclose(found.weights.sum(axis=1), 1)


def test_classes_of_two_divisions_that_go_together_get_the_weights_that_they_have() -> None:
    """Two counts that mostly are the same; at the start classes are as frequent as if they had nothing to do with each other."""
    draw = np.random.default_rng(1)
    one = draw.choice(3, 20_000, p=[0.5, 0.3, 0.2])
    other = np.where(draw.random(20_000) < 0.9, one, draw.choice(3, 20_000))
    columns = [one.astype(np.uint8), other.astype(np.uint8)]
    units = [ColumnUnit(variables=(v,), domain=None, channel=quantize(identity(3))) for v in range(2)]
    tables = noised(from_columns(columns, units, (3, 3), parts=1), 10.0, bytes(32))
    allowed = [np.ones((3, 6), np.bool_), np.ones((3, 6), np.bool_)]
    allowed[0][:, :3], allowed[1][:, 3:] = np.eye(3, dtype=np.bool_), np.eye(3, dtype=np.bool_)
    found = estimate(tables, seed=1, divisions=[Division(variable=v, allowed=allowed[v]) for v in (0, 1)])
    real = np.bincount(3 * one + other, minlength=9).reshape(3, 3) / 20_000
    assert np.abs(found.model.shares((0, 1)) - real).max() < 0.01
