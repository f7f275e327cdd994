"""The autoencoder that knows rules (``pytest -m gan``): checkpoints, rules, shares, and what no person is in.

torch comes with the extra ``gan``, and is imported by the tests that this marker selects.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from support.rule_training import KEY, KNOWN, SCHEMA, ZERO, N, event_of, people
from verticil.gan.accounting import GeneratorTraining
from verticil.gan.settings import AutoencoderSettings, Settings
from verticil.gan.steps import content_digest
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.knowledge.rules import Knowledge, SoftRule
from verticil.shared.numerics.knowledge.support import support
from verticil.shared.numerics.model.schema import Variable

SETTINGS = AutoencoderSettings(steps=150, batch=100, latent=4, hidden=16, samples=100)


def event(steps: int | None = None) -> GeneratorTraining:
    return event_of(SETTINGS, steps=steps)


def test_a_digest_names_records_by_their_content():
    """No torch: another value of one person, another rule, another category or another key is another digest."""
    digest = content_digest(people(), SCHEMA, KNOWN, KEY)
    wide = [column.astype(np.uint16) for column in people()]
    assert content_digest(wide, SCHEMA, KNOWN, KEY) == digest
    other = people()
    other[2][17] = 1 - other[2][17]
    renamed = dataclasses.replace(
        SCHEMA, variables=(*SCHEMA.variables[:2], Variable(name="c", owner="a", labels=("0", "2")))
    )
    changed = {
        content_digest(other, SCHEMA, KNOWN, KEY),
        content_digest(people(), SCHEMA, None, KEY),
        content_digest(people(), renamed, KNOWN, KEY),
        content_digest(people(), SCHEMA, KNOWN, KEY[::-1]),
        digest,
    }
    assert len(changed) == 5


@pytest.mark.gan
def test_a_training_that_is_interrupted_goes_on_to_the_same_decoder(tmp_path: Path):
    import torch

    from verticil.gan.autoencoder import train

    class Interrupted(Exception): ...

    def until(done: int) -> None:
        if done == 120:
            raise Interrupted

    whole = train(people(), SCHEMA, KNOWN, event(), key=KEY, settings=SETTINGS)
    place = tmp_path / "checkpoint.pt"
    with pytest.raises(Interrupted):
        train(people(), SCHEMA, KNOWN, event(), key=KEY, settings=SETTINGS, checkpoint=place, step=until)
    assert torch.load(place, weights_only=True)["done"] == 100
    made: list[int] = []
    again = train(people(), SCHEMA, KNOWN, event(), key=KEY, settings=SETTINGS, checkpoint=place, step=made.append)
    assert made == list(range(101, 151))
    assert all(torch.equal(a, b) for a, b in zip(whole.weights, again.weights, strict=True))


@pytest.mark.gan
@pytest.mark.parametrize("generator", ["gan", "vae"])
def test_a_checkpoint_of_other_records_or_rules_is_never_gone_on_with(tmp_path: Path, generator: str):
    """Key, event and settings are the same; one person's value, or the rules, are others."""
    from verticil.gan import autoencoder, training

    quick = SETTINGS if generator == "vae" else Settings(steps=2, batch=100, generator=(8,), critic=(8,))
    train = autoencoder.train if generator == "vae" else training.train
    place = tmp_path / "checkpoint.pt"
    asked = {"key": KEY, "settings": dataclasses.replace(quick, steps=2), "checkpoint": place}
    train(people(), SCHEMA, KNOWN, event(2), **asked)
    other = people()
    other[2][17] = 1 - other[2][17]
    for codes, known in ((other, KNOWN), (people(), None)):
        with pytest.raises(DataFault, match=r"STATE_CORRUPT.*expected the same records, study, noise and settings"):
            train(codes, SCHEMA, known, event(2), **asked)


@pytest.mark.gan
def test_a_checkpoint_of_a_program_before_names_no_records_and_its_training_begins_again(tmp_path: Path):
    import torch

    from verticil.gan.training import train

    settings = Settings(steps=3, batch=100, generator=(8,), critic=(8,))
    place, made = tmp_path / "checkpoint.pt", list[int]()
    whole = train(people(), SCHEMA, KNOWN, event(3), key=KEY, settings=settings, checkpoint=place)
    state = torch.load(place, weights_only=True)
    del state["account"]["records"]
    torch.save(state, place)
    again = train(people(), SCHEMA, KNOWN, event(3), key=KEY, settings=settings, checkpoint=place, step=made.append)
    assert made == [1, 2, 3]
    assert all(torch.equal(a, b) for a, b in zip(whole.weights, again.weights, strict=True))


