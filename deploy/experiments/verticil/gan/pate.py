"""A small PATE-GAN for comparison, ours and not the authors' (J. Jordon, J. Yoon, M. van der Schaar, ICLR 2019).

People are split among teachers, each a logistic regression that tells its own people from generated records. A student, which
sees no person, learns from the teachers' votes on generated records, and the generator from the student. A vote is the number
of teachers that take a record for a person, with Gaussian noise; the student learns the share that it is of all of them.

**What it costs** does not depend on the data: a person who is replaced changes one teacher, so every vote by one at most,
whatever was asked before; T votes with noise of standard deviation s are one Gaussian mechanism of sensitivity sqrt(T) / s, and s
is the least that is enough for it. The paper's own bound (moments of the votes, smaller where teachers agree) depends on the
data, and cannot be told without telling of them; published programs of it were found to break it (G. Ganev et al., "The elusive
pursuit of reproducing PATE-GAN", 2024). So votes are few here, and are used again and again: a label once bought is free. More
steps of the generator for each round were tried and made it worse: it runs into few modes before the votes can tell.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from verticil.gan.accounting import votes_sigma
from verticil.gan.settings import Settings
from verticil.gan.streams import Stream
from verticil.gan.training import forward, layers, one_thread
from verticil.shared.core.arrays import Codes
from verticil.shared.numerics.model.schema import Schema

PEOPLE_OF_A_TEACHER: Final = 40
ROUNDS: Final = 60
VOTES: Final = 30
"""In a round, one for each record that is asked about."""
_REMEMBERED: Final = 10  # rounds whose votes the student learns from
_TEACHING: Final = 5  # steps of the teachers in a round
_STUDYING: Final = 5  # steps of the student; the generator makes one
_TEACHER_RATE: Final = 1.0
_SHRINK: Final = 0.01  # of the teachers' weights, in a step
_AT_ONCE: Final = 10_000


def records(
    codes: Sequence[Codes], schema: Schema, n: int, *, epsilon: float, delta: float, key: bytes, settings: Settings
) -> list[Codes]:
    """Train, and draw records.

    Args:
        codes: (n,) of each column.
        schema: the columns.
        n: how many records.
        epsilon, delta: for the replacement of one person.
        key: 32 bytes, secret.
        settings: sizes, batch and temperature of it; how many rounds there are is `ROUNDS`.

    Raises:
        ModuleNotFoundError: torch.
    """
    with one_thread():
        made = _Pate(codes, schema, key, settings)
        sigma = votes_sigma(epsilon, delta, ROUNDS * VOTES)
        for number in range(ROUNDS):
            made.round(number, sigma)
        return made.records(n)


class _Pate:
    def __init__(self, codes: Sequence[Codes], schema: Schema, key: bytes, settings: Settings) -> None:
        import torch  # pyright: ignore[reportMissingImports]

        self._schema, self._key, self._settings = schema, key, settings
        self._width = sum(schema.n_states)
        first = Stream(key, b"pate")
        n_teachers = max(1, len(codes[0]) // PEOPLE_OF_A_TEACHER)
        people = np.argsort(first.uniform(len(codes[0])))[: n_teachers * PEOPLE_OF_A_TEACHER]
        starts = np.concatenate([[0], np.cumsum(schema.n_states)[:-1]])
        rows = np.zeros((len(people), self._width), dtype=np.float32)
        for column, start in zip(codes, starts, strict=True):
            rows[np.arange(len(people)), start + column[people].astype(np.int64)] = 1
        self._people = rows.reshape(n_teachers, PEOPLE_OF_A_TEACHER, self._width)
        self._teachers = np.zeros((n_teachers, self._width), dtype=np.float32)
        self._levels = np.zeros(n_teachers, dtype=np.float32)
        self._generator = layers(first, (settings.noise, *settings.generator, self._width), scaled=True)
        self._student = layers(first, (self._width, *settings.critic, 1))
        self._optimizers = [
            torch.optim.Adam(weights, lr=1e-3, betas=(0.5, 0.9)) for weights in (self._student, self._generator)
        ]
        self._asked: list[Any] = []
        self._labels: list[Any] = []

    def round(self, number: int, sigma: float) -> None:
        """Teachers learn, vote on some records, the student learns from votes, the generator from the student."""
        import torch  # pyright: ignore[reportMissingImports]

        stream = Stream(self._key, b"pate/%d" % number)
        with torch.no_grad():
            fake = self._hard(stream, PEOPLE_OF_A_TEACHER + VOTES)
        for _ in range(_TEACHING):
            self._teach(fake[:PEOPLE_OF_A_TEACHER])
        asked = fake[PEOPLE_OF_A_TEACHER:]
        votes = (asked @ self._teachers.T + self._levels > 0).sum(axis=1) + stream.normal(VOTES) * sigma
        self._asked.append(torch.as_tensor(asked.astype(np.float64)))
        self._labels.append(torch.as_tensor((votes / len(self._teachers)).clip(0, 1)))
        seen, labels = torch.cat(self._asked[-_REMEMBERED:]), torch.cat(self._labels[-_REMEMBERED:])
        entropy = torch.nn.functional.binary_cross_entropy_with_logits
        for _ in range(_STUDYING):
            self._step(0, self._student, entropy(forward(self._student, seen)[:, 0], labels))
        score = forward(self._student, self._soft(stream, self._settings.batch))[:, 0]
        self._step(1, self._generator, entropy(score, torch.ones_like(score)))

    def _step(self, place: int, weights: list[Any], loss: Any) -> None:
        import torch  # pyright: ignore[reportMissingImports]

        for weight, found in zip(weights, torch.autograd.grad(loss, weights), strict=True):
            weight.grad = found
        self._optimizers[place].step()

    def _teach(self, fake: NDArray[np.float32]) -> None:
        """A step of every teacher's logistic regression, its people against the generated records."""
        real = np.einsum("tpw,tw->tp", self._people, self._teachers) + self._levels[:, None]
        made = fake @ self._teachers.T + self._levels
        up, down = 1 / (1 + np.exp(real)), 1 / (1 + np.exp(-made))  # what is missing to 1, and what is too much
        slope = np.einsum("tp,tpw->tw", up, self._people) - down.T @ fake
        self._teachers += _TEACHER_RATE * (slope / (2 * PEOPLE_OF_A_TEACHER) - _SHRINK * self._teachers)
        self._levels += _TEACHER_RATE * (up.sum(axis=1) - down.sum(axis=0)) / (2 * PEOPLE_OF_A_TEACHER)

    def _logits(self, stream: Stream, n: int) -> Any:
        import torch  # pyright: ignore[reportMissingImports]

        logits = forward(self._generator, torch.as_tensor(stream.normal(n, self._settings.noise)))
        return logits + torch.as_tensor(stream.gumbel(*logits.shape))

    def _soft(self, stream: Stream, n: int) -> Any:
        import torch  # pyright: ignore[reportMissingImports]

        drawn = self._logits(stream, n) / self._settings.temperature
        return torch.cat([part.softmax(1) for part in drawn.split(self._schema.n_states, 1)], 1)

    def _codes(self, stream: Stream, n: int) -> list[NDArray[np.int64]]:
        noisy = np.split(self._logits(stream, n).numpy(), np.cumsum(self._schema.n_states)[:-1], axis=1)
        return [part.argmax(axis=1) for part in noisy]

    def _hard(self, stream: Stream, n: int) -> NDArray[np.float32]:
        found = [
            np.eye(size, dtype=np.float32)[column]
            for size, column in zip(self._schema.n_states, self._codes(stream, n), strict=True)
        ]
        return np.concatenate(found, axis=1)

    def records(self, n: int) -> list[Codes]:
        """So many, as they are drawn."""
        import torch  # pyright: ignore[reportMissingImports]

        found: list[list[Codes]] = []
        with torch.no_grad():
            for begun in range(0, n, _AT_ONCE):
                codes = self._codes(Stream(self._key, b"pate/records/%d" % begun), min(_AT_ONCE, n - begun))
                found.append(
                    [column.astype(v.code_dtype) for column, v in zip(codes, self._schema.variables, strict=True)]
                )
        return [np.concatenate(column) for column in zip(*found, strict=True)]
