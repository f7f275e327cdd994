"""Training: each step one of the critic, with clipped and noised gradients, and one of the generator, which sees no record.

Per person the critic's loss is D(fake | its condition) - D(row | its condition) + penalty (|grad D| - 1)^2 at a point between the
two, and its gradient, penalty and all, is cut to the norm `clip` before people's are added (M. Abadi et al., CCS 2016; the
penalty of I. Gulrajani et al., NIPS 2017). Noise is added to the sum, which is divided by the public mean number of people of a
step. Fake conditions come from the noisy counts of the columns.

Every step draws from a stream of its own, so a training that was interrupted goes on from its last checkpoint as if it had not
been. Arithmetic is in double precision on one thread: the same machine and torch give the same generator.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from verticil.gan.accounting import GeneratorTraining
from verticil.gan.conditions import (
    Literal,
    Parts,
    Term,
    body_probability,
    parts_of,
)
from verticil.gan.rule_loss import LEAST, broken_loss, head_loss, with_tensors
from verticil.gan.settings import Settings
from verticil.gan.steps import Steps
from verticil.gan.streams import Stream
from verticil.shared.core.arrays import Codes
from verticil.shared.mechanisms import discrete_gaussian
from verticil.shared.numerics.knowledge.rules import Knowledge
from verticil.shared.numerics.model.schema import Schema

_SLOPE: Final = 0.2  # of the critic's and the generator's units below zero
_BETAS: Final = (0.5, 0.9)

Tensor = Any
Weights = list[Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trained:
    """A generator.

    Attributes:
        schema: its columns.
        parts: its condition.
        rules: that its loss knew.
        shares: noisy shares of each column's categories, from which conditions are drawn.
        weights: of the generator: a matrix and a vector for each layer.
        settings: of the training.
        event: what the training cost; as many steps as were made.
    """

    schema: Schema
    parts: Parts
    rules: tuple[Term, ...]
    shares: tuple[NDArray[np.float64], ...]
    weights: Weights
    settings: Settings
    event: GeneratorTraining

    def logits(self, stream: Stream, n: int) -> NDArray[np.float64]:
        """Return (n, categories of all columns), given conditions of rows of independent columns."""
        import torch  # pyright: ignore[reportMissingImports]

        with torch.no_grad():
            entries = fake_entries(self.parts, self.shares, stream, n)
            condition = one_hot(entries, self.parts.size)
            return np.asarray(logits_of(self.weights, stream, condition, self.settings.noise).numpy())


def noisy_shares(
    codes: Sequence[Codes], n_states: Sequence[int], sigma: float, key: bytes
) -> list[NDArray[np.float64]]:
    """Shares of each column's categories from counts with noise; even ones, where nothing is left above zero."""
    found: list[NDArray[np.float64]] = []
    for place, (column, size) in enumerate(zip(codes, n_states, strict=True)):
        noise = discrete_gaussian.draw(key, b"generator/%d" % place, (size,), sigma)
        counts = np.maximum(np.bincount(column, minlength=size) + noise, 0).astype(np.float64)
        found.append(counts / counts.sum() if counts.any() else np.full(size, 1 / size))
    return found


def train(
    codes: Sequence[Codes],
    schema: Schema,
    knowledge: Knowledge | None,
    event: GeneratorTraining,
    *,
    key: bytes,
    settings: Settings,
    checkpoint: Path | None = None,
    step: Callable[[int], None] = lambda _done: None,
) -> Trained:
    """Train.

    Args:
        codes: (n,) of each column.
        schema: the columns.
        knowledge: checked; None: nothing is stated.
        event: how many steps, the chance of each person, the noise; it has been charged.
        key: 32 bytes, secret, of this training and no other.
        settings: the other numbers; as many steps.
        checkpoint: a file that the training is written to now and then, and goes on from; None: nowhere.
        step: told how many steps are done.

    Raises:
        ModuleNotFoundError: torch.
        DataFault: STATE_CORRUPT, the checkpoint is of another training.
    """
    with one_thread():
        return Training(codes, schema, knowledge, event, key=key, settings=settings).run(checkpoint, step)


