"""What a site's people are told when two of its data sets are about the same people, or a name in the ledger stands for nothing.

The daemon says it when it starts, and ``verticil party check`` says it first. Nothing of it leaves the site.
"""

from __future__ import annotations

import hashlib
import json
import logging
from datetime import datetime

from verticil.party.audit.log import AuditLog, What
from verticil.party.limits.same_people import SamePeople
from verticil.party.operator.accounts import account_lines
from verticil.party.people.guard import Overlap
from verticil.party.people.reading import sketch
from verticil.party.site import Site
from verticil.shared.core.errors import Refusal, VerticilError

_log = logging.getLogger(__name__)


def read_people(site: Site, *, again: bool) -> None:
    """Read who is in this site's tables, where there is something to compare them with; blocks.

    Args:
        site: this party.
        again: all tables; False: those that were not read yet.

    Raises:
        DataFault, Misuse: a table cannot be read; DISK_FULL, STATE_CORRUPT.
    """
    config = site.config
    if len(config.datasets) < 2 and not site.ledger.people.list_charged():
        return
    rules = {name: rule for name, rule in config.datasets.items() if again or not site.sketches.is_stored(name)}
    sketch(site.sketches, rules, site_secret=site.site_secret, folder=config.state_directory)


def problems(site: Site) -> tuple[list[VerticilError], list[Overlap]]:
    """Return what keeps this site from charging anything more, and data sets of the same people that nothing was charged to yet.

    Args:
        site: this party.
    """
    guard = site.ledger.people
    faults: list[VerticilError] = []
    try:
        guard.check_names()
    except VerticilError as error:
        faults.append(error)
    pairs = {frozenset((item.one, item.other)): item for item in guard.every_overlap(site.config.datasets)}
    faults += [Refusal("SAME_PEOPLE", item.words, hint=item.hint) for item in pairs.values() if item.is_charged]
    return faults, [item for item in pairs.values() if not item.is_charged]


def look_at_people(site: Site, at: datetime) -> None:
    """Say in the daemon's log what `problems` finds, and in the audit log what party.toml says of names; blocks.

    Raises:
        Misuse: CONFIG_INVALID, `same_people` has a name that leads nowhere.
    """
    note_same_people(site.audit, site.config.policy.same_people, at)
    try:
        read_people(site, again=False)
    except VerticilError as error:
        _log.warning("who is in this site's tables cannot be compared yet: %s", error)
    faults, overlaps = problems(site)
    for fault in faults:
        if fault.code == "CONFIG_INVALID":
            raise fault
        _log.error("nothing is charged to it until this is settled: %s", fault)
    for item in overlaps:
        _log.warning("%s (hint: %s)", item.words, item.hint)


def note_same_people(audit: AuditLog, same_people: SamePeople, at: datetime) -> None:
    """Write into the audit log what `same_people` says, if that is new; what was never said is no line.

    Args:
        audit: this site's.
        same_people: of party.toml.
        at: now, UTC.
    """
    lines = account_lines(same_people)
    if not lines and not audit.has_noted(What.SAME_PEOPLE):
        return
    digest = hashlib.sha256(json.dumps(lines).encode("utf-8")).digest()
    text = "; ".join(lines) or "every data set has an account of its own"
    audit.note(What.SAME_PEOPLE, digest, at, detail=text)
