"""A study of single columns, each as it is or with randomized response: what tests change of it they name."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.model.schema import Schema, Variable
from verticil.shared.study.document import GeneticRule, LinkageRule, ParameterRule, ReleaseRule, StructureRule, Study
from verticil.shared.study.reading import read_study
from verticil.shared.study.unit import Unit


def numbered(n_states: Sequence[int], owner: str = "a") -> tuple[Variable, ...]:
    """Variables v0, v1, .. with the categories 0, 1, .."""
    return tuple(Variable(name=f"v{i}", owner=owner, labels=tuple(map(str, range(k)))) for i, k in enumerate(n_states))


def study_of(variables: Sequence[Variable], *, epsilon: float | None = None, **fields: Any) -> Study:
    """A study in which every variable is a unit; `fields` are the study's; of structure, linkage, release as mappings."""
    study = Study(
        id="test",
        title="A trial",
        purpose="test",
        model="central",
        expires=dt.date(2099, 1, 1),
        parties=tuple(dict.fromkeys(variable.owner for variable in variables)),
        linkage=LinkageRule(mode="keyed-hash", normalise=(), minimum_common_records=1),
        schema=Schema(variables=tuple(variables)),
        units=tuple(
            Unit(
                variables=(v.name,),
                owner=v.owner,
                scheme="none" if epsilon is None else "symmetric",
                transition=quantize(
                    identity(v.n_states) if epsilon is None else symmetric(v.n_states, epsilon=epsilon)
                ),
            )
            for v in variables
        ),
        structure=StructureRule(
            method="genetic",
            score="mutual-information",
            max_parents=2,
            max_family_cells=20_000,
            seed=7,
            required=(),
            forbidden=(),
            genetic=GeneticRule(),
        ),
        parameters=ParameterRule(estimator="em", prior_count=0.5, interval_level=0.95),
        release=ReleaseRule(synthetic_records=None, seed=7),
    )
    for name in ("structure", "linkage", "release"):
        if isinstance(rule := fields.get(name), dict):
            fields[name] = dataclasses.replace(getattr(study, name), **rule)
    return dataclasses.replace(study, **fields)


def read(folder: Path, text: str) -> Study:
    """Read a study whose text is written into a folder."""
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return read_study(path)
