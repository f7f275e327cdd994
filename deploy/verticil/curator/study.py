"""The study that the owner of a whole table carries out alone, made from any study document of the same columns.

Everything that is about several organisations and randomized columns goes; columns, structure, parameters and release stay.
What was changed is said, for the owner to read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Final, Literal

from verticil.shared.core.errors import Misuse
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.study import rules
from verticil.shared.study.curator import counts_people
from verticil.shared.study.document import LinkageRule, PosteriorRule, Source, StructureRule, Study, TablesRule
from verticil.shared.study.inapplicable import without
from verticil.shared.study.privbayes_rule import PrivBayesRule
from verticil.shared.study.protocols import measures_itself
from verticil.shared.study.unit import Unit
from verticil.shared.study.vocabulary import METHODS as METHODS_OF_STUDIES

Method = Literal["joint", "network", "privbayes", "posterior"]
"""What records are drawn from: the joint model of all noisy tables, the network learned from them, that of PrivBayes, which
chooses what it measures and so measures anew; or networks of a posterior of graphs, from noisy tables where an epsilon is asked
for, else from the records as they are, without any bound."""
METHODS: Final[tuple[Method, ...]] = ("joint", "network", "privbayes")
"""Those that are compared with each other: all with the same bound."""

PRIVBAYES: Final[Method] = "privbayes"
POSTERIOR: Final[Method] = "posterior"
LEAST_RECORDS: Final = 50
"""Of fewer people, noise that protects them leaves nothing."""
OWNER: Final = "owner"
"""The party of a study that names several."""
_SOURCE: Final = "the owner's study"
_SAMPLED: Final[dict[str, Source | None]] = {"joint": "joint", "posterior": None}
_USUAL: Final = StructureRule(method="auto", score="auto")


def owners_study(
    study: Study,
    *,
    method: str,
    epsilon: float | None = None,
    delta: float | None = None,
    seed: int | None = None,
) -> Study:
    """Return the study to carry out.

    Args:
        study: of any protocol; its columns are all in one table.
        method: see `Method`; or the name of a generator (`verticil.curator.generators`).
        epsilon, delta: of the noise; None: the study's own ``[tables]``, else 1 and 1e-9, and with the method ``posterior`` none;
            with that method an infinite epsilon means none, too.
        seed: of the search and of the records; None: the study's.

    Raises:
        Misuse: STUDY_INVALID or STUDY_UNSUPPORTED, what the study asks for does not go with noise on tables.
    """
    compound_units = [unit for unit in study.units if unit.impossible]
    if compound_units and method != "joint":
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"study '{study.id}': {compound_units[0].text}: it declares combinations impossible, which the method '{method}' "
            "does not keep",
            hint="use the method 'joint', or declare one variable whose categories are the possible combinations",
        )
    owner = study.parties[0] if len(study.parties) == 1 else OWNER
    schema = dataclasses.replace(
        study.schema, variables=tuple(dataclasses.replace(v, owner=owner) for v in study.schema.variables)
    )
    knowledge = study.knowledge and dataclasses.replace(
        study.knowledge,
        functions=tuple(
            dataclasses.replace(item, variable=dataclasses.replace(item.variable, owner=owner))
            for item in study.knowledge.functions
        ),
    )
    exact = method == POSTERIOR and (math.isinf(epsilon) if epsilon is not None else study.tables is None)
    if exact and delta is not None:
        raise Misuse(
            "USAGE",
            "a delta goes with an epsilon, and there is no noise",
            hint="give a finite epsilon, or leave delta out",
        )
    tables = study.tables or TablesRule(epsilon=1.0, delta=1e-9)
    tables = dataclasses.replace(tables, resolution=tables.resolution or "two")
    tables = tables if epsilon is None else dataclasses.replace(tables, epsilon=float(epsilon))
    tables = tables if delta is None else dataclasses.replace(tables, delta=delta)
    if method == PRIVBAYES:
        tables = dataclasses.replace(tables, three_way=(), resolution="one", one_way_part=None)
    structure = _structure(study.structure, method, seed)
    result = dataclasses.replace(
        without(dataclasses.replace(study, structure=structure), METHODS_OF_STUDIES[structure.method].inapplicable),
        model="curator",
        parties=(owner,),
        linkage=LinkageRule(minimum_common_records=LEAST_RECORDS),
        schema=schema,
        units=tuple(_units(schema, owner, compound_units)),
        posterior=study.posterior if METHODS_OF_STUDIES[structure.method].samples else PosteriorRule(),
        privbayes=study.privbayes if method == PRIVBAYES else PrivBayesRule(),
        release=dataclasses.replace(
            study.release,
            sample_from=_SAMPLED.get(method, "network"),
            seed=study.release.seed if seed is None else seed,
            within_bins=study.release.within_bins or (None if method == POSTERIOR else "linked"),
        ),
        tables=None if exact else tables,
        breach=None,
        share=None,
        quorum=None,
        publish=None,
        knowledge=knowledge,
        related=tuple(dataclasses.replace(table, party=owner) for table in study.related),
        left_out=(),
    )
    rules.check(result, source=_SOURCE)
    return result


def with_columns_measured(study: Study, n: int) -> Study:
    """Return the study with the part of the budget for single columns that brings records of `n` people nearest.

    Args:
        study: of `owners_study`; one that states a part keeps it.
        n: people, which is public.
    """
    from verticil.analyst.prediction import best_one_way_part

    rule = study.tables
    if rule is None or rule.one_way_part is not None or measures_itself(study) or counts_people(study):
        return study
    part = best_one_way_part(study, n) or None
    return dataclasses.replace(study, tables=dataclasses.replace(rule, one_way_part=part))


def _units(schema: Schema, owner: str, compound_units: Sequence[Unit]) -> Iterator[Unit]:
    """Yield a unit of each variable as it is; where combinations are impossible, the possible ones of several together."""
    joint = {name: unit for unit in compound_units for name in unit.variables}
    for variable in schema.variables:
        unit = joint.get(variable.name)
        if unit is None:
            yield Unit(
                variables=(variable.name,), owner=owner, scheme="none", transition=quantize(identity(variable.n_states))
            )
        elif variable.name == min(unit.variables, key=schema.index):
            channel = quantize(identity(unit.transition.n_states))
            yield dataclasses.replace(unit, owner=owner, scheme="none", transition=channel, two_level=None)


def _structure(rule: StructureRule, method: str, seed: int | None) -> StructureRule:
    rule = rule if seed is None else dataclasses.replace(rule, seed=seed)
    if method == PRIVBAYES:
        return dataclasses.replace(rule, method=PRIVBAYES, score="total-variation", parents=None)
    if method == POSTERIOR:
        scores = METHODS_OF_STUDIES[POSTERIOR].scores
        score = rule.score if rule.score in scores else scores[0]
        result = dataclasses.replace(rule, method=POSTERIOR, score=score, parents=None)
        for other in METHODS_OF_STUDIES.values():
            result = dataclasses.replace(result, **{key: getattr(_USUAL, key) for key in other.keys})
        return result
    own = METHODS_OF_STUDIES[rule.method].whole_table
    return dataclasses.replace(rule, method="auto", score="auto") if own else rule


def changes(before: Study, after: Study) -> Iterator[str]:
    """Yield what was changed, a line each: the keys that were written, and what does not apply to an owner alone."""
    yield f'[structure] method = "{after.structure.method}"'
    yield f'[release] sample_from = "{after.records_from}"'
    if after.release.within_bins != before.release.within_bins:
        yield f'[release] within_bins = "{after.release.within_bins}"'
    if (
        after.tables is not None
        and after.tables.resolution == "two"
        and (before.tables is None or not before.tables.resolution)
    ):
        yield '[tables] resolution = "two"'
    if (
        after.tables is not None
        and after.tables.one_way_part
        and (before.tables is None or before.tables.one_way_part is None)
    ):
        yield f"[tables] one_way_part = {after.tables.one_way_part:g}: of each column on its own, which the noise would hide"
    if after.tables is None:
        yield "no noise is added: nothing that is published has a bound"
    elif counts_people(after):
        yield (
            f"epsilon {after.tables.epsilon:.4g} is about a person who is added or removed, and the number of people is counted "
            "with noise; the account says what it costs a person who is replaced, which is more"
        )
    if any(unit.scheme != "none" for unit in before.units):
        yield f"the randomization of columns was left out{': the noise is on the tables' if after.tables is not None else ''}"
    if before.tables is not None and after.tables is not None and before.tables.three_way != after.tables.three_way:
        yield "the three-way tables were left out: PrivBayes chooses what it measures"
    if len(before.parties) > 1:
        yield f"{len(before.parties)} organisations became one, '{after.parties[0]}': it has the whole table"
