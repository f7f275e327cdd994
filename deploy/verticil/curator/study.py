"""The study that the owner of a whole table carries out alone, made from any study document of the same columns.

Everything that is about several organisations and randomized columns goes; columns, structure, parameters and release stay.
What was changed is said, for the owner to read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from verticil.shared.channels.transition import identity, quantize
from verticil.shared.errors import Misuse
from verticil.shared.model.schema import Schema
from verticil.shared.study import rules
from verticil.shared.study.document import LinkageRule, StructureRule, Study, TablesRule, Unit
from verticil.shared.study.vocabulary import METHODS as METHODS_OF_STUDIES

Method = Literal["joint", "network", "privbayes"]
"""What records are drawn from: the joint model of all noisy tables, the network learned from them, or that of PrivBayes, which
chooses what it measures and so measures anew."""
METHODS: Final[tuple[Method, ...]] = ("joint", "network", "privbayes")

PRIVBAYES: Final[Method] = "privbayes"
LEAST_RECORDS: Final = 50
"""Of fewer people, noise that protects them leaves nothing."""
OWNER: Final = "owner"
"""The party of a study that names several."""
_SOURCE: Final = "the owner's study"


def owners_study(
    study: Study, *, method: Method, epsilon: float | None = None, delta: float | None = None, seed: int | None = None
) -> Study:
    """The study to carry out.

    Args:
        study: of any protocol; its columns are all in one table.
        method: see `Method`.
        epsilon, delta: of the noise; None: the study's own ``[tables]``, else 1 and 1e-9.
        seed: of the search and of the records; None: the study's.

    Raises:
        Misuse: STUDY_INVALID or STUDY_UNSUPPORTED, what the study asks for does not go with noise on tables.
    """
    kept = [unit for unit in study.units if unit.impossible]
    if kept and method != "joint":
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"study '{study.id}': {kept[0].text}: it declares combinations impossible, which the method '{method}' does not keep",
            hint="use the method 'joint', or declare one variable whose categories are the possible combinations",
        )
    owner = study.parties[0] if len(study.parties) == 1 else OWNER
    schema = dataclasses.replace(
        study.schema, variables=tuple(dataclasses.replace(v, owner=owner) for v in study.schema.variables)
    )
    asked = study.tables or TablesRule(epsilon=1.0, delta=1e-9)
    asked = asked if epsilon is None else dataclasses.replace(asked, epsilon=epsilon)
    asked = asked if delta is None else dataclasses.replace(asked, delta=delta)
    asked = dataclasses.replace(asked, three_way=()) if method == PRIVBAYES else asked
    changed = dataclasses.replace(
        study,
        model="curator",
        parties=(owner,),
        linkage=LinkageRule(minimum_common_records=LEAST_RECORDS),
        schema=schema,
        units=tuple(_units(schema, owner, kept)),
        structure=_structure(study.structure, method, seed),
        release=dataclasses.replace(
            study.release,
            sample_from="joint" if method == "joint" else "network",
            seed=study.release.seed if seed is None else seed,
        ),
        tables=asked,
        breach=None,
        share=None,
        quorum=None,
        publish=None,
        left_out=(),
    )
    rules.check(changed, source=_SOURCE)
    return changed


def _units(schema: Schema, owner: str, kept: Sequence[Unit]) -> Iterator[Unit]:
    """Each variable as it is; where combinations are impossible, the possible ones of several together."""
    joint = {name: unit for unit in kept for name in unit.variables}
    for variable in schema.variables:
        unit = joint.get(variable.name)
        if unit is None:
            yield Unit(
                variables=(variable.name,), owner=owner, scheme="none", transition=quantize(identity(variable.n_states))
            )
        elif variable.name == min(unit.variables, key=schema.index):
            channel = quantize(identity(unit.transition.n_states))
            yield dataclasses.replace(unit, owner=owner, scheme="none", transition=channel, two_level=None)


def _structure(rule: StructureRule, method: Method, seed: int | None) -> StructureRule:
    rule = rule if seed is None else dataclasses.replace(rule, seed=seed)
    if method == PRIVBAYES:
        return dataclasses.replace(rule, method=PRIVBAYES, score="total-variation", parents=None)
    own = METHODS_OF_STUDIES[rule.method].whole_table
    return dataclasses.replace(rule, method="auto", score="auto") if own else rule


def changes(before: Study, after: Study) -> Iterator[str]:
    """What was changed, a line each: the keys that were written, and what does not apply to an owner alone."""
    yield f'[structure] method = "{after.structure.method}"'
    yield f'[release] sample_from = "{after.release.sample_from}"'
    if any(unit.scheme != "none" for unit in before.units):
        yield "the randomization of columns was left out: the noise is on the tables"
    if before.tables is not None and before.tables.three_way != (after.tables and after.tables.three_way):
        yield "the three-way tables were left out: PrivBayes chooses what it measures"
    if len(before.parties) > 1:
        yield f"{len(before.parties)} organisations became one, '{after.parties[0]}': it has the whole table"
