"""The noise of a party's share: two kinds behind one interface, sticky, each with keys of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import math

import numpy as np
import pytest

from verticil.shared.mechanisms import discrete_gaussian
from verticil.shared.mechanisms.gaussian import MAX_CELLS, rounded_gaussian_thresholds, share_sigma
from verticil.shared.mechanisms.share_noise import DISCRETE, KINDS, ROUNDED, ShareNoise, share_key

KEY = bytes(range(32))
PARTS = {
    "effective_digest": b"e" * 32,
    "structure_sha256": b"s" * 32,
    "common_sha256": b"c" * 32,
    "data_fingerprint": b"d" * 32,
}


def noise_of(kind: str, **fields) -> ShareNoise:
    return ShareNoise(**{"noise": kind, "key": KEY, "epsilon": 1.0, "delta": 1e-9, "n_tables": 5, **fields})


def sha256(table: np.ndarray) -> str:
    return hashlib.sha256(table.astype("<i8").tobytes()).hexdigest()[:32]


def test_the_rounded_noise_is_that_of_the_versions_before():
    """Key and draws that the version before had for the same arguments."""
    key = share_key(KEY, ROUNDED, **PARTS)
    assert key.hex() == "14f3615572650ee669f7180483dc57f728cf4556fc5ac72ae1d654c826e1ccc4"
    noise = noise_of(ROUNDED, key=key)
    assert sha256(noise.add(b"family 1", np.zeros((40, 30)))) == "7e7b9526887ee21592147b4eef4984ce"


def test_the_discrete_noise_stays_what_it_is():
    key = share_key(KEY, DISCRETE, **PARTS)
    assert key.hex() == "a3525de63ada6fa96b2f72ad344ea01a10b8ebc9dad71fbdc9011fc3a5e30290"
    noise = noise_of(DISCRETE, key=key)
    assert noise.sigma == 17.390625
    assert sha256(noise.add(b"family 1", np.zeros((40, 30)))) == "29de8019a88df05d8b1e95b4d25a2ce3"


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_table_gets_the_same_noise_and_no_other_does(kind):
    noise = noise_of(kind)
    zeros = np.zeros((4, 3))
    first = noise.add(b"family 1", zeros)
    np.testing.assert_array_equal(first, noise.add(b"family 1", zeros))
    np.testing.assert_array_equal(first + 7, noise.add(b"family 1", zeros + 7))
    others = [
        noise.add(b"family 2", zeros),
        noise.add(b"family 1", np.zeros((3, 4))).reshape(4, 3),
        dataclasses.replace(noise, key=bytes(32)).add(b"family 1", zeros),
    ]
    assert all((first != other).any() for other in others)
    assert (first == np.rint(first)).all()


def test_another_kind_is_another_draw_of_another_key():
    """A study that says the other noise is charged as a new one, so its draws must tell nothing of the old ones."""
    assert share_key(KEY, ROUNDED, **PARTS) != share_key(KEY, DISCRETE, **PARTS)
    zeros = np.zeros(1000)
    two = [noise_of(kind, n_tables=15).add(b"x", zeros) for kind in (ROUNDED, DISCRETE)]
    assert abs(np.corrcoef(*two)[0, 1]) < 5 / math.sqrt(1000)  # a false alarm in 2e6


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_is_of_one_study_structure_list_and_version_of_the_data(kind):
    key = share_key(KEY, kind, **PARTS)
    assert len(key) == 32
    changed = [share_key(KEY, kind, **{**PARTS, name: b"x" * 32}) for name in PARTS]
    changed += [share_key(bytes(32), kind, **PARTS), share_key(KEY, kind, **{**PARTS, "structure_sha256": b""})]
    moved = {**PARTS, "structure_sha256": b"s" * 31, "common_sha256": b"s" + b"c" * 32}
    assert len({key, *changed, share_key(KEY, kind, **moved)}) == 8


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_does_not_show(kind):
    assert "00" not in repr(noise_of(kind, key=bytes(32))).replace("1e-09", "")
    assert "key" not in repr(noise_of(kind))


@pytest.mark.parametrize("kind", KINDS)
def test_the_larger_table_is_refused_and_so_is_a_fraction(kind):
    noise = noise_of(kind, n_tables=2**14)
    with pytest.raises(ValueError, match="too large"):
        noise.add(b"x", np.zeros(MAX_CELLS // 2**14 + 1))
    with pytest.raises(ValueError, match="no whole numbers"):
        noise.add(b"x", np.array([1.0, 0.5]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: noise_of("laplace"),
        lambda: noise_of(ROUNDED, key=b"short"),
        lambda: noise_of(DISCRETE, n_tables=0),
        lambda: noise_of(DISCRETE, epsilon=0.0),
        lambda: noise_of(DISCRETE, delta=0.0),
        lambda: noise_of(DISCRETE, epsilon=1e-5, n_tables=100),  # beyond the largest sigma
        lambda: share_key(b"short", DISCRETE, **PARTS),
        lambda: share_key(KEY, DISCRETE, **{**PARTS, "common_sha256": b""}),
    ],
)
def test_what_cannot_be_promised_is_refused(make):
    with pytest.raises(ValueError, match=r"expected|must be named"):
        make()


def test_the_variances_are_those_of_the_numbers_that_are_drawn():
    """By the weights themselves: of the rounded one a twelfth of a squared step more than sigma^2."""
    noise = noise_of(ROUNDED, epsilon=4.0, delta=1e-3, n_tables=1)
    thresholds = rounded_gaussian_thresholds(noise.sigma)
    weights = np.diff(np.array([0, *thresholds, 2**128], dtype=object)) / 2**128
    numbers = np.arange(len(weights)) - len(weights) // 2
    assert float((weights * numbers**2).sum()) == pytest.approx(noise.variance, rel=1e-6)
    noise = noise_of(DISCRETE, epsilon=4.0, delta=1e-3, n_tables=1)
    assert noise.variance == discrete_gaussian.variance(noise.sigma)


def test_each_kind_has_its_own_calibration():
    assert noise_of(ROUNDED).sigma == share_sigma(1.0, 1e-9, 5)
    assert noise_of(DISCRETE).sigma == discrete_gaussian.discrete_sigma(1.0, 1e-9, 5)
