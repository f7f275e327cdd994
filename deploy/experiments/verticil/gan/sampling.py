"""Records of a generator: drawn, those that break a hard rule left out, so many of each rule counted.

What is left out is not what a generator given the rules would not have drawn: the law of the rest is the generator's, given that
the rules hold, and a rule that it hardly ever keeps leaves few records. Then there is an error, and no endless drawing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from verticil.gan.streams import Stream
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.knowledge.support import Support
from verticil.shared.numerics.model.schema import Schema

_AT_ONCE: Final = 10_000
_LEAST_SHARE: Final = 0.02
"""Of records that meet all rules, among those that are drawn."""


class Generator(Protocol):
    """A trained generator, whichever it is."""

    @property
    def schema(self) -> Schema:
        """The columns that it draws."""
        ...

    def logits(self, stream: Stream, n: int) -> NDArray[np.float64]:
        """Return (n, categories of all columns): of each record the logarithms that its columns are drawn by."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sampled:
    """Records.

    Attributes:
        codes: (n,) of each column; all hard rules hold.
        drawn: how many were drawn for them.
        violated: of each rule, how many of those that were drawn broke it.
        left_out: how many broke any.
    """

    codes: tuple[Codes, ...]
    drawn: int
    violated: Mapping[str, int]
    left_out: int


def sample(trained: Generator, support: Support, n: int, *, seed: int) -> Sampled:
    """Draw records that meet all hard rules.

    Args:
        trained: the generator.
        support: of its schema.
        n: how many.
        seed: of the draw; nothing of it is secret.

    Raises:
        ModuleNotFoundError: torch.
        DataFault: LEARNING_FAILED, fewer than one in fifty meet the rules.
    """
    kept: list[list[Codes]] = []
    drawn = found = left_out = 0
    violated = dict.fromkeys(support.names, 0)
    key = seed.to_bytes(32, "big")
    while found < n:
        if drawn * _LEAST_SHARE > found + _AT_ONCE:
            worst = max(violated, key=lambda name: violated[name])
            raise DataFault(
                "LEARNING_FAILED",
                f"of {drawn} records of the generator {found} meet all rules, expected at least one in {1 / _LEAST_SHARE:.0f}; "
                f"most break the rule '{worst}'",
                hint="train with more steps or a larger epsilon, or draw from the network, which keeps rules exactly",
            )
        stream = Stream(key, b"records/%d" % drawn)
        logits = trained.logits(stream, _AT_ONCE)
        noisy = np.split(logits + stream.gumbel(*logits.shape), np.cumsum(trained.schema.n_states)[:-1], axis=1)
        codes: list[Codes] = [
            part.argmax(axis=1).astype(variable.code_dtype)
            for part, variable in zip(noisy, trained.schema.variables, strict=True)
        ]
        for name, (scope, table) in zip(support.names, support.factors, strict=True):
            violated[name] += int((table[tuple(codes[column] for column in scope)] == 0).sum())
        holds = support.holds(codes)
        kept.append([column[holds] for column in codes])
        drawn += _AT_ONCE
        found += int(holds.sum())
        left_out += int((~holds).sum())
    columns = zip(*kept, strict=True)
    return Sampled(
        codes=tuple(np.concatenate(column)[:n] for column in columns),
        drawn=drawn,
        violated=violated,
        left_out=left_out,
    )
