"""How near each method comes to the table itself, for the owner to choose by.

Two methods' records are functions of the same noisy tables; PrivBayes measures anew, and what it gives here is not published,
so it is not charged. The distances to the table are computed from it without noise, stand in no release, and are for the
owner alone. Who chooses by them tells of the table, by the choice, what no noise covers; it is little, and it is not nothing.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from verticil.curator.learning import learn_study, records_of
from verticil.curator.measuring import measurement
from verticil.curator.reading import Table
from verticil.curator.study import METHODS, PRIVBAYES, owners_study
from verticil.evaluate.measures.fidelity import Distance, distances
from verticil.miner.learning.learn import LearnResult
from verticil.party.storage.secret import SiteSecret
from verticil.shared.core.errors import Misuse
from verticil.shared.study.document import Study

INDEPENDENT = "independent columns of the table"
_WAYS = (1, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One method.

    Attributes:
        method: its name, or `INDEPENDENT` of columns that are each like the table's and have nothing to do with each other.
        distances: mean and worst total variation distance of all 1-way, 2-way and 3-way tables to those of the table.
    """

    method: str
    distances: tuple[Distance, ...]


def compare_methods(
    document: Study,
    study: Study,
    people: Table,
    result: LearnResult,
    *,
    dataset: str,
    secret: SiteSecret,
    step: Callable[[str], None],
) -> tuple[Compared, ...]:
    """Compare all methods that the study permits.

    Args:
        document: the study document that the owner gave.
        study: that was carried out.
        people: the table itself.
        result: what was learned for the study.
        dataset: name of the data set.
        secret: of the owner.
        step: told what is done.
    """
    n_states, widths = study.schema.n_states, [ways for ways in _WAYS if ways <= len(study.schema)]
    results = {study.structure.method == PRIVBAYES: result}
    base = dataclasses.replace(document, tables=study.tables)
    rows: list[Compared] = []
    for method in METHODS:
        own = method == PRIVBAYES
        try:
            other = owners_study(base, method=method, seed=study.structure.seed)
            release = None if own in results else measurement(other, people, dataset=dataset, secret=secret)
        except Misuse:
            continue  # a custom network and the joint model, or more noise than PrivBayes can draw
        if release is not None:
            results[own] = learn_study(other, people, release, secret=secret, step=step)
        step(f"comparing {method}")
        codes, _ = records_of(results[own], other)
        of_method = tuple(distances(people.codes, codes, n_states, ways=ways) for ways in widths)
        rows.append(Compared(method=method, distances=of_method))
    alone = tuple(distances(people.codes, None, n_states, ways=ways) for ways in widths)
    return (*rows, Compared(method=INDEPENDENT, distances=alone))
