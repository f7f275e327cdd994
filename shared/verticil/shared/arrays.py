"""The arrays that numbers travel in, under the names that every signature uses."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Codes = NDArray[np.uint8] | NDArray[np.uint16]
"""Of the categories of a column, as they are stored and sent."""
AnyCodes = NDArray[np.unsignedinteger]
"""The same in whatever width."""
Counts = NDArray[np.int64] | NDArray[np.float64]
"""Of records: whole ones, or estimated ones."""
Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
