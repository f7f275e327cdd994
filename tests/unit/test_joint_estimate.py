"""The joint estimate: what it finds, that its numbers are those of a plain reference, and that it goes on where it stood."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.estimation.inverse_estimation import ColumnUnit
from verticil.shared.numerics.joint import estimate as joint_estimate
from verticil.shared.numerics.joint import weighted_records as atoms
from verticil.shared.numerics.joint.checkpoints import Arrays, ForeignCheckpoint, Work
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.estimate import JointEstimate, estimate
from verticil.shared.numerics.joint.mixture import Fit, fit
from verticil.shared.numerics.joint.noisy_tables import MeasuredTable, NoisyTables
from verticil.shared.numerics.joint.tuning import TUNING, Size
from verticil.shared.numerics.model.joint import Mixture, WeightedRecords

STATES = (2, 3, 4)


def single(variable: int, n_states: int, epsilon: float | None = None) -> ColumnUnit:
    matrix = identity(n_states) if epsilon is None else symmetric(n_states, epsilon=epsilon)
    return ColumnUnit(variables=(variable,), domain=None, channel=quantize(matrix))


def people(n: int, seed: int) -> list[np.ndarray]:
    """Three columns, each of which depends on the one before."""
    rng = np.random.default_rng(seed)
    first = (rng.random(n) < 0.3).astype(np.uint8)
    second = np.where(rng.random(n) < 0.7, first * 2, rng.integers(0, 3, n)).astype(np.uint8)
    third = np.where(rng.random(n) < 0.5, second + 1, rng.integers(0, 4, n)).astype(np.uint8)
    return [first, second, third]


def with_noise(tables: NoisyTables, sigma: float, seed: int, *, said: float | None = None) -> NoisyTables:
    """Noise of `sigma` on every cell, and what is said of it."""
    rng = np.random.default_rng(seed)
    return NoisyTables(
        n_states=tables.n_states,
        units=tables.units,
        n_records=tables.n_records,
        tables=tuple(
            MeasuredTable(units=t.units, counts=t.counts + rng.normal(0, sigma, t.counts.shape), sigma=said or sigma)
            for t in tables.tables
        ),
    )


def noisy(n: int = 5000, sigma: float = 10.0, seed: int = 1) -> NoisyTables:
    units = [single(variable, states) for variable, states in enumerate(STATES)]
    return with_noise(from_columns(people(n, seed), units, STATES, parts=1), sigma, seed)


def distance(found: JointEstimate, columns: list[np.ndarray], variables: tuple[int, ...]) -> float:
    """Total variation distance of one table to the columns."""
    shape = [found.model.n_states[variable] for variable in variables]
    cells = np.ravel_multi_index([columns[variable].astype(np.intp) for variable in variables], shape)
    real = np.bincount(cells, minlength=int(np.prod(shape))).reshape(shape) / len(cells)
    return float(np.abs(found.model.shares(variables) - real).sum() / 2)


def test_counts_are_those_of_the_columns() -> None:
    columns = people(1000, 1)
    units = [single(variable, states) for variable, states in enumerate(STATES)]
    tables = from_columns(columns, units, STATES, three_way=[(0, 1, 2)])
    assert tables.n_records == 1000
    for table in tables.tables:
        counts = np.zeros(table.counts.shape)
        np.add.at(counts, tuple(columns[unit] for unit in table.units), 1)
        assert (table.counts == counts).all()
        assert (sum(table.parts) == counts).all()
        assert len(table.parts) == 4
    with pytest.raises(ValueError, match="range"):
        from_columns([columns[0], columns[1], columns[2] + 9], units, STATES)


def test_noisy_tables_become_one_model() -> None:
    found = estimate(noisy(), seed=3)
    columns = people(5000, 1)
    assert found.kind == "mixture"
    assert found.reached
    assert found.guarded
    assert isinstance(found.model, Mixture)
    assert max(distance(found, columns, pair) for pair in ((0, 1), (0, 2), (1, 2))) < 0.03


def randomized(columns: list[np.ndarray], units: list[ColumnUnit], rng: np.random.Generator) -> list[np.ndarray]:
    """The columns through the channels of their units."""
    released = []
    for column, unit in zip(columns, units, strict=True):
        below = np.cumsum(unit.channel.probabilities, axis=1)[column]
        released.append((rng.random(len(column))[:, None] > below).sum(axis=1).astype(np.uint8))
    return released


def test_randomized_columns_become_one_model() -> None:
    columns = people(20_000, 2)
    rng = np.random.default_rng(5)
    units = [single(variable, states, epsilon=2.0) for variable, states in enumerate(STATES)]
    found = estimate(from_columns(randomized(columns, units, rng), units, STATES), seed=3)
    assert found.reached
    assert found.size == TUNING.sizes[0]  # the first that reaches the tables
    assert found.alpha > 0.9
    assert max(distance(found, columns, pair) for pair in ((0, 1), (0, 2), (1, 2))) < 0.03


class Stopped(Exception):
    pass


@pytest.mark.parametrize(
    ("with_network", "stops"), [(False, (4, 30)), pytest.param(True, (3, 90), marks=pytest.mark.whole)]
)
def test_an_estimate_goes_on_bit_for_bit(
    with_network: bool, stops: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atoms, "ATOMS", 2000)
    columns = people(2000, 2)
    units = [single(variable, states, epsilon=1.0) for variable, states in enumerate(STATES)]
    tables = from_columns(columns, units, STATES) if with_network else noisy()
    records = drawn_from(columns) if with_network else None
    whole = estimate(tables, seed=3, records=records)
    again = estimate(tables, seed=3, records=records)
    assert np.array_equal(whole.model.shares((0, 1, 2)), again.model.shares((0, 1, 2)))
    for stop_at in stops:
        kept: list[Arrays] = []

        def keep(make, kept: list[Arrays] = kept, stop_at: int = stop_at) -> None:
            kept.append(make())
            if len(kept) == stop_at:
                raise Stopped

        with pytest.raises(Stopped):
            estimate(tables, seed=3, records=records, keep=keep)
        resumed = estimate(tables, seed=3, records=records, checkpoint=kept[-1])
        assert np.array_equal(whole.model.shares((0, 1, 2)), resumed.model.shares((0, 1, 2)))
        assert resumed.alpha == whole.alpha
    with pytest.raises(ForeignCheckpoint):
        estimate(tables, seed=4, records=records, checkpoint=kept[-1])


def drawn_from(columns: list[np.ndarray]) -> Any:
    """Records of a network that has only the first edge: the last column is on its own."""

    def records(n: int, rng: np.random.Generator) -> list[np.ndarray]:
        chosen = rng.integers(0, len(columns[0]), n)
        return [columns[0][chosen], columns[1][chosen], rng.permutation(columns[2][chosen])]

    return records


def test_records_of_a_network_get_the_tables_that_it_lacks() -> None:
    columns = people(20_000, 2)
    units = [single(variable, states) for variable, states in enumerate(STATES)]
    found = estimate(from_columns(columns, units, STATES), seed=3, records=drawn_from(columns))
    assert found.kind == "records"
    assert found.reached
    assert found.alpha == 1
    assert max(distance(found, columns, pair) for pair in ((0, 1), (0, 2), (1, 2))) < 0.005


def test_impossible_combinations_stay_impossible() -> None:
    columns = people(20_000, 2)
    units = [single(variable, states) for variable, states in enumerate(STATES)]
    exact = from_columns(columns, units, STATES, parts=1)

    def allowed(codes) -> np.ndarray:
        return ~((codes[0] == 1) & (codes[1] == 0))

    for tables, records in ((exact, drawn_from(columns)), (with_noise(exact, 10.0, 1), None)):
        found = estimate(tables, seed=3, records=records, allowed=allowed)
        assert found.kind == "records"
        assert found.model.shares((0, 1))[1, 0] == 0
        assert found.model.shares((0, 1))[1, 2] > 0.1


@pytest.mark.parametrize("is_compound", [False, True])
def test_the_distance_of_exact_columns_is_that_of_their_tables(is_compound: bool) -> None:
    """People themselves are at 0; every combination alike is as far as tables say that are made without the product."""
    units = [single(variable, states) for variable, states in enumerate(STATES)]
    first, second, third = released = people(500, 2)
    tables = np.zeros((2, 3, 4))
    np.add.at(tables, tuple(released), 1 / 500)
    even = np.full((2, 3, 4), 1 / 24)
    far = [0.5 * np.abs((tables - even).sum(axis=axis)).sum() for axis in (2, 1, 0)]
    if is_compound:
        domain = tuple(itertools.product(range(2), range(3)))[::-1]
        units = [ColumnUnit(variables=(0, 1), domain=domain, channel=quantize(identity(6))), units[2]]
        released = [5 - (3 * first + second), third]
        far = [0.5 * np.abs(tables - even).sum()]
    measured = from_columns(released, units, STATES)
    everybody, everything = np.stack([first, second, third], axis=1), np.argwhere(even > 0)
    for codes, expected in ((everybody, 0.0), (everything, np.mean(far))):
        rows = [np.eye(k)[own] for k, own in zip(STATES, codes.T, strict=True)]
        mixture = Mixture(weights=np.full(len(codes), 1 / len(codes)), probability=tuple(rows))
        records = WeightedRecords(n_states=STATES, codes=codes.astype(np.uint16), weights=mixture.weights)
        for model in (mixture, records):
            assert joint_estimate._distance(model, measured) == pytest.approx(expected, abs=1e-9)


def records_without_dependence(n: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Three records, of which no weights make the tables of people."""
    chosen = rng.integers(0, 3, n)
    return [np.array([0, 1, 0])[chosen], np.array([0, 1, 2])[chosen], np.array([0, 1, 3])[chosen]]


