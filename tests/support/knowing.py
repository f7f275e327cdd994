"""What studies of the tests state of all records."""

from __future__ import annotations

import dataclasses
import itertools

from support.releases import content_of, release_study_of_two
from verticil.shared.numerics.knowledge.rules import Condition, Function, Knowledge, Order, Refinement, Rule
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.records import draw_release_records
from verticil.shared.study import canonical
from verticil.shared.study.document import Study

GROWN = Function(
    name="grown",
    variable=Variable(name="grown", owner="clinic", labels=("no", "yes")),
    position=1,
    of=("age",),
    values=(("[0,18)", "no"),),
    otherwise="yes",
)
PLACE = Refinement(
    name="place",
    variable="region",
    values=(("north & east", "north", 3.0), ("north & east", "east", 1.0)),
)
EARNER = Function(
    name="earner",
    variable=Variable(name="earner", owner="registry", labels=("none", "some")),
    position=6,
    of=("grown", "income"),
    values=(("yes", "<=50K", "some"), ("yes", ">50K", "some")),
    otherwise="none",
)
CHILDREN = Rule(
    name="no child smokes",
    when=(Condition(variable="grown", values=("no",)),),
    then=(Condition(variable="smoker", values=("no",)),),
)


def study_that_knows(*, rules: tuple[Rule, ...] = ()) -> Study:
    """Of two parties: a column of the first and one of the second follow from others, and regions have places."""
    return dataclasses.replace(
        release_study_of_two(), knowledge=Knowledge(rules=rules, functions=(GROWN, EARNER), refinements=(PLACE,))
    )


def content_that_knows(study: Study | None = None) -> ReleaseContent:
    """A release of it; records are drawn from its network."""
    plain = content_of(release_study_of_two())
    known = study_that_knows() if study is None else study
    codes, synthetic = draw_release_records(plain.network, known, plain.n_common)
    return dataclasses.replace(
        plain, study=known, effective_digest=canonical.digest(known).hex(), codes=codes, synthetic=synthetic
    )


def binned(name: str, edges: tuple[float, ...], *words: str, integer: bool = True) -> Variable:
    labels = tuple(f"[{low:g},{high:g})" for low, high in itertools.pairwise(edges))
    return Variable(name=name, owner="a", labels=(*labels, *words), bins=edges, integer=integer)


def ordered_schema(*variables: Variable) -> Schema:
    return Schema(variables=variables)


def order(lower: str, upper: str, *, strict: bool = False) -> Order:
    return Order(name=f"{lower} {upper}", lower=lower, upper=upper, strict=strict)
