"""What the report says in words: numbers, warnings, and the step to probabilities.

Numbers are as a reader meets them: rounded so that a stated bound stays a bound, and large factors in words.

What is an upper bound is rounded up, what is a lower bound is rounded down; estimates are rounded to the nearest.

Warnings are what a reader of a release should know before trusting a column or a table, from what is published anyway.

- A column in which one category alone can be distinguished from absent looks constant. Learning goes on: such a column depends on
  nothing and nothing on it, and that it looks so is in its published shares. It is said, because it is hardly ever meant: a code
  that was not recognised goes to `other` or to missing, and a column never observed looks exactly so.
- Categories that cannot be distinguished from absent: declared and, as it seems, never reported. The miner sees randomized
  values only, so it cannot know more than that; without noise it is so.
- A table with more cells than the records are worth: most of its probabilities are made by the prior, or come from tables with
  fewer parents.
- A parent that was found and left out, because the records do not bear the table with it.

Nothing here is a data value beyond the published shares and counts.

And it says how far it was from unbiased estimates, which can be negative, to probabilities, which cannot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

import numpy as np

from verticil.shared.core.name_lists import shortened
from verticil.shared.documents.json_document import Json
from verticil.shared.numerics.estimation.estimators import ESTIMATORS
from verticil.shared.numerics.model.network import Marginal, Network
from verticil.shared.privacy.accounts import COLUMNS, PUBLIC, Cost
from verticil.shared.privacy.rounded_up import hundredths
from verticil.shared.privacy.statement import AccountStatement
from verticil.shared.privacy.study_table import family_records
from verticil.shared.release.content import ReleaseContent
from verticil.shared.study.document import Study

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
_SLACK = 1e-9  # binary rounding must not lift 0.6 to 60.1 %


def percent(value: float, digits: int = 1) -> str:
    """Write a probability to the nearest percent.

    >>> percent(0.7289), percent(1.0)
    ('72.9%', '100%')
    """
    text = f"{100 * value:.{digits}f}".replace("-0.0", "0.0") if value else "0"
    return "100%" if value == 1 else f"{text}%"


def at_most(value: float) -> str:
    """Write a probability that is an upper bound, rounded up to a tenth of a percent.

    >>> at_most(0.61363), at_most(0.6), at_most(0.9999999), at_most(1.0)
    ('61.4%', '60.0%', 'practically 100%', '100%')
    """
    if value == 1:
        return "100%"
    if value > 0.999:
        return "practically 100%"
    return f"{math.ceil(1000 * value - _SLACK) / 10:.1f}%"


def at_least(value: float) -> str:
    """Write a probability that is a lower bound, rounded down to a tenth of a percent.

    >>> at_least(0.728), at_least(0.72999), at_least(1.0)
    ('72.8%', '72.9%', '100%')
    """
    return "100%" if value == 1 else f"{math.floor(1000 * value + _SLACK) / 10:.1f}%"


def factor(epsilon: float) -> str:
    """Write by how many times e^epsilon multiplies: rounded up to three digits; from a million on as a power of ten.

    >>> factor(math.log(9)), factor(2.0), factor(35.2), factor(math.inf)
    ('9 times', '7.39 times', '2 × 10¹⁵ times', 'no limit')
    """
    if math.isinf(epsilon):
        return "no limit"
    if epsilon < math.log(1e6):
        value = math.exp(epsilon)
        digits = 2 - math.floor(math.log10(value))
        rounded_value = math.ceil(value * 10.0**digits - 1e-6) / 10.0**digits
        text = f"{rounded_value:.{digits}f}".rstrip("0").rstrip(".") if digits > 0 else f"{rounded_value:,.0f}"
        return f"{text} times"
    exponent = math.floor(epsilon / math.log(10))
    lead = math.ceil(math.exp(epsilon - exponent * math.log(10)) - _SLACK)
    if lead == 10:
        lead, exponent = 1, exponent + 1
    return f"{lead} × 10{str(exponent).translate(_RAISED)} times"


def epsilon(value: float) -> str:
    """Write an epsilon, rounded up to two digits behind the point.

    >>> epsilon(2.0), epsilon(1.0986), epsilon(math.inf)
    ('2.00', '1.10', 'no limit')
    """
    return "no limit" if math.isinf(value) else hundredths(value)


def costs(accounts: Iterable[AccountStatement], *, coordinated: bool, alone: bool = False) -> tuple[CostRow, ...]:
    """Return what a study costs a person for each reader; readers who learn as much have one row.

    Args:
        accounts: of the study.
        coordinated: whether a miner reads the columns, and not the other organisations.
        alone: whether there is one organisation, and nobody else reads columns.
    """
    names = {
        COLUMNS: "the miner" if coordinated else "the other organisations",
        PUBLIC: "everybody who has this release",
    }
    rows: dict[tuple[str, str, str], list[str]] = {}
    for account in (item for item in accounts if not (alone and item.reader is COLUMNS)):
        beside = "" if account.beside is None else both(account.beside)
        rows.setdefault((epsilon(account.cost.epsilon), both(account.cost), beside), []).append(
            names.get(account.reader, account.reader.words)
        )
    return tuple(
        CostRow(readers=", and for ".join(readers), epsilon=first, cost=cost, beside=beside)
        for (first, cost, beside), readers in rows.items()
    )


def both(cost: Cost) -> str:
    """Write a cost in one: epsilon and, where there is one, delta, rounded up.

    >>> both(Cost(epsilon=1.231, delta=2e-6)), both(Cost(epsilon=2.0)), both(Cost(epsilon=math.inf))
    ('ε = 1.24, δ = 2 × 10⁻⁶', 'ε = 2.00', 'no limit')
    """
    text = epsilon(cost.epsilon)
    if text == "no limit":
        return text
    return f"ε = {text}" + (f", δ = {tiny(cost.delta)}" if cost.delta > 0 else "")


def left(value: float) -> str:
    """Write what may still be spent, rounded down to two digits.

    >>> left(28.1099), left(math.inf)
    ('28.10', 'no limit')
    """
    return "no limit" if math.isinf(value) else f"{math.floor(value * 100 + 1e-6) / 100:.2f}"


def tiny(value: float) -> str:
    """Write a small probability that is an upper bound, rounded up to two digits.

    >>> tiny(1e-6), tiny(3 * 1e-6), tiny(2.51e-9), tiny(0.01)
    ('10⁻⁶', '3 × 10⁻⁶', '2.6 × 10⁻⁹', '0.01')
    """
    if value >= 0.001:
        return f"{value:g}"
    exponent = math.floor(math.log10(value) + _SLACK)
    lead = math.ceil(value / 10.0**exponent * 10 - 1e-6) / 10
    power = f"10{str(exponent).translate(_RAISED)}"
    return power if lead == 1 else f"{lead:g} × {power}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRow:
    """What readers are told of a person, in words: who they are, epsilon, both numbers, and both for an added or removed one."""

    readers: str
    epsilon: str
    cost: str
    beside: str


def share(value: float) -> str:
    """Write an estimated share, which can lie below 0 or above 1.

    >>> share(0.4213), share(-0.004), share(math.nan)
    ('42.1%', '−0.4%', 'n/a')
    """
    if math.isnan(value):
        return "n/a"
    text = f"{100 * value:.1f}%"
    return "0.0%" if text == "-0.0%" else text.replace("-", "−")


def with_error(value: float, error: float) -> str:
    """Write an estimated share with its standard error.

    >>> with_error(0.4213, 0.004), with_error(-0.004, 0.0113), with_error(math.nan, math.nan)
    ('42.1 ± 0.4%', '−0.4 ± 1.1%', 'n/a')
    """
    return "n/a" if math.isnan(value) else f"{share(value).removesuffix('%')} ± {share(error)}"


def interval(low: float, high: float) -> str:
    """Write an interval of shares.

    >>> interval(0.499, 0.5221), interval(math.nan, math.nan)
    ('49.9–52.2%', 'n/a')
    """
    return "n/a" if math.isnan(low) or math.isnan(high) else f"{100 * low:.1f}–{100 * high:.1f}%"


def count(number: int, singular: str, plural: str | None = None) -> str:
    """Write a count with its noun.

    >>> count(1, "column"), count(13, "column"), count(30647, "person", "people")
    ('1 column', '13 columns', '30,647 people')
    """
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


_SHOWN: Final = 5


def remarks(
    study: Study,
    network: Network,
    marginals: Sequence[Marginal],
    n_common: int,
    search: Mapping[str, Json] = MappingProxyType({}),
) -> tuple[str, ...]:
    """Return the warnings, one sentence or two each; empty when there is nothing to say.

    Args:
        study: the effective study.
        network: the model.
        marginals: its one-way shares.
        n_common: how many people it was estimated from.
        search: how the structure was found, as the release says it.
    """
    return (*_columns(study, marginals), *_families(study, network, n_common), *_cut(search))


def _columns(study: Study, marginals: Sequence[Marginal]) -> Iterator[str]:
    for marginal in marginals:
        variable = study.schema.variables[marginal.variable]
        if variable.n_states < 2 or np.isnan(marginal.estimate).any():
            continue
        absent = [variable.labels[state] for state in np.flatnonzero(marginal.interval_low <= 0)]
        observed_labels = [label for label in variable.labels if label not in absent]
        if len(observed_labels) == 1:
            remark = (
                ": it looks as if it was never observed"
                if observed_labels[0] in _not_observed(study, variable.name)
                else ""
            )
            yield (
                f"The column '{variable.name}' looks constant: only '{observed_labels[0]}' can be told from "
                f"absent{remark}. It can "
                "depend on nothing, and nothing on it. Check its source and recoding at the party."
            )
        elif absent:
            yield f"Of the column '{variable.name}', {_listed(absent)} cannot be told from absent."


def _not_observed(study: Study, name: str) -> tuple[str, ...]:
    variable = study.schema.variables[study.schema.index(name)]
    return tuple(label for label in (variable.missing.category if variable.missing else None, variable.other) if label)


def _families(study: Study, network: Network, n_common: int) -> Iterator[str]:
    names, n_states = study.schema.names, study.schema.n_states
    for child, parents in enumerate(network.dag.parents):
        cells = math.prod(n_states[v] for v in (child, *parents))
        worth = family_records(study, child, parents, n_common)
        if cells > worth:
            of = f" with the parents {_listed(names[v] for v in parents)}" if parents else ""
            exact = "" if math.isclose(worth, n_common) else f", worth {worth:,.0f} unrandomized ones"
            come = "are guesses" if study.parameters.prior_count is not None else "come from tables with fewer parents"
            yield (
                f"The table of '{names[child]}'{of} has {cells:,} cells, and there are {n_common:,} records{exact}: most of its "
                f"probabilities {come}."
            )


def _cut(search: Mapping[str, Json]) -> Iterator[str]:
    rows = search.get("cut_edges")
    for row in rows if isinstance(rows, Sequence) and not isinstance(rows, str) else ():
        match row:
            case [str(parent), str(child)]:
                yield (
                    f"'{parent}' tells about '{child}' and is not among its parents: there are too few records, or there is too "
                    "much noise, for so large a table."
                )
            case _:
                pass


def _listed(names: Iterable[str]) -> str:
    return shortened([f"'{name}'" for name in names], _SHOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedRow:
    """One family, in words."""

    name: str
    given: tuple[str, ...]
    cells: str
    negative: str
    moved: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionSummary:
    """All families: their cells and negative cells together, the mean share of mass moved, and those with the most."""

    method: str
    cells: str
    negative: str
    mean: str
    rows: tuple[MovedRow, ...]


def projection_in_words(content: ReleaseContent) -> ProjectionSummary | None:
    """Say how much was moved; None where the network does not know it for every family."""
    names = content.study.schema.names
    projections = [(family, family.projection) for family in content.network.families if family.projection is not None]
    if not projections or len(projections) < len(content.network.families):
        return None
    most = sorted(projections, key=lambda pair: (-pair[1].mass_moved, pair[0].child))[:_SHOWN]
    return ProjectionSummary(
        method=ESTIMATORS[content.study.parameters.estimator].words,
        cells=f"{sum(family.probability.size for family, _ in projections):,}",
        negative=f"{sum(projection.negative_cells for _, projection in projections):,}",
        mean=percent(sum(projection.mass_moved for _, projection in projections) / len(projections)),
        rows=tuple(
            MovedRow(
                name=names[family.child],
                given=tuple(names[parent] for parent in family.parents),
                cells=f"{family.probability.size:,}",
                negative=f"{projection.negative_cells:,}",
                moved=percent(projection.mass_moved),
            )
            for family, projection in most
        ),
    )
