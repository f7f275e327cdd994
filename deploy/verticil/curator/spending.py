"""What the owner's runs cost the people of a table, written down before anything is drawn.

The ledger is a party's. Each measurement has one row: the same again costs nothing, and has the time of its first charge,
from which releases are dated. The sum is that of the data set, by its name, whatever is in its file by now; and of the same
people under other names (`verticil.curator.people`).
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass

from verticil.curator.measuring import digest_of
from verticil.curator.state import CuratorState
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.limits.limits import Policy
from verticil.party.policy.ledger_rows import LedgerRow
from verticil.shared.core.errors import Misuse, Refusal
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.accounts import PUBLIC, Cost, ReaderLimits
from verticil.shared.study.document import Study

UNLIMITED = Cost(epsilon=math.inf, delta=math.inf)
EVERYBODY = "everybody"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spending:
    """What a run did to the account.

    Attributes:
        at: when the measurement was charged first, UTC, whole seconds.
        again: it had been charged before: this run cost nothing.
        cost: of the measurement.
        total: of all of the data set's, this one among them; infinite where one of them had no noise.
        others: the other charges of the data set, in words.
    """

    at: dt.datetime
    again: bool
    cost: Cost
    total: Cost
    others: tuple[str, ...]


def dataset_of(state: CuratorState, name: str, fingerprint: bytes) -> str:
    """Return the name under which the very same codes were measured first, else the given one.

    It holds also where no sketch tells whose rows they are, as of rows that were put back.
    """
    query = "SELECT dataset FROM ledger WHERE fingerprint = ? ORDER BY number LIMIT 1"
    return state.database.first(str, query, (fingerprint,)) or name


def charge(state: CuratorState, study: Study, column_draw: ColumnDraw, *, budget: Cost, now: dt.datetime) -> Spending:
    """Charge a measurement; then it may be made: the charge is on the disk.

    Args:
        state: of the owner.
        study: the owner's study.
        column_draw: the measurement.
        budget: what all releases of the data set may cost together.
        now: UTC.

    Raises:
        Misuse: USAGE, the budget is no number of 0 or more, as NaN, which no sum exceeds.
        Refusal: BUDGET_EXCEEDED, naming the studies that spent it; nothing is charged.
        DataFault: DISK_FULL, STATE_CORRUPT; nothing may be measured.
    """
    _check_budget(budget.epsilon, budget.delta)
    digest = digest_of(column_draw)
    with state.database.transaction():
        state.ledger.check_rows()
        names = state.ledger.people.names(column_draw.dataset)
        earlier = [row for row in state.ledger.rows() if row.dataset in names]
        mine = next((row for row in earlier if row.study_digest == digest.hex()), None)
        others = tuple(_words(row) for row in earlier if row is not mine)
        cost = cost_of(column_draw.event)
        # A ledger's sums are over what has a bound; of a table of which records as they are were published there is none.
        has_no_bound = math.isinf(cost.epsilon) or any(math.isinf(row.epsilon) for row in earlier)
        if mine is None:
            try:
                if has_no_bound and math.isfinite(budget.epsilon):
                    raise Refusal(
                        "BUDGET_EXCEEDED",
                        f"no bound holds for all releases of the data set, expected epsilon {budget.epsilon:.4g} at most",
                    )
                state.ledger.record_shared(
                    column_draw,
                    policy=_policy(budget),
                    study_digest=digest,
                    study_id=study.id,
                    recipient=EVERYBODY,
                    artifact_sha256=b"",
                    size=0,
                    at=now,
                )
            except Refusal as error:
                if error.code != "BUDGET_EXCEEDED":
                    raise
                raise _explain_refusal(column_draw.dataset, error, others) from None
    at = now.replace(microsecond=0) if mine is None else dt.datetime.fromisoformat(mine.at)
    return Spending(
        at=at,
        again=mine is not None,
        cost=cost,
        total=UNLIMITED if has_no_bound else state.ledger.sum_charges(column_draw.dataset, PUBLIC),
        others=others,
    )


def _check_budget(*amounts: object) -> None:
    """Refuse a budget that is no number of 0 or more: NaN would be a limit that nothing exceeds.

    Raises:
        Misuse: USAGE.
    """
    for amount in amounts:
        if not isinstance(amount, int | float) or not amount >= 0:
            hint = "give the most epsilon that all releases of the data set may cost together"
            raise Misuse("USAGE", f"budget: got {amount}, expected a number of 0 or more", hint=hint)


def _words(row: LedgerRow) -> str:
    return f"study '{row.study_id}' on {row.at[:10]}: epsilon {row.epsilon:.4g}, delta {row.delta:.4g}"


def _explain_refusal(dataset: str, error: Refusal, others: tuple[str, ...]) -> Refusal:
    by = f"; spent before by {'; '.join(others)}" if others else ""
    return Refusal(
        "BUDGET_EXCEEDED",
        f"{error.message}{by}",
        hint="an earlier study again, with its seed, costs nothing, whatever is drawn from it; else raise the budget knowingly",
    )


def _policy(budget: Cost) -> Policy:
    """Return a party's limits, of which the owner has one: for everybody, over all releases."""
    return Policy(
        approval="manual",
        approvers=(),
        approvers_needed=1,
        max_epsilon_per_column=math.inf,
        max_epsilon_per_study=math.inf,
        max_epsilon_lifetime=math.inf,
        max_share_delta=math.inf,
        max_delta_lifetime=math.inf,
        public=ReaderLimits(study=UNLIMITED, lifetime=budget),
        allow_infinite=(),
        allow_exact_parameters=True,  # of a study without noise, which its owner asked for; the budget holds against it
        minimum_common_records=1,
        minimum_parties=1,
        max_categories=65_536,
        deny_columns=(),
        recipients=(),
        on_data_change="refuse",
    )
