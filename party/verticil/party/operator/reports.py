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
    widened,
)
from verticil.party.policy.ledger_rows import LedgerRow
from verticil.party.policy.revocation import Awaited
from verticil.party.protocol.statistics import EVERYONE
from verticil.party.site import Site
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.view import inlined, left_out
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
        """What was spent, and is kept, before any limit."""
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
    """What `ledger` says, of an opened state."""
    config, rows = site.config, site.ledger.rows()
    site.ledger.check_rows()
    spent = {name: site.ledger.sum_charges(name) for name in account_names(site)}
    limit = Cost(epsilon=config.policy.max_epsilon_lifetime, delta=config.policy.max_delta_lifetime)
    kept_for = {reader: site.ledger.sum_reserved(reader=reader) for reader in READERS}
    kept = kept_for[COLUMNS]
    return LedgerView(
        party=config.name,
        four_figures=_four_figures(site, rows) or None,
        rows=_sends(rows, _gone(site)),
        attempted_sends=len(rows),
        datasets=tuple(
            BudgetView(
                dataset=name,
                epsilon_spent=total.epsilon,
                epsilon_lifetime_limit=limit.epsilon,
                epsilon_remaining=(limit - total).epsilon,
                epsilon_kept=kept.get(name, NOTHING).epsilon,
                delta_kept=kept.get(name, NOTHING).delta,
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
            for name, total in spent.items()
        ),
    )


def _four_figures(site: Site, rows: Sequence[LedgerRow]) -> dict[str, tuple[str, ...]]:
    """Of the masked studies in the ledger; of one that this site has forgotten the rows alone remain."""
    found: dict[str, tuple[str, ...]] = {}
    charged = dict.fromkeys(row.study_digest for row in rows if row.unit is None and row.recipient == EVERYONE)
    for record in site.state.studies():
        if record.digest.hex() in charged:
            try:
                words = figure_words(site, record.task.latest)
            except VerticilError:  # party.toml does not serve it any more
                continue
            found |= {} if words is None else {record.digest.hex(): words}
    return found


def _account(site: Site, dataset: str, reader: Reader, kept: Cost) -> AccountBudget:
    spent, drawn = site.ledger.sum_charges(dataset, reader), site.ledger.events(dataset, reader)
    return widened(
        account_spent(reader, site.config.policy, spent),
        AccountBudget,
        epsilon_kept=kept.epsilon,
        delta_kept=kept.delta,
        epsilon_numerical=None if drawn is None else numerically(drawn, spent.delta),
    )


def _sends(rows: Sequence[LedgerRow], gone: Mapping[tuple[str, str, str], str]) -> tuple[SentRow, ...]:
    """The rows of one thing to one recipient as one, in the order of their first attempt."""

    def key(row: LedgerRow) -> tuple[str, tuple[str, ...], str, str]:
        return (row.study_digest, row.variables, row.recipient, row.artifact_sha256)

    first = {key(row): row.number for row in reversed(rows)}
    found: list[SentRow] = []
    for _, group in groupby(sorted(rows, key=lambda row: (first[key(row)], row.number)), key=key):
        attempts = list(group)
        row = attempts[0]
        found.append(
            SentRow(
                study=row.study_id,
                digest=row.study_digest,
                columns=tuple(row.variables),
                dataset=row.dataset,
                epsilon=row.epsilon,
                charged=_charged(attempts).epsilon,
                recipient=row.recipient,
                bytes=row.size,
                sha256=row.artifact_sha256,
                attempts=len(attempts),
                first_at=row.at,
                last_at=attempts[-1].at,
                deleted_at=gone.get((row.study_digest, row.recipient, row.artifact_sha256)),
                noise=_noise(attempts),
            )
        )
    return tuple(found)


def _charged(attempts: Sequence[LedgerRow]) -> Cost:
    return compose(Cost(epsilon=item.charged, delta=item.charged_delta) for item in attempts)


def _noise(attempts: Sequence[LedgerRow]) -> SentEvent | None:
    row = attempts[0]
    if row.unit is not None:
        return None
    return SentEvent(
        event=row.kind,
        words=row.words,
        delta=row.delta,
        delta_charged=_charged(attempts).delta,
    )


def audit_entries(config: PartyConfig, *, study: str | None = None, last: int | None = None) -> AuditLines:
    """The lines of the audit log, oldest first, as they are; `verify_audit` says whether they hold.

    Args:
        config: party.toml.
        study: only those of studies with this id, ANALYST/id or digest.
        last: only so many of the newest.

    Raises:
        DataFault: SECRET_MISSING, STATE_CORRUPT.
    """
    with Site.open(config) as site:
        found = list(audit_lines(site))
        known = {record.digest.hex() for record in site.state.studies() if study and fits(study, record.named)}
    if study is not None:
        found = [line for line in found if line.text("study") in known or _is_of(line, study)]
    return AuditLines(entries=tuple(found if last is None else found[-last:]))


def audit_lines(site: Site) -> Iterator[AuditLine]:
    """All whole lines of the log of an opened state, oldest first, unverified."""
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
    """What `verify_audit` says, of an opened state."""
    found = AuditLog(site.database, site.config.state_directory).verify()
    return AuditVerified(
        party=site.config.name,
        lines=found.n_lines,
        head=found.head.hex(),
        torn_lines=tuple(found.torn),
        unfinished_bytes=found.unfinished_bytes,
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
        found = site.voting.revoke(record, approver, reason, at if at is not None else utc_now())
        state = State(record.task.state)
        sends = [row for row in site.ledger.rows() if row.study_digest == record.digest.hex()]
        awaited = site.revocations.awaited_of(record.digest)
    said = found.deletion
    return Revoked(
        study=record.study_id,
        digest=record.digest.hex(),
        state=state.name.lower(),
        columns_sent=len({(row.variables, row.recipient) for row in sends}),
        who=found.who,
        reason=found.reason,
        revoked_at=found.revoked_at,
        after_publication=found.published,
        told=found.sent,
        deletion=None
        if said is None
        else MinerDeletion(
            miner=said.miner,
            deleted_at=f"{said.deleted_at:%Y-%m-%dT%H:%M:%SZ}",
            artifacts={str(unit): sha256.hex() for unit, sha256 in said.artifacts.items()},
            why=said.why,
        ),
        confirmations=None if awaited is None else confirmations(awaited),
    )


def confirmations(awaited: Awaited) -> tuple[Confirmation, ...]:
    """Which peers have signed that they deleted what they had of this party, and which have not yet."""
    return tuple(
        Confirmation(peer=name, confirmed=said is not None, deletion=None if said is None else _deletion(said))
        for name in awaited.peers
        for said in (awaited.confirmed.get(name),)
    )


def _deletion(said: PeerDeletion) -> SignedDeletion:
    return SignedDeletion(
        deleted_at=f"{said.deleted_at:%Y-%m-%dT%H:%M:%SZ}",
        columns={
            str(unit): DeletedColumn(sha256=item.sha256.hex(), bytes=item.size) for unit, item in said.columns.items()
        },
        parameters=said.parameters is not None,
        keeps_release=said.ended == "published",
    )


def _gone(site: Site) -> dict[tuple[str, str, str], str]:
    """(study, recipient, SHA-256) -> when it was gone, as the recipient has signed."""
    found: dict[tuple[str, str, str], str] = {}
    for awaited in site.revocations.list_awaited():
        for name, said in awaited.confirmed.items():
            for item in said.columns.values():
                found[awaited.digest.hex(), name, item.sha256.hex()] = f"{said.deleted_at:%Y-%m-%dT%H:%M:%SZ}"
    return found
