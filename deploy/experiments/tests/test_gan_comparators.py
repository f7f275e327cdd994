"""What stands beside the generator of KIPPS in comparisons (``pytest -m gan``): gradients, costs, and what each leaves out."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from verticil.gan.accounting import votes_sigma
from verticil.gan.settings import Settings
from verticil.gan.streams import Stream
from verticil.shared.mechanisms.loss import GaussianLoss, delta_at
from verticil.shared.numerics.model.schema import Schema, Variable

pytestmark = pytest.mark.gan

SCHEMA = Schema(
    variables=tuple(
        Variable(name=name, owner="a", labels=tuple(map(str, range(size)))) for name, size in (("a", 3), ("b", 4))
    )
)
SETTINGS = Settings(steps=40, batch=50, generator=(16,), critic=(8,))
KEY = bytes(range(32))


def people(n: int = 400) -> list[np.ndarray]:
    draw = np.random.default_rng(4)
    a = draw.integers(0, 3, n)
    return [a.astype(np.uint8), np.where(draw.random(n) < 0.9, a, 3).astype(np.uint8)]


def test_clipped_sums_of_the_autoencoder_are_those_of_every_persons_gradient():
    """By `vmap` of `grad`; with half of the gradients clipped, and with none."""
    import torch

    from verticil.gan import tvae
    from verticil.gan.training import layers

    stream = Stream(bytes(32), b"test")
    encoder = layers(stream, (7, 5, 2 * tvae.LATENT))
    decoder = layers(stream, (tvae.LATENT, 6, 7))
    rows = torch.as_tensor(np.concatenate([np.eye(3)[[0, 1, 2, 0] * 5], np.eye(4)[[3, 1, 2, 0, 3] * 4]], axis=1))
    drawn = torch.as_tensor(stream.normal(20, tvae.LATENT))

    def loss(weights, row, noise):
        return tvae.loss(weights[:4], weights[4:], row[None], noise[None], (3, 4))[0][0]

    weights = [weight.detach() for weight in (*encoder, *decoder)]
    each = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(weights, rows, drawn)
    norms = sum(gradient.flatten(1).square().sum(1) for gradient in each).sqrt()
    for clip in (float(norms.median()), 1e6):
        found = tvae.clipped_sums(encoder, decoder, rows, drawn, (3, 4), clip=clip)
        for mine, gradient in zip(found, each, strict=True):
            assert torch.allclose(mine, torch.tensordot(clip / norms.clamp(min=clip), gradient, dims=1), atol=1e-8)


def test_votes_cost_what_was_asked_for_and_hang_by_one_teacher_each():
    """One person is another: one teacher at most is another after the same lessons; the votes are as many Gaussian sums."""
    from verticil.gan import pate

    sigma = votes_sigma(2.0, 1e-6, 500)
    assert delta_at([GaussianLoss(mu=500**0.5 / sigma)], 2.0) == pytest.approx(1e-6, rel=1e-6)
    codes = people()
    others = [column.copy() for column in codes]
    others[0][17], others[1][17] = (codes[0][17] + 1) % 3, (codes[1][17] + 1) % 4
    fake = np.random.default_rng(1).random((pate.PEOPLE_OF_A_TEACHER, 7)).astype(np.float32)
    one, other = (pate._Pate(table, SCHEMA, KEY, SETTINGS) for table in (codes, others))
    for _ in range(3):
        one._teach(fake)
        other._teach(fake)
    differ = (one._teachers != other._teachers).any(axis=1)
    assert len(differ) == 10
    assert differ.sum() == 1


def test_each_leaves_out_what_it_says():
    from verticil.gan import ablations as without
    from verticil.gan import tvae

    asked = {"epsilon": 3.0, "delta": 1e-6, "key": KEY, "settings": SETTINGS}
    conditioned = without.dpctgan(people(), SCHEMA, **asked)
    unconditioned = without.dpwgan(people(), SCHEMA, **asked)
    assert (conditioned.parts.size, unconditioned.parts.size) == (7, 1)
    assert unconditioned.event.sigma < conditioned.event.sigma
    free = without.exact(people(), SCHEMA, None, key=KEY, settings=SETTINGS)
    assert free.shares[0].tolist() == (np.bincount(people()[0]) / 400).tolist()
    many = dataclasses.replace(SETTINGS, steps=400, batch=200)
    asked |= {"settings": many}
    exact, noisy = (tvae.records(people(), SCHEMA, 1000, **asked | {"epsilon": epsilon}) for epsilon in (None, 0.1))
    agreed = [float((a == b).mean()) for a, b in (exact, noisy)]
    assert agreed[0] > 0.6 > 0.5 > agreed[1]  # of the people .92; of independent columns .30
