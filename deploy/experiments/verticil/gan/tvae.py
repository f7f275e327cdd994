"""A small TVAE for comparison, ours and not the authors' (L. Xu et al., "Modeling tabular data using conditional GAN", 2019).

A variational autoencoder (D. Kingma, M. Welling, ICLR 2014) of one-hot columns in public bins, in place of modes fitted to the
data: the encoder gives a person's mean and deviation, the decoder the categories' probabilities of each column; the loss is the
columns' cross-entropy and the divergence from the standard normal.

**A TVAE is not private.** With an epsilon it is trained by DP-SGD, as our critic is: Poisson sampling, each person's gradient
cut to a norm, noise on the sum, a fixed divisor, the same accountant. The authors have no such thing, nor does the paper that
compares with them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from verticil.gan.accounting import training_for
from verticil.gan.settings import Settings
from verticil.gan.streams import Stream
from verticil.gan.training import layers, one_thread
from verticil.shared.core.arrays import Codes
from verticil.shared.numerics.model.schema import Schema

LATENT: Final = 16
_HIDDEN: Final = 64
_RATE: Final = 2e-3
_NO_COUNTS: Final = 1e-4  # of the budget; nothing is counted
_AT_ONCE: Final = 10_000


def records(
    codes: Sequence[Codes],
    schema: Schema,
    n: int,
    *,
    epsilon: float | None,
    delta: float,
    key: bytes,
    settings: Settings,
) -> list[Codes]:
    """Train, and draw records.

    Args:
        codes: (n,) of each column.
        schema: the columns.
        n: how many records.
        epsilon, delta: for the replacement of one person; None: no noise, no clipping, and no bound.
        key: 32 bytes.
        settings: steps, batch and clip of it.

    Raises:
        ModuleNotFoundError: torch.
    """
    sigma, clip = 0.0, 1e12
    if epsilon is not None:
        rate = settings.rate(len(codes[0]))
        event = training_for(epsilon, delta, steps=settings.steps, rate=rate, tables=1, share=_NO_COUNTS)
        sigma, clip = event.sigma, settings.clip
    with one_thread():
        decoder = _trained(codes, schema, sigma, key, dataclasses.replace(settings, clip=clip))
        return _records(decoder, schema, n, key)


def _trained(codes: Sequence[Codes], schema: Schema, sigma: float, key: bytes, settings: Settings) -> list[Any]:
    """The decoder."""
    import torch  # pyright: ignore[reportMissingImports]

    people, width = np.stack([column.astype(np.int64) for column in codes]), sum(schema.n_states)
    starts = np.concatenate([[0], np.cumsum(schema.n_states)[:-1]])
    rate = settings.rate(people.shape[1])
    first = Stream(key, b"tvae")
    encoder = layers(first, (width, _HIDDEN, 2 * LATENT), scaled=True)
    decoder = layers(first, (LATENT, _HIDDEN, width), scaled=True)
    weights = [*encoder, *decoder]
    optimizer = torch.optim.Adam(weights, lr=_RATE)
    for number in range(settings.steps):
        stream = Stream(key, b"tvae/%d" % number)
        taken = np.flatnonzero(stream.uniform(people.shape[1]) < rate)
        noise = [stream.normal(*weight.shape) * sigma * settings.clip if sigma else 0.0 for weight in weights]
        rows = torch.zeros(len(taken), width, dtype=torch.float64)
        rows.scatter_(1, torch.as_tensor((people[:, taken] + starts[:, None]).T), 1.0)
        drawn = torch.as_tensor(stream.normal(len(taken), LATENT))
        sums = clipped_sums(encoder, decoder, rows, drawn, schema.n_states, clip=settings.clip)
        for weight, total, added in zip(weights, sums, noise, strict=True):
            weight.grad = (total + torch.as_tensor(added)) / (rate * people.shape[1])
        optimizer.step()
    return decoder


def _records(decoder: list[Any], schema: Schema, n: int, key: bytes) -> list[Codes]:
    import torch  # pyright: ignore[reportMissingImports]

    found: list[list[Codes]] = []
    with torch.no_grad():
        for begun in range(0, n, _AT_ONCE):
            stream = Stream(key, b"tvae/records/%d" % begun)
            logits = passed(decoder, torch.as_tensor(stream.normal(min(_AT_ONCE, n - begun), LATENT)))[0].numpy()
            noisy = np.split(logits + stream.gumbel(*logits.shape), np.cumsum(schema.n_states)[:-1], axis=1)
            found.append(
                [part.argmax(axis=1).astype(v.code_dtype) for part, v in zip(noisy, schema.variables, strict=True)]
            )
    return [np.concatenate(column) for column in zip(*found, strict=True)]


def loss(encoder: list[Any], decoder: list[Any], rows: Any, drawn: Any, n_states: Sequence[int]) -> tuple[Any, ...]:
    """Each person's loss (n,), and of every layer what goes into it and what it sums to.

    Args:
        encoder, decoder: weights.
        rows: (n, categories), one-hot.
        drawn: (n, latent numbers), standard normal.
        n_states: K of each column.
    """
    summed, inside, outside = passed(encoder, rows)
    mean, spread = summed.split(drawn.shape[1], 1)
    spread = spread.clamp(-8, 8)  # the logarithm of the variance
    logits, further, beyond = passed(decoder, mean + drawn * (spread / 2).exp())
    kept = [
        (part.log_softmax(1) * row).sum(1)
        for part, row in zip(logits.split(n_states, 1), rows.split(n_states, 1), strict=True)
    ]
    divergence = (mean.square() + spread.exp() - 1 - spread).sum(1) / 2
    return divergence - sum(kept), [*inside, *further], [*outside, *beyond]


def clipped_sums(
    encoder: list[Any], decoder: list[Any], rows: Any, drawn: Any, n_states: Sequence[int], *, clip: float
) -> list[Any]:
    """The sum over people of the gradients of their losses by each weight, each person's of all weights cut to a norm.

    A person's gradient by a matrix is the product of what goes into the layer and of the loss's derivative by what it sums to (I.
    Goodfellow, "Efficient per-example gradient computations", 2015). Arguments as for `loss`.
    """
    import torch  # pyright: ignore[reportMissingImports]

    each, inside, outside = loss(encoder, decoder, rows, drawn, n_states)
    slopes = torch.autograd.grad(each.sum(), outside)
    inside = [value.detach() for value in inside]
    squares = torch.zeros(len(rows), dtype=torch.float64)
    for value, slope in zip(inside, slopes, strict=True):
        squares += slope.square().sum(1) * (value.square().sum(1) + 1)
    scales = clip / (squares.sqrt() * (1 + 1e-9)).clamp(min=clip)
    found: list[Any] = []
    for value, slope in zip(inside, slopes, strict=True):
        found += [(slope * scales[:, None]).T @ value, scales @ slope]
    return found


def passed(weights: list[Any], value: Any) -> tuple[Any, list[Any], list[Any]]:
    """Return what comes out, what goes into each layer, and what each sums to."""
    import torch  # pyright: ignore[reportMissingImports]

    inside, outside = [], []
    for place in range(0, len(weights), 2):
        inside.append(value)
        value = torch.nn.functional.linear(value, weights[place], weights[place + 1])
        outside.append(value)
        if place < len(weights) - 2:
            value = value.relu()
    return value, inside, outside
