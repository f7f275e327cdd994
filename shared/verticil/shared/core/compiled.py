"""How loops are compiled: once per machine, kept on disk (`cache=True`, folder NUMBA_CACHE_DIR where it is set).

Where no folder can be written to, they are compiled in memory, by each process anew.

No `parallel`, which costs seconds to compile, and no `fastmath`: the same numbers on every machine. Imports numba, which some
installations do not have. A kernel checks nothing; its callers check shapes, codes and dtypes.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Literal, ParamSpec, TypeVar, cast

import numba
from numba.core import event

P = ParamSpec("P")
R = TypeVar("R")


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compile a function with numba; see the module."""
    return compiled_for(None)(function)


def compiled_with_vectors(function: Callable[P, R]) -> Callable[P, R]:
    """Compile loops that divide so that they become vector instructions: division by 0 is no error, as in numpy."""
    return compiled_for(None, error_model="numpy")(function)


def compiled_for(
    signature: Any, error_model: Literal["python", "numpy"] = "python"
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function with numba for the types of a signature at once, for None when it is called; see the module."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        try:
            function_out = numba.njit(signature, cache=True, nogil=True, error_model=error_model)(function)
        except RuntimeError:  # no folder for compiled code can be written to: a read-only installation without a home
            function_out = numba.njit(signature, nogil=True, error_model=error_model)(function)
        return cast("Callable[P, R]", function_out)

    return decorate


class _First(event.Listener):
    """A listener that tells of the first function that is compiled."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell: Callable[[], None] | None = tell

    def on_start(self, event: object) -> None:
        """Tell of the first one."""
        tell, self._tell = self._tell, None
        if tell is not None:
            tell()

    def on_end(self, event: object) -> None:
        """Say nothing about the end."""


@contextmanager
def compiling_told(tell: Callable[[], None]) -> Generator[None]:
    """Tell once if anything is compiled in the block; what a cache has is not compiled."""
    with event.install_listener("numba:compile", _First(tell)):
        yield
