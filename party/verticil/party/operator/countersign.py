"""What people do about a release that waits for this party: look at it, countersign it, or refuse it.

A refusal is a denial and ends the study for everybody; the analyst reads the reason.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from verticil.party.config import PartyConfig
from verticil.party.operator.approvers import approver_key
from verticil.party.operator.view_model import Facts, named
from verticil.party.protocol.central import review
from verticil.party.site import Site
from verticil.shared.identity.pki import utc_now
from verticil.shared.identity.signing import SigningKey


def look(config: PartyConfig, study: str) -> Facts:
    """Verify the release that waits, offline, and say where its report is. Signs nothing.

    Raises:
        Misuse: STUDY_UNKNOWN.
        PeerFault: NOT_READY, none waits here.
        GateFailed: RELEASE_INVALID, RELEASE_UNTRUSTED.
        DataFault: whatever is wrong with the state.
    """
    with Site.open(config) as site:
        record = site.state.find(study)
        folder, manifest_sha256, verified = review.check(site, record)
        found = site.minutes.review(record.digest)
    return {
        **named(record),
        "release": str(folder),
        "report": str(folder / "report.html"),
        "manifest_sha256": manifest_sha256.hex(),
        "publisher": verified.publisher,
        "common_records": verified.n_common,
        "synthetic_records": verified.synthetic_records,
        "countersigned": found is not None and found.countersignature is not None,
    }


def countersign(
    config: PartyConfig, study: str, approver: str, *, key: Path | None = None, at: dt.datetime | None = None
) -> Facts:
    """Verify the release that waits and countersign it; the daemon tells the miner.

    Args:
        config: party.toml.
        study: id or digest.
        approver: who has looked at it; one person is enough.
        key: file of the approver's key; see `verticil.party.operator.commands.approve`.
        at: now.

    Raises:
        Misuse, PeerFault, GateFailed, DataFault: as `look`.
        Refusal: the person may not decide here, or the study has ended.
    """
    now = at if at is not None else utc_now()
    with Site.open(config) as site:
        record = site.state.find(study)
        site.require_approver(record, approver, approver_key(config, approver, key))
        signing_key = SigningKey.load(config.signing_key, config.certificate)
        review.countersign(site, record, signing_key, approver, now)
    return {**look(config, study), "approver": approver}
