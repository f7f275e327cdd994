"""A variational autoencoder that knows rules, trained by DP-SGD: the other generator behind the interface of `training`.

Encoder and decoder are those of `tvae`. Each step adds two gradients. The first is of the records' loss: each person's gradient
is cut to a norm, noise is added to the sum, and it is divided by the public mean number of people of a step. The second is of
records that the decoder draws from the standard normal: the rules' loss (`rule_loss.broken_loss`), and the cross-entropy of the
columns' noisy shares and of the decoder's mean. No person is in the second, so it is neither cut nor noised and costs nothing.
The decoder begins with the noisy shares. Records come from the mean of the decoders of all steps, in which later steps weigh
more (B. Polyak, A. Juditsky, 1992); a mean of what is published costs nothing either.

The event, the accountant and the checkpoint are those of `training`, and so is the arithmetic: double precision, one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from verticil.gan import tvae
from verticil.gan.accounting import GeneratorTraining
from verticil.gan.conditions import Term
from verticil.gan.rule_loss import LEAST, broken_loss
from verticil.gan.settings import AutoencoderSettings
from verticil.gan.steps import Steps
from verticil.gan.streams import Stream
from verticil.gan.training import layers, noisy_shares, one_thread
from verticil.shared.core.arrays import Codes
from verticil.shared.numerics.knowledge.rules import Knowledge
from verticil.shared.numerics.model.schema import Schema

_LEAST_SHARE: Final = 1e-4
"""The decoder begins with no share below it: noisy counts are often 0."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Decoder:
    """A trained decoder.

    Attributes:
        schema: its columns.
        rules: that its loss knew.
        weights: a matrix and a vector for each layer.
        settings: of the training.
        event: what the training cost.
    """

    schema: Schema
    rules: tuple[Term, ...]
    weights: list[Any]
    settings: AutoencoderSettings
    event: GeneratorTraining

    def logits(self, stream: Stream, n: int) -> NDArray[np.float64]:
        """Return (n, categories of all columns) of records drawn from the standard normal."""
        import torch  # pyright: ignore[reportMissingImports]

        with torch.no_grad():
            drawn = torch.as_tensor(stream.normal(n, self.settings.latent))
            return np.asarray(tvae.passed(self.weights, drawn)[0].numpy())


def train(
    codes: Sequence[Codes],
    schema: Schema,
    knowledge: Knowledge | None,
    event: GeneratorTraining,
    *,
    key: bytes,
    settings: AutoencoderSettings,
    checkpoint: Path | None = None,
    step: Callable[[int], None] = lambda _done: None,
) -> Decoder:
    """Train. Arguments and errors as for `training.train`."""
    with one_thread():
        return Autoencoder(codes, schema, knowledge, event, key=key, settings=settings).run(checkpoint, step)


class Autoencoder(Steps):
    """A training of encoder and decoder. Arguments as for `train`.

    A comparison without noise changes `counted` and `noise`.
    """

    def __init__(
        self,
        codes: Sequence[Codes],
        schema: Schema,
        knowledge: Knowledge | None,
        event: GeneratorTraining,
        *,
        key: bytes,
        settings: AutoencoderSettings,
    ) -> None:
        import torch  # pyright: ignore[reportMissingImports]

        super().__init__(codes, schema, knowledge, event, settings, key=key)
        self._settings = settings
        shares = np.concatenate(self.counted(codes))
        self._shares = torch.as_tensor(shares)
        first = Stream(key, b"autoencoder")
        self.encoder = layers(first, (self._width, settings.hidden, 2 * settings.latent), scaled=True)
        self.decoder = layers(first, (settings.latent, settings.hidden, self._width), scaled=True)
        with torch.no_grad():
            self.decoder[-1].copy_(torch.as_tensor(np.log(np.maximum(shares, _LEAST_SHARE))))
        self.mean = [weight.detach().clone() for weight in self.decoder]
        self._optimizer = torch.optim.Adam([*self.encoder, *self.decoder], lr=settings.rate_of_learning)

    def counted(self, codes: Sequence[Codes]) -> list[NDArray[np.float64]]:
        """Return the shares of each column's categories, with noise."""
        return noisy_shares(codes, self._schema.n_states, self._event.counts, self._key)

    def noise(self, stream: Stream) -> list[NDArray[np.float64]]:
        """Return what is added to the sums of a step, of each weight."""
        scale = self._event.sigma * self._settings.clip
        return [stream.normal(*weight.shape) * scale for weight in (*self.encoder, *self.decoder)]

    @property
    def weights(self) -> Mapping[str, list[Any]]:
        """See `Steps`."""
        return {"encoder": self.encoder, "decoder": self.decoder, "mean": self.mean}

    @property
    def optimizers(self) -> Sequence[Any]:
        """See `Steps`."""
        return [self._optimizer]

    def run(self, checkpoint: Path | None = None, step: Callable[[int], None] = lambda _done: None) -> Decoder:
        """Make all steps, and return the decoder. Arguments and errors as for `train`."""
        self.run_steps(checkpoint, step)
        return Decoder(
            schema=self._schema, rules=self._rules, weights=self.mean, settings=self._settings, event=self._event
        )

    def step(self, number: int) -> None:
        """Make one step of encoder and decoder."""
        stream = Stream(self._key, b"step/%d" % number)
        sums = self._sums_of_people(stream)
        divisor = self._event.rate * self._codes.shape[1]
        for weight, total in zip((*self.encoder, *self.decoder), sums, strict=True):
            weight.grad = total / divisor
        self._add_public_gradients(stream)
        self._optimizer.step()
        kept = min(self._settings.average, (number + 1) / (number + 10))
        for mean, weight in zip(self.mean, self.decoder, strict=True):
            mean.mul_(kept).add_(weight.detach(), alpha=1 - kept)

    def _sums_of_people(self, stream: Stream) -> list[Any]:
        """Return the sum of people's gradients, each cut to the norm, with its noise."""
        import torch  # pyright: ignore[reportMissingImports]

        taken = np.flatnonzero(stream.uniform(self._codes.shape[1]) < self._event.rate)
        noise = [torch.as_tensor(drawn) for drawn in self.noise(stream)]
        if not len(taken):
            return noise
        rows = torch.zeros(len(taken), self._width, dtype=torch.float64)
        rows.scatter_(1, torch.as_tensor((self._codes[:, taken] + self._starts[:, None]).T), 1.0)
        drawn = torch.as_tensor(stream.normal(len(taken), self._settings.latent))
        sums = tvae.clipped_sums(
            self.encoder, self.decoder, rows, drawn, self._schema.n_states, clip=self._settings.clip
        )
        return [total + added for total, added in zip(sums, noise, strict=True)]

    def _add_public_gradients(self, stream: Stream) -> None:
        """Add the gradients of the rules and of the noisy shares, of records from the standard normal."""
        import torch  # pyright: ignore[reportMissingImports]

        settings = self._settings
        rules = self._tensors if settings.rule_weight else []
        if not rules and not settings.share_weight:
            return
        drawn = torch.as_tensor(stream.normal(settings.samples, settings.latent))
        logits = tvae.passed(self.decoder, drawn)[0]
        parts = [part.softmax(1) for part in logits.split(self._schema.n_states, 1)]
        means = torch.cat(parts, 1).mean(0).clamp(min=LEAST)
        loss = -settings.share_weight * (self._shares * means.log()).sum()
        loss = loss + settings.rule_weight * sum(broken_loss(parts, term) for term in rules)
        for weight, gradient in zip(self.decoder, torch.autograd.grad(loss, self.decoder), strict=True):
            weight.grad = weight.grad + gradient