@contextmanager
def one_thread() -> Generator[None]:
    """Sums in one order."""
    import torch  # pyright: ignore[reportMissingImports]

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Training(Steps):
    """A training; what stands in comparisons changes `conditions`, `counted`, `noise` or `asked`. Arguments as for `train`."""

    def __init__(
        self,
        codes: Sequence[Codes],
        schema: Schema,
        knowledge: Knowledge | None,
        event: GeneratorTraining,
        *,
        key: bytes,
        settings: Settings,
    ) -> None:
        import torch  # pyright: ignore[reportMissingImports]

        super().__init__(codes, schema, knowledge, event, settings, key=key)
        self._settings = settings
        self._parts = self.conditions(knowledge)
        self._flagged = [with_tensors(term) for term in self._parts.rules]
        self._groups = [
            Literal(scope=(column,), table=torch.as_tensor(np.eye(int(of.max()) + 1, dtype=np.float64)[of]))
            for column, of in self._parts.groups
        ]
        self._shares = self.counted(codes)
        first, inputs = Stream(key, b"weights"), self._width + self._parts.size
        self.critic = layers(first, (inputs, *settings.critic, 1))
        self.generator = layers(
            first, (settings.noise + self._parts.size, *settings.generator, self._width), scaled=True
        )
        self._optimizers = [
            torch.optim.Adam(weights, lr=rate, betas=_BETAS)
            for weights, rate in zip((self.critic, self.generator), settings.rates, strict=True)
        ]

    def conditions(self, knowledge: Knowledge | None) -> Parts:
        """What a row is conditioned on."""
        return parts_of(knowledge, self._schema, self._rules)

    def counted(self, codes: Sequence[Codes]) -> list[NDArray[np.float64]]:
        """The shares that generated rows' conditions are drawn from, with noise."""
        return noisy_shares(codes, self._schema.n_states, self._event.counts, self._key)

    def noise(self, stream: Stream) -> list[NDArray[np.float64]]:
        """What is added to the sums of a step, of each weight."""
        return [stream.normal(*weight.shape) * (self._event.sigma * self._settings.clip) for weight in self.critic]

    def asked(self, parts: list[Tensor], entries: NDArray[np.int64]) -> Any:
        """The cross-entropy of the generator's conditions."""
        import torch  # pyright: ignore[reportMissingImports]

        met = torch.cat(
            [*parts, *self._grouped(parts), *(body_probability(parts, t)[:, None] for t in self._flagged)], 1
        )
        asked = met.gather(1, torch.as_tensor(entries)[:, None])
        return -torch.log(asked.clamp(min=LEAST)).mean()

    def run(self, checkpoint: Path | None = None, step: Callable[[int], None] = lambda _done: None) -> Trained:
        """All steps. Arguments and errors as for `train`."""
        self.run_steps(checkpoint, step)
        return self.trained

    @property
    def weights(self) -> Mapping[str, Weights]:
        """See `Steps`."""
        return {"critic": self.critic, "generator": self.generator}

    @property
    def optimizers(self) -> Sequence[Any]:
        """See `Steps`."""
        return self._optimizers

    @property
    def trained(self) -> Trained:
        """The generator as it is now."""
        return Trained(
            schema=self._schema,
            parts=self._parts,
            rules=self._rules,
            shares=tuple(self._shares),
            weights=[weight.detach() for weight in self.generator],
            settings=self._settings,
            event=self._event,
        )

    def step(self, number: int) -> None:
        """One of the critic and one of the generator."""
        stream = Stream(self._key, b"step/%d" % number)
        self._critic_step(stream)
        self._generator_step(stream)

    def _critic_step(self, stream: Stream) -> None:
        import torch  # pyright: ignore[reportMissingImports]

        event, settings = self._event, self._settings
        taken = np.flatnonzero(stream.uniform(self._codes.shape[1]) < event.rate)
        noise = self.noise(stream)
        sums: list[Tensor] = [torch.zeros_like(weight) for weight in self.critic]
        if len(taken):
            rows = self._codes[:, taken]
            real = torch.zeros(len(taken), self._width, dtype=torch.float64)
            real.scatter_(1, torch.as_tensor((rows + self._starts[:, None]).T), 1.0)
            condition = self._one_hot(self._parts.entries(list(rows), stream.uniform(len(taken), 2)))
            with torch.no_grad():
                _, fake_condition = self._fake_conditions(stream, len(taken))
                fake = self._soft(self._logits(stream, fake_condition), stream)
                sums = clipped_sums(
                    self.critic,
                    torch.cat([real, condition], 1),
                    torch.cat([fake, fake_condition], 1),
                    torch.as_tensor(stream.uniform(len(taken), 1)),
                    penalty=settings.penalty,
                    clip=settings.clip,
                )
        divisor = event.rate * self._codes.shape[1]
        for weight, total, drawn in zip(self.critic, sums, noise, strict=True):
            weight.grad = (total + torch.as_tensor(drawn)) / divisor
        self._optimizers[0].step()

    def _generator_step(self, stream: Stream) -> None:
        import torch  # pyright: ignore[reportMissingImports]

        settings = self._settings
        entries, condition = self._fake_conditions(stream, settings.batch)
        logits = self._logits(stream, condition)
        fake = self._soft(logits, stream)
        parts = [part.softmax(1) for part in logits.split(self._schema.n_states, 1)]
        loss = self.asked(parts, entries) - forward(self.critic, torch.cat([fake, condition], 1)).mean()
        if settings.rule_weight:
            of_rule = head_loss if settings.rule_loss == "head" else broken_loss
            loss = loss + settings.rule_weight * sum(of_rule(parts, term) for term in self._tensors)
        self._optimizers[1].zero_grad()
        for weight, found in zip(self.generator, torch.autograd.grad(loss, self.generator), strict=True):
            weight.grad = found
        self._optimizers[1].step()

    def _grouped(self, parts: list[Tensor]) -> list[Tensor]:
        return [parts[literal.scope[0]] @ literal.table for literal in self._groups]

    def _fake_conditions(self, stream: Stream, n: int) -> tuple[NDArray[np.int64], Tensor]:
        """Those of rows of independent columns with the noisy shares."""
        entries = fake_entries(self._parts, self._shares, stream, n)
        return entries, self._one_hot(entries)

    def _one_hot(self, entries: NDArray[np.int64]) -> Tensor:
        return one_hot(entries, self._parts.size)

    def _logits(self, stream: Stream, condition: Tensor) -> Tensor:
        return logits_of(self.generator, stream, condition, self._settings.noise)

    def _soft(self, logits: Tensor, stream: Stream) -> Tensor:
        """A record's one-hot columns, softly."""
        import torch  # pyright: ignore[reportMissingImports]

        drawn = logits + torch.as_tensor(stream.gumbel(*logits.shape))
        columns = (drawn / self._settings.temperature).split(self._schema.n_states, 1)
        return torch.cat([part.softmax(1) for part in columns], 1)


