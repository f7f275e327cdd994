"""The accounts by reader in words: the same sentences in commands and on the page.

Where every account has the figures of the first one (whoever reads columns), and no other has limits, one line says so. Else each
account has a line. Epsilons are rounded up to two digits, what is left is rounded down.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from verticil.party.limits.same_people import SamePeople
from verticil.shared.privacy.accounts import COLUMNS, PUBLIC, READERS, Cost
from verticil.shared.privacy.rounded_up import hundredths
from verticil.shared.release import wording

if TYPE_CHECKING:
    from verticil.party.operator.reports import AccountBudget, BudgetView
    from verticil.party.operator.view_model import AccountCost, AccountSpent, CostView, Spent

_NOT_STATED: Final = (
    "this site has set no limit for noisy tables that only this reader gets, so it refuses them; {remedy}"
)
_ONLY_MASKED: Final = (
    "this site has set no limit for this reader: it permits {masked}, and refuses everything else; {remedy}"
)
_REMEDY: Final = "to allow them, set {keys} in [policy] of party.toml"


def people_words(same_people: SamePeople, dataset: str) -> tuple[str, ...] | None:
    """Return what party.toml says of the people of an account; None: nothing, which is the usual case.

    >>> people_words(SamePeople(joined={"clinicdb": "people"}), "people")
    ("one account for the same people: data sets 'people' and 'clinicdb'",)
    """
    names = same_people.names(dataset)
    names_text = " and ".join(f"'{name}'" for name in names)
    sentences = [f"one account for the same people: data sets {names_text}"] if len(names) > 1 else []
    if same_people.is_apart(dataset):
        sentences.append(
            "counted apart, as party.toml says (policy.same_people): a person who is in another data set, too, may be charged"
            " up to the limits of each; every approval says that this site counts so"
        )
    return tuple(sentences) or None


def account_lines(same_people: SamePeople) -> tuple[str, ...]:
    """Return what party.toml says of names, a line for each of them, for the audit log."""
    pairs = [f"'{name}' counts with '{other}'" for name, other in sorted(same_people.joined.items())]
    apart = [f"'{name}' is counted apart" for name in sorted(same_people.apart)]
    return (*pairs, *apart, *(f"the table of '{name}' is gone" for name in sorted(same_people.gone)))


def one_for_all(accounts: Sequence[AccountCost | AccountSpent]) -> bool:
    """Return whether one line says everything: the figures are the same, and limits are stated for nobody but the first."""
    return all(not account.limits_stated and account.figures() == accounts[0].figures() for account in accounts[1:])


def same_words(accounts: Sequence[AccountCost | AccountSpent]) -> tuple[str, ...]:
    """Describe the further accounts where `one_for_all`; empty where there are none."""
    others = " and for ".join(account.reader for account in accounts[1:])
    text = "; ".join(dict.fromkeys(map(not_stated, accounts[1:])))
    return (f"the same figures hold for {others}; {text}",) if others else ()


def besides(row: CostView | BudgetView | Spent, words: Sequence[str] = ()) -> tuple[str, ...]:
    """Describe what stands under the figures of a data set: further accounts with the same figures, `words`, people, peers."""
    same = same_words(row.accounts) if one_for_all(row.accounts) else ()
    return (*same, *words, *(row.people or ()), *filter(None, (row.peers,)))


def not_stated(account: AccountCost | AccountSpent) -> str:
    """Describe an account for which party.toml states no limits: nothing goes on it, or tables of masked studies within
    theirs.
    """
    keys = next(reader.keys for reader in READERS if reader.name == account.account)
    remedy = _REMEDY.format(keys=f"{keys[0]} and {keys[2]}")
    if account.masked_epsilon_limit is None:
        return _NOT_STATED.format(remedy=remedy)
    return _ONLY_MASKED.format(masked=_of_masked(account), remedy=remedy)


def _of_masked(account: AccountCost | AccountSpent) -> str:
    return f"tables of masked studies, at most {limit(account.masked_epsilon_limit, account.masked_delta_limit)} in one study"


def both(epsilon: float | None, delta: float) -> str:
    """Write an epsilon with its delta, where there is one.

    >>> both(1.234, 0.0), both(1.234, 1e-6), both(None, 0.0)
    ('epsilon 1.24', 'epsilon 1.24, delta 1e-06', 'epsilon without bound')
    """
    text = "without bound" if epsilon is None or math.isinf(epsilon) else wording.epsilon(epsilon)
    return f"epsilon {text}" + (f", delta {delta:g}" if delta else "")


def limit(epsilon: float | None, delta: float | None) -> str:
    """Write a limit; None: without one."""
    parts = [f"epsilon {wording.epsilon(epsilon)}"] if epsilon is not None else []
    parts += [f"delta {delta:g}"] if delta is not None else []
    return ", ".join(parts) or "anything"


def limit_words(account: AccountCost) -> str:
    """Write the limits of an account, of one study and for a lifetime."""
    if not account.limits_stated:
        return not_stated(account)
    study = limit(account.epsilon_study_limit, account.delta_study_limit)
    masked = "" if account.masked_epsilon_limit is None else f"; of {_of_masked(account)}"
    return f"limits: {study} in one study, {limit(account.epsilon_limit, account.delta_limit)} for a lifetime{masked}"


def cost_lines(row: CostView) -> tuple[str, ...]:
    """List what a study costs each account of a data set, a line for each, without the name of the data set."""
    return tuple(
        f"{_of(account)}: {both(account.epsilon, account.delta)} for each person; lifetime sum"
        f" {both(account.epsilon_before, account.delta_before)} now,"
        f" at most {both(account.epsilon_after, account.delta_after)} after it; {limit_words(account)}"
        for account in row.accounts
    )


def cost_words(row: CostView) -> tuple[str, ...]:
    """Describe what a study costs the people of a data set, on each account, before and at most after it."""
    figures = _describe_cost(row) if one_for_all(row.accounts) else cost_lines(row)
    return (*figures, *besides(row, beside_words(row)))


def _describe_cost(row: CostView) -> Iterator[str]:
    """Describe the figures that all accounts share."""
    amounts = (row.epsilon, row.lifetime_before, row.lifetime_after_at_most, row.lifetime_limit)
    epsilon, before, after, most = ("∞" if value is None else hundredths(value) for value in amounts)
    yield f"epsilon {epsilon} for each person; lifetime sum {before} now, at most {after} after it, of {most}"
    if row.delta:
        delta_limit = "∞" if row.delta_limit is None else f"{row.delta_limit:g}"
        yield (
            f"delta {row.delta:g}; lifetime sum {row.delta_before:g} now, {row.delta_after_at_most:g} after it,"
            f" of {delta_limit}"
        )


def beside_words(row: CostView) -> tuple[str, ...]:
    """Describe what the literature would count of noise on tables; empty where none is drawn."""
    readers_by_cost: dict[tuple[float, float], list[str]] = {}
    for account in row.accounts:
        if account.epsilon_add_or_remove is not None and account.delta_add_or_remove is not None:
            pair = (account.epsilon_add_or_remove, account.delta_add_or_remove)
            readers_by_cost.setdefault(pair, []).append(account.account)
    return tuple(
        f"for comparison with the literature: the noise on tables"
        f"{f' of account {names[0]!r}' if len(readers_by_cost) > 1 else ''} has"
        f" {both(*pair)} if a person is added or removed"
        for pair, names in readers_by_cost.items()
    )


def peer_words(columns: Cost, everybody: Cost) -> str | None:
    """Describe the most that a peer learnt that reads columns, and tables that a miner publishes in place of others.

    Args:
        columns: of the account of whoever reads columns, which counts for the miner.
        everybody: of everybody's, which counts such tables, and all columns that a peer can read.

    Returns:
        None: the first account bounds it, too.

    >>> peer_words(Cost(epsilon=2.0), Cost(epsilon=2.5, delta=1e-6))
    "a peer that reads columns, and published tables as well: at most what account 'public' says, epsilon 2.50, delta 1e-06 for \
each person; account 'columns' counts for the miner"
    >>> peer_words(Cost(epsilon=2.0), Cost(epsilon=2.0))
    """
    if everybody.beyond(columns) is None:
        return None
    figure = both(everybody.epsilon, everybody.delta)
    return (
        f"a peer that reads columns, and published tables as well: at most what account '{PUBLIC.name}' says, {figure} for"
        f" each person; account '{COLUMNS.name}' counts for the miner"
    )


def spent_lines(row: Spent) -> tuple[str, ...]:
    """List what was spent of each account of a data set, a line for each, without the name of the data set."""
    return tuple(f"{_of(account)}: {_describe_spending(account)}" for account in row.accounts)


def budget_lines(row: BudgetView) -> tuple[str, ...]:
    """List what was spent, is reserved and remains of each account of a data set, a line each, without the data set's
    name.
    """
    return tuple(
        f"{_of(account)}: {_describe_spending(account)}{_describe_reserved(account)}" for account in row.accounts
    )


def numerical_words(row: BudgetView) -> tuple[str, ...]:
    """Describe what composing everything numerically would give, where that can be another number."""
    readers_by_cost: dict[tuple[float | None, float], list[str]] = {}
    for account in row.accounts:
        if account.delta_spent:
            readers_by_cost.setdefault((account.epsilon_numerical, account.delta_spent), []).append(account.account)
    return tuple(
        (f"account '{names[0]}' " if len(readers_by_cost) > 1 else "")
        + (
            "by numerical composition: not known, an event is of a kind that this version does not have"
            if epsilon is None
            else f"by numerical composition of everything: {both(epsilon, delta)}; decides nothing"
        )
        for (epsilon, delta), names in readers_by_cost.items()
    )


def _of(account: AccountCost | AccountSpent) -> str:
    return f"account '{account.account}' ({account.reader})"


def _describe_spending(account: AccountSpent) -> str:
    text = f"{both(account.epsilon_spent, account.delta_spent)} per person spent"
    if not account.limits_stated:
        return f"{text}; {not_stated(account)}"
    of = limit(account.epsilon_limit, account.delta_limit)
    remainder = [] if account.epsilon_limit is None else [f"epsilon {wording.left(account.remaining.epsilon)}"]
    remainder += [] if account.delta_limit is None else [f"delta {account.remaining.delta:g}"]
    return f"{text} of {of}" + (f", {', '.join(remainder)} left" if remainder else "")


def _describe_reserved(account: AccountBudget) -> str:
    if not (account.epsilon_kept or account.delta_kept):
        return ""
    return f"; {both(account.epsilon_kept, account.delta_kept)} of that is kept for studies under way"
