"""Random numbers of a step, from a key of its own: AES-256 in counter mode, as all noise here
(`mechanisms.gaussian.keystream`)."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from verticil.shared.mechanisms.gaussian import derived_key, keystream

_PURPOSE: Final = b"verticil/generator/v1"


class Stream:
    """Numbers one after the other, a function of key and label.

    Args:
        key: 32 bytes, secret.
        label: of the step; another one is another stream.
    """

    def __init__(self, key: bytes, label: bytes) -> None:
        self._next = keystream(derived_key(key, _PURPOSE, label))

    def uniform(self, *shape: int) -> NDArray[np.float64]:
        """Inside (0, 1), of 52 bits."""
        words = np.frombuffer(self._next(8 * math.prod(shape)), dtype="<u8")
        return (((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52).reshape(shape)

    def normal(self, *shape: int) -> NDArray[np.float64]:
        """Standard normal, by G. Box and M. Muller (1958)."""
        size = math.prod(shape)
        radius, angle = self.uniform(2, -(-size // 2))
        radius, angle = np.sqrt(-2 * np.log(radius)), 2 * math.pi * angle
        return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:size].reshape(shape)

    def gumbel(self, *shape: int) -> NDArray[np.float64]:
        """Standard Gumbel."""
        return -np.log(-np.log(self.uniform(*shape)))
