"""What a reader of a release should know before trusting a column or a table: warnings, from what is published anyway.

- A column in which one category alone can be told from absent looks constant. Learning goes on: such a column depends on
  nothing and nothing on it, and that it looks so is in its published shares. It is said, because it is hardly ever meant: a code
  that was not recognised goes to `other` or to missing, and a column never observed looks exactly so.
- Categories that cannot be told from absent: declared and, as far as anybody can see, never reported. The miner sees randomized
  values only, so it cannot know more than that; without noise it is so.
- A table with more cells than the records are worth: most of its probabilities are made by the prior, or come from tables with
  fewer parents.
- A parent that was found and left out, because the records do not bear the table with it.

Nothing here is a data value beyond the published shares and counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from verticil.shared.formats.json_document import Json
from verticil.shared.model.network import Marginal, Network
from verticil.shared.study.document import Study
from verticil.shared.study.study_table import family_records

_SHOWN: Final = 5


def remarks(
    study: Study,
    network: Network,
    marginals: Sequence[Marginal],
    n_common: int,
    search: Mapping[str, Json] = MappingProxyType({}),
) -> tuple[str, ...]:
    """The warnings, one sentence or two each; empty when there is nothing to say.

    Args:
        study: the effective study.
        network: the model.
        marginals: its one-way shares.
        n_common: how many people it was estimated from.
        search: how the structure was found, as the release says it.
    """
    return (*_columns(study, marginals), *_families(study, network, n_common), *_cut(search))


def _columns(study: Study, marginals: Sequence[Marginal]) -> Iterator[str]:
    for marginal in marginals:
        variable = study.schema.variables[marginal.variable]
        if variable.n_states < 2 or np.isnan(marginal.estimate).any():
            continue
        absent = [variable.labels[state] for state in np.flatnonzero(marginal.interval_low <= 0)]
        seen = [label for label in variable.labels if label not in absent]
        if len(seen) == 1:
            unobserved = (
                ": it looks as if it was never observed" if seen[0] in _not_observed(study, variable.name) else ""
            )
            yield (
                f"The column '{variable.name}' looks constant: only '{seen[0]}' can be told from absent{unobserved}. It can "
                "depend on nothing, and nothing on it. Check its source and recoding at the party."
            )
        elif absent:
            yield f"Of the column '{variable.name}', {_listed(absent)} cannot be told from absent."


def _not_observed(study: Study, name: str) -> tuple[str, ...]:
    variable = study.schema.variables[study.schema.index(name)]
    return tuple(label for label in (variable.missing.category if variable.missing else None, variable.other) if label)


def _families(study: Study, network: Network, n_common: int) -> Iterator[str]:
    names, n_states = study.schema.names, study.schema.n_states
    for child, parents in enumerate(network.dag.parents):
        cells = math.prod(n_states[v] for v in (child, *parents))
        worth = family_records(study, child, parents, n_common)
        if cells > worth:
            of = f" with the parents {_listed(names[v] for v in parents)}" if parents else ""
            exact = "" if math.isclose(worth, n_common) else f", worth {worth:,.0f} unrandomized ones"
            come = "are guesses" if study.parameters.prior_count is not None else "come from tables with fewer parents"
            yield (
                f"The table of '{names[child]}'{of} has {cells:,} cells, and there are {n_common:,} records{exact}: most of its "
                f"probabilities {come}."
            )


def _cut(search: Mapping[str, Json]) -> Iterator[str]:
    rows = search.get("cut_edges")
    for row in rows if isinstance(rows, Sequence) and not isinstance(rows, str) else ():
        match row:
            case [str(parent), str(child)]:
                yield (
                    f"'{parent}' tells about '{child}' and is not among its parents: there are too few records, or there is too "
                    "much noise, for so large a table."
                )
            case _:
                pass


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else ""
    return ", ".join(f"'{name}'" for name in listed[:_SHOWN]) + more
