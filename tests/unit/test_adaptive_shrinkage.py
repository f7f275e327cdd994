"""How much of many tables' distances is believed: nothing of noise, and of others what is nearest to what is there."""

from __future__ import annotations

import numpy as np
import pytest

from verticil.shared.numerics.joint import adaptive_shrinkage
from verticil.shared.numerics.joint.adaptive_shrinkage import believed

TABLES = 400


def residuals(signal: np.ndarray, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Of each table what is there, with that variance, and what is seen, with that of noise, 1, more; 1 to 16 cells are free."""
    rng = np.random.default_rng(seed)
    sizes = rng.choice([1, 2, 4, 9, 16], len(signal))
    there = [rng.normal(0, variance**0.5, size) for variance, size in zip(signal, sizes, strict=True)]
    return there, [one + rng.normal(0, 1, len(one)) for one in there]


def parts(seen: list[np.ndarray]) -> np.ndarray:
    return believed(np.array([(one**2).sum() for one in seen]), np.array([float(len(one)) for one in seen]))


def risk(there: list[np.ndarray], seen: list[np.ndarray], kept: np.ndarray) -> float:
    """Mean squared error of a cell."""
    off = [(part * b - a) ** 2 for a, b, part in zip(there, seen, kept, strict=True)]
    return float(np.concatenate(off).mean())


def james_stein(seen: list[np.ndarray]) -> np.ndarray:
    """Each table on its own, positive part."""
    return np.array([max(0.0, 1 - len(one) / (one**2).sum()) for one in seen])


def test_noise_alone_is_not_believed() -> None:
    """Of 400 tables, ten times. The mean part is below .09: of 300 other draws it was .069 at most, .013 on average; on its own
    a table keeps .11 and more (50 draws)."""
    for seed in range(10):
        _, seen = residuals(np.zeros(TABLES), seed)
        assert parts(seen).mean() < 0.09 < james_stein(seen).mean()


@pytest.mark.parametrize(
    "signal",
    [
        np.zeros(TABLES),
        np.full(TABLES, 0.25),
        np.full(TABLES, 4.0),
        np.where(np.arange(TABLES) % 10, 0.0, 25.0),
        np.where(np.arange(TABLES) % 2, 0.1, 2.0),
        np.full(TABLES, 900.0),
    ],
    ids=["none", "little", "much", "a tenth", "two kinds", "all"],
)
def test_the_error_is_near_the_least_there_can_be(signal: np.ndarray) -> None:
    """The least is that of who knows each table's variance, A / (1 + A); a table on its own is farther from it.

    Five draws each. The error is less than .08 of a cell's noise above the least: of 40 other sets of five it was .063 at most
    (two kinds of tables). Where all is signal both are as good, within .001.
    """
    ours = least = alone = 0.0
    for seed in range(5):
        there, seen = residuals(signal, seed)
        ours += risk(there, seen, parts(seen)) / 5
        least += risk(there, seen, signal / (1 + signal)) / 5
        alone += risk(there, seen, james_stein(seen)) / 5
    assert ours < least + 0.08
    assert ours < alone + (0.003 if signal.min() > 100 else 0)


def test_the_shares_are_of_the_largest_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of the tables with a variance of 16 and none in the others: so many, and such, are found.

    Two standard deviations of a share of a quarter of 4,000 are .014. With shares that stay where they began the mean part is
    another.
    """
    signal = np.where(np.arange(4000) % 4, 0.0, 16.0)
    _, seen = residuals(signal, 3)
    kept = parts(seen)
    assert kept.mean() == pytest.approx(0.25 * 16 / 17, abs=0.014)
    monkeypatch.setattr(adaptive_shrinkage, "_STEPS", 1)
    assert parts(seen).mean() > 0.3


def test_there_may_be_no_table_or_one() -> None:
    assert believed(np.empty(0), np.empty(0)).shape == (0,)
    assert believed(np.array([0.0]), np.array([3.0])) == pytest.approx(0.0, abs=0.01)
    assert believed(np.array([1e6]), np.array([3.0])) == pytest.approx(1.0, abs=0.01)