def clipped_sums(
    weights: Weights, real: Tensor, fake: Tensor, between: Tensor, *, penalty: float, clip: float
) -> Weights:
    """The sum over people of the gradients of the critic's loss by each weight, each person's of all weights cut to a norm.

    A person's gradient by a matrix is a sum of three products of vectors, one of each score and one of the penalty, whose own
    gradient runs through the critic once more (its units have no second derivative). So neither the norm nor the sum needs the
    gradient itself (I. Goodfellow, "Efficient per-example gradient computations", 2015).

    Args:
        weights: of the critic.
        real, fake: (n, inputs), a row for each person.
        between: (n, 1), where the penalty is taken: that share of the real one.
        penalty: its weight.
        clip: the norm.
    """
    import torch  # pyright: ignore[reportMissingImports]

    matrices = weights[::2]
    inner_fake, outer_fake, _ = _passed(weights, fake)
    inner_real, outer_real, _ = _passed(weights, real)
    _, outer, slopes = _passed(weights, between * real + (1 - between) * fake)
    slope = outer[0] @ matrices[0]
    length = slope.square().sum(1, keepdim=True).sqrt().clamp(min=1e-12)
    inner = [2 * penalty * (length - 1) * slope / length]
    for matrix, mask in zip(matrices, slopes, strict=False):
        inner.append(inner[-1] @ matrix.T * mask)
    squares = torch.zeros(len(real), dtype=torch.float64)
    products: list[tuple[Tensor, Tensor, Tensor]] = []
    for layer in range(len(matrices)):
        left = torch.stack([outer_fake[layer], -outer_real[layer], outer[layer]], 1)
        right = torch.stack([inner_fake[layer], inner_real[layer], inner[layer]], 1)
        offset = outer_fake[layer] - outer_real[layer]
        squares += ((left @ left.mT) * (right @ right.mT)).sum((1, 2)) + offset.square().sum(1)
        products.append((left, right, offset))
    norms = squares.clamp(min=0).sqrt() * (1 + 1e-9)  # of what rounding may have taken
    scales = clip / norms.clamp(min=clip)
    found: Weights = []
    for left, right, offset in products:
        found.append((left * scales[:, None, None]).flatten(0, 1).T @ right.flatten(0, 1))
        found.append(scales @ offset)
    return found


