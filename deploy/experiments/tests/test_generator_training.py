"""The generator's training (``pytest -m gan``): gradients against torch's own, accounting against opacus', resuming, rules.

torch and opacus come with the extra ``gan``, and are imported by the tests that this marker selects.
"""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path

import numpy as np
import pytest

from support.rule_training import KEY, KNOWN, SCHEMA, N, event_of, people
from verticil.gan.accounting import GeneratorTraining
from verticil.gan.settings import Settings
from verticil.gan.streams import Stream
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.knowledge.rules import Condition, Knowledge, Rule
from verticil.shared.numerics.knowledge.support import support
from verticil.shared.privacy.accountant import add_or_remove

pytestmark = pytest.mark.gan

SETTINGS = Settings(steps=150, batch=100, generator=(32,), critic=(16,))


def event(steps: int | None = None) -> GeneratorTraining:
    return event_of(SETTINGS, steps=steps)


def test_clipped_sums_are_those_of_every_persons_gradient():
    """By `vmap` of `grad`, the penalty inside; with half of the gradients clipped, and with none."""
    import torch

    from verticil.gan.training import clipped_sums, forward, layers

    stream = Stream(bytes(32), b"test")
    weights = [w.detach() + 0.1 * torch.as_tensor(stream.normal(*w.shape)) for w in layers(stream, (9, 7, 5, 1))]
    real, fake = (torch.as_tensor(stream.uniform(20, 9)) for _ in range(2))
    between = torch.as_tensor(stream.uniform(20, 1))

    def loss(weights, real, fake, between):
        def score(point):
            return forward(weights, point)[0]

        slope = torch.func.grad(score)(between * real + (1 - between) * fake)
        return score(fake) - score(real) + 10 * (slope.square().sum().sqrt() - 1).square()

    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0, 0))(weights, real, fake, between)
    norms = sum(gradient.flatten(1).square().sum(1) for gradient in each).sqrt()
    for clip in (float(norms.median()), 1e6):
        scales = clip / norms.clamp(min=clip)
        found = clipped_sums(weights, real, fake, between, penalty=10.0, clip=clip)
        for mine, gradient in zip(found, each, strict=True):
            assert torch.allclose(mine, torch.tensordot(scales, gradient, dims=1), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("sigma", "rate", "steps", "delta"), [(1.348, 500 / 26048, 1500, 1e-5), (0.8, 0.01, 300, 1e-6)]
)
def test_epsilon_of_the_steps_is_that_of_an_independent_accountant(sigma, rate, steps, delta):
    """opacus' PRV accountant, one person more or less, to 0.001; the counts have so much noise that they cost nothing to see."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants import PRVAccountant

        theirs = PRVAccountant()
        theirs.history = [(sigma, rate, steps)]
        expected = theirs.get_epsilon(delta, eps_error=2e-4)
    mine = GeneratorTraining(steps=steps, rate=rate, sigma=sigma, tables=1, counts=1e5, delta=delta)
    found = add_or_remove([mine])
    assert found is not None
    assert found.epsilon == pytest.approx(expected, abs=1e-3)


def test_a_training_that_is_interrupted_goes_on_to_the_same_generator(tmp_path: Path):
    import torch

    from verticil.gan.training import train

    class Interrupted(Exception): ...

    def until(done: int) -> None:
        if done == 120:
            raise Interrupted

    whole = train(people(), SCHEMA, KNOWN, event(), key=KEY, settings=SETTINGS)
    place = tmp_path / "checkpoint.pt"
    with pytest.raises(Interrupted):
        train(people(), SCHEMA, KNOWN, event(), key=KEY, settings=SETTINGS, checkpoint=place, step=until)
    assert torch.load(place, weights_only=True)["done"] == 100
    assert place.stat().st_mode & 0o777 == 0o600
    made: list[int] = []
    again = train(people(), SCHEMA, KNOWN, event(), key=KEY, settings=SETTINGS, checkpoint=place, step=made.append)
    assert made == list(range(101, 151))
    assert all(torch.equal(a, b) for a, b in zip(whole.weights, again.weights, strict=True))
    other = train(people(), SCHEMA, KNOWN, event(), key=KEY[::-1], settings=SETTINGS)
    assert not torch.equal(whole.weights[0], other.weights[0])
    for changed, settings in (
        (dataclasses.replace(event(), sigma=9.0), SETTINGS),
        (event(), dataclasses.replace(SETTINGS, penalty=1.0)),
        (event(), dataclasses.replace(SETTINGS, rule_loss="holds")),
    ):
        with pytest.raises(DataFault, match=r"STATE_CORRUPT.*not a checkpoint of this training"):
            train(people(), SCHEMA, KNOWN, changed, key=KEY, settings=settings, checkpoint=place)
    place.write_bytes(b"no checkpoint")
    with pytest.raises(DataFault, match="STATE_CORRUPT"):
        train(people(), SCHEMA, KNOWN, event(), key=KEY, settings=SETTINGS, checkpoint=place)


def test_records_keep_every_rule_and_are_near_the_people():
    """Shares of a within 0.1: counts have noise of about 10 people. A generator that knew nothing would be off by 0.17."""
    from verticil.gan.sampling import sample
    from verticil.gan.training import train

    trained = train(people(), SCHEMA, KNOWN, event(400), key=KEY, settings=dataclasses.replace(SETTINGS, steps=400))
    allowed = support(KNOWN, SCHEMA)
    found = sample(trained, allowed, 12_345, seed=1)
    assert [len(column) for column in found.codes] == [12_345] * 3
    assert allowed.holds(found.codes).all()
    assert found.violated == {"a 0 has b 0": found.left_out}
    assert found.drawn >= 12_345 + found.left_out or found.drawn % 10_000 == 0
    shares = np.bincount(found.codes[0], minlength=3) / 12_345
    assert np.abs(shares - np.bincount(people()[0], minlength=3) / N).max() < 0.1
    again = sample(trained, allowed, 12_345, seed=1)
    assert all(np.array_equal(a, b) for a, b in zip(found.codes, again.codes, strict=True))


def test_a_generator_that_hardly_keeps_a_rule_ends_with_an_error_that_names_it():
    from verticil.gan.sampling import sample
    from verticil.gan.training import train

    trained = train(people(), SCHEMA, None, event(1), key=KEY, settings=dataclasses.replace(SETTINGS, steps=1))
    never = Condition(variable="c", values=("0", "1"))
    with pytest.raises(DataFault, match=r"LEARNING_FAILED.*most break the rule 'none at all'"):
        sample(trained, support(Knowledge(rules=(Rule(name="none at all", when=(never,)),)), SCHEMA), 10, seed=1)
