"""Random numbers of the compiled searches: SplitMix64 (Steele, Lea, Flood 2014), as `operators.Draws` has it in plain Python.

The state is one 64-bit word in an array, so that a search can keep it and go on from it. The same numbers on every machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.kernels import compiled

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S32, _S11 = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32), np.uint64(11)
_UNIT = 2.0**-53


@compiled
def word(stream: NDArray[np.uint64]) -> np.uint64:
    """The next 64 bits; `stream`, (1,), is advanced."""
    stream[0] += _GOLDEN
    z = stream[0]
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    mixed: np.uint64 = z ^ (z >> _S31)
    return mixed


@compiled
def below(stream: NDArray[np.uint64], bound: int) -> int:
    """A whole number in 0 .. bound-1."""
    return np.int64(((word(stream) >> _S32) * np.uint64(bound)) >> _S32)  # type: ignore[return-value]  # int64 is numba's int


@compiled
def unit(stream: NDArray[np.uint64]) -> float:
    """A number in [0, 1)."""
    return np.float64(word(stream) >> _S11) * _UNIT
