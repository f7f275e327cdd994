"""Statements of random numbers come back exactly, and rounded noise is symmetric, for whatever hypothesis finds."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from verticil.shared.mechanisms.gaussian import analytic_delta, analytic_sigma
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


@settings(max_examples=80, deadline=None)
@given(epsilon=st.floats(1e-3, 30.0), log_delta=st.floats(-14, -2), sensitivity=st.floats(0.1, 50.0))
def test_calibration_is_tight_and_scales(epsilon, log_delta, sensitivity):
    delta = 10.0**log_delta
    sigma = analytic_sigma(epsilon, delta, sensitivity=sensitivity)
    assert analytic_delta(sigma, epsilon, sensitivity=sensitivity) <= delta * (1 + 1e-9)
    assert analytic_delta(0.999 * sigma, epsilon, sensitivity=sensitivity) > delta
