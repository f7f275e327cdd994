"""How large the experiments are run: as in the paper, or quickly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from verticil.experiments.hittmeir.datasets import DataSet
from verticil.shared.evaluation.utility import CLASSIFIERS

Step = Callable[[str], None]
"""Is told what is being done."""

_CARD_COLUMNS: Final = 31


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Sizes.

    Attributes:
        name: for people.
        rows: at most so many records of a data set; None: all.
        generations: of the genetic algorithm; None: the paper's, 2,000 for the credit-card data, else 400.
        degrees: the k that are compared.
        custom_degree: the k of the custom networks.
        splits: random splits of Contraceptive Method Choice.
        repeats: how often classifiers are trained on any data set, each time on another random split (of a published one: on
            other synthetic records of the same part); None: `splits` times, and once where the paper did it once.
        epsilons: of the randomized columns.
        classifiers: which are trained.
        keys: at most so many sets of known attributes in an attack; None: all.
        simulated_rows, simulated_frauds: of the simulated credit-card table that classifiers see; the times are of a whole one.
    """

    name: str
    rows: int | None
    generations: int | None
    degrees: tuple[int, ...]
    custom_degree: int
    splits: int
    repeats: int | None = None
    epsilons: tuple[float, ...] = (3.0, 2.0, 1.0)
    classifiers: tuple[str, ...] = CLASSIFIERS
    keys: int | None = None
    simulated_rows: int
    simulated_frauds: int


FULL: Final = Scale(
    name="full",
    rows=None,
    generations=None,
    degrees=(1, 2, 3, 4),
    custom_degree=4,
    splits=10,
    simulated_rows=20_000,
    simulated_frauds=492,
)
QUICK: Final = Scale(
    name="quick",
    rows=600,
    generations=20,
    degrees=(1, 2),
    custom_degree=2,
    splits=1,
    epsilons=(3.0,),
    classifiers=("NB", "SV", "KN", "LR"),
    keys=1,
    simulated_rows=600,
    simulated_frauds=60,
)


def generations_for(data: DataSet, scale: Scale) -> int:
    """The paper's e for a data set (its footnote 14), or the scale's."""
    if scale.generations is not None:
        return scale.generations
    return 2000 if len(data.fine) == _CARD_COLUMNS else 400
