"""Quantization, thresholds and the matrices that a study can declare."""

import math
import pickle
from fractions import Fraction

import numpy as np
import pytest

from verticil.shared.core.errors import Misuse
from verticil.shared.mechanisms.transition import (
    SCALE,
    Transition,
    binary,
    blocks,
    identity,
    quantize,
    symmetric,
    validate_matrix,
)


def test_a_third_each_gives_the_one_missing_unit_to_the_first_category():
    # 2^64 = 3 * 6148914691236517205 + 1, and the three remainders are equal.
    third = (SCALE - 1) // 3
    assert quantize(np.full((3, 3), 1 / 3)).weights[0] == (third + 1, third, third)


def test_the_missing_units_go_to_the_largest_remainders():
    row = [0.1, 0.7, 0.2]
    total = sum(map(Fraction, row))
    exact = [Fraction(p) / total * SCALE for p in row]
    weights = quantize(np.array([row] * 3)).weights[0]
    assert all(abs(weight - share) < 1 for weight, share in zip(weights, exact, strict=True))
    raised = [weight > share for weight, share in zip(weights, exact, strict=True)]
    remainders = [share - math.floor(share) for share in exact]
    assert sorted(remainders, reverse=True)[: sum(raised)] == sorted(
        (r for r, up in zip(remainders, raised, strict=True) if up), reverse=True
    )


def test_zeros_and_ones_stay_exact():
    assert quantize(np.array([[0.0, 1.0], [1.0, 0.0]])).weights == ((0, SCALE), (SCALE, 0))
    assert quantize(identity(4)).is_identity
    assert not quantize(symmetric(4, epsilon=5)).is_identity


def test_a_row_that_sums_to_1_within_the_tolerance_is_rescaled():
    weights = quantize(np.array([[0.5, 0.5 + 1e-10], [0.0, 1.0]])).weights
    assert sum(weights[0]) == SCALE
    assert weights[0][0] < SCALE // 2 < weights[0][1]


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((), "at least one row"),
        (((SCALE, 0),), "row 1 has 2 weights, expected 1"),
        (((SCALE, 0), (SCALE - 1, 0)), f"row 2 sum to {SCALE - 1}, expected {SCALE}"),
        (((SCALE + 1, -1), (0, SCALE)), "row 1 has a weight that is not a whole number >= 0"),
        (((float(SCALE), 0), (0, SCALE)), "row 1 has a weight that is not a whole number >= 0"),
    ],
)
def test_weights_that_are_no_transition_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        Transition(weights=weights)


def released_by_definition(row, u):
    """#{j : u >= t_j} in Python's whole numbers (contract.md section 1)."""
    return sum(u >= sum(row[: j + 1]) for j in range(len(row) - 1))


@pytest.mark.parametrize(
    "matrix",
    [
        binary(0.1, 0.25),
        symmetric(5, epsilon=3),
        identity(3),
        np.array([[0.0, 1.0], [1.0, 0.0]]),
        np.array([[0.0, 0.0, 1.0], [0.5, 0.0, 0.5], [1.0, 0.0, 0.0]]),
        blocks([(0, 3), (1, 2)], 4, keep=0.8),
    ],
)
def test_thresholds_give_the_defined_category_on_both_sides_of_every_edge(matrix):
    transition = quantize(matrix)
    limits, lead = transition.thresholds()
    for true, row in enumerate(transition.weights):
        edges = {sum(row[: j + 1]) for j in range(len(row))}
        for u in {0, SCALE - 1} | {e + shift for e in edges for shift in (-1, 0, 1) if 0 <= e + shift < SCALE}:
            released = int(lead[true]) + int((np.uint64(u) > limits[true]).sum())
            assert released == released_by_definition(row, u)
            assert row[released] > 0


@pytest.mark.parametrize(("n_states", "dtype"), [(256, np.uint8), (257, np.uint16)])
def test_the_lead_has_the_dtype_of_the_codes(n_states, dtype):
    limits, lead = quantize(identity(n_states)).thresholds()
    assert (limits.dtype, limits.shape, lead.dtype) == (np.uint64, (n_states, n_states - 1), dtype)
    assert lead.tolist() == list(range(n_states))


def test_the_digest_is_sha256_of_the_weights_as_compact_json():
    # printf '[["18446744073709551616","0"],["0","18446744073709551616"]]' | sha256sum
    assert quantize(identity(2)).digest().hex() == "0296631b02e88830705f3906d6414bf0a9370ab71c8132a7c3e5c7cbffbafbe7"


def test_a_transition_is_a_value():
    transition = quantize(symmetric(3, epsilon=1))
    assert transition.inverse.shape == (3, 3)  # a computed array does not take part
    again = pickle.loads(pickle.dumps(transition))
    assert again == transition == quantize(symmetric(3, epsilon=1))
    assert hash(again) == hash(transition)
    for array in (transition.probabilities, transition.inverse, again.inverse):
        with pytest.raises(ValueError, match="read-only"):
            array[0, 0] = 0
    with pytest.raises(AttributeError):
        transition.weights = ()


@pytest.mark.parametrize("n_states", [2, 3, 16, 100])
def test_the_inverse_of_a_symmetric_matrix_is_the_closed_form(n_states):
    p = symmetric(n_states, epsilon=1)[0, 1]
    closed = (np.eye(n_states) - p) / (1 - n_states * p)  # (I - p 11^T) / lambda
    np.testing.assert_allclose(
        quantize(symmetric(n_states, epsilon=1)).inverse, closed, rtol=0, atol=1e-12 / (1 - n_states * p)
    )


def test_rows_of_a_badly_conditioned_inverse_still_sum_to_1():
    inverse = quantize(symmetric(4, keep=0.25 + 3e-6)).inverse
    np.testing.assert_allclose(inverse.sum(axis=1), 1, rtol=0, atol=1e-9)


