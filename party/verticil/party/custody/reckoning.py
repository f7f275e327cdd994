"""A ledger that is older than what was done: found out from the miner, and mended only when somebody says so.

A state directory that comes from an old backup, or from a virtual machine that was set back, has forgotten what was sent since:
the lifetime sum would be too small, and more would leave than the limits allow. But a row was in the ledger before the first
byte of a unit left, so a unit that the miner has, or signed that it has deleted, without a row here means just this. The miner
tells all of that when a party connects, before anything is sent; the daemon then refuses to go on (LEDGER_OLDER, exit 3).

``verticil party run --accept-older`` writes a row for each such unit, charged in full, and a line in the audit log, and goes
on. What cannot be mended: sends that never became whole at the miner (a unit that was begun and broken off), and everything
between peers. A miner that lies can only make a party charge more, never less.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection

from verticil.party.control.approval import parsed
from verticil.party.control.holdings import origins, release_of
from verticil.party.control.site import Site
from verticil.party.control.state import Task
from verticil.party.custody.recall import NO_DATA, OLDER_HINT, entry
from verticil.party.evidence.audit import DAEMON, Event, What
from verticil.shared.errors import Refusal

__all__ = ["reckon"]

RECIPIENT = "miner"


def reckon(site: Site, task: Task, *, deleted: Collection[int], accept_older: bool, at: dt.datetime) -> None:
    """Compare what the miner has of a study with the ledger.

    Args:
        site: this party.
        task: what the miner tells.
        deleted: units that it signed to have deleted.
        accept_older: mend the ledger in place of refusing.
        at: now.

    Raises:
        Refusal: LEDGER_OLDER.
        Misuse, DataFault: with `accept_older`, party.toml or the tables do not say any more where the columns came from.
    """
    study = parsed(task.effective or task.proposal)
    sent, own = site.ledger.columns_sent(task.digest), study.units_of(site.config.name)
    there = sorted({*task.units_received, *deleted})
    missing = [unit for unit in there if unit in own and study.units[unit].variables not in sent]
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
        for unit in missing:
            release = release_of(study, unit, places=places, fingerprint=NO_DATA, site_secret=site.site_secret)
            event = Event(
                what=What.LEDGER_MENDED,
                who=DAEMON,
                study=task.digest,
                study_id=study.id,
                columns=release.variables,
                epsilon=release.epsilon,
                charged=release.epsilon,
                recipient=RECIPIENT,
                ledger=entry(release, unit=unit),
            )
            site.audit.record(event, at)
            site.ledger.mend(
                release, study_digest=task.digest, study_id=study.id, unit=unit, recipient=RECIPIENT, at=at
            )
