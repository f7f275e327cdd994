"""A ledger that is older than what was done: found out from the miner, and mended only when somebody says so.

A state directory that comes from an old backup, or from a virtual machine that was set back, has forgotten what was sent since:
the lifetime sum would be too small, and more would leave than the limits allow. But a row was in the ledger before the first
byte of a unit left, so a unit that the miner has, or signed that it has deleted, without a row here means just this. The miner
tells all of that when a party connects, before anything is sent; the daemon then refuses to go on (LEDGER_OLDER, exit 3).

``verticil party run --accept-older`` writes a row for each such unit, charged in full, and a line in the audit log, and goes
on. What cannot be mended: sends that never became whole at the miner (a unit that was begun and broken off).

A miner's word alone is no send. It shows the approval that this party signed, and its own signed receipt of just this unit of the
study that was approved; a receipt of a study that this party did not approve is no proof. What it claims without both is never
charged and ends nothing: the study waits, and people read whose claim it is.
"""

from __future__ import annotations

import datetime as dt
import json
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final, Unpack, cast

from verticil.party.audit.log import What
from verticil.party.dataset.releases import Release
from verticil.party.local_dataset import origins, release_of
from verticil.party.policy.approval import parsed
from verticil.party.policy.ledger import Send, audited, line_of
from verticil.party.policy.ledger_recovery import NO_DATA, OLDER_HINT
from verticil.party.protocol.statistics import EVERYONE, published
from verticil.party.site import Site
from verticil.party.storage.studies import Task
from verticil.shared.errors import PeerFault, Refusal, VerticilError
from verticil.shared.identity.identity import Role
from verticil.shared.identity.signing import verify_signed
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.accounts import Cost
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.document import Study
from verticil.wire.v1 import common_pb2, coordinator_pb2

RECIPIENT: Final = "miner"
"""The miner's name in the ledger."""
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_log = logging.getLogger(__name__)


def claim_words(names: Iterable[str]) -> str:
    """What people read of a claim."""
    return (
        f"the miner claims to have columns of this party ({', '.join(names)}) and shows no approval and receipt of them:"
        " nothing is charged, nothing is sent"
    )


def unknown_columns(site: Site, task: Task) -> tuple[str, ...]:
    """The variables of the units of this party that the miner says to have, and that the ledger does not know."""
    study = parsed(task.effective or task.proposal)
    own = [study.units[unit].variables for unit in study.units_of(site.config.name) if unit in task.units_received]
    sent = site.ledger.columns_sent(task.digest) if own else frozenset()
    return tuple(name for variables in own if variables not in sent for name in variables)


def proven(
    site: Site,
    told: coordinator_pb2.StudyTask,
    *,
    deleted: Collection[int],
    authority: bytes,
    revoked: Mapping[int, dt.datetime],
) -> frozenset[int]:
    """The units that the miner shows to have come from this party, by its leave.

    Args:
        site: this party.
        told: the task that the miner sent.
        deleted: units that it signed to have deleted; that is as good as a receipt.
        authority: the federation's, PEM.
        revoked: the deny-list.
    """
    study, me = parsed(told.effective or told.proposal), site.config.name
    receipts = dict(_receipts(told, study, me, authority=authority, revoked=revoked))
    try:
        given = parse_approval(told.approval.body)
        # Signed with the certificate of that day; a renewed one may be younger than the decision.
        moments = [given.approved_at, *receipts.values()]
        if not any(_is_signed(told.approval, authority, me, at=at, revoked=revoked) for at in moments):
            return frozenset()
    except PeerFault:
        return frozenset()
    if (given.proposal_digest, given.party) != (told.study_digest, me):
        return frozenset()
    approved = {(item.unit.variables, item.unit.transition.digest()) for item in given.units}
    return frozenset(
        unit
        for unit in {*receipts, *deleted} & {*study.units_of(me)}
        if (study.units[unit].variables, study.units[unit].transition.digest()) in approved
    )


def _is_signed(
    signed: common_pb2.Signed, authority: bytes, name: str, *, at: dt.datetime, revoked: Mapping[int, dt.datetime]
) -> bool:
    try:
        verify_signed(signed, authority, role=Role.PARTY, name=name, at=at, revoked=revoked)
    except PeerFault:
        return False
    return True


