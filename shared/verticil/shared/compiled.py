"""How loops are compiled: once per machine, kept on disk (`cache=True`, folder NUMBA_CACHE_DIR where it is set).

No `parallel`, which costs seconds to compile, and no `fastmath`: the same numbers on every machine. Imports numba, which some
installations do not have. A kernel checks nothing; its callers check shapes, codes and dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function with numba; see the module."""
    return cast("Callable[P, R]", numba.njit(cache=True, nogil=True)(function))