def test_a_mixture_itself_is_published_of_exact_columns_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here no weights bring records near to the tables."""
    of_people = people(20_000, 2)

    def weigh(_self: object, _sources: list[Any], _name: str) -> Arrays:
        codes = np.stack(records_without_dependence(1000, np.random.default_rng(1)), axis=1)
        facts = {"steps": 20, "risk": 5.0, "discrepancy": 5.0, "reached": False}
        return {"codes": codes, "weights": np.full(1000, 0.001), **{key: np.array(fact) for key, fact in facts.items()}}

    monkeypatch.setattr(joint_estimate._Estimate, "_weigh", weigh)
    monkeypatch.setattr(joint_estimate._Estimate, "_alpha", lambda _self: 1.0)
    for epsilon, allowed, kind in (
        (None, None, "mixture"),
        (3.0, None, "records"),
        (None, lambda codes: codes[0] >= 0, "records"),
    ):
        units = [single(variable, states, epsilon=epsilon) for variable, states in enumerate(STATES)]
        tables = from_columns(randomized(of_people, units, np.random.default_rng(5)), units, STATES)
        assert estimate(tables, seed=3, records=drawn_from(of_people), allowed=allowed).kind == kind


def test_records_of_the_network_alone_are_published_of_exact_columns_that_they_fit_best(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    weigh, names = joint_estimate._Estimate._weigh, []

    def spoil(self: Any, sources: list[Any], name: str) -> Arrays:
        names.append(name)
        return weigh(self, sources if len(sources) == 1 else [records_without_dependence], name)

    monkeypatch.setattr(joint_estimate._Estimate, "_weigh", spoil)
    of_people = people(20_000, 2)
    for epsilon, expected in ((None, ["of the network", "and size 1"]), (3.0, ["and size 1"])):
        units = [single(variable, states, epsilon=epsilon) for variable, states in enumerate(STATES)]
        tables = from_columns(randomized(of_people, units, np.random.default_rng(5)), units, STATES)
        found = estimate(tables, seed=3, records=drawn_from(of_people))
        assert names[: len(expected)] == expected
        names.clear()
        near = max(distance(found, of_people, pair) for pair in ((0, 1), (0, 2), (1, 2))) < 0.005
        assert (found.kind, near) == ("records", epsilon is None)


def test_exact_columns_are_judged_by_their_distance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by the discrepancy, in which cells of one person count that no record has: a mixture reaches the tables by it."""
    of_people = people(20_000, 2)

    def weigh(_self: object, _sources: list[Any], _name: str) -> Arrays:
        facts = {"steps": 20, "risk": 5.0, "discrepancy": 5.0, "reached": False}
        codes, weights = np.stack(of_people, axis=1), np.full(20_000, 1 / 20_000)
        return {"codes": codes, "weights": weights, **{key: np.array(fact) for key, fact in facts.items()}}

    monkeypatch.setattr(joint_estimate._Estimate, "_weigh", weigh)
    tables = from_columns(of_people, [single(variable, states) for variable, states in enumerate(STATES)], STATES)
    assert estimate(tables, seed=3).reached  # without a network
    found = estimate(tables, seed=3, records=drawn_from(of_people))
    assert (found.kind, found.reached) == ("records", False)
    assert distance(found, of_people, (0, 1)) < 1e-9


