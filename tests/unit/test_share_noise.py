"""The noise of a party's share: sticky, from a key of its own."""

from __future__ import annotations

import dataclasses
import hashlib
import math

import numpy as np
import pytest

from verticil.shared.mechanisms import discrete_gaussian
from verticil.shared.mechanisms.gaussian import analytic_sigma
from verticil.shared.mechanisms.shared_statistics_noise import MAX_CELLS, ShareNoise, share_key

KEY = bytes(range(32))
PARTS = {
    "effective_digest": b"e" * 32,
    "structure_sha256": b"s" * 32,
    "common_sha256": b"c" * 32,
    "data_fingerprint": b"d" * 32,
}


def noise_of(**fields) -> ShareNoise:
    return ShareNoise(**{"key": KEY, "epsilon": 1.0, "delta": 1e-9, "n_tables": 5, **fields})


def sha256(table: np.ndarray) -> str:
    return hashlib.sha256(table.astype("<i8").tobytes()).hexdigest()[:32]


def test_the_discrete_noise_stays_what_it_is():
    key = share_key(KEY, **PARTS)
    assert key.hex() == "a3525de63ada6fa96b2f72ad344ea01a10b8ebc9dad71fbdc9011fc3a5e30290"
    noise = noise_of(key=key)
    assert noise.sigma == 17.390625
    assert sha256(noise.add(b"family 1", np.zeros((40, 30)))) == "29de8019a88df05d8b1e95b4d25a2ce3"


def test_the_same_table_gets_the_same_noise_and_no_other_does():
    noise = noise_of()
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


def test_a_key_is_of_one_study_structure_list_and_version_of_the_data():
    key = share_key(KEY, **PARTS)
    assert len(key) == 32
    changed = [share_key(KEY, **{**PARTS, name: b"x" * 32}) for name in PARTS]
    changed += [share_key(bytes(32), **PARTS), share_key(KEY, **{**PARTS, "structure_sha256": b""})]
    moved = {**PARTS, "structure_sha256": b"s" * 31, "common_sha256": b"s" + b"c" * 32}
    assert len({key, *changed, share_key(KEY, **moved)}) == 8


def test_a_key_does_not_show():
    assert "00" not in repr(noise_of(key=bytes(32))).replace("1e-09", "")
    assert "key" not in repr(noise_of())


def test_the_larger_table_is_refused_and_so_is_a_fraction():
    noise = noise_of(n_tables=2**14)
    with pytest.raises(ValueError, match="too large"):
        noise.add(b"x", np.zeros(MAX_CELLS // 2**14 + 1))
    with pytest.raises(ValueError, match="no whole numbers"):
        noise.add(b"x", np.array([1.0, 0.5]))


@pytest.mark.parametrize(
    "make",
    [
        lambda: noise_of(key=b"short"),
        lambda: noise_of(n_tables=0),
        lambda: noise_of(epsilon=0.0),
        lambda: noise_of(delta=0.0),
        lambda: noise_of(epsilon=1e-5, n_tables=100),  # beyond the largest sigma
        lambda: share_key(b"short", **PARTS),
        lambda: share_key(KEY, **{**PARTS, "common_sha256": b""}),
    ],
)
def test_what_cannot_be_promised_is_refused(make):
    with pytest.raises(ValueError, match=r"expected|must be named"):
        make()


def test_the_noise_is_that_of_replacing_one_person_in_every_table():
    """Sensitivity sqrt(2 T): two cells move by one in each of T tables; sqrt(2) less would be that of adding one."""
    for n_tables in (1, 4, 15):
        noise, alone = noise_of(n_tables=n_tables), analytic_sigma(1.0, 1e-9)
        assert 1 <= noise.sigma / (math.sqrt(2 * n_tables) * alone) < 1.02
        assert noise.sigma == discrete_gaussian.discrete_sigma(1.0, 1e-9, n_tables)
    assert noise.variance == discrete_gaussian.variance(noise.sigma)
    drawn = noise.add(b"x", np.zeros(40_000))  # the variance of so many draws is off by 5 % in one of 1e11
    assert float((drawn**2).mean()) == pytest.approx(noise.variance, rel=0.05)
