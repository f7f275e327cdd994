"""Statements of random numbers come back exactly, and rounded noise is symmetric, for whatever hypothesis finds."""

from __future__ import annotations

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verticil.shared.mechanisms.gaussian import (
    analytic_delta,
    analytic_sigma,
    rounded_gaussian_thresholds,
    whole_numbers,
)
from verticil.shared.release.statement import parse_statement, statement_body

numbers = st.floats(allow_nan=False, allow_infinity=False) | st.just(math.nan)


@pytest.fixture(scope="module")
def case(peer_case, peer_study):
    case = peer_case(peer_study(), n=300)
    return case.study, case.statement("clinic")


@settings(max_examples=60, deadline=None)
@given(
    cells=st.lists(numbers, min_size=6, max_size=6),
    error=st.lists(st.floats(0, 1e300) | st.just(math.nan), min_size=6, max_size=6),
)
def test_every_double_survives(case, cells, error):
    study, statement = case
    age, smoker = statement.families
    changed = dataclasses.replace(
        smoker, estimate=np.array(cells).reshape(3, 2), standard_error=np.array(error).reshape(3, 2)
    )
    read = parse_statement(statement_body(dataclasses.replace(statement, families=(age, changed)), study), study)
    np.testing.assert_array_equal(read.families[1].estimate, changed.estimate)
    np.testing.assert_array_equal(read.families[1].standard_error, changed.standard_error)


@settings(max_examples=40, deadline=None)
@given(sigma=st.floats(0.5, 60.0))
def test_thresholds_are_symmetric_and_ascend(sigma):
    thresholds = rounded_gaussian_thresholds(sigma)
    assert all(low <= high for low, high in itertools.pairwise(thresholds))
    assert all(abs(low + high - 2**128) <= 1 for low, high in zip(thresholds, thresholds[::-1], strict=True))


@settings(max_examples=40, deadline=None)
@given(sigma=st.floats(0.5, 60.0), first=st.integers(0, 2**64 - 1), second=st.integers(0, 2**64 - 1))
def test_a_draw_is_the_number_of_thresholds_passed(sigma, first, second):
    thresholds = rounded_gaussian_thresholds(sigma)
    (drawn,) = whole_numbers(np.array([[first, second]], dtype=np.uint64), sigma)
    u = first * 2**64 + second
    assert drawn == sum(threshold <= u for threshold in thresholds) - len(thresholds) // 2


@settings(max_examples=80, deadline=None)
@given(epsilon=st.floats(1e-3, 30.0), log_delta=st.floats(-14, -2), sensitivity=st.floats(0.1, 50.0))
def test_calibration_is_tight_and_scales(epsilon, log_delta, sensitivity):
    delta = 10.0**log_delta
    sigma = analytic_sigma(epsilon, delta, sensitivity=sensitivity)
    assert analytic_delta(sigma, epsilon, sensitivity=sensitivity) <= delta * (1 + 1e-9)
    assert analytic_delta(0.999 * sigma, epsilon, sensitivity=sensitivity) > delta
