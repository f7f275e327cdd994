"""The plan of one owner's release on the terminal: what ``verticil study check`` shows of a study with one party."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from verticil.cli.output import Format, emit, plain_table, put, say
from verticil.cli.party_text import print_findings, print_origins, print_stated

if TYPE_CHECKING:
    from verticil.curator.plan import OwnersPlan
    from verticil.shared.study.document import Study


def check_alone(study: Study, n: int | None, *, strict: bool, by_column: bool, form: Format) -> None:
    """Show what `verticil synthesize` would publish of a study of one owner; exit 6 where it cannot be carried out.

    Args:
        study: of one party.
        n: number of people; None: the study's minimum.
        strict: exit 6 also where there is a warning.
        by_column: show each finding of each column.
        form: text or JSON.
    """
    from verticil.curator.plan import plan_of

    plan = plan_of(study, n=n)
    if not emit(plan.to_dict(strict=strict), form=form):
        print_findings((finding for finding in plan.findings if finding.code == "unreviewed"), by_column=by_column)
        _print_plan(plan)
        print_findings((finding for finding in plan.findings if finding.code != "unreviewed"), by_column=by_column)
    if plan.errors or (strict and not plan.spotless):
        raise typer.Exit(6)


def _print_plan(plan: OwnersPlan) -> None:
    """Print what an owner's release will be worth, a line an epsilon."""
    from verticil.analyst.prediction import worth_of
    from verticil.shared.numerics.joint.worth import sentence
    from verticil.shared.numerics.knowledge.words import describe_knowledge
    from verticil.shared.study.draft_review import origin_words
    from verticil.shared.study.tables import COARSE_PART, PROFILE_PART

    study, (*_, middle, _) = plan.study, plan.rows
    put(f"[bold]{study.id}[/]  {len(study.schema)} columns of one owner, for verticil synthesize")
    say(f"noise on {plan.n_tables:,} tables, drawn once, for {plan.n:,} people (--n says another number)")
    if plan.n_measured:
        columns = "1 column" if plan.n_measured == 1 else f"{plan.n_measured} columns"
        say(f"{100 * PROFILE_PART:g} % of the noise's budget measures the bins of {columns}")
    if middle.one_way_part:
        whole = "the rest" if plan.n_measured else "the budget"
        say(
            f"{100 * middle.one_way_part:g} % of {whole} measures each column on its own: pairs alone would hide their shares"
        )
    if plan.n_coarse:
        whole = "the rest" if plan.n_measured or middle.one_way_part else "the budget"
        say(
            f"{100 * COARSE_PART:g} % of {whole} measures {plan.n_coarse:,} pairs again in ranges of neighbouring categories, "
            "for the relations of numbers"
        )
    table = plain_table(
        "epsilon",
        right=("noise on a count", "distance", "independent columns", "shares that drown", "relations that drown"),
    )
    for row in plan.rows:
        distances = ("-", "-")
        if row.prediction is not None:
            distances = (f"{row.prediction.two_way:.2g}", f"{row.prediction.independent:.2g}")
        table.add_row(
            f"{row.epsilon:g}",
            f"{row.sigma:,.3g}",
            *distances,
            f"{len(row.drowned_columns)} of {len(study.units)}",
            f"{row.n_drowned_pairs:,} of {plan.n_tables:,}",
        )
    put(table)
    say(
        "distance: mean total variation of the tables of two columns to so many people, predicted before anything is read"
    )
    if middle.prediction is not None:
        say(f"at epsilon {middle.epsilon:g}: {sentence(worth_of(middle.prediction))}")
    print_stated(describe_knowledge(study.knowledge, study.schema))
    print_origins(origin_words(study))
