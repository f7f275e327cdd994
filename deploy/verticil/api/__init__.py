"""Studies, releases and evaluations in a notebook: ``import verticil.api as vt``.

Everything here is what the commands do, by the same functions: `load` and `connect` give a `Release`, so do `simulate` and
`synthesize`, and its tables, answers and checks are those of ``verticil release``. `Study` is a study's file as a value.
Variables go by their names, tables are pandas data frames, and whatever is wrong is one of the commands' errors.

- `simulate`: what a federation of these parties would publish.
- `synthesize`: what one owner of the whole table would publish.

Slow packages are imported where they are used.

>>> import verticil.api as vt
>>> vt.simulate.__doc__.splitlines()[0]
'What a federation of these parties would publish: a whole study in this process, by the code of the real nodes.'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import verticil.api.study as study  # noqa: PLR0402 - from its own package it would need itself
from verticil.api.federation import Federation, connect
from verticil.api.network import NamedNetwork
from verticil.api.release import Release, load
from verticil.api.runs import evaluate, simulate, synthesize
from verticil.api.study import Study
from verticil.shared.core.errors import VerticilError
from verticil.shared.release.plot import Plot

__all__ = [
    "Federation",
    "NamedNetwork",
    "Plot",
    "Release",
    "Study",
    "VerticilError",
    "__version__",
    "connect",
    "evaluate",
    "load",
    "simulate",
    "study",
    "synthesize",
]

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """``__version__``: the reading of it is slower than the rest."""
    if name == "__version__":
        from importlib.metadata import version

        return version("verticil")
    raise AttributeError(f"module 'verticil.api' has no attribute '{name}'")
