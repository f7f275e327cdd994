"""Estimation axis by axis: the worked examples of the design, and the dense Kronecker product as the reference."""

from functools import reduce

import numpy as np
import pytest

from verticil.experiments.accuracy import family_covariance_blocks
from verticil.shared.mechanisms.transition import binary, identity, quantize, symmetric
from verticil.shared.numerics.estimation.axes import apply_axes
from verticil.shared.numerics.estimation.contingency import family_table, pair_table
from verticil.shared.numerics.estimation.inverse_estimation import as_design

BINARY = quantize(binary(0.1, 0.25))
TERNARY = quantize(symmetric(3, flip=0.15))
PARENT = quantize(binary(0.25, 0.25))


def dense(transitions):
    return reduce(np.kron, [t.probabilities for t in transitions])


def covariance_by_the_theorems(counts, transitions):
    """Ma & Sivakumar, Theorems 1 and 2, dense: Cov[N^|D] = P^-T (diag(P^T n) - P^T diag(n) P) P^-1."""
    p = dense(transitions)
    n = counts.ravel()
    released = np.diag(p.T @ n) - p.T @ np.diag(n) @ p
    return np.linalg.inv(p).T @ released @ np.linalg.inv(p)


def expected_release(counts, transitions):
    return apply_axes(counts, [t.probabilities for t in transitions])


def test_covariance_example_binary():
    counts = np.array([60.0, 40.0])
    released = expected_release(counts, [BINARY])
    np.testing.assert_allclose(released, [64, 36], rtol=1e-12)
    p = BINARY.probabilities
    np.testing.assert_allclose(
        np.diag(released) - p.T @ np.diag(counts) @ p, 12.9 * np.array([[1, -1], [-1, 1]]), rtol=1e-12
    )
    blocks = family_covariance_blocks(released, [BINARY], sampling=False)
    np.testing.assert_allclose(blocks, [30.532544 * np.array([[1, -1], [-1, 1]])], atol=5e-7)
    np.testing.assert_allclose(as_design([BINARY]).variance_pram(released), [30.532544] * 2, atol=5e-7)


def test_covariance_example_ternary():
    counts = np.array([50.0, 30.0, 20.0])
    released = expected_release(counts, [TERNARY])
    np.testing.assert_allclose(released, [42.5, 31.5, 26], rtol=1e-12)
    np.testing.assert_allclose(TERNARY.inverse.diagonal(), 1.545455, atol=5e-7)
    np.testing.assert_allclose(TERNARY.inverse[~np.eye(3, dtype=bool)], -0.272727, atol=5e-7)
    expected = [[55.7851, -29.2562, -26.5289], [-29.2562, 50.3306, -21.0744], [-26.5289, -21.0744, 47.6033]]
    np.testing.assert_allclose(family_covariance_blocks(released, [TERNARY], sampling=False)[0], expected, atol=5e-5)


def test_covariance_example_child_and_parent():
    # The example is written [child][parent]; ours has the child last.
    counts = np.array([[30.0, 10.0], [20.0, 40.0]]).T
    transitions = [PARENT, BINARY]
    released = expected_release(counts, transitions)
    np.testing.assert_allclose(released.T.ravel(), [28.75, 22.25, 21.25, 27.75], rtol=1e-12)
    variance = as_design(transitions).variance_pram(released)
    np.testing.assert_allclose(variance.T.ravel(), [71.6272, 76.2426, 86.6272, 91.2426], atol=5e-5)
    blocks = family_covariance_blocks(released, transitions, sampling=False)
    theta = counts / counts.sum(axis=1, keepdims=True)
    gradient = (np.eye(2) - theta[:, :, None]) / counts.sum(axis=1)[:, None, None]  # (j, k, l)
    sd = np.sqrt(np.einsum("jkl,jlm,jkm->jk", gradient, blocks, gradient))
    np.testing.assert_allclose(theta[:, 0], [0.6, 0.2], rtol=1e-12)
    np.testing.assert_allclose(sd[:, 0], [0.15827, 0.16400], atol=5e-6)


ASYMMETRIC = quantize(np.array([[0.6, 0.3, 0.1], [0.05, 0.9, 0.05], [0.2, 0.2, 0.6]]))
SHAPES = [[ASYMMETRIC], [BINARY, ASYMMETRIC], [TERNARY, BINARY, ASYMMETRIC, PARENT], [quantize(identity(3)), BINARY]]


