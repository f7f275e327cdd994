"""Figures that are upper bounds, as text: rounded up, and a small one not to many times itself."""

from __future__ import annotations

import math
from typing import Final

_SMALL: Final = 0.1
"""Below it two digits that count are shown, and not two behind the point."""
_TINY: Final = 1e-4
_SLACK: Final = 1e-6
"""Binary rounding must not lift 3.00 to 3.01."""


def hundredths(value: float) -> str:
    """Round a finite number of 0 or more up to two digits behind the point, or to two that count where it is small.

    >>> [hundredths(value) for value in (36.8904, 3.0, 0.1, 0.0, 0.001, 0.0123, 0.05, 0.09991, 2.5151e-7)]
    ['36.90', '3.00', '0.10', '0.00', '0.001', '0.013', '0.05', '0.10', '2.6e-07']
    """
    if not 0 < value < _SMALL:
        return f"{math.ceil(value * 100 - _SLACK) / 100:.2f}"
    places = 1 - math.floor(math.log10(value))
    number = math.ceil(value * 10.0**places - _SLACK) / 10.0**places
    if value < _TINY:
        return f"{number:.2g}"
    whole, _, digits = f"{number:.{places}f}".partition(".")
    return f"{whole}.{digits.rstrip('0'):0<2}"
