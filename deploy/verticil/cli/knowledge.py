"""``verticil knowledge``: what a study states of all records, in words; what it leaves; and whether a combination is possible."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from verticil.cli.output import Format, FormatOption, emit, plain_table, put, say
from verticil.shared.core.errors import Misuse

if TYPE_CHECKING:
    from verticil.shared.study.document import Study

app = typer.Typer(no_args_is_help=True)

StudyFile = Annotated[Path, typer.Argument(metavar="FILE", help="study.toml.")]


@app.callback()
def knowledge() -> None:
    """Check what a study states of all records, before any data."""


@app.command("ask", epilog="Example: verticil knowledge ask study.toml protocol=TCP port=53")
def ask(
    study: StudyFile,
    values: Annotated[
        list[str],
        typer.Argument(metavar="NAME=VALUE...", help="A variable and its category; a number, where it has bins."),
    ],
    form: FormatOption = Format.text,
) -> None:
    """Is this combination possible, and by which rules not? Exit code 6 when it is not.

    Only what the study states is asked, no data and no model: what is possible may still be rare.
    """
    from verticil.shared.numerics.knowledge.reasoning import ask as asked
    from verticil.shared.study.related_tables import slot_rules

    document, given = _read(study), _parse_values(values)
    answer = asked(document.knowledge, document.schema, given, structure=tuple(slot_rules(document, given)))
    if not emit(answer, form=form):
        combination = ", ".join(f"{name} = {label}" for name, label in answer.given)
        say(
            f"{'possible' if answer.possible else 'impossible'}: {combination}",
            style="green" if answer.possible else "red",
        )
        for words in answer.words:
            say(f"  {words}")
    if not answer.possible:
        raise typer.Exit(6)


@app.command("check", epilog="Example: verticil knowledge check study.toml --strict")
def check(
    study: StudyFile,
    strict: Annotated[bool, typer.Option("--strict", help="Exit 6 when there is any warning.")] = False,
    form: FormatOption = Format.text,
) -> None:
    """Show what the rules leave: categories that became impossible and by which rules, and how much each rule forbids.

    Rules that contradict each other, or mean nothing for the study's variables, are an error.
    """
    from verticil.shared.numerics.knowledge.reasoning import reach

    document = _read(study)
    result = reach(document.knowledge, document.schema)
    if not emit(result, form=form):
        table = plain_table("rule", "variables", right=("combinations", "forbids"))
        for rule in result.rules:
            table.add_row(rule.rule, ", ".join(rule.variables), f"{rule.combinations:,}", f"{rule.forbidden:.2%}")
        put(table)
        share = "too many to count" if result.possible is None else f"{result.possible:.3g}"
        say(f"share of all combinations of these variables that is possible: {share}")
        for remark in result.remarks:
            put(f"[yellow]warning[/] {remark.code} ", end="")
            say(f"{remark.where}: {remark.message}")
            say(f"        {remark.hint}", style="dim")
    if strict and result.remarks:
        raise typer.Exit(6)


@app.command("show", epilog="Example: verticil knowledge show study.toml")
def show(study: StudyFile, form: FormatOption = Format.text) -> None:
    """Show what the study states, in words: a sentence for each rule, as whoever approves it reads them."""
    from verticil.shared.documents.record import write
    from verticil.shared.numerics.knowledge.words import EXPLAINED, describe_knowledge

    document = _read(study)
    words = describe_knowledge(document.knowledge, document.schema)
    if emit({"words": words, "knowledge": write(document.knowledge)}, form=form):
        return
    for sentence in words:
        say(sentence)
    say(EXPLAINED, style="dim")


def _read(path: Path) -> Study:
    from verticil.shared.study.reading import read_study

    study = read_study(path, by_owner=True)
    if study.knowledge is None:
        raise Misuse(
            "USAGE", f"{path}: study '{study.id}' states nothing", hint="write [[knowledge.rule]] tables in it"
        )
    return study


def _parse_values(values: list[str]) -> dict[str, str]:
    values_by_name: dict[str, str] = {}
    for text in values:
        name, separator, value = text.partition("=")
        if not separator or not name:
            raise Misuse("USAGE", f"got '{text[:200]}', expected NAME=VALUE", hint="as in protocol=TCP")
        if name in values_by_name:
            raise Misuse("USAGE", f"'{name}' is given twice, expected one value")
        values_by_name[name] = value
    return values_by_name
