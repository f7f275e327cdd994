"""What a run of PrivBayes costs: the noise for a wanted cost, proved of one sum of losses, and the event that says it."""

import dataclasses
import math

import pytest

from verticil.shared.mechanisms.gaussian import analytic_sigma
from verticil.shared.mechanisms.loss import DiscreteGaussianLoss, delta_at, epsilon_at
from verticil.shared.numerics.privbayes.calibration import MEASUREMENTS, Noise
from verticil.shared.privacy.accountant import add_or_remove, cost_of, numerically
from verticil.shared.privacy.events import from_json, to_json, words
from verticil.shared.privacy.privbayes import PrivBayesRun, noise_for, run_event


@pytest.mark.parametrize("relation", ["replace", "add-remove"])
@pytest.mark.parametrize(("epsilon", "d"), [(0.1, 13), (1.0, 13), (8.0, 24)])
def test_the_noise_is_enough_and_hardly_more(relation: str, epsilon: float, d: int) -> None:
    """By hand: a person changes every score by 2 or 3, and 1 or 2 cells of each measurement by 1; 2 % is the issue's bound."""
    noise = noise_for(epsilon, 1e-9, relation, d)
    pairs, change, cells = d * (d - 1) // 2, 3 if relation == "replace" else 2, 2 if relation == "replace" else 1
    losses = {
        DiscreteGaussianLoss(sigma=noise.scores, change=change): pairs,
        DiscreteGaussianLoss(sigma=noise.measurement): cells * MEASUREMENTS * d,
    }
    squares = pairs * (change / noise.scores) ** 2 + cells * MEASUREMENTS * d / noise.measurement**2
    if relation == "add-remove":
        losses[DiscreteGaussianLoss(sigma=noise.records)] = 1
        squares += 1 / noise.records**2
    assert delta_at(losses, epsilon) <= 1e-9
    assert 1 / math.sqrt(squares) <= 1.02 * analytic_sigma(epsilon, 1e-9)
    assert pairs * (change / noise.scores) ** 2 / squares == pytest.approx(0.2, rel=1e-9)
    less = dataclasses.replace(noise, scores=0.95 * noise.scores, measurement=0.95 * noise.measurement)
    assert cost_of(run_event(less, d, delta=1e-9, epsilon=epsilon)).epsilon > epsilon


def test_an_event_costs_what_it_was_made_for_and_is_read_back() -> None:
    noise = noise_for(1.0, 1e-9, "replace", 13)
    event = run_event(noise, 13, delta=1e-9, epsilon=1.0)
    assert cost_of(event).epsilon == 1.0
    assert 0.99 < numerically([event], 1e-9) <= 1.0
    assert from_json(to_json(event)) == event


def test_accounts_charge_what_replacing_a_person_costs_and_say_the_rest_beside() -> None:
    """By hand: replaced, a person changes two cells of each measurement, each score by 3, and not the number of people."""
    noise = noise_for(1.0, 1e-9, "add-remove", 13)
    event = run_event(noise, 13, delta=1e-9, epsilon=1.0)
    replaced = {
        DiscreteGaussianLoss(sigma=noise.scores, change=3): 78,
        DiscreteGaussianLoss(sigma=noise.measurement): 2 * MEASUREMENTS * 13,
    }
    assert cost_of(event).epsilon == pytest.approx(epsilon_at(replaced, 1e-9), rel=1e-6)
    assert 1.4 < cost_of(event).epsilon < 1.5
    beside = add_or_remove([event])
    assert beside is not None
    assert 0.99 < beside.epsilon <= 1.0
    assert "epsilon 1, delta 1e-09 (add or remove one person); epsilon 1.4" in words(event)
    plain = run_event(noise_for(1.0, 1e-9, "replace", 13), 13, delta=1e-9, epsilon=1.0)
    assert add_or_remove([plain]) is None
    assert cost_of(plain).epsilon == 1.0


def test_scores_from_outside_cost_nothing_here() -> None:
    scored, given = (noise_for(1.0, 1e-9, "replace", 13, with_scores=scored) for scored in (True, False))
    assert given.scores is None
    assert given.measurement == pytest.approx(scored.measurement * math.sqrt(0.8), rel=2e-3)


def test_a_relation_that_does_not_fit_the_noise_is_refused() -> None:
    noise = noise_for(1.0, 1e-9, "add-remove", 3)
    with pytest.raises(ValueError, match="relation"):
        dataclasses.replace(run_event(noise, 3, delta=1e-9), relation="replace one person")
    with pytest.raises(ValueError, match="noise on the number of records"):
        Noise(relation="replace", scores=1.0, measurement=1.0, records=1.0)
    with pytest.raises(ValueError, match="allow a larger epsilon"):
        noise_for(0.01, 1e-9, "replace", 200)
    with pytest.raises(ValueError, match="least noise"):
        PrivBayesRun(attributes=1, scores=None, measurement=0.1, measurements=1, records=None, delta=1e-9)
