"""How large the experiments are run: as in the paper, or quickly; and how long that takes.

`runtimes` is tables II to IV: CPU seconds of describing a data set and of generating as many records, by search and k.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from verticil.evaluate.measures.utility import CLASSIFIERS
from verticil.experiments.hittmeir.datasets import DataSet, splits
from verticil.experiments.hittmeir.synthesizer import Method, Recipe, describe, generate, warm_up

Step = Callable[[str], None]
"""Called with what is being done, in words."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """One bar.

    Attributes:
        method, k: of the search.
        records: how many are described, and as many generated.
        describe, generate: CPU seconds.
        fitness: of the network, by the search's own measure, nats.
        edges: of the network.
    """

    method: Method
    k: int
    records: int
    describe: float
    generate: float
    fitness: float
    edges: int


def runtimes(data: DataSet, *, scale: Scale, seed: int, step: Step) -> tuple[Runtime, ...]:
    """Describe and generate the training part with every search and k, from codes in memory to codes in memory.

    The paper leaves k = 4 out for the credit-card data, for the time that it would take; so is it here.
    """
    warm_up()
    columns = next(splits(data, data.fine, number=1, seed=seed, rows=scale.rows)).train.codes
    generations = generations_for(data, scale)
    found: list[Runtime] = []
    for method in Method:
        for k in scale.degrees if len(data.fine) < 30 else [k for k in scale.degrees if k <= 3]:
            step(f"{data.name}: {method.value} search, k = {k}")
            made = describe(columns, data.fine, Recipe(method=method, k=k, generations=generations), seed=seed)
            _, seconds = generate(made.network, len(columns[0]), seed=seed)
            found.append(
                Runtime(
                    method=method,
                    k=k,
                    records=len(columns[0]),
                    describe=made.seconds,
                    generate=seconds,
                    fitness=made.search.fitness,
                    edges=len(made.network.dag.edges()),
                )
            )
    return tuple(found)