@pytest.mark.parametrize("transitions", SHAPES)
def test_estimates_and_covariances_are_those_of_the_dense_product(transitions):
    generator = np.random.default_rng(1)
    shape = tuple(t.n_states for t in transitions)
    counts = generator.integers(1, 200, shape).astype(float)
    observed = expected_release(counts, transitions)
    np.testing.assert_allclose(as_design(transitions).estimate(observed), counts, rtol=1e-10)
    reference = covariance_by_the_theorems(counts, transitions)
    np.testing.assert_allclose(
        as_design(transitions).variance_pram(observed).ravel(), reference.diagonal(), rtol=1e-9, atol=1e-9
    )
    n = counts.sum()
    total = reference + np.diag(counts.ravel()) - np.outer(counts.ravel(), counts.ravel()) / n
    np.testing.assert_allclose(as_design(transitions).variance_total(observed).ravel(), total.diagonal(), rtol=1e-9)
    k = shape[-1]
    for j, (block, pram) in enumerate(
        zip(
            family_covariance_blocks(observed, transitions),
            family_covariance_blocks(observed, transitions, sampling=False),
            strict=True,
        )
    ):
        cells = slice(j * k, (j + 1) * k)
        np.testing.assert_allclose(block, total[cells, cells], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(pram, reference[cells, cells], rtol=1e-9, atol=1e-9)


def test_a_transposed_matrix_would_be_seen():
    counts = np.array([60.0, 40.0])
    released = expected_release(counts, [BINARY])
    assert abs(apply_axes(released, [BINARY.inverse.T]) - counts).max() > 1


def test_axes_without_a_matrix_are_left_alone():
    generator = np.random.default_rng(2)
    table = generator.random((2, 3, 4, 5))
    a, b = generator.random((3, 3)), generator.random((5, 5))
    np.testing.assert_allclose(
        apply_axes(table, [None, a, None, b]), np.einsum("pqrs,qx,sy->pxry", table, a, b), rtol=1e-12
    )
    np.testing.assert_allclose(
        apply_axes(table, [None, a, None, None]), np.einsum("pqrs,qx->pxrs", table, a), rtol=1e-12
    )
    same = apply_axes(table, [None] * 4)
    np.testing.assert_array_equal(same, table)
    assert not np.shares_memory(same, table)


def test_a_matrix_may_change_the_number_of_states():
    table = np.arange(6.0).reshape(2, 3)
    np.testing.assert_array_equal(apply_axes(table, [None, np.ones((3, 1))]), [[3.0], [12.0]])


@pytest.mark.parametrize(
    ("matrices", "message"),
    [
        ([None], "1 matrices for a table of 2 axes"),
        ([None, np.eye(2)], "axis 1 has 3 states, but its matrix has shape"),
    ],
)
def test_matrices_that_do_not_fit_are_refused(matrices, message):
    with pytest.raises(ValueError, match=message):
        apply_axes(np.ones((2, 3)), matrices)


def test_an_unrandomized_table_has_sampling_variance_only():
    observed = np.array([[3, 7], [0, 10]])
    transitions = [quantize(identity(2))] * 2
    np.testing.assert_array_equal(as_design(transitions).estimate(observed), observed)
    np.testing.assert_array_equal(as_design(transitions).variance_pram(observed), np.zeros((2, 2)))
    np.testing.assert_allclose(
        as_design(transitions).variance_total(observed), observed * (1 - observed / 20), rtol=1e-12
    )


def test_counting_by_hand():
    a, b = np.array([0, 1, 1, 0], np.uint8), np.array([2, 2, 0, 2], np.uint16)
    np.testing.assert_array_equal(pair_table(a, b, 2, 3), [[0, 0, 2], [1, 0, 1]])
    table = family_table([a, b, a], [2, 3, 2])
    assert (table.dtype, table.shape, table.sum()) == (np.int64, (2, 3, 2), 4)
    np.testing.assert_array_equal(table.sum(axis=2), pair_table(a, b, 2, 3))
    assert pair_table(a[:0], b[:0], 2, 3).sum() == 0


@pytest.mark.parametrize(
    ("columns", "n_states", "message"),
    [
        ([], [], "expected as many"),
        ([np.array([0, 1], np.uint8), np.array([0], np.uint8)], [2, 2], "of one length"),
        ([np.array([0, 2], np.uint8)], [2], "column 0: code out of range, expected below 2"),
    ],
)
def test_columns_that_cannot_be_counted_are_refused(columns, n_states, message):
    with pytest.raises(ValueError, match=message):
        family_table(columns, n_states)