def test_a_compound_is_one_unit_of_several_variables() -> None:
    columns = people(20_000, 2)
    domain = tuple((a, b) for a in range(2) for b in range(3) if (a, b) != (1, 1))
    place = {codes: at for at, codes in enumerate(domain)}
    keep = ~((columns[0] == 1) & (columns[1] == 1))
    columns = [column[keep] for column in columns]
    pair = np.array([place[int(a), int(b)] for a, b in zip(columns[0], columns[1], strict=True)], np.uint8)
    compound = ColumnUnit(variables=(0, 1), domain=domain, channel=quantize(symmetric(5, epsilon=3.0)))
    rng = np.random.default_rng(5)
    below = np.cumsum(compound.channel.probabilities, axis=1)[pair]
    released = (rng.random(len(pair))[:, None] > below).sum(axis=1).astype(np.uint8)
    tables = from_columns([released, columns[2]], [compound, single(2, 4)], STATES)
    found = estimate(tables, seed=3)
    assert found.model.shares((0, 1))[1, 1] == 0
    assert max(distance(found, columns, pair) for pair in ((0, 1), (0, 2), (1, 2))) < 0.04


@pytest.mark.whole
def test_a_named_table_of_three_mends_parity() -> None:
    """Three fair coins, the third of which is whether the first two differ: pairs tell nothing. Epsilon 1, delta 1e-9."""
    rng = np.random.default_rng(1)
    first, second = rng.integers(0, 2, (2, 30_000)).astype(np.uint8)
    columns = [first, second, first ^ second]
    units = [single(variable, 2) for variable in range(3)]
    for three_way in ((), ((0, 1, 2),)):
        exact = from_columns(columns, units, (2, 2, 2), three_way=three_way, parts=1)
        sigma = 5.495266 * (2 * len(exact.tables)) ** 0.5  # of one person replaced in all tables
        found = estimate(with_noise(exact, sigma, 1), seed=3)
        off = distance(found, columns, (0, 1, 2))
        assert off < 0.05 if three_way else off > 0.4


