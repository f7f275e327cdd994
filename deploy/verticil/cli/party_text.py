"""How commands of a party show a study's columns to people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from verticil.cli.output import epsilon_text, plain_table, put, say
from verticil.shared.numerics.knowledge.words import EXPLAINED, HEADING

if TYPE_CHECKING:
    from verticil.party.operator.check import ColumnCounts, TableFit, TableHeader
    from verticil.party.operator.view_model import ColumnView, Confirmation, CostView, Questions, ShareView, StudyName
    from verticil.shared.study.protocol import Finding

_COLOURS: Final = {"error": "red", "warning": "yellow", "note": "blue"}
_MOST_ALIKE: Final = 2
"""More findings of one kind than this are shown together."""
_TO_WHOM = {"miner": "to the miner", "parties": "to each party", "beyond_the_protocol": "beyond the protocol"}


def print_alignment(disclosure: Mapping[str, str]) -> None:
    """Say what finding the common people reveals, to whom.

    Args:
        disclosure: `verticil.shared.study.protocol.Disclosure.document`.
    """
    put(f"finding the common people ({disclosure['mode']}) shows, besides what epsilon counts:")
    for key, to_whom in _TO_WHOM.items():
        if key in disclosure:
            say(f"  {to_whom}: {disclosure[key]}")


def print_stated(words: Sequence[str] | None) -> None:
    """Say what a study states of all records, and that nothing of it is learned."""
    if words:
        put(f"{HEADING}:")
        say(EXPLAINED)
        for sentence in words:
            say(f"  {sentence}")


def print_origins(words: Sequence[str] | None) -> None:
    """Say where the categories of a study's columns come from, where the study states it."""
    for sentence in words or ():
        say(sentence)


def print_confirmations(confirmations: Sequence[Confirmation]) -> None:
    """Print which peers have signed that they deleted what they had, after a revocation, and which have not yet."""
    for item in confirmations:
        if (deletion := item.deletion) is None:
            say(f"'{item.peer}' has not confirmed the deletion yet; it is asked again")
            continue
        parameters = " and the parameters" if deletion.parameters else ""
        stays = "; it keeps the published release, which cannot be recalled" if deletion.keeps_release else ""
        say(
            f"'{item.peer}' signed that it deleted {len(deletion.columns)} columns{parameters} at {deletion.deleted_at}{stays}"
        )


def print_figures(figures: Sequence[str] | None, beside: str | None = None, *, indent: str = "") -> None:
    """Print the four figures of a masked study, in words, and what stands beside them; of another nothing."""
    for number, figure in enumerate(figures or (), start=1):
        say(f"{indent}{number}. {figure}")
    if beside is not None:
        say(f"{indent}{beside}")


def print_cost(cost: Sequence[CostView], *, indent: str = "") -> None:
    """Print what a study costs each data set of its lifetime budget, before and at most after it, on each account."""
    from verticil.party.operator import accounts

    for row in cost:
        for line in accounts.cost_words(row):
            say(f"{indent}data set {row.dataset}: {line}")


def print_questions(questions: Questions) -> None:
    """Print how a study encodes each column of this site, and how it compares ids."""
    for row in questions.asked:
        names, sources = ", ".join(row.columns), ", ".join(row.sources)
        put(f"\nasked of [bold]{'columns' if ', ' in names else 'column'}[/]", end=" ")
        say(f"'{names}' (local {sources}):")
        for sentence in row.words:
            say(f"  {sentence}")
    say(f"\n{questions.normalise_words}")


def print_table(table: TableHeader | TableFit) -> None:
    """Print what a study finds in one table: its columns' names and, where they were counted, what became of rows and values."""
    from verticil.party.operator.check import TableHeader

    if isinstance(table, TableHeader):
        put(f"data set {table.dataset}: {table.columns} columns")
        return
    counts = table.counts
    put(f"data set {table.dataset}" + ("" if counts is None else f": {counts.records:,} records"))
    put(f"  the study uses {table.used_columns} of its {table.used_columns + table.extra_columns} columns")
    for name in table.missing_columns:
        say(f"  column '{name}' is missing", style="red")
    if counts is not None:
        _print_counts(counts.columns)


def _print_counts(columns: Sequence[ColumnCounts]) -> None:
    keys = ("missing", "other", "clamped", "unseen", "absent_categories")
    table = plain_table("column", right=[heading.replace("_", " ") for heading in keys])
    for column in columns:
        table.add_row(column.source, *(str(getattr(column, key)) for key in keys))
    put(table)


def print_columns(columns: Sequence[ColumnView]) -> None:
    """Print how each unit is randomized, and who reads it."""
    table = plain_table("leaves as", "scheme", right=("categories", "epsilon", "true value kept"))
    if between_peers := any(column.read_by is not None for column in columns):
        table.add_column("read by")
    for column in columns:
        readers = ", ".join(column.read_by or ()) or "nobody, it stays here"
        table.add_row(
            ", ".join(column.variables),
            _scheme_text(column),
            str(column.categories),
            epsilon_text(column.epsilon),
            f"{100 * column.kept:.0f} %",
            *((readers,) if between_peers else ()),
        )
    put(table)
    if any(column.two_level is not None for column in columns):
        say(
            "two-level: epsilon is that of both responses together; the group is randomized too, nothing leaves exactly",
            style="dim",
        )


def print_submitter(study: StudyName, *, indent: str = "") -> None:
    """Print which analyst submitted a study, where the miner says so."""
    if study.submitter_by_miner is not None:
        say(f"{indent}submitted by '{study.submitter_by_miner}', by the miner's word")


def print_share(share: ShareView | None) -> None:
    """Print what leaves besides columns, in a study between peers."""
    if share is None:
        return
    what = "parameters go to all parties" + (", and scores of pairs of columns to the miner," if share.scores else "")
    if share.exact:
        text = f"{what} without noise: they are exact functions of this table, and no epsilon bounds what they tell"
    else:
        text = f"{what} with noise of epsilon {epsilon_text(share.epsilon)}, delta {share.delta:g}"
        text += ", charged besides the columns"
    say(text)


def _scheme_text(column: ColumnView) -> str:
    if column.two_level is not None:
        return f"{column.scheme}: {column.two_level}"
    if column.subset_size is not None:
        return f"{column.scheme}: a set of {column.subset_size} leaves, kept if the true value is in it"
    return column.scheme


def print_findings(findings: Iterable[Finding], *, by_column: bool = False) -> None:
    """Print findings of a study, each with its hint; those of one kind on many columns together, unless `by_column`."""
    kinds: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        kinds.setdefault((finding.severity, finding.code), []).append(finding)
    for (severity, code), alike in kinds.items():
        together = len(alike) > _MOST_ALIKE and not by_column
        for finding in alike[:1] if together else alike:
            put(f"[{_COLOURS[severity]}]{severity}[/] {code} ", end="")
            say(f"{finding.where}: {finding.message}")
            if together:
                others = ", ".join(item.where.removeprefix("column ").strip("'") for item in alike[1:])
                say(f"        and so {len(alike) - 1} more: {others} (--columns shows each)")
            if finding.hint:
                say(f"        {finding.hint}", style="dim")
