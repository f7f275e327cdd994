"""Accounts by reader: who can come to know what of a person, what each of them may be told, and what they were told.

Readers are nested. Everybody sees what is published. The miner, or the peers, see that and the randomized columns that they
read; what is published after such a study is a function of those columns (and of what parties shared with noise), so everybody's
account counts them too, at most too much. A dealer together with a partner (masked tables) can read the randomized columns of a
party that nobody else sees, and tables with less noise than others have: only its own account counts these. An account is one
data set's, at one party: several parties' ledgers that record one event are not added up.

Where a miner publishes nothing but a function of noisy tables (a study's ``tables``), the columns are drawn for the miner alone,
and everybody else's account counts the tables in their place. The miner's does not: they are a function of columns that it has.
So the account of whoever reads columns is the miner's there. A peer that reads other columns of the same people, and the tables
as well, is told nothing that everybody's account does not count: that account bounds it, and may be the larger one.
That nothing else is published is the miner's word.

An account without limits admits nothing of its own reader: a limit that nobody stated is not infinite.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from verticil.shared.mechanisms.privacy import EPSILON_TOLERANCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What an event costs each person: (epsilon, delta) differential privacy under the event's relation.

    Attributes:
        epsilon: at least 0; infinite: there is no bound.
        delta: 0 to 1.
    """

    epsilon: float
    delta: float = 0.0

    def __bool__(self) -> bool:
        """Return whether anything is charged."""
        return self.epsilon > 0 or self.delta > 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(epsilon=self.epsilon + other.epsilon, delta=self.delta + other.delta)

    def __sub__(self, other: Cost) -> Cost:
        """Return what is left of it, never below nothing."""
        return Cost(epsilon=max(self.epsilon - other.epsilon, 0.0), delta=max(self.delta - other.delta, 0.0))

    def beyond(self, limit: Cost) -> str | None:
        """``epsilon`` or ``delta``, the first of them that is above `limit`; None: neither."""
        return next((what for what in ("epsilon", "delta") if _above(getattr(self, what), getattr(limit, what))), None)


def _above(amount: float, limit: float) -> bool:
    """Return whether an epsilon or a delta is above a limit, but for the rounding of doubles."""
    return amount > limit + EPSILON_TOLERANCE * min(limit, 1.0)


NOTHING: Final = Cost(epsilon=0.0)

MINER_ALONE: Final = "miner"
"""Of an event: columns of which the miner publishes nothing but what events for `OTHERS` say."""
OTHERS: Final = "others"
"""Of an event: what everybody but the miner is told of such columns."""
COLUMNS_FOR_OTHERS: Final = "others-columns"
"""Of an event: such columns once something else is published of them, too: everybody's account counts them from then on."""
MASKED: Final = "masked"
"""Of an event: what everybody and the miner are told of a masked study; a dealer with a partner is told of it by other events."""
COLUMNS_AFTER_DEALER: Final = "columns-after-dealer"
"""Of an event: columns that a dealer with a partner could have read before, and now whoever reads columns, and everybody."""
MINER_AFTER_DEALER: Final = "miner-after-dealer"
"""Of an event: columns that a dealer with a partner could have read before, and now the miner, as with `MINER_ALONE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """Who reads what an event draws.

    Attributes:
        name: in events, ledgers and documents; for ever.
        words: for people.
        counts: names of the readers whose events this reader sees, or can be told a function of.
        own: names besides its own of what is drawn for this very reader: without limits of the account it is refused.
        keys: of ``[policy]``: the limits of epsilon and delta for one study, and of both for a lifetime.
    """

    name: str
    words: str
    counts: frozenset[str]
    keys: tuple[str, str, str, str]
    own: frozenset[str] = frozenset()

    def sees(self, name: str) -> bool:
        """Return whether the account counts what is drawn for the reader of this name; one of a name that is not known
        here counts.
        """
        return name in self.counts or name not in KNOWN

    def needs_limits(self, name: str) -> bool:
        """Return whether what is drawn for the reader of this name asks for limits of this account."""
        return name == self.name or name in self.own


READERS: Final = (
    Reader(
        name="columns",
        words="whoever reads columns: the miner, or the peers",
        counts=frozenset({"columns", "public", MINER_ALONE, MASKED, COLUMNS_AFTER_DEALER, MINER_AFTER_DEALER}),
        keys=("max_epsilon_per_study", "max_share_delta", "max_epsilon_lifetime", "max_delta_lifetime"),
    ),
    Reader(
        name="public",
        words="everybody, by what is published",
        counts=frozenset({"columns", "public", OTHERS, COLUMNS_FOR_OTHERS, MASKED, COLUMNS_AFTER_DEALER}),
        own=frozenset({OTHERS}),
        keys=(
            "max_public_epsilon",
            "max_public_delta",
            "max_public_epsilon_lifetime",
            "max_public_delta_lifetime",
        ),
    ),
    Reader(
        name="dealer",
        words="a dealer of masks together with the partner",
        counts=frozenset({"columns", "public", "dealer", MINER_ALONE}),
        keys=(
            "max_floor_epsilon_per_study",
            "max_floor_delta_per_study",
            "max_floor_epsilon_lifetime",
            "max_floor_delta_lifetime",
        ),
    ),
)
COLUMNS, PUBLIC, DEALER = READERS
KNOWN: Final = frozenset[str]().union(*(reader.counts for reader in READERS))
"""The names that an event may have for its reader."""

_OF_COLUMNS: Final = {
    frozenset(reader.name for reader in READERS if reader.sees(name)): name
    for name in (COLUMNS.name, MINER_ALONE, COLUMNS_FOR_OTHERS, DEALER.name, COLUMNS_AFTER_DEALER, MINER_AFTER_DEALER)
}
"""By the accounts that count them: for whom columns are drawn."""


def left_for(name: str, names_before: Iterable[str]) -> str | None:
    """Return for whom columns are still to be charged, where the same values were charged before.

    Args:
        name: for whom they are drawn.
        names_before: for whom they were charged.

    Returns:
        A name that the accounts count which counted none of these charges; None: nothing is left.

    >>> left_for("columns", ["miner"]), left_for("miner", ["dealer"]), left_for("dealer", ["columns"])
    ('others-columns', 'miner-after-dealer', None)
    """
    before = tuple(names_before)
    others = [reader.name for reader in READERS if reader.sees(name) and not any(map(reader.sees, before))]
    return _OF_COLUMNS.get(frozenset(others), name) if others else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderLimits:
    """What the reader of an account may be told of each person.

    Attributes:
        study: in one study.
        lifetime: of one data set in all.
    """

    study: Cost
    lifetime: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Shortage:
    """What an account has no room for.

    Attributes:
        what: ``epsilon`` or ``delta``.
        asked: that would be charged.
        kept: of the room that there is, for others.
        limit: of the account.
    """

    what: str
    asked: float
    kept: float
    limit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the people of one data set have been charged, and what they may be charged.

    Attributes:
        spent: finite costs that were charged.
        kept: what is to be charged to them yet by others.
        limit: for all of it together.
    """

    spent: Cost
    kept: Cost = NOTHING
    limit: Cost

    def dry_run(self, cost: Cost) -> Shortage | None:
        """Return what there is no room for if `cost` is charged; None: there is room. Nothing is charged by this."""
        for what in ("epsilon", "delta"):
            amount, sum_before, reserve, limit = (
                getattr(item, what) for item in (cost, self.spent, self.kept, self.limit)
            )
            if amount > 0 and _above(sum_before + reserve + amount, limit):
                return Shortage(what=what, asked=amount, kept=reserve, limit=limit)
        return None
