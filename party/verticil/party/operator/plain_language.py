"""A randomization in words, for the person who decides.

Promise: every cell of a matrix is said, and the belief that goes with it is the worst case of the amplification bound
(Evfimievski et al.; randomization.md 1.1). Whoever thought a true category likely with the prior r can, by whatever is reported,
come to think it likely with at most

    r g / (1 + r (g - 1)),    g = max over reported y of P[category, y] / min over true z of P[z, y]

whatever they believed of the other categories. The largest of these g is the matrix's gamma. All columns of a person multiply to
e^epsilon of the sum, and the same formula holds for anything about that person.

Numbers are said to a hundredth of a per cent: shares to the nearest, bounds rounded up; what is within 1e-9 of a round number is
that number, because a declared matrix is kept in units of 2^-64. This says nothing about columns that hang together beyond
the sum, and nothing about who can link records.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Final

from verticil.party.policy.comparison import percent
from verticil.shared.mechanisms.subset import Subset
from verticil.shared.mechanisms.transition import SCALE, Transition
from verticil.shared.privacy.figures import belief, column_gamma, gamma_of_category, gamma_of_epsilon

PRIOR: Final = Fraction(15, 100)
"""The belief that is raised in the examples."""
_SAME: Final = Fraction(1, 10**9)


def belief_words(ratio: Fraction | None, *, what: str = "it") -> str:
    """Describe to what a belief can be raised by a report of this gamma.

    Args:
        ratio: gamma; None: infinite.
        what: that is believed.

    >>> belief_words(Fraction(85, 15))
    'someone who thought it 15 % likely can raise that to at most 50 %'
    >>> belief_words(Fraction(10**9))
    'someone who thought it 15 % likely can raise that to more than 99.99 %'
    >>> belief_words(None)
    'someone who thought it 15 % likely can become certain'
    """
    start = f"someone who thought {what} {percent(PRIOR)} likely can"
    if ratio is None:
        return f"{start} become certain"
    raised = percent(belief(PRIOR, ratio), up=True)
    return f"{start} raise that to {'' if raised.startswith('more') else 'at most '}{raised}"


def column_words(labels: Sequence[str], channel: Transition | Subset) -> tuple[str, ...]:
    """Describe how one column, or a compound's combinations, is randomized: one sentence per true category, or one for all.

    Args:
        labels: of the categories, in the channel's order.
        channel: the matrix, or subset selection.

    >>> from verticil.shared.mechanisms.transition import binary, quantize, symmetric
    >>> column_words(("no", "yes"), quantize(binary(0.15, 0.15)))[1]
    "a true 'yes' is reported as 'yes' 85 % of the time; someone who thought it 15 % likely can raise that to at most 50 %"
    >>> print(*column_words(("a", "b", "c"), quantize(symmetric(3, gamma=8))))
    any true category is reported as it is 80 % of the time and as each of the 2 others 10 %; someone who thought it 15 % likely \
can raise that to at most 58.54 %
    """
    if isinstance(channel, Subset):
        keep, other = Fraction(channel.weight, SCALE), _other(channel)
        sentence = (
            f"a set of {channel.size} of the {channel.n_states} categories is reported: the true one is in it"
            f" {percent(keep)} of the time, any single other one {percent(other)}"
        )
        return (f"{sentence}; {belief_words(column_gamma(channel))}",)
    weights = channel.weights
    if len(weights) > 2 and (cells := _two_numbers(weights)) is not None:
        keep, other = cells
        sentence = f"any true category is reported as it is {percent(keep)} of the time"
        others = f" and as each of the {len(weights) - 1} others {percent(other)}" if other else ""
        return (f"{sentence}{others}; {belief_words(column_gamma(channel))}",)
    return tuple(
        f"a true '{label}' is reported {_row_words(labels, row)}; {belief_words(gamma_of_category(category, weights))}"
        for category, (label, row) in enumerate(zip(labels, weights, strict=True))
    )


def total_words(epsilon: float, n_columns: int) -> str:
    """Describe what all columns of one person reveal together.

    Args:
        epsilon: their sum; may be infinite.
        n_columns: how many there are.

    >>> total_words(2.0, 2)
    'all 2 columns of one person together: someone who thought anything about them 15 % likely can raise that to at most 56.6 %'
    """
    columns = "the one column" if n_columns == 1 else f"all {n_columns} columns"
    return f"{columns} of one person together: {belief_words(gamma_of_epsilon(epsilon), what='anything about them')}"


def _other(channel: Subset) -> Fraction:
    return Fraction(channel.size * SCALE - channel.weight, (channel.n_states - 1) * SCALE)


def _two_numbers(weights: tuple[tuple[int, ...], ...]) -> tuple[Fraction, Fraction] | None:
    """Diagonal and rest of a symmetric design; None when the matrix has more numbers than these two."""
    keep, other = weights[0][0], weights[0][1]
    near = SCALE * _SAME
    same = all(
        abs(cell - (keep if i == j else other)) <= near for i, row in enumerate(weights) for j, cell in enumerate(row)
    )
    return (Fraction(keep, SCALE), Fraction(other, SCALE)) if same else None


def _row_words(labels: Sequence[str], row: tuple[int, ...]) -> str:
    """Describe every cell of a row: the largest first, equal ones together, the largest group of equal ones last and by
    its number.
    """
    groups: list[tuple[Fraction, list[str]]] = []
    for label, cell in sorted(zip(labels, row, strict=True), key=lambda pair: -pair[1]):
        share = Fraction(cell, SCALE)
        if groups and groups[-1][0] - share <= _SAME and bool(cell) == bool(groups[-1][0]):
            groups[-1][1].append(label)
        else:
            groups.append((share, [label]))
    if len(labels) == 2:  # the other cell is what is left
        share, (first, *both) = groups[0]
        if not both:
            return f"as '{first}' always" if share == 1 else f"as '{first}' {percent(share)} of the time"
    crowd = max(range(len(groups)), key=lambda position: len(groups[position][1])) if len(labels) > 4 else -1
    order = [*(i for i in range(len(groups)) if i != crowd), *([crowd] if crowd >= 0 else [])]
    texts: list[str] = []
    for place, position in enumerate(order):
        share, names = groups[position]
        if position == crowd and len(names) > 3:
            who = f"each of the {len(names)} others" if place else f"each of the {len(names)} categories"
        else:
            names_text = ", ".join(f"'{name}'" for name in names)
            who = names_text if len(names) == 1 else f"each of {names_text}"
        often = "never" if share == 0 else "always" if share == 1 else percent(share)
        texts.append(f"as {who} {often}" + (" of the time" if place == 0 and 0 < share < 1 else ""))
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + f" and {texts[-1]}"