def _passed(weights: Weights, value: Tensor) -> tuple[Weights, Weights, Weights]:
    """What goes into each layer, the score's derivative by what each layer sums to, and the units' slopes."""
    import torch  # pyright: ignore[reportMissingImports]

    inner, slopes = [value], list[Tensor]()
    for place in range(0, len(weights) - 2, 2):
        value = torch.nn.functional.linear(value, weights[place], weights[place + 1])
        slopes.append(torch.where(value > 0, 1.0, _SLOPE).to(value.dtype))
        value = value * slopes[-1]
        inner.append(value)
    outer = [torch.ones(len(value), 1, dtype=value.dtype)]
    for matrix, mask in zip(weights[-2::-2], slopes[::-1], strict=False):
        outer.insert(0, outer[0] @ matrix * mask)
    return inner, outer, slopes


def fake_entries(parts: Parts, shares: Sequence[NDArray[np.float64]], stream: Stream, n: int) -> NDArray[np.int64]:
    """(n,), entries of conditions, of rows whose columns are drawn independently from the shares."""
    words = stream.uniform(len(shares), n)
    codes = [
        np.minimum(np.searchsorted(np.cumsum(share), drawn), len(share) - 1)
        for share, drawn in zip(shares, words, strict=True)
    ]
    return parts.entries(codes, stream.uniform(n, 2))


def one_hot(entries: NDArray[np.int64], size: int) -> Tensor:
    """(n, size)."""
    import torch  # pyright: ignore[reportMissingImports]

    return torch.zeros(len(entries), size, dtype=torch.float64).scatter_(1, torch.as_tensor(entries)[:, None], 1.0)


def logits_of(weights: Weights, stream: Stream, condition: Tensor, noise: int) -> Tensor:
    """(n, categories of all columns) of the generator, for conditions (n, parts)."""
    import torch  # pyright: ignore[reportMissingImports]

    drawn = torch.as_tensor(stream.normal(len(condition), noise))
    return forward(weights, torch.cat([drawn, condition], 1))


def layers(stream: Stream, sizes: Sequence[int], *, scaled: bool = False) -> Weights:
    """Weights of layers: matrices (out, in) and zero vectors; K. He et al., ICCV 2015. `scaled`: the last one is a tenth."""
    import torch  # pyright: ignore[reportMissingImports]

    found: Weights = []
    for place, (before, after) in enumerate(itertools.pairwise(sizes)):
        width = (2 / before) ** 0.5 * (0.1 if scaled and place == len(sizes) - 2 else 1)
        found.append(torch.as_tensor(stream.normal(after, before) * width).requires_grad_())
        found.append(torch.zeros(after, dtype=torch.float64, requires_grad=True))
    return found


def forward(weights: Weights, value: Tensor) -> Tensor:
    """What layers make of a value: matrices and vectors in turn, `_SLOPE` below zero between them."""
    import torch  # pyright: ignore[reportMissingImports]

    for place in range(0, len(weights), 2):
        value = torch.nn.functional.linear(value, weights[place], weights[place + 1])
        if place < len(weights) - 2:
            value = torch.nn.functional.leaky_relu(value, _SLOPE)
    return value
