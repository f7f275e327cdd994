"""Who scores which pair of variables, and who reads which randomized unit.

Model I (Ma & Sivakumar, section 4). A variable is *cross* when one of its parents is at another party; those parents are
*cross parents*. With a structure, a unit is read by the parties that own a child of one of its variables, and by nobody else.
Where the structure is learned, each pair of variables is scored by exactly one party, which holds one of them raw: both at one
party, that party; else the owner that stands first in the study; so a unit is also read by every party before its owner.

Everything here follows from the study alone, so that all nodes agree without talking about it.
"""

from __future__ import annotations

from verticil.shared.model.graph import Dag
from verticil.shared.study.document import Study


def given_dag(study: Study) -> Dag | None:
    """The structure that the study gives; None where it is to be learned."""
    if study.structure.parents is None:
        return None
    index = study.schema.index
    return Dag(parents=tuple(tuple(index(name) for name in names) for _, names in study.structure.parents))


def scored_pairs(study: Study, party: str) -> tuple[tuple[int, int], ...]:
    """The pairs of variables (a, b), a < b, that `party` scores, in lexicographic order."""
    rank = {name: position for position, name in enumerate(study.parties)}
    owners = [variable.owner for variable in study.schema.variables]
    return tuple(
        (a, b)
        for a in range(len(owners))
        for b in range(a + 1, len(owners))
        if min(owners[a], owners[b], key=rank.__getitem__) == party
    )


def reads(study: Study, party: str, dag: Dag | None) -> tuple[int, ...]:
    """The units of other parties that `party` reads, ascending.

    Args:
        study: the effective study.
        party: the reading party.
        dag: the structure; None: while pairs are scored.
    """
    return tuple(
        index for index, unit in enumerate(study.units) if unit.owner != party and party in readers(study, index, dag)
    )


def readers(study: Study, index: int, dag: Dag | None) -> tuple[str, ...]:
    """The parties that read unit `index`, in the study's order; its owner is not among them.

    Args:
        study: the effective study.
        index: of the unit.
        dag: the structure; None: while pairs are scored.
    """
    unit = study.units[index]
    if dag is None:
        return study.parties[: study.parties.index(unit.owner)]
    members = {study.schema.index(name) for name in unit.variables}
    needing = {study.schema[child].owner for child, parents in enumerate(dag.parents) if members & set(parents)}
    return tuple(party for party in study.parties if party in needing and party != unit.owner)


def read_by(study: Study, index: int, dag: Dag | None = None) -> tuple[str, ...]:
    """The peers that unit `index` goes to in the whole of a study with model ``peer``, in the study's order.

    Args:
        study: a study between peers.
        index: of the unit.
        dag: the structure, where it is learned; None: it is not yet known, and then every other party may read the unit.
    """
    given = given_dag(study)
    if given is not None:
        return readers(study, index, given)
    if dag is None:
        return tuple(party for party in study.parties if party != study.units[index].owner)
    reading = {*readers(study, index, None), *readers(study, index, dag)}
    return tuple(party for party in study.parties if party in reading)


def shared_tables(study: Study, party: str) -> int:
    """How many tables of its own raw data a party shares something of: one for each own variable and for each scored pair."""
    scored = 0 if study.structure.parents is not None else len(scored_pairs(study, party))
    return len(study.schema.owned_by(party)) + scored
