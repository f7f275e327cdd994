"""Comparators, ours and not the authors': the generator of KIPPS without parts of it.

DPCTGAN (L. Rosenblatt et al., arXiv 2011.05537) stands for a generator with the condition and without knowledge, DPWGAN (L. Xie
et al., arXiv 1802.06739) for one without either; both are trained as ours is, in its sizes, and not as their authors' programs
train. So what differs is the part that is left out, and the accountant is the same. The third is ours without privacy: no noise,
no clipping, exact counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verticil.gan import autoencoder
from verticil.gan.accounting import training_for
from verticil.gan.autoencoder import Autoencoder, Decoder
from verticil.gan.conditions import Parts
from verticil.gan.settings import AutoencoderSettings, Settings
from verticil.gan.streams import Stream
from verticil.gan.training import Trained, Training, one_thread, train
from verticil.shared.core.arrays import Codes
from verticil.shared.numerics.knowledge.rules import Knowledge
from verticil.shared.numerics.model.schema import Schema

_NO_COUNTS = 1e-4
"""Of the budget, for counts that are not made."""


def kipps(
    codes: Sequence[Codes],
    schema: Schema,
    knowledge: Knowledge | None,
    *,
    epsilon: float,
    delta: float,
    key: bytes,
    settings: Settings,
) -> Trained:
    """Ours, whole: as `train`, at (epsilon, delta) for the replacement of one person; without knowledge it is `dpctgan`."""
    event = training_for(epsilon, delta, steps=settings.steps, rate=settings.rate(len(codes[0])), tables=len(codes))
    return train(codes, schema, knowledge, event, key=key, settings=settings)


def dpctgan(
    codes: Sequence[Codes], schema: Schema, *, epsilon: float, delta: float, key: bytes, settings: Settings
) -> Trained:
    """With the condition, and no knowledge. Arguments as for `kipps`."""
    return kipps(codes, schema, None, epsilon=epsilon, delta=delta, key=key, settings=settings)


def dpwgan(
    codes: Sequence[Codes], schema: Schema, *, epsilon: float, delta: float, key: bytes, settings: Settings
) -> Trained:
    """Without condition and knowledge; nothing is counted, and the whole budget goes to the steps. Arguments as for `kipps`."""
    rate = settings.rate(len(codes[0]))
    event = training_for(epsilon, delta, steps=settings.steps, rate=rate, tables=1, share=_NO_COUNTS)
    with one_thread():
        return _Unconditioned(codes, schema, None, event, key=key, settings=settings).run()


def exact(
    codes: Sequence[Codes], schema: Schema, knowledge: Knowledge | None, *, key: bytes, settings: Settings
) -> Trained:
    """Without privacy: what is returned tells of records what no epsilon bounds, whatever its event says."""
    event = training_for(1.0, 0.5, steps=settings.steps, rate=settings.rate(len(codes[0])), tables=1)
    free = dataclasses.replace(settings, clip=1e12)
    with one_thread():
        return _Exact(codes, schema, knowledge, event, key=key, settings=free).run()


def autoencoded(
    codes: Sequence[Codes],
    schema: Schema,
    knowledge: Knowledge | None,
    *,
    epsilon: float | None,
    delta: float,
    key: bytes,
    settings: AutoencoderSettings,
) -> Decoder:
    """Return the autoencoder that knows rules. Arguments as for `kipps`.

    Args:
        epsilon: None: no noise, no clipping, exact shares, and no bound, whatever its event says.
    """
    rate = settings.rate(len(codes[0]))
    if epsilon is None:
        event = training_for(1.0, 0.5, steps=settings.steps, rate=rate, tables=1)
        free = dataclasses.replace(settings, clip=1e12)
        with one_thread():
            return _ExactAutoencoder(codes, schema, knowledge, event, key=key, settings=free).run()
    event = training_for(epsilon, delta, steps=settings.steps, rate=rate, tables=len(codes))
    return autoencoder.train(codes, schema, knowledge, event, key=key, settings=settings)


class _Constant(Parts):
    """One entry, always set: no condition."""

    @property
    def size(self) -> int:
        return 1

    def entries(self, codes: Sequence[NDArray[Any]], words: NDArray[np.float64]) -> NDArray[np.int64]:
        return np.zeros(len(words), dtype=np.int64)


class _Unconditioned(Training):
    def conditions(self, knowledge: Knowledge | None) -> Parts:
        return _Constant(n_states=self._schema.n_states, groups=(), rules=())

    def counted(self, codes: Sequence[Codes]) -> list[NDArray[np.float64]]:
        return [np.full(size, 1 / size) for size in self._schema.n_states]

    def asked(self, parts: list[Any], entries: NDArray[np.int64]) -> Any:
        return 0.0


def _exact_shares(codes: Sequence[Codes], n_states: Sequence[int]) -> list[NDArray[np.float64]]:
    return [np.bincount(column, minlength=size) / len(column) for column, size in zip(codes, n_states, strict=True)]


class _ExactAutoencoder(Autoencoder):
    def counted(self, codes: Sequence[Codes]) -> list[NDArray[np.float64]]:
        return _exact_shares(codes, self._schema.n_states)

    def noise(self, stream: Stream) -> list[NDArray[np.float64]]:
        return [np.zeros(tuple(weight.shape)) for weight in (*self.encoder, *self.decoder)]


class _Exact(Training):
    def counted(self, codes: Sequence[Codes]) -> list[NDArray[np.float64]]:
        return _exact_shares(codes, self._schema.n_states)

    def noise(self, stream: Stream) -> list[NDArray[np.float64]]:
        return [np.zeros(tuple(weight.shape)) for weight in self.critic]
