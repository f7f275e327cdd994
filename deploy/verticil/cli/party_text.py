"""How commands of a party show a study's columns to people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from rich.table import Table

from verticil.cli.output import epsilon_text, text_console


def print_confirmations(confirmations: Sequence[Mapping[str, object]]) -> None:
    """Which peers have signed that they deleted what they had, after a revocation, and which have not yet."""
    console = text_console()
    for item in confirmations:
        if not item["confirmed"]:
            console.print(f"'{item['peer']}' has not confirmed the deletion yet; it is asked again", markup=False)
            continue
        columns = len(cast("Mapping[str, object]", item["columns"]))
        parameters = " and the parameters" if item["parameters"] else ""
        stays = "; it keeps the published release, which cannot be recalled" if item["keeps_release"] else ""
        console.print(
            f"'{item['peer']}' signed that it deleted {columns} columns{parameters} at {item['deleted_at']}{stays}",
            markup=False,
        )


def print_cost(cost: Sequence[Mapping[str, object]], *, indent: str = "") -> None:
    """What a study costs each data set of its lifetime budget, before and at most after it."""
    for row in cost:
        text_console().print(
            f"{indent}data set {row['dataset']}: epsilon {epsilon_text(row['epsilon'])} for each person; lifetime sum"
            f" {epsilon_text(row['lifetime_before'])} now, at most {epsilon_text(row['lifetime_after_at_most'])} after it,"
            f" of {epsilon_text(row['lifetime_limit'])}",
            markup=False,
        )
        if row["delta"]:
            text_console().print(
                f"{indent}data set {row['dataset']}: delta {row['delta']:g}; lifetime sum {row['delta_before']:g} now,"
                f" {row['delta_after_at_most']:g} after it, of {_delta_text(row['delta_limit'])}",
                markup=False,
            )


def _delta_text(delta: object) -> str:
    return "∞" if delta is None else f"{delta:g}"


def print_asked(facts: Mapping[str, object]) -> None:
    """How a study encodes each column of this site, and how it compares ids."""
    console = text_console()
    for row in cast("Sequence[Mapping[str, object]]", facts["asked"]):
        names, sources = (", ".join(cast("Sequence[str]", row[key])) for key in ("columns", "sources"))
        console.print(f"\nasked of [bold]{'columns' if ', ' in names else 'column'}[/]", end=" ")
        console.print(f"'{names}' (local {sources}):", markup=False)
        for sentence in cast("Sequence[str]", row["words"]):
            console.print(f"  {sentence}", markup=False)
    console.print(f"\n{facts['normalise_words']}", markup=False)


def print_table(table: Mapping[str, object]) -> None:
    """What a study finds in one table: its columns' names and, where they were counted, what became of rows and values."""
    console = text_console()
    if "used_columns" not in table:
        console.print(f"data set {table['dataset']}: {table['columns']} columns")
        return
    console.print(f"data set {table['dataset']}" + (f": {table['records']:,} records" if "records" in table else ""))
    console.print(f"  of its columns this study uses {table['used_columns']} and not {table['extra_columns']}")
    for name in cast("Sequence[str]", table["missing_columns"]):
        console.print(f"  column '{name}' is missing", style="red", markup=False)
    if "records" in table:
        _print_counts(cast("Sequence[Mapping[str, object]]", table["columns"]))


def _print_counts(columns: Sequence[Mapping[str, object]]) -> None:
    shown = Table(box=None, pad_edge=False)
    shown.add_column("column")
    counted = ("missing", "other", "clamped", "unseen", "absent_categories")
    for heading in counted:
        shown.add_column(heading.replace("_", " "), justify="right")
    for column in columns:
        shown.add_row(str(column["source"]), *(str(column[key]) for key in counted))
    text_console().print(shown)


def print_columns(columns: Sequence[Mapping[str, object]]) -> None:
    """How each unit is randomized, and who reads it."""
    shown = Table(box=None, pad_edge=False)
    for heading in ("leaves as", "scheme"):
        shown.add_column(heading)
    for heading in ("categories", "epsilon", "true value kept"):
        shown.add_column(heading, justify="right")
    if between_peers := any("read_by" in column for column in columns):
        shown.add_column("read by")
    for column in columns:
        readers = ", ".join(cast("Sequence[str]", column.get("read_by", ()))) or "nobody, it stays here"
        shown.add_row(
            ", ".join(cast("Sequence[str]", column["variables"])),
            _scheme_text(column),
            str(column["categories"]),
            epsilon_text(column["epsilon"]),
            f"{100 * cast('float', column['kept']):.0f} %",
            *((readers,) if between_peers else ()),
        )
    text_console().print(shown)
    if any("two_level" in column for column in columns):
        text_console().print(
            "two-level: epsilon is that of both responses together; the group is randomized too, nothing leaves exactly",
            style="dim",
        )


def print_submitter(study: Mapping[str, object], *, indent: str = "") -> None:
    """Which analyst submitted a study, where the miner says so."""
    if study["submitter_by_miner"] is not None:
        text_console().print(f"{indent}submitted by '{study['submitter_by_miner']}', by the miner's word", markup=False)


def print_share(facts: Mapping[str, object]) -> None:
    """What leaves besides columns, in a study between peers."""
    share = cast("Mapping[str, object] | None", facts.get("share"))
    if share is None:
        return
    what = "parameters go to all parties" + (
        ", and scores of pairs of columns to the miner," if share["scores"] else ""
    )
    if share["exact"]:
        text = f"{what} without noise: they are exact functions of this table, and no epsilon bounds what they tell"
    else:
        text = f"{what} with noise of epsilon {epsilon_text(share['epsilon'])}, delta {share['delta']:g}"
        text += ", charged besides the columns"
    text_console().print(text, markup=False)


def _scheme_text(column: Mapping[str, object]) -> str:
    if "two_level" in column:
        return f"{column['scheme']}: {column['two_level']}"
    if "subset_size" in column:
        return f"{column['scheme']}: a set of {column['subset_size']} leaves, kept if the true value is in it"
    return str(column["scheme"])
