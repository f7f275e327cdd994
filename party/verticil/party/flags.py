"""Flags of rules, and what a study states of some columns of a table.

The flag of a rule (`verticil.shared.numerics.knowledge`) stands in no table: it is written from the codes of its rule's columns,
which are all in one data set. What it means is part of its codebook.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping

from verticil.party.dataset import perturb
from verticil.shared.core.arrays import Codes
from verticil.shared.numerics.knowledge.columns import flag_codes, narrow_knowledge
from verticil.shared.numerics.knowledge.rules import Flag, Knowledge
from verticil.shared.study.document import Study


def flag_of(study: Study, variable: str) -> Flag | None:
    """Return the flag that a variable is; None: it is a column of a table."""
    return None if study.knowledge is None else study.knowledge.flag(variable)


def flag_meaning(
    study: Study, flag: Flag, columns: Mapping[str, tuple[str, Mapping[str, str], str]]
) -> tuple[str, str]:
    """Return the local columns of a flag, in words, and a text of its meaning: its conditions, and their columns' codebooks.

    Args:
        study: of the flag.
        flag: of a rule.
        columns: of each variable of its conditions the local column, its recode, and how its numbers are written.
    """
    digest = hashlib.sha256()
    for condition in flag.when:
        _, recode, style = columns[condition.variable]
        variable = study.schema[study.schema.index(condition.variable)]
        digest.update(perturb.codebook_digest(variable, recode, style))
        digest.update(bytes(label in condition.values for label in variable.labels))
    names = ", ".join(columns[condition.variable][0] for condition in flag.when)
    return f"flag of {names}", f"flag {digest.hexdigest()}"


def stated_of(study: Study, columns: Collection[str]) -> Knowledge | None:
    """Return what a study states of some columns of a table, which has no flags."""
    return study.knowledge and narrow_knowledge(study.knowledge, study.schema, columns)


def with_flags(study: Study, codes: Mapping[str, Codes]) -> dict[str, Codes]:
    """Codes of columns with those of every flag whose columns are there."""
    flags = () if study.knowledge is None else study.knowledge.flags
    variables = {variable.name: variable for variable in study.schema.variables}
    flag_columns = {
        flag.variable: flag_codes(flag, variables, codes)
        for flag in flags
        if all(condition.variable in codes for condition in flag.when)
    }
    return {**codes, **flag_columns}
