"""How commands of a party show a study's columns to people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.table import Table

from verticil.cli.output import epsilon_text, text_console

if TYPE_CHECKING:
    from verticil.party.operator.check import ColumnCounts, TableFit, TableHeader
    from verticil.party.operator.view_model import ColumnView, Confirmation, CostView, Questions, ShareView, StudyName

_TO_WHOM = {"miner": "to the miner", "parties": "to each party", "beyond_the_protocol": "beyond the protocol"}


def print_alignment(shown: Mapping[str, str]) -> None:
    """Say what finding the common people reveals, to whom.

    Args:
        shown: `verticil.shared.study.protocol.Disclosure.document`.
    """
    console = text_console()
    console.print(f"finding the common people ({shown['mode']}) shows, besides what epsilon counts:")
    for key, to_whom in _TO_WHOM.items():
        if key in shown:
            console.print(f"  {to_whom}: {shown[key]}", markup=False)


def print_confirmations(confirmations: Sequence[Confirmation]) -> None:
    """Which peers have signed that they deleted what they had, after a revocation, and which have not yet."""
    console = text_console()
    for item in confirmations:
        if (said := item.deletion) is None:
            console.print(f"'{item.peer}' has not confirmed the deletion yet; it is asked again", markup=False)
            continue
        parameters = " and the parameters" if said.parameters else ""
        stays = "; it keeps the published release, which cannot be recalled" if said.keeps_release else ""
        console.print(
            f"'{item.peer}' signed that it deleted {len(said.columns)} columns{parameters} at {said.deleted_at}{stays}",
            markup=False,
        )


def print_cost(cost: Sequence[CostView], *, indent: str = "") -> None:
    """What a study costs each data set of its lifetime budget, before and at most after it."""
    for row in cost:
        text_console().print(
            f"{indent}data set {row.dataset}: epsilon {epsilon_text(row.epsilon)} for each person; lifetime sum"
            f" {epsilon_text(row.lifetime_before)} now, at most {epsilon_text(row.lifetime_after_at_most)} after it,"
            f" of {epsilon_text(row.lifetime_limit)}",
            markup=False,
        )
        if row.delta:
            limit = "∞" if row.delta_limit is None else f"{row.delta_limit:g}"
            text_console().print(
                f"{indent}data set {row.dataset}: delta {row.delta:g}; lifetime sum {row.delta_before:g} now,"
                f" {row.delta_after_at_most:g} after it, of {limit}",
                markup=False,
            )


def print_questions(questions: Questions) -> None:
    """How a study encodes each column of this site, and how it compares ids."""
    console = text_console()
    for row in questions.asked:
        names, sources = ", ".join(row.columns), ", ".join(row.sources)
        console.print(f"\nasked of [bold]{'columns' if ', ' in names else 'column'}[/]", end=" ")
        console.print(f"'{names}' (local {sources}):", markup=False)
        for sentence in row.words:
            console.print(f"  {sentence}", markup=False)
    console.print(f"\n{questions.normalise_words}", markup=False)


def print_table(table: TableHeader | TableFit) -> None:
    """What a study finds in one table: its columns' names and, where they were counted, what became of rows and values."""
    from verticil.party.operator.check import TableHeader

    console = text_console()
    if isinstance(table, TableHeader):
        console.print(f"data set {table.dataset}: {table.columns} columns")
        return
    counts = table.counts
    console.print(f"data set {table.dataset}" + ("" if counts is None else f": {counts.records:,} records"))
    console.print(f"  of its columns this study uses {table.used_columns} and not {table.extra_columns}")
    for name in table.missing_columns:
        console.print(f"  column '{name}' is missing", style="red", markup=False)
    if counts is not None:
        _print_counts(counts.columns)


def _print_counts(columns: Sequence[ColumnCounts]) -> None:
    shown = Table(box=None, pad_edge=False)
    shown.add_column("column")
    counted = ("missing", "other", "clamped", "unseen", "absent_categories")
    for heading in counted:
        shown.add_column(heading.replace("_", " "), justify="right")
    for column in columns:
        shown.add_row(column.source, *(str(getattr(column, key)) for key in counted))
    text_console().print(shown)


def print_columns(columns: Sequence[ColumnView]) -> None:
    """How each unit is randomized, and who reads it."""
    shown = Table(box=None, pad_edge=False)
    for heading in ("leaves as", "scheme"):
        shown.add_column(heading)
    for heading in ("categories", "epsilon", "true value kept"):
        shown.add_column(heading, justify="right")
    if between_peers := any(column.read_by is not None for column in columns):
        shown.add_column("read by")
    for column in columns:
        readers = ", ".join(column.read_by or ()) or "nobody, it stays here"
        shown.add_row(
            ", ".join(column.variables),
            _scheme_text(column),
            str(column.categories),
            epsilon_text(column.epsilon),
            f"{100 * column.kept:.0f} %",
            *((readers,) if between_peers else ()),
        )
    text_console().print(shown)
    if any(column.two_level is not None for column in columns):
        text_console().print(
            "two-level: epsilon is that of both responses together; the group is randomized too, nothing leaves exactly",
            style="dim",
        )


def print_submitter(study: StudyName, *, indent: str = "") -> None:
    """Which analyst submitted a study, where the miner says so."""
    if study.submitter_by_miner is not None:
        text_console().print(f"{indent}submitted by '{study.submitter_by_miner}', by the miner's word", markup=False)


def print_share(share: ShareView | None) -> None:
    """What leaves besides columns, in a study between peers."""
    if share is None:
        return
    what = "parameters go to all parties" + (", and scores of pairs of columns to the miner," if share.scores else "")
    if share.exact:
        text = f"{what} without noise: they are exact functions of this table, and no epsilon bounds what they tell"
    else:
        text = f"{what} with noise of epsilon {epsilon_text(share.epsilon)}, delta {share.delta:g}"
        text += ", charged besides the columns"
    text_console().print(text, markup=False)


def _scheme_text(column: ColumnView) -> str:
    if column.two_level is not None:
        return f"{column.scheme}: {column.two_level}"
    if column.subset_size is not None:
        return f"{column.scheme}: a set of {column.subset_size} leaves, kept if the true value is in it"
    return column.scheme