def _receipts(
    told: coordinator_pb2.StudyTask,
    study: Study,
    party: str,
    *,
    authority: bytes,
    revoked: Mapping[int, dt.datetime],
) -> Iterator[tuple[int, dt.datetime]]:
    """Unit, and when it had come whole, of each receipt that holds and is about this party's columns of this study."""
    for signed in told.receipts:
        try:
            said = cast("dict[str, object]", json.loads(signed.body))
            at = dt.datetime.strptime(cast("str", said["received_at"]), _TIME).replace(tzinfo=dt.UTC)
            verify_signed(signed, authority, role=Role.MINER, at=at, revoked=revoked)
            unit = said["unit"]
            expected: dict[str, object] = {
                "proposal_digest": told.study_digest.hex(),
                "effective_digest": told.effective_digest.hex(),
                "party": party,
                "variables": list(study.units[unit].variables) if isinstance(unit, int) and unit >= 0 else None,
            }
            fits = isinstance(said["artifact_sha256"], str) and {key: said[key] for key in expected} == expected
        except (VerticilError, ValueError, LookupError, TypeError, RecursionError):
            continue
        if fits:
            yield cast("int", unit), at


def reckon(
    site: Site,
    task: Task,
    *,
    deleted: Collection[int],
    shown: Collection[int],
    accept_older: bool,
    at: dt.datetime,
) -> None:
    """Compare what the miner has of a study with the ledger.

    Args:
        site: this party.
        task: as the miner sent it.
        deleted: units that it signed to have deleted.
        shown: units that it shows to have come from this party, see `proven`; others count for nothing.
        accept_older: mend the ledger in place of refusing.
        at: now.

    Raises:
        Refusal: LEDGER_OLDER.
        Misuse, DataFault: with `accept_older`, party.toml or the tables do not say any more where the columns came from.
    """
    study = parsed(task.effective or task.proposal)
    sent, own = site.ledger.columns_sent(task.digest), study.units_of(site.config.name)
    there = sorted({*task.units_received, *deleted})
    unknown = [unit for unit in there if unit in own and study.units[unit].variables not in sent]
    missing = [unit for unit in unknown if unit in shown]
    if claimed := [name for unit in unknown if unit not in shown for name in study.units[unit].variables]:
        _log.warning("study '%s': %s", study.id, claim_words(claimed))
    if not missing:
        return
    names = ", ".join(name for unit in missing for name in study.units[unit].variables)
    if not accept_older:
        raise Refusal(
            "LEDGER_OLDER",
            f"study '{study.id}': the miner has columns of this party ({names}) that its ledger does not know:"
            " this state is older than what was sent",
            hint=f"{OLDER_HINT} charges them in full",
        )
    places = origins(site.config, study)
    with site.database.transaction():
        columns = (
            (index, release_of(study, index, places=places, fingerprint=NO_DATA, site_secret=site.site_secret))
            for index in missing
        )
        for unit, release in (*columns, *((None, item) for item in published(site, study, task.digest))):
            mend(
                site,
                release,
                unit=unit,
                charged=cost_of(release.event),
                study_digest=task.digest,
                study_id=study.id,
                recipient=EVERYONE if unit is None else RECIPIENT,
                artifact_sha256=b"",
                size=0,
                at=at,
            )


def mend(
    site: Site,
    release: Release,
    *,
    unit: int | None,
    charged: Cost,
    detail: str = "",
    **send: Unpack[Send],
) -> None:
    """Write the ledger's row of what is known to have been sent, and its line in the audit log; in the caller's transaction.

    Of what data it was nobody here remembers: a further release of these columns counts as one of changed data.

    Args:
        site: this party.
        release: without the fingerprint of data.
        unit, charged: as in the ledger.
        detail: for the audit log, who shows it.
        send: as in the ledger; the bytes that were sent, where somebody shows them, else an empty SHA-256 and no size.
    """
    told = audited(release, unit=unit, charged=charged)
    event = line_of(What.LEDGER_MENDED, release, charged, told, detail=detail, **send)
    site.audit.record(event, send["at"])
    site.ledger.put_back(release, version_tag=b"", charged=charged, unit=unit, **send)
