"""What the people of a site read of its record, behind ``verticil party ledger | audit | revoke``.

As in `commands` every function opens the site's state, does one thing and closes it; a daemon may run beside it.
What they return is plain data for a terminal or for JSON: names, counts, epsilons, digests.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping, Sequence
from itertools import groupby

from verticil.party.audit.confirmations import Awaited
from verticil.party.audit.log import AuditLog
from verticil.party.config import PartyConfig
from verticil.party.policy.ledger import LedgerRow
from verticil.party.policy.revocation import Revocation
from verticil.party.site import Site
from verticil.shared.identity.pki import utc_now
from verticil.shared.privacy.events import NOTHING, kind_of, words
from verticil.shared.study.names import fits
from verticil.shared.study.states import State

Facts = dict[str, object]


def ledger(config: PartyConfig) -> Facts:
    """Everything that was ever sent, and what each data set may still spend.

    One row for each thing and recipient, whose ``attempts`` counts the sends of the same bytes; sums for each data set of
    party.toml and of the ledger. What was sent with an infinite epsilon is in no sum and therefore named.

    Raises:
        DataFault: SECRET_MISSING, STATE_CORRUPT.
    """
    with Site.open(config) as site:
        return ledger_of(site)


def ledger_of(site: Site) -> Facts:
    """What `ledger` tells, of an opened state."""
    config, rows = site.config, site.ledger.rows()
    spent = {name: site.ledger.spent(name) for name in dict.fromkeys([*config.datasets, *site.ledger.datasets()])}
    limit, kept = config.policy.max_epsilon_lifetime, site.ledger.kept()
    return {
        "party": config.name,
        "rows": _sends(rows, _gone(site)),
        "attempted_sends": len(rows),
        "datasets": [
            {
                "dataset": name,
                "epsilon_spent": total.epsilon,
                "epsilon_lifetime_limit": limit,
                "epsilon_remaining": max(limit - total.epsilon, 0.0),
                "epsilon_kept": kept.get(name, NOTHING).epsilon,
                "delta_kept": kept.get(name, NOTHING).delta,
                "delta_spent": total.delta,
                "delta_lifetime_limit": config.policy.max_delta_lifetime,
                "delta_remaining": max(config.policy.max_delta_lifetime - total.delta, 0.0),
                "infinite": sorted(
                    {", ".join(row.variables) for row in rows if row.dataset == name and math.isinf(row.epsilon)}
                ),
            }
            for name, total in spent.items()
        ],
    }


def _sends(rows: Sequence[LedgerRow], gone: Mapping[tuple[str, str, str], str]) -> list[Facts]:
    """The rows of one thing to one recipient as one, in the order of their first attempt."""

    def key(row: LedgerRow) -> tuple[str, tuple[str, ...], str, str]:
        return (row.study_digest, row.variables, row.recipient, row.artifact_sha256)

    first = {key(row): row.number for row in reversed(rows)}
    found: list[Facts] = []
    for _, group in groupby(sorted(rows, key=lambda row: (first[key(row)], row.number)), key=key):
        attempts = list(group)
        row = attempts[0]
        found.append(
            {
                "study": row.study_id,
                "digest": row.study_digest,
                "columns": list(row.variables),
                "dataset": row.dataset,
                "unit": row.unit,
                "event": kind_of(row.event).name,
                "words": words(row.event),
                "epsilon": row.epsilon,
                "delta": row.delta,
                "charged": math.fsum(item.charged for item in attempts),
                "delta_charged": math.fsum(item.charged_delta for item in attempts),
                "recipient": row.recipient,
                "bytes": row.size,
                "sha256": row.artifact_sha256,
                "attempts": len(attempts),
                "first_at": row.at,
                "last_at": attempts[-1].at,
                "deleted_at": gone.get((row.study_digest, row.recipient, row.artifact_sha256)),
            }
        )
    return found


def audit_entries(
    config: PartyConfig, *, study: str | None = None, last: int | None = None
) -> list[Mapping[str, object]]:
    """The lines of the audit log, oldest first, as they are; `verify_audit` says whether they hold.

    Args:
        config: party.toml.
        study: only those of studies with this id, ANALYST/id or digest.
        last: only so many of the newest.

    Raises:
        DataFault: SECRET_MISSING, STATE_CORRUPT.
    """
    with Site.open(config) as site:
        found = list(AuditLog(site.database, config.state_directory).entries())
        known = {record.digest.hex() for record in site.state.studies() if study and fits(study, record.named)}
    if study is not None:
        found = [entry for entry in found if str(entry.get("study", "")) in known or _is_of(entry, study)]
    return found if last is None else found[-last:]


def _is_of(entry: Mapping[str, object], study: str) -> bool:
    digest = str(entry.get("study", ""))
    return entry.get("study_id") == study or (len(study) >= 8 and digest.startswith(study.lower()))


def verify_audit(config: PartyConfig) -> Facts:
    """Check the whole audit log.

    Raises:
        GateFailed: AUDIT_BROKEN, naming the line.
        DataFault: SECRET_MISSING, STATE_CORRUPT.
    """
    with Site.open(config) as site:
        found = AuditLog(site.database, config.state_directory).verify()
    return {
        "party": config.name,
        "ok": True,
        "lines": found.n_lines,
        "head": found.head.hex(),
        "torn_lines": list(found.torn),
        "unfinished_bytes": found.unfinished_bytes,
    }


def revoke(config: PartyConfig, study: str, approver: str, reason: str, *, at: dt.datetime | None = None) -> Facts:
    """Take the approval of a study back, for good. Again, it says what came of it.

    Raises:
        Misuse: STUDY_UNKNOWN; USAGE, without a reason.
        Refusal: NOT_APPROVED; POLICY_REFUSED, the person is not an approver.
        DataFault: whatever is wrong with the state.
    """
    with Site.open(config) as site:
        record = site.state.find(study)
        found = site.revoke(record, approver, reason, at if at is not None else utc_now())
        state = State(record.task.state)
        sends = [row for row in site.ledger.rows() if row.study_digest == record.digest.hex()]
        awaited = site.confirmations.of(record.digest)
    return {
        "study": record.study_id,
        "digest": record.digest.hex(),
        "state": state.name.lower(),
        "columns_sent": len({(row.variables, row.recipient) for row in sends}),
        **_revoked(found),
        "confirmations": None if awaited is None else confirmations(awaited),
    }


def confirmations(awaited: Awaited) -> list[Facts]:
    """Which peers have signed that they deleted what they had of this party, and which have not yet."""
    found: list[Facts] = []
    for name in awaited.peers:
        said = awaited.confirmed.get(name)
        facts: Facts = {"peer": name, "confirmed": said is not None}
        if said is not None:
            facts |= {
                "deleted_at": f"{said.deleted_at:%Y-%m-%dT%H:%M:%SZ}",
                "columns": {
                    str(unit): {"sha256": item.sha256.hex(), "bytes": item.size} for unit, item in said.columns.items()
                },
                "parameters": said.parameters is not None,
                "keeps_release": said.ended == "published",
            }
        found.append(facts)
    return found


def _gone(site: Site) -> dict[tuple[str, str, str], str]:
    """(study, recipient, SHA-256) -> when it was gone, as the recipient has signed."""
    found: dict[tuple[str, str, str], str] = {}
    for awaited in site.confirmations.awaited():
        for name, said in awaited.confirmed.items():
            for item in said.columns.values():
                found[awaited.digest.hex(), name, item.sha256.hex()] = f"{said.deleted_at:%Y-%m-%dT%H:%M:%SZ}"
    return found


def _revoked(found: Revocation) -> Facts:
    said = found.deletion
    return {
        "revoked": True,
        "who": found.who,
        "reason": found.reason,
        "revoked_at": found.revoked_at,
        "after_publication": found.published,
        "told": found.sent,
        "deletion": None
        if said is None
        else {
            "miner": said.miner,
            "deleted_at": f"{said.deleted_at:%Y-%m-%dT%H:%M:%SZ}",
            "artifacts": {str(unit): sha256.hex() for unit, sha256 in said.artifacts.items()},
            "why": said.why,
        },
    }
