"""What besides the ledger's rows decides how much may still be spent: deltas, and what studies under way are yet to be charged.

Promises
- A delta is charged with the epsilon of the same noise, in one transaction: once for each study, data set and draw. Rows are
  never changed or deleted (triggers in the database see to it).
- Before the first column of a study is drawn, all that it can be charged, of every data set and for what it shares, is reserved
  together, or nothing of it leaves. Until it is charged or the study has ended here, no other study can be given that room. What
  another study sends of the same values is not counted twice.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

from verticil.party.policy.policy import Policy
from verticil.party.storage.database import Database
from verticil.shared.channels.privacy import EPSILON_TOLERANCE
from verticil.shared.errors import Refusal
from verticil.shared.storage.rows import Cell
from verticil.shared.study.states import State

SHARED: Final = -1
"""Stands for the unit in a row of shared statistics, which are of no unit."""

Values = tuple[str, str, bytes, bytes, bytes, bytes, bytes]
"""Names randomized values: data set, sources, codebook, matrix, secret, fingerprint, version tag."""

_UNDER_WAY: Final = (
    "s.remote_state < ? AND NOT EXISTS (SELECT 1 FROM failure f WHERE f.digest = s.digest)"
    " AND NOT EXISTS (SELECT 1 FROM denial d WHERE d.digest = s.digest)"
    " AND NOT EXISTS (SELECT 1 FROM revocation r WHERE r.digest = s.digest)"
)
_UNCHARGED: Final = (
    "NOT EXISTS (SELECT 1 FROM ledger l WHERE l.dataset = p.dataset AND l.sources = p.sources"
    " AND l.codebook_digest = p.codebook_digest AND l.transition_digest = p.transition_digest"
    " AND l.secret_id = p.secret_id AND l.fingerprint = p.fingerprint AND l.version_tag = p.version_tag)"
    " AND NOT (p.unit = -1 AND EXISTS (SELECT 1 FROM ledger l"
    " WHERE l.study_digest = p.study_digest AND l.unit = p.unit AND l.dataset = p.dataset))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """What a data set is charged, or would be: a finite epsilon, and a delta."""

    epsilon: float
    delta: float = 0.0

    def __add__(self, other: Charge) -> Charge:
        return Charge(epsilon=self.epsilon + other.epsilon, delta=self.delta + other.delta)


NOTHING: Final = Charge(epsilon=0.0)


class Budget:
    """Deltas and reservations in a party's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # ---- delta

    def delta_spent(self, dataset: str) -> float:
        """The delta charged to a data set in its lifetime."""
        rows = self._database.rows("SELECT delta FROM delta_charge WHERE dataset = ?", (dataset,))
        return math.fsum(cast("float", delta) for (delta,) in rows)

    def charge_delta(
        self, study_digest: bytes, study_id: str, dataset: str, *, draw: bytes, delta: float, at: datetime
    ) -> None:
        """Charge the delta of a study's noise, once for each draw; in the transaction that charges its epsilon."""
        self._database.write(
            "INSERT INTO delta_charge (study_digest, dataset, draw, study_id, delta, at) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            (study_digest, dataset, draw, study_id, delta, f"{at:%Y-%m-%dT%H:%M:%SZ}"),
        )

    def check_room(self, dataset: str, new: Charge, policy: Policy, *, spent: float, held: Charge) -> None:
        """Refuse what the lifetime limits of a data set have no room for; the message, which leaves, tells no sums.

        Args:
            dataset: its name.
            new: what would be charged.
            policy: the limits.
            spent: finite epsilon that was charged before.
            held: what is kept for other studies under way.

        Raises:
            Refusal: BUDGET_EXCEEDED.
        """
        for what, asked, before, kept, limit in (
            ("epsilon", new.epsilon, spent, held.epsilon, policy.max_epsilon_lifetime),
            ("delta", new.delta, self.delta_spent(dataset), held.delta, policy.max_delta_lifetime),
        ):
            if asked > 0 and before + kept + asked > limit + EPSILON_TOLERANCE * min(limit, 1.0):
                under_way = " and is kept for studies under way" if kept else ""
                free = (
                    "what is kept is free again when those have ended"
                    if kept
                    else "the same matrices again cost nothing"
                )
                raise Refusal(
                    "BUDGET_EXCEEDED",
                    f"data set '{dataset}': {what} {asked:.4g} on top of what was charged before{under_way},"
                    f" expected at most {limit:g}",
                    hint=f"the limit is policy.max_{what}_lifetime, and verticil party ledger has the sums; {free}",
                )

    # ---- what studies under way will be charged

    def is_reserved(self, study_digest: bytes) -> bool:
        """Whether there is a reservation of the study."""
        return bool(self._database.rows("SELECT 1 FROM reserved WHERE study_digest = ? LIMIT 1", (study_digest,)))

    def reserve(
        self, study_digest: bytes, units: Iterable[tuple[int, Values, float]], shared: Mapping[str, Charge]
    ) -> None:
        """Reserve what a study will be charged.

        Args:
            study_digest: of the proposal.
            units: index, values and finite charge of each.
            shared: of the noise on what is shared besides, by data set.
        """
        rows: list[tuple[Cell, ...]] = [(study_digest, index, *values, charge, 0.0) for index, values, charge in units]
        for dataset, charge in shared.items():
            nothing = (dataset, "", study_digest, b"", b"", b"", b"")
            rows.append((study_digest, SHARED, *nothing, charge.epsilon, charge.delta))
        with self._database.transaction():
            for row in rows:
                self._database.write("INSERT INTO reserved VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)

    def held(self, study_digest: bytes = b"", own: Collection[Values] = ()) -> dict[str, Charge]:
        """What is reserved for other studies under way and not yet charged, by data set.

        Args:
            study_digest: of the study that asks; empty: of all.
            own: the values that it would send: whoever sends them first is charged for them.
        """
        rows = self._database.rows(
            "SELECT DISTINCT p.dataset, p.sources, p.codebook_digest, p.transition_digest, p.secret_id, p.fingerprint,"  # noqa: S608 (constant text)
            " p.version_tag, p.epsilon, p.delta FROM reserved p JOIN study s ON s.digest = p.study_digest"
            f" WHERE p.study_digest <> ? AND {_UNDER_WAY} AND {_UNCHARGED}",
            (study_digest, int(State.PUBLISHED)),
        )
        found: dict[str, Charge] = {}
        for *values, epsilon, delta in rows:
            if tuple(values) not in own:
                dataset, charge = (
                    cast("str", values[0]),
                    Charge(epsilon=cast("float", epsilon), delta=cast("float", delta)),
                )
                found[dataset] = found.get(dataset, NOTHING) + charge
        return found
