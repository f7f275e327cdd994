"""Attacks on noisy tables by a person with several rows: the claim is of the person with all rows.

Two people are laid into slots as a node lays them (`verticil.shared.related.laying`): one without rows, and one with as many as
there are slots and other values of all columns. Where their cells differ, in how many of the study's tables (`rows.toml`) that is
counted, and not taken from what is charged. Each of these tables has noise as who adds it draws it: so `noise.attacks_on` finds a
bound that is of one row, or of one table's rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from verticil.attack.attack import Attack
from verticil.attack.columns import PARTY
from verticil.attack.noise import Add, Mechanism, attacks_on, curve_of, discrete_weights
from verticil.shared.core.arrays import Codes
from verticil.shared.mechanisms.discrete_gaussian import draw as discrete_gaussian
from verticil.shared.mechanisms.gaussian import derived_key
from verticil.shared.privacy.events import DiscreteGaussianCounts, plan_events
from verticil.shared.related.laying import Places, Rows, lay
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study
from verticil.shared.study.tables import tables_of

STUDY: Final = Path(__file__).with_name("rows.toml")
NAME: Final = "rows-of-a-person"


def attacks() -> Iterator[Attack]:
    """Yield the attacks on the noise of tables of people with rows."""
    yield from attacks_on(mechanism())


def mechanism(study: Study | None = None) -> Mechanism:
    """Return the noise on the tables in which a person with all rows can be told from one without.

    Args:
        study: has related tables and noise on tables; None: `STUDY`.
    """
    study = read_study(STUDY) if study is None else study
    (event,) = (item.event for item in plan_events(study, PARTY) if item.unit is None)
    assert isinstance(event, DiscreteGaussianCounts)
    return Mechanism(
        name=NAME,
        event=event,
        curve=curve_of(event),
        noise=lambda secret, fingerprint: _noise(secret, fingerprint, event.sigma),
        n_tables=len(moved_tables(study)),
        sigma=event.sigma,
        weights=discrete_weights(event.sigma),
    )


def _noise(secret: bytes, fingerprint: bytes, sigma: float) -> Add:
    key = derived_key(secret, b"attack", fingerprint)
    return lambda label, counts: counts + discrete_gaussian(key, label, counts.shape, sigma)


def moved_tables(study: Study) -> tuple[tuple[int, ...], ...]:
    """Return the tables in which two people with all rows have different cells."""
    codes = two_people(study)
    differs = [codes[name][0] != codes[name][1] for name in study.schema.names]
    columns = [[study.schema.index(name) for name in unit.variables] for unit in study.units]
    return tuple(
        units for units in tables_of(study) if any(differs[column] for unit in units for column in columns[unit])
    )


def two_people(study: Study) -> dict[str, Codes]:
    """Return the codes of two people, by column: one without rows, and one with all rows and other values of the person."""
    codes = {variable.name: np.array([0, 1], variable.code_dtype) for variable in study.schema.variables}
    for table in study.related:
        rows = np.arange(table.max_rows)
        laid = lay(
            table,
            study.schema,
            Rows(
                people=np.ones(table.max_rows, np.intp),
                codes={column: _codes(study, table.slot(1)[place], rows) for place, column in enumerate(table.columns)},
                undeclared={},
                order=None if table.order is None else rows.astype(np.float64),
            ),
            np.arange(2, dtype=np.uint8)[:, None],
            key=bytes(16),
        )
        codes.update(laid.codes)
    return codes


def _codes(study: Study, name: str, rows: Places) -> Codes:
    variable = study.schema[study.schema.index(name)]
    return (rows % max(variable.n_states - 1, 1)).astype(variable.code_dtype)
