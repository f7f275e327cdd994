"""A matrix in words: every number against the definition, by brute force over beliefs."""

from __future__ import annotations

import itertools
import re
from fractions import Fraction

import numpy as np
import pytest

from verticil.party.operator.plain_language import PRIOR, belief_words, column_words, total_words
from verticil.party.policy.comparison import percent
from verticil.shared.mechanisms import privacy
from verticil.shared.mechanisms.subset import subset_selection
from verticil.shared.mechanisms.transition import binary, identity, quantize, symmetric
from verticil.shared.privacy.figures import gamma_of_epsilon

SENTENCE = "a true 'yes' is reported as 'yes' 85 % of the time; someone who thought it 15 % likely can raise that to at most 50 %"


def worst_belief(matrix: np.ndarray, category: int, prior: float) -> float:
    """The largest posterior of `category`, whatever is reported and however the other beliefs are spread.

    For a given report the posterior is smallest-denominator when all the rest lies on one other category; the spread is searched
    over a grid besides, so that this does not rest on that argument.
    """
    others = [state for state in range(len(matrix)) if state != category]
    spreads = [np.eye(len(others))[i] for i in range(len(others))]
    grid = [point for point in itertools.product(range(5), repeat=len(others)) if sum(point) == 4]
    spreads += [np.array(point) / 4 for point in grid]
    best = 0.0
    for spread, reported in itertools.product(spreads, range(matrix.shape[1])):
        belief = np.zeros(len(matrix))
        belief[category] = prior
        belief[others] = (1 - prior) * spread
        evidence = float(belief @ matrix[:, reported])
        if evidence > 0:
            best = max(best, belief[category] * matrix[category, reported] / evidence)
    return best


def test_the_sentence_of_the_specification():
    assert column_words(("no", "yes"), quantize(binary(0.15, 0.15)))[1] == SENTENCE


@pytest.mark.parametrize(
    "matrix",
    [
        binary(0.1, 0.25),
        symmetric(3, epsilon=1.2),
        np.array([[0.7, 0.2, 0.1], [0.15, 0.6, 0.25], [0.05, 0.15, 0.8]]),
        np.array([[0.4, 0.3, 0.2, 0.1], [0.1, 0.5, 0.2, 0.2], [0.25, 0.25, 0.3, 0.2], [0.1, 0.2, 0.3, 0.4]]),
    ],
)
def test_every_bound_is_reached_and_never_passed(matrix):
    channel = quantize(matrix)
    labels = tuple("abcd"[: len(matrix)])
    sentences = column_words(labels, channel)
    bounds = [float(re.search(r"at most ([\d.]+) %", text).group(1)) / 100 for text in sentences]
    worst = [worst_belief(np.asarray(matrix), category, float(PRIOR)) for category in range(len(matrix))]
    if len(bounds) == 1:
        worst = [max(worst)]
    for told, true in zip(bounds, worst, strict=True):
        assert true - 1e-9 <= told < true + 1.001e-4  # rounded up to a hundredth of a per cent
    gamma = privacy.gamma(channel)
    posterior = privacy.max_posterior(float(PRIOR), gamma=gamma)
    assert max(bounds) == pytest.approx(
        posterior, abs=1e-4
    )  # randomization.md 1.1: the largest of them is the matrix's


def test_every_cell_of_a_general_matrix_is_said():
    matrix = np.array([[0.7, 0.2, 0.1], [0.15, 0.6, 0.25], [0.05, 0.15, 0.8]])
    first, second, third = column_words(("a", "b", "c"), quantize(matrix))
    assert first.startswith("a true 'a' is reported as 'a' 70 % of the time, as 'b' 20 % and as 'c' 10 %; ")
    assert second.startswith("a true 'b' is reported as 'b' 60 % of the time, as 'c' 25 % and as 'a' 15 %; ")
    assert third.startswith("a true 'c' is reported as 'c' 80 % of the time, as 'b' 15 % and as 'a' 5 %; ")


def test_equal_cells_of_a_long_row_are_said_once():
    blocks = np.kron(np.eye(2), np.full((3, 3), 0.2)) + np.kron(np.eye(2), 0.4 * np.eye(3))
    text = column_words(tuple("abcdef"), quantize(blocks))[0]
    assert text.startswith(
        "a true 'a' is reported as 'a' 60 % of the time, as each of 'b', 'c' 20 % and as each of 'd', 'e', 'f' never"
    )
    assert text.endswith("someone who thought it 15 % likely can become certain")
    wide = np.full((8, 8), 0.05)
    wide[0, :2] = (0.5, 0.2)
    wide[1:, 0], wide[1:, 1] = 0.3, 0.4
    text = column_words(tuple("abcdefgh"), quantize(wide))[0]
    assert "as 'a' 50 % of the time, as 'b' 20 % and as each of the 6 others 5 %" in text


def test_what_is_sent_as_it_is_says_so():
    (text,) = column_words(("a", "b", "c"), quantize(identity(3)))
    assert (
        text
        == "any true category is reported as it is 100 % of the time; someone who thought it 15 % likely can become certain"
    )
    assert column_words(("a", "b"), quantize(identity(2)))[0].startswith("a true 'a' is reported as 'a' always; ")


def test_subset_selection_is_said_as_a_set():
    channel = subset_selection(10, epsilon=1.0)
    (text,) = column_words(tuple(map(str, range(10))), channel)
    assert text.startswith(f"a set of {channel.size} of the 10 categories is reported: the true one is in it ")
    assert percent(Fraction(channel.weight, 2**64)) in text
    assert belief_words(channel.gamma) in text


@pytest.mark.parametrize("epsilon", [0.0, 0.5, 2.0, 12.08, 700.0])
def test_the_total_is_the_formula_of_the_sum(epsilon):
    text = total_words(epsilon, 3)
    bound = float(re.search(r"at most ([\d.]+) %|more than ([\d.]+)", text).group(1) or 100)
    assert bound / 100 == pytest.approx(privacy.max_posterior(0.15, epsilon=min(epsilon, 600.0)), abs=1e-4)
    assert gamma_of_epsilon(float("inf")) is None
    assert "can become certain" in total_words(float("inf"), 1)


def test_bounds_are_rounded_up_and_shares_to_the_nearest():
    assert percent(Fraction(12346, 10**6)) == "1.23 %"
    assert percent(Fraction(12346, 10**6), up=True) == "1.24 %"
    assert percent(Fraction(1, 2) + Fraction(1, 2**64), up=True) == "50 %"  # quantization is no news
    assert percent(Fraction(999_999, 10**6)) == "more than 99.99 %"
    assert percent(Fraction(0)) == "0 %"
