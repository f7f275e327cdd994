"""What a study may ask of noise on its tables (``[tables]``, `verticil.shared.study.tables`)."""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Final

from verticil.shared.core.errors import Misuse
from verticil.shared.documents.toml_table import near_hint
from verticil.shared.mechanisms.subset import Subset
from verticil.shared.related.structure import slot_numbers
from verticil.shared.study.document import Study, TablesRule
from verticil.shared.study.profiles import check_profiles
from verticil.shared.study.protocols import PROTOCOLS, measures_itself, opens_tables, protocol_of
from verticil.shared.study.tables import cells_of, profiled, tables_of, tables_sigma
from verticil.shared.study.vocabulary import MAX_TEXT, check_privacy, fail

_RESIZED: Final = ("symmetric", "none")
"""Schemes whose matrix is known for any number of bins."""
MAX_TABLE_CELLS: Final = 1 << 24
"""Of all tables together: 128 MiB of counts."""


def check_tables(study: Study, *, source: str) -> None:
    """Check what a study asks of noise on tables; without it, nothing.

    Args:
        study: the study; its units and its structure are checked already.
        source: name of the document, for messages.

    Raises:
        Misuse: STUDY_INVALID, or STUDY_UNSUPPORTED of what needs records.
    """
    rule = study.tables
    _check_measured_bins(study, source)
    if rule is None:
        return
    where = f"{source}: tables"
    if not protocol_of(study).counts_families:
        able = " or ".join(f"'{protocol.name}'" for protocol in PROTOCOLS if protocol.counts_families)
        fail(
            where,
            f"goes with the model {able}, where a miner counts, got '{study.model}'",
            hint="remove it; [share] is the noise on what parties share with each other",
        )
    check_privacy(where, rule.epsilon, rule.delta)
    _check_learning(study, source)
    _check_three_way(study, rule, f"{where}.three_way")
    _check_one_way_part(study, rule, f"{where}.one_way_part")
    if measures_itself(study):
        return  # these tables are not measured
    if (cells := cells_of(study)) > MAX_TABLE_CELLS:
        fail(
            where,
            f"{len(tables_of(study))} tables with {cells} cells, expected at most {MAX_TABLE_CELLS}",
            hint="merge categories, or take columns out",
        )
    try:
        tables_sigma(study)
    except ValueError as error:
        fail(where, str(error), hint="choose a larger epsilon or delta, or fewer columns")
    check_profiles(study, source=source)


def _check_measured_bins(study: Study, source: str) -> None:
    """Check that bins are measured where they can be, and that nothing names values of such a column."""
    names = {study.schema[place].name for place in profiled(study)}
    if not names:
        return
    where, first = f"{source}: variable '{min(names)}'", "bins = 'private' goes with"
    if measures_itself(study):
        fail(
            where, f"{first} noise on tables, and method '{study.structure.method}' has none", hint="use --method joint"
        )
    if study.tables is None:
        fail(
            where,
            f"{first} noise on tables",
            hint="name [tables] with epsilon and delta, declare bins (study draft --with-bins), or run verticil synthesize "
            "--epsilon 1",
        )
    if not protocol_of(study).whole_table:
        _check_measured_by_parties(study, names, source)
    if study.knowledge is not None and (named := sorted(names & study.knowledge.named_variables)):
        fail(
            f"{source}: knowledge",
            f"names values of '{named[0]}', whose bins are measured, so nobody knows their edges yet",
            hint="declare the bins of this column",
        )


def _check_measured_by_parties(study: Study, names: Set[str], source: str) -> None:
    """Check what the bins that parties measure ask of a study: they are known before anybody is linked, and stay as they are."""
    hint = "declare the bins of this column"
    for unit in study.units:
        if not names & set(unit.variables):
            continue
        where = f"{source}: {unit.text}"
        if unit.is_compound:
            fail(
                where, "they are randomized in one draw, and bins = 'private' goes with a column of its own", hint=hint
            )
        if unit.scheme not in _RESIZED:
            fail(
                where,
                f"bins = 'private' goes with the scheme {' or '.join(map(repr, _RESIZED))}, got '{unit.scheme}': how many bins "
                "there will be is not known",
                hint=hint,
            )
    if study.quorum is not None:
        fail(f"{source}: quorum", "fewer parties would have other noise than the bins were measured with", hint=hint)
    if slots := sorted(names & slot_numbers(study.related).keys()):
        fail(f"{source}: variable '{slots[0]}'", "its rows are in a related table, which has no profile", hint=hint)


def _check_learning(study: Study, source: str) -> None:
    """Check that nothing needs more than the tables and a joint model of them: no sets, and no counts as if of people."""
    for unit in study.units:
        if isinstance(unit.transition, Subset):
            fail(
                f"{source}: {unit.text}",
                "'subset' releases a set of categories for each person, which stands in several cells of a table, and noise on "
                "tables is calibrated for one",
                hint="use 'symmetric'",
            )
    if study.structure.score == "bdeu" and not study.samples_graphs:
        raise Misuse(
            "STUDY_UNSUPPORTED",
            f"{source}: structure.score: 'bdeu' takes counts for people, and with noise on tables (tables) there are none",
            hint="use 'bic'",
        )
    if study.parameters.estimator == "inverse":
        fail(
            f"{source}: parameters.estimator",
            "'inverse' needs counts of whole families, and with noise on tables (tables) there are tables of pairs",
            hint="keep em",
        )


def _check_one_way_part(study: Study, rule: TablesRule, where: str) -> None:
    part = rule.one_way_part
    if part is None:
        return
    if not 0 <= part < 1:
        fail(where, f"got {part:g}, expected a part of the budget from 0 to below 1", hint="try 0.3, or remove it")
    if part and opens_tables(study):
        fail(
            where,
            f"with the model '{study.model}' all tables have one noise",
            hint="remove it",
        )


def _check_three_way(study: Study, rule: TablesRule, where: str) -> None:
    triples_of_tables: set[tuple[int, ...]] = set()
    for names in rule.three_way:
        names_text = ", ".join(name[:MAX_TEXT] for name in names)
        for name in names:
            if name not in study.schema:
                fail(
                    where,
                    f"'{name[:MAX_TEXT]}' is not a variable of the study",
                    hint=near_hint(name, study.schema.names),
                )
        if len(set(names)) < 3:
            fail(where, f"'{names_text}' names a column twice, expected three different ones")
        units = tuple(sorted(set(map(study.unit_of, names))))
        if len(units) < 3:
            fail(
                where,
                f"'{names_text}': some of them are randomized in one draw, so a table of a pair has them",
                hint="remove it",
            )
        if units in triples_of_tables:
            fail(where, f"'{names_text}': the table of these three stands there already, expected it once")
        triples_of_tables.add(units)
        cells, most = (
            math.prod(study.units[unit].transition.n_states for unit in units),
            study.structure.max_family_cells,
        )
        if cells > most:
            fail(
                where,
                f"'{names_text}': a table of {cells} cells, expected at most {most}",
                hint="merge categories, or raise structure.max_family_cells",
            )
