"""The plan of the budget in words, for people: what a study costs whom, of what, and how accurate its figures can be."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from rich.table import Table

from verticil.cli.output import epsilon_text, put, rounded_up, say

if TYPE_CHECKING:
    from verticil.analyst.models import ModelRow
    from verticil.shared.privacy.plan import BudgetPlan, PlannedAccount, PlannedDraw


_ADVERSARIES: Final = {
    "public": "everybody",
    "columns": "readers of columns: the miner, or the peers",
    "dealer": "a dealer with its partner",
}


def print_plan(plan: BudgetPlan) -> None:
    """Print what each party's people are charged, for each reader, the events it consists of, and a person at all parties."""
    put("[bold]plan of the budget[/], of each person whose data are replaced; the number of people is public:")
    for party in plan.parties:
        _print_accounts(party.party, party.accounts)
        for draw in party.draws:
            say(f"      {_draw_text(draw, plan.n)}")
    _print_accounts("one person at all parties", plan.person)
    readers = {item.account: item.reader for item in plan.person}
    say(f"readers: {'; '.join(f'{name}: {words}' for name, words in readers.items())}", style="dim")
    say(
        f"± share: half of a {100 * plan.level:g} % interval at {plan.n:,} people; of noise on tables, of the noise alone:"
        " 1.96 x standard deviation / people",
        style="dim",
    )


def print_models(rows: Sequence[ModelRow], n: int) -> None:
    """Print the study by each model, in one table; of those by which it cannot be carried out, why."""
    put("[bold]this study by each model[/], of each person whose data are replaced at all parties:")
    table = Table(box=None, pad_edge=False)
    for heading in ("model", *_ADVERSARIES.values()):
        table.add_column(heading)
    for heading in ("two columns", "MB", "exchanges"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in (row for row in rows if not row.missing):
        costs = (row.costs.get(name) for name in _ADVERSARIES)
        table.add_row(
            row.model,
            *("-" if cost is None else cost_text(cost.epsilon, cost.delta) for cost in costs),
            "-" if row.two_way is None else f"{row.two_way:.2g}",
            f"{row.bytes_sent / 1e6:,.3g}",
            str(row.exchanges),
        )
    put(table)
    for row in (row for row in rows if row.missing):
        say(f"model '{row.model}': {row.missing}", style="dim")
    say(
        f"two columns: predicted distance of records to {n:,} people in tables of two columns; MB: of columns or of masked "
        "messages, each counted once; exchanges: messages that wait for one another, after the common people are found",
        style="dim",
    )


def cost_text(epsilon: float, delta: float) -> str:
    """Write a cost, rounded up; infinite: no bound.

    A delta of 0 is not said.

    >>> cost_text(2.0, 3 * 1e-9), cost_text(1.234, 0.0), cost_text(float("inf"), 0.0)
    ('epsilon 2.00, delta 3e-09', 'epsilon 1.24', 'no bound')
    """
    if math.isinf(epsilon):
        return "no bound"
    return f"epsilon {epsilon_text(epsilon)}" + (f", delta {rounded_up(delta)}" if delta > 0 else "")


def _print_accounts(whose: str, accounts: Sequence[PlannedAccount]) -> None:
    """Print one line for all readers that are told as much, and what a published limit refuses."""
    costs: dict[str, list[PlannedAccount]] = {}
    for item in accounts:
        costs.setdefault(cost_text(item.epsilon, item.delta), []).append(item)
    for cost, same in costs.items():
        beside = ""
        if (epsilon := same[0].epsilon_add_or_remove) is not None:
            second_cost = cost_text(epsilon, same[0].delta_add_or_remove or 0.0)
            beside = f" (a person added or removed, of the noise on tables: {second_cost})"
        say(f"  {whose:24}  account {', '.join(item.account for item in same)}: {cost}{beside}")
    for item in accounts:
        if item.over is not None:
            most = "no limit is stated" if item.over_limit is None else f"expected at most {item.over_limit:g}"
            say(f"      '{whose}' would refuse this: account {item.account}, policy.{item.over}: {most}", style="red")


def _draw_text(draw: PlannedDraw, n: int) -> str:
    """Write an event, of what, for whom, and its predicted error."""
    text = f"{draw.words}, of {', '.join(draw.columns)}; for {', '.join(draw.read_by) or 'nobody'}"
    if draw.half_width_least is None or draw.half_width_most is None:
        return text
    widths = dict.fromkeys(f"{100 * width:.2f}" for width in (draw.half_width_least, draw.half_width_most))
    how = "" if draw.sigma is None else f" (1.96 x {draw.sigma:.4g} / {n:,})"
    return f"{text}; ± share {' to '.join(widths)}pp{how}"