@pytest.mark.parametrize("n_states", [2, 5, 16])
def test_the_four_ways_to_give_a_symmetric_matrix_agree(n_states):
    gamma = math.exp(2)
    keep, flip = gamma / (gamma + n_states - 1), 1 / (gamma + n_states - 1)
    expected = np.full((n_states, n_states), flip) + (keep - flip) * np.eye(n_states)
    for number in ({"epsilon": 2.0}, {"gamma": gamma}, {"keep": keep}, {"flip": flip}):
        np.testing.assert_allclose(symmetric(n_states, **number), expected, rtol=0, atol=1e-15)


def test_a_large_epsilon_does_not_overflow():
    assert quantize(symmetric(3, epsilon=1e4)).is_identity


def test_blocks_use_the_number_for_every_group_with_its_own_size():
    matrix = blocks([(0, 1), (2, 3, 4), (5,)], 6, gamma=4)
    np.testing.assert_allclose(matrix[:2, :2], [[0.8, 0.2], [0.2, 0.8]], rtol=0, atol=1e-15)
    np.testing.assert_allclose(matrix[2:5, 2:5].diagonal(), 4 / 6, rtol=0, atol=1e-15)
    assert matrix[5].tolist() == [0, 0, 0, 0, 0, 1]
    assert matrix[:2, 2:].sum() == 0
    validate_matrix(matrix, where="column 'a'")


@pytest.mark.parametrize("groups", [[(0, 1)], [(0, 1), (1, 2)], [(0, 1), (2, 3)], []])
def test_groups_that_are_no_partition_are_refused(groups):
    with pytest.raises(Misuse, match="column 'a': the groups are not a partition") as caught:
        blocks(groups, 3, keep=0.8, where="column 'a'")
    assert caught.value.code == "MATRIX_INVALID"


def test_an_empty_group_is_refused():
    with pytest.raises(Misuse, match="a group is empty"):
        blocks([(0, 1), ()], 2, keep=0.8)


@pytest.mark.parametrize(
    ("number", "message"),
    [
        ({"epsilon": 0.0}, "epsilon is 0, expected a finite number > 0"),
        ({"epsilon": math.nan}, "epsilon is nan"),
        ({"epsilon": math.inf}, "epsilon is inf"),
        ({"gamma": 1.0}, "gamma is 1, expected a finite number > 1"),
        ({"keep": 1.01}, "keep is 1.01, expected a probability"),
        ({"flip": 0.51}, "flip is 0.51, expected a probability of at most 1/2"),
        ({"flip": -0.1}, "flip is -0.1"),
    ],
)
def test_numbers_out_of_range_are_refused(number, message):
    with pytest.raises(Misuse, match=message) as caught:
        symmetric(3, **number)
    assert caught.value.code == "MATRIX_INVALID"


@pytest.mark.parametrize("numbers", [{}, {"epsilon": 1.0, "keep": 0.5}])
def test_exactly_one_number_is_expected(numbers):
    with pytest.raises(ValueError, match="one of epsilon, gamma, keep, flip"):
        symmetric(3, **numbers)


def test_binary_probabilities_are_checked():
    with pytest.raises(Misuse, match=r"p2 is 1\.5, expected a probability"):
        binary(0.1, 1.5)


@pytest.mark.parametrize(
    ("matrix", "code", "message"),
    [
        (np.ones((2, 3)), "MATRIX_INVALID", "matrix has shape 2 x 3, expected K x K"),
        (np.ones(3), "MATRIX_INVALID", "matrix has shape 3, expected K x K"),
        (np.ones((0, 0)), "MATRIX_INVALID", "matrix has shape 0 x 0"),
        (np.array([[1.0, 0.0], [math.nan, 1.0]]), "MATRIX_INVALID", "matrix row 2 has an entry that is not a finite"),
        (
            np.array([[1.5, -0.5], [0.0, 1.0]]),
            "MATRIX_INVALID",
            "matrix row 1 has the entry -0.5, expected numbers >= 0",
        ),
        (np.array([[1.0, 0.0], [0.5, 0.48]]), "MATRIX_INVALID", "matrix row 2 sums to 0.98, expected 1 within 1e-09"),
        (np.array([[0.5, 0.5], [0.5, 0.5]]), "MATRIX_SINGULAR", "condition number inf, expected below 1e"),
        (np.array([[0.3, 0.7], [0.3, 0.7 - 1e-16]]), "MATRIX_SINGULAR", "condition number inf"),
        (binary(0.5, 0.5 - 1e-7), "MATRIX_SINGULAR", "the matrix is singular: condition number"),
        (binary(0.25, 0.75), "MATRIX_SINGULAR", "the matrix is singular"),
    ],
)
def test_a_declared_matrix_that_does_not_hold_is_refused_by_row_and_number(matrix, code, message):
    with pytest.raises(Misuse) as caught:
        validate_matrix(matrix, where="column 'ward'")
    assert caught.value.code == code
    assert caught.value.message.startswith("column 'ward': ")
    assert message in caught.value.message


@pytest.mark.parametrize("matrix", [binary(0.1, 0.25), binary(0.9, 0.8), symmetric(100, epsilon=1), identity(2)])
def test_good_matrices_pass(matrix):
    validate_matrix(matrix, where="column 'ward'")


@pytest.mark.parametrize("matrix", [np.ones((2, 3)), np.array([[1.0, -0.0], [-0.1, 1.1]]), np.zeros((2, 2))])
def test_quantize_refuses_what_is_no_matrix_of_probabilities(matrix):
    with pytest.raises(ValueError, match=r"expected a square matrix|is all zero"):
        quantize(matrix)