@pytest.mark.parametrize(("steps", "tried"), [(600, 2), (8, 4)])
def test_larger_sizes_are_tried_where_the_usual_one_ran_out_of_steps(
    steps: int, tried: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size with the least estimated error is kept, whichever it is."""
    sizes = tuple(
        dataclasses.replace(size, fits=2, components=place + 10, steps=steps) for place, size in enumerate(TUNING.sizes)
    )
    monkeypatch.setattr(joint_estimate, "TUNING", dataclasses.replace(TUNING, sizes=sizes))
    risks: dict[int, float] = {}

    def noted(*args: Any, size: Size, **named: Any) -> Fit:
        found = fit(*args, size=size, **named)
        if size not in sizes:
            return found
        risks[size.components] = float(abs(size.components - 11))  # the second is the best
        return dataclasses.replace(found, risk=risks[size.components], reached=tried == 2)

    monkeypatch.setattr(joint_estimate, "fit", noted)
    found = estimate(noisy(sigma=100.0), seed=3)
    assert len(risks) == tried
    assert found.size.components == 11
    assert found.reached == (tried == 2)


def test_it_is_said_how_much_nearer_the_tables_themselves_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Little noise, and a single step of a small mixture: the model is far off, the tables are not. The estimate of both errors
    has no bias, so their root is near to that of the true squared errors.
    """
    poor = Size(fits=1, components=2, rate=0.05, steps=1)
    monkeypatch.setattr(joint_estimate, "TUNING", dataclasses.replace(TUNING, sizes=(poor, poor)))
    tables = noisy(sigma=10.0)
    found = estimate(tables, seed=3)
    assert not found.reached
    exact = noisy(sigma=0.0)
    ours = theirs = 0.0
    for noised, truth in zip(tables.tables, exact.tables, strict=True):
        ours += float(((5000 * found.model.shares(truth.units) - truth.counts) ** 2).sum())
        theirs += float(((np.maximum(noised.counts, 0.0) - truth.counts) ** 2).sum())
    assert ours > 4 * theirs
    assert found.tables_nearer == pytest.approx((ours / theirs) ** 0.5, rel=0.3)


def test_the_error_of_the_tables_beside_that_of_a_fit_by_hand() -> None:
    """26 cells, X of 60 and df of 5; two cells below 0, by 1 and by 2 standard deviations."""
    tables = noisy(sigma=10.0)
    counts = [np.full(table.counts.shape, 100.0) for table in tables.tables]
    counts[0][0, 0], counts[1][1, 1] = -10.0, -20.0
    measured = dataclasses.replace(
        tables,
        tables=tuple(dataclasses.replace(t, counts=c) for t, c in zip(tables.tables, counts, strict=True)),
    )
    made = joint_estimate._Estimate(measured, 1, None, allowed=None, zeros=None, work=Work())
    found = made._tables_nearer({"discrepancy": np.array(60 / 26), "risk": np.array(60 + 3 * 5)})
    assert sum(table.counts.size for table in tables.tables) == 26
    assert found == pytest.approx((44 / 27) ** 0.5)  # 60 + 2 * 5 - 26, and 1 + 4 + 2 * 24 - 26
    assert made._tables_nearer({"discrepancy": np.array(30 / 26), "risk": np.array(30 + 3 * 5)}) is None


def test_a_fit_that_reaches_its_tables_is_compared_with_nothing() -> None:
    assert estimate(noisy(), seed=3).tables_nearer is None
