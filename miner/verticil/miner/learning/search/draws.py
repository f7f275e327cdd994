"""The random numbers of the searches, in plain Python; `compiled.genetic` has the same, compiled.

They are those of SplitMix64 (Steele, Lea, Flood 2014): a counter and a mixing function, the same on every machine.
A random element of a list of m takes one number, ``(high 32 bits * m) >> 32``; a random x in [0, 1) one, its high 53 bits.
"""

from __future__ import annotations

from typing import Final

import numpy as np

_MASK: Final = 2**64 - 1


def stream_state(seed: int) -> int:
    """Return the 64-bit state that the random numbers of `seed` start from: numpy's `SeedSequence`, which never changes.

    >>> stream_state(7) == stream_state(7) != stream_state(8)
    True
    """
    return int(np.random.SeedSequence(seed).generate_state(1, np.uint64)[0])


class Draws:
    """SplitMix64.

    Args:
        state: the 64-bit state to start from.

    >>> draws = Draws(1234567)
    >>> draws.word(), draws.word()
    (6457827717110365317, 3203168211198807973)
    """

    def __init__(self, state: int) -> None:
        self.state = state & _MASK

    def word(self) -> int:
        """Return the next 64 bits."""
        self.state = (self.state + 0x9E3779B97F4A7C15) & _MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def below(self, limit: int) -> int:
        """Return a whole number in 0 .. limit-1."""
        return ((self.word() >> 32) * limit) >> 32

    def unit(self) -> float:
        """Return a number in [0, 1)."""
        return (self.word() >> 11) * 2.0**-53
