"""Tables II to IV: CPU seconds of describing a data set and of generating as many records, by search and k."""

from __future__ import annotations

from dataclasses import dataclass

from verticil.experiments.hittmeir.datasets import DataSet, splits
from verticil.experiments.hittmeir.scale import Scale, Step, generations_for
from verticil.experiments.hittmeir.synthesizer import Method, Recipe, describe, generate, warm_up


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
