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

import verticil.api.study as study  # noqa: F401, PLR0402 - from its own package it would need itself
from verticil.api.federation import Federation as Federation
from verticil.api.federation import connect as connect
from verticil.api.network import NamedNetwork as NamedNetwork
from verticil.api.plot import Plot as Plot
from verticil.api.release import Release as Release
from verticil.api.release import load as load
from verticil.api.runs import evaluate as evaluate
from verticil.api.runs import simulate as simulate
from verticil.api.runs import synthesize as synthesize
from verticil.api.study import Study as Study
from verticil.shared.errors import VerticilError as VerticilError

if TYPE_CHECKING:
    __version__: str


def __getattr__(name: str) -> str:
    """``__version__``: the reading of it is slower than the rest."""
    if name == "__version__":
        from importlib.metadata import version

        return version("verticil")
    raise AttributeError(f"module 'verticil.api' has no attribute '{name}'")