@pytest.mark.gan
def test_rules_are_broken_a_fifth_as_often_as_without_their_loss_and_shares_stay_near():
    """With noise; shares of the drawn records, before any is left out."""
    from verticil.gan.autoencoder import train
    from verticil.gan.sampling import sample

    allowed, settings = support(KNOWN, SCHEMA), dataclasses.replace(SETTINGS, steps=300)
    broken: dict[float, float] = {}
    for weight in (settings.rule_weight, 0.0):
        own = dataclasses.replace(settings, rule_weight=weight)
        found = sample(train(people(), SCHEMA, KNOWN, event(300), key=KEY, settings=own), allowed, 10_000, seed=1)
        broken[weight] = found.left_out / found.drawn
        assert allowed.holds(found.codes).all()
        if weight:
            shares = np.bincount(found.codes[0], minlength=3) / 10_000
            assert np.abs(shares - np.bincount(people()[0], minlength=3) / N).max() < 0.1
    assert broken[settings.rule_weight] < broken[0.0] / 5


@pytest.mark.gan
def test_only_peoples_gradients_have_noise_and_none_of_them_is_in_the_public_ones():
    """With all weights of the same step: another person changes the people's sum by twice the norm at most, and nothing else."""
    import torch

    from verticil.gan.autoencoder import Autoencoder
    from verticil.gan.streams import Stream

    whole = dataclasses.replace(event(1), rate=1.0)
    other = people()
    other[0][17], other[1][17] = 2, 2

    def gradients(codes, *, public: bool):
        training = Autoencoder(codes, SCHEMA, KNOWN, whole, key=KEY, settings=SETTINGS)
        training._shares = torch.as_tensor(np.concatenate([np.full(k, 1 / k) for k in SCHEMA.n_states]))
        with torch.no_grad():
            training.decoder[-1].zero_()
        if not public:
            return training._sums_of_people(Stream(KEY, b"test"))
        for weight in training.decoder:
            weight.grad = torch.zeros_like(weight)
        training._add_public_gradients(Stream(KEY, b"test"))
        return [weight.grad for weight in training.decoder]

    one, two = gradients(people(), public=True), gradients(other, public=True)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))
    assert any(bool(a.abs().max() > 0) for a in one)
    one, two = gradients(people(), public=False), gradients(other, public=False)
    far = sum(float((a - b).square().sum()) for a, b in zip(one, two, strict=True)) ** 0.5
    assert 0 < far <= 2 * SETTINGS.clip + 1e-9


@pytest.mark.gan
def test_a_rule_that_holds_costs_nothing_and_body_and_head_learn_from_one_that_does_not():
    import torch

    from verticil.gan.conditions import terms
    from verticil.gan.rule_loss import broken_loss, head_loss, with_tensors

    (term,) = (with_tensors(term) for term in terms(KNOWN, SCHEMA))
    held = [torch.eye(k, dtype=torch.float64)[[0, 0]] for k in SCHEMA.n_states]
    assert float(broken_loss(held, term)) == 0
    logits = [torch.zeros(2, k, dtype=torch.float64, requires_grad=True) for k in SCHEMA.n_states]
    parts = [part.softmax(1) for part in logits]
    assert float(broken_loss(parts, term).detach()) == pytest.approx(-np.log(1 - 1 / 3 * 2 / 3))
    slopes = torch.autograd.grad(broken_loss(parts, term), logits, allow_unused=True)
    assert [slope is not None and bool(slope.abs().max() > 0) for slope in slopes] == [True, True, False]
    soft = Knowledge(soft=(SoftRule(name="s", when=(ZERO,), then=KNOWN.rules[0].then, probability=0.5),))
    (term,) = (with_tensors(term) for term in terms(soft, SCHEMA))
    assert float(broken_loss(parts, term).detach()) == float(head_loss(parts, term).detach())
