"""What the people of a site read of its record, behind ``verticil party ledger | audit | revoke``.

As in `commands` every function opens the site's state, does one thing and closes it; a daemon may run beside it.
What they return holds names, counts, epsilons, digests.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from verticil.party.audit.log import AuditLog
from verticil.party.config import PartyConfig
from verticil.party.operator.accounts import people_words
from verticil.party.operator.view_model import (
    AccountSpent,
    Confirmation,
    DeletedColumn,
    SignedDeletion,
    account_names,
    account_spent,
    figure_words,
    shown_readers,
    told_peers,
    widen,
)
from verticil.party.policy.ledger_rows import LedgerRow
from verticil.party.policy.revocation import Awaited
from verticil.party.protocol.statistics import EVERYONE
from verticil.party.site import Site
from verticil.party.storage.studies import unknown_study
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.view_models import inlined, left_out
from verticil.shared.federation.audit import AuditLine, AuditLines
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.privacy.accountant import compose, numerically
from verticil.shared.privacy.accounts import COLUMNS, NOTHING, READERS, Cost, Reader
from verticil.shared.release.formats.deletion import PeerDeletion
from verticil.shared.study.names import fits
from verticil.shared.study.states import State


@dataclass(frozen=True, slots=True, kw_only=True)
class SentEvent:
    """The privacy event of what was sent besides columns: its kind, in words, and its delta."""

    event: str
    words: str
    delta: float
    delta_charged: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRow:
    """One thing that was sent to one recipient, over all attempts.

    Attributes:
        study, digest: for which study.
        columns, dataset: what.
        epsilon, charged: of the noise, and what the ledger charged.
        recipient, bytes, sha256: to whom, how large, which bytes.
        attempts, first_at, last_at: how often.
        deleted_at: when it was gone, as the recipient has signed.
        noise: None of a randomized column, whose epsilon says it all.
    """

    study: str
    digest: str
    columns: tuple[str, ...]
    dataset: str
    epsilon: float
    charged: float
    recipient: str
    bytes: int
    sha256: str
    attempts: int
    first_at: str
    last_at: str
    deleted_at: str | None
    noise: SentEvent | None = inlined()


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountBudget(AccountSpent):
    """One account of a data set's lifetime budget.

    Attributes:
        epsilon_kept, delta_kept: for studies under way.
        epsilon_numerical: what composing all events numerically gives at `delta_spent`, which decides nothing; None: one of them
            is of a kind that is not known here.
    """

    epsilon_kept: float
    delta_kept: float
    epsilon_numerical: float | None

    def figures(self) -> tuple[float, ...]:
        """Return what was spent, and is reserved, before any limit."""
        return (self.epsilon_spent, self.delta_spent, self.epsilon_kept, self.delta_kept)


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetView:
    """What was spent of a data set's lifetime budget, kept for studies under way, left; `infinite`: what is in no sum.

    Attributes:
        accounts: the same for each reader; what stands above is that of whoever reads columns.
        people: what party.toml says of the people (`accounts.people_words`).
        peers: what a peer was told at most that reads columns and published tables; None: what `accounts` begins with.
    """

    dataset: str
    epsilon_spent: float
    epsilon_lifetime_limit: float
    epsilon_remaining: float
    epsilon_kept: float
    delta_kept: float
    delta_spent: float
    delta_lifetime_limit: float
    delta_remaining: float
    infinite: tuple[str, ...]
    accounts: tuple[AccountBudget, ...] = ()
    people: tuple[str, ...] | None = left_out()
    peers: str | None = left_out()


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerView:
    """Everything that was ever sent, and what each data set may still spend.

    Attributes:
        four_figures: of each masked study that something was charged for, by its digest, in words.
    """

    party: str
    four_figures: Mapping[str, tuple[str, ...]] | None = left_out()
    rows: tuple[SentRow, ...]
    attempted_sends: int
    datasets: tuple[BudgetView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditVerified:
    """An audit log that holds.

    Attributes:
        head: hash of its last line, hexadecimal.
        torn_lines: those that tell of an unfinished line before them.
        unfinished_bytes: at the end, of a line that is being written or was never finished.
    """

    party: str
    ok: bool = True
    lines: int
    head: str
    torn_lines: tuple[int, ...]
    unfinished_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MinerDeletion:
    """What the miner has signed: which columns it deleted (unit -> SHA-256), when and why."""

    miner: str
    deleted_at: str
    artifacts: Mapping[str, str]
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Revoked:
    """An approval that was taken back, and what came of it.

    Attributes:
        columns_sent: how many had been sent, whole or in part.
        after_publication: the release was published by then.
        told: the others know.
        deletion: None: the miner has not signed one.
        confirmations: None: not between peers.
    """

    study: str
    digest: str
    state: str
    columns_sent: int
    revoked: bool = True
    who: str
    reason: str
    revoked_at: str
    after_publication: bool
    told: bool
    deletion: MinerDeletion | None
    confirmations: tuple[Confirmation, ...] | None


def ledger(config: PartyConfig) -> LedgerView:
    """Everything that was ever sent, and what each data set may still spend.

    One row for each thing and recipient, whose ``attempts`` counts the sends of the same bytes; sums for each data set of
    party.toml and of the ledger. What was sent with an infinite epsilon is in no sum and therefore named.

    Raises:
        DataFault: SECRET_MISSING, STATE_CORRUPT.
    """
    with Site.open(config) as site:
        return ledger_of(site)


def ledger_of(site: Site) -> LedgerView:
    """Return what `ledger` says, of an opened state."""
    config, rows = site.config, site.ledger.rows()
    site.ledger.check_rows()
    spending = {name: site.ledger.sum_charges(name) for name in account_names(site)}
    limit = Cost(epsilon=config.policy.max_epsilon_lifetime, delta=config.policy.max_delta_lifetime)
    kept_for = {reader: site.ledger.sum_reserved(reader=reader) for reader in READERS}
    reserved_cost = kept_for[COLUMNS]
    return LedgerView(
        party=config.name,
        four_figures=_four_figures(site, rows) or None,
        rows=_sends(rows, _deletion_times(site)),
        attempted_sends=len(rows),
        datasets=tuple(
            BudgetView(
                dataset=name,
                epsilon_spent=total.epsilon,
                epsilon_lifetime_limit=limit.epsilon,
                epsilon_remaining=(limit - total).epsilon,
                epsilon_kept=reserved_cost.get(name, NOTHING).epsilon,
                delta_kept=reserved_cost.get(name, NOTHING).delta,
                delta_spent=total.delta,
                delta_lifetime_limit=limit.delta,
                delta_remaining=(limit - total).delta,
                infinite=tuple(
                    sorted(
                        {
                            ", ".join(row.variables)
                            for row in rows
                            if site.ledger.account(row.dataset) == name and math.isinf(row.epsilon)
                        }
                    )
                ),
                accounts=tuple(
                    _account(site, name, reader, kept_for[reader].get(name, NOTHING))
                    for reader in shown_readers(config.policy, site.ledger, name)
                ),
                people=people_words(config.policy.same_people, name),
                peers=told_peers(site.ledger, name),
            )
            for name, total in spending.items()
        ),
    )


def sends_of(site: Site, study_digest: bytes) -> tuple[SentRow, ...]:
    """Return what was sent for a study, as `ledger` says it; raises as `ledger_of`."""
    site.ledger.check_rows()
    return _sends(site.ledger.rows(study_digest), _deletion_times(site))


def _four_figures(site: Site, rows: Sequence[LedgerRow]) -> dict[str, tuple[str, ...]]:
    """Return the four figures of the masked studies in the ledger; of one that this site has forgotten the rows alone
    remain.
    """
    figures: dict[str, tuple[str, ...]] = {}
    study_digests = dict.fromkeys(row.study_digest for row in rows if row.unit is None and row.recipient == EVERYONE)
    for record in site.state.studies():
        if record.digest.hex() in study_digests:
            try:
                words = figure_words(site, record.task.latest)
            except VerticilError:  # party.toml does not serve it any more
                continue
            figures |= {} if words is None else {record.digest.hex(): words}
    return figures


def _account(site: Site, dataset: str, reader: Reader, reserved_cost: Cost) -> AccountBudget:
    spending, events = site.ledger.sum_charges(dataset, reader), site.ledger.events(dataset, reader)
    return widen(
        account_spent(reader, site.config.policy, spending),
        AccountBudget,
        epsilon_kept=reserved_cost.epsilon,
        delta_kept=reserved_cost.delta,
        epsilon_numerical=None if events is None else numerically(events, spending.delta),
    )


def _sends(rows: Sequence[LedgerRow], deletions: Mapping[tuple[str, str, str], str]) -> tuple[SentRow, ...]:
    """Return the rows of one thing to one recipient as one, in the order of their first attempt."""

    def key(row: LedgerRow) -> tuple[str, tuple[str, ...], str, str]:
        return (row.study_digest, row.variables, row.recipient, row.artifact_sha256)

    first = {key(row): row.number for row in reversed(rows)}
    sends: list[SentRow] = []
    for _, group in groupby(sorted(rows, key=lambda row: (first[key(row)], row.number)), key=key):
        attempts = list(group)
        row = attempts[0]
        sends.append(
            SentRow(
                study=row.study_id,
                digest=row.study_digest,
                columns=tuple(row.variables),
                dataset=row.dataset,
                epsilon=row.epsilon,
                charged=_charge_of(attempts).epsilon,
                recipient=row.recipient,
                bytes=row.size,
                sha256=row.artifact_sha256,
                attempts=len(attempts),
                first_at=row.at,
                last_at=attempts[-1].at,
                deleted_at=deletions.get((row.study_digest, row.recipient, row.artifact_sha256)),
                noise=_noise(attempts),
            )
        )
    return tuple(sends)


def _charge_of(attempts: Sequence[LedgerRow]) -> Cost:
    return compose(Cost(epsilon=item.charged, delta=item.charged_delta) for item in attempts)


def _noise(attempts: Sequence[LedgerRow]) -> SentEvent | None:
    row = attempts[0]
    if row.unit is not None:
        return None
    return SentEvent(
        event=row.kind,
        words=row.words,
        delta=row.delta,
        delta_charged=_charge_of(attempts).delta,
    )


def audit_entries(config: PartyConfig, *, study: str | None = None, last: int | None = None) -> AuditLines:
    """Return the lines of the audit log, oldest first, as they are; `verify_audit` says whether they hold.

    Args:
        config: party.toml.
        study: only those of studies with this id, ANALYST/id or digest.
        last: only so many of the newest.

    Raises:
        Misuse: STUDY_UNKNOWN, no study and no line has this name.
        DataFault: SECRET_MISSING, STATE_CORRUPT.
    """
    with Site.open(config) as site:
        lines = list(audit_lines(site))
        digests = {record.digest.hex() for record in site.state.studies() if study and fits(study, record.named)}
    if study is not None:
        lines = [line for line in lines if line.text("study") in digests or _is_of(line, study)]
        if not lines and not digests:
            raise unknown_study(study)
    return AuditLines(entries=tuple(lines if last is None else lines[-last:]))


def audit_lines(site: Site) -> Iterator[AuditLine]:
    """Yield all whole lines of the log of an opened state, oldest first, unverified."""
    for entry in AuditLog(site.database, site.config.state_directory).entries():
        yield AuditLine(said=entry)


def _is_of(line: AuditLine, study: str) -> bool:
    return line.said.get("study_id") == study or (len(study) >= 8 and line.text("study").startswith(study.lower()))


def verify_audit(config: PartyConfig) -> AuditVerified:
    """Check the whole audit log.

    Raises:
        GateFailed: AUDIT_BROKEN, naming the line.
        DataFault: SECRET_MISSING, STATE_CORRUPT.
    """
    with Site.open(config) as site:
        return audit_verified(site)


def audit_verified(site: Site) -> AuditVerified:
    """Return what `verify_audit` says, of an opened state."""
    result = AuditLog(site.database, site.config.state_directory).verify()
    return AuditVerified(
        party=site.config.name,
        lines=result.n_lines,
        head=result.head.hex(),
        torn_lines=tuple(result.torn),
        unfinished_bytes=result.unfinished_bytes,
    )


def revoke(config: PartyConfig, study: str, approver: str, reason: str, *, at: dt.datetime | None = None) -> Revoked:
    """Take the approval of a study back, for good. Again, it says what came of it.

    Raises:
        Misuse: STUDY_UNKNOWN; USAGE, without a reason.
        Refusal: NOT_APPROVED; POLICY_REFUSED, the person is not an approver.
        DataFault: whatever is wrong with the state.
    """
    with Site.open(config) as site:
        record = site.state.find(study)
        revocation = site.voting.revoke(record, approver, reason, at if at is not None else utc_now())
        state = State(record.task.state)
        sends = site.ledger.rows(record.digest)
        pending_deletion = site.revocations.awaited_of(record.digest)
    deletion = revocation.deletion
    return Revoked(
        study=record.study_id,
        digest=record.digest.hex(),
        state=state.name.lower(),
        columns_sent=len({(row.variables, row.recipient) for row in sends}),
        who=revocation.who,
        reason=revocation.reason,
        revoked_at=revocation.revoked_at,
        after_publication=revocation.published,
        told=revocation.sent,
        deletion=None
        if deletion is None
        else MinerDeletion(
            miner=deletion.miner,
            deleted_at=f"{deletion.deleted_at:%Y-%m-%dT%H:%M:%SZ}",
            artifacts={str(unit): sha256.hex() for unit, sha256 in deletion.artifacts.items()},
            why=deletion.why,
        ),
        confirmations=None if pending_deletion is None else confirmations(pending_deletion),
    )


def confirmations(pending_deletion: Awaited) -> tuple[Confirmation, ...]:
    """List which peers have signed that they deleted what they had of this party, and which have not yet."""
    return tuple(
        Confirmation(
            peer=name, confirmed=deletion is not None, deletion=None if deletion is None else _deletion(deletion)
        )
        for name in pending_deletion.peers
        for deletion in (pending_deletion.confirmed.get(name),)
    )


def _deletion(deletion: PeerDeletion) -> SignedDeletion:
    return SignedDeletion(
        deleted_at=f"{deletion.deleted_at:%Y-%m-%dT%H:%M:%SZ}",
        columns={
            str(unit): DeletedColumn(sha256=item.sha256.hex(), bytes=item.size)
            for unit, item in deletion.columns.items()
        },
        parameters=deletion.parameters is not None,
        keeps_release=deletion.ended == "published",
    )


def _deletion_times(site: Site) -> dict[tuple[str, str, str], str]:
    """(study, recipient, SHA-256) -> when it was gone, as the recipient has signed."""
    times: dict[tuple[str, str, str], str] = {}
    for pending_deletion in site.revocations.list_awaited():
        for name, deletion in pending_deletion.confirmed.items():
            for item in deletion.columns.values():
                times[pending_deletion.digest.hex(), name, item.sha256.hex()] = (
                    f"{deletion.deleted_at:%Y-%m-%dT%H:%M:%SZ}"
                )
    return times
