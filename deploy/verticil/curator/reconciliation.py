"""What proves to an owner's ledger that was set back what had been published: the signed releases that lie beside its folder.

An owner of a whole table has neither a miner nor peers, so nobody else keeps an account. What was measured and not published is
forgotten with the folder: its noise follows from the secret in the same folder, so the same measurement, made again, is the same
draw. What was published is a release that the owner's key signed and that names the time of its measurement's first charge. A
release beside the folder without a charge of that time in the ledger means that the folder is older than the release: nothing is
measured (LEDGER_OLDER). The study's name decides nothing: the same measurement under another name is not charged again. A release
that was moved elsewhere is not seen.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from verticil.party.policy.ledger import Ledger
from verticil.shared.core.errors import PeerFault, Refusal
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import verify_signed
from verticil.wire.v1 import common_pb2

_RELEASE: Final = (
    "a release beside the folder that the owner's key signed, with the time of its measurement's first charge"
)
EVIDENCE: Final = dict.fromkeys(
    (
        "discrete-gaussian-counts",
        "gaussian-counts",
        "layered-counts",
        "noisy-tables",
        "exact-statistics",
        "pure-mechanism",
        "privbayes",
    ),
    _RELEASE,
)
"""Kind of event -> where its proof lies, for people; a package that adds a kind says it itself."""


def check_releases(folder: Path, ledger: Ledger, *, authority: bytes) -> None:
    """See that the ledger knows each release that lies beside its folder and was signed with its keys.

    Args:
        folder: of secret, ledger and keys.
        ledger: what was spent.
        authority: the owner's ``ca.crt``, PEM.

    Raises:
        Refusal: LEDGER_OLDER, naming the release.
    """
    charges = {dt.datetime.fromisoformat(row.at) for row in ledger.rows()}
    for release, study_id, at in _signed_releases(folder.absolute().parent, authority):
        if at not in charges:
            raise Refusal(
                "LEDGER_OLDER",
                f"{folder}: the ledger does not know the charge of study '{study_id}', whose release lies in {release}:"
                " this folder is older than what was published",
                hint="put the newest copy of the folder back; without one, nothing bounds what further releases cost together",
            )


def _signed_releases(place: Path, authority: bytes) -> Iterator[tuple[Path, str, dt.datetime]]:
    """Yield the releases in a folder that the owner's key signed: where, study, and when its measurement was charged."""
    for path in sorted({*place.glob("release/manifest.json"), *place.glob("*/release/manifest.json")}):
        try:
            body = path.read_bytes()
            signatures = json.loads(path.with_name("manifest.sig").read_bytes())["signatures"]
            for item in signatures:
                signature, certificate = (base64.b64decode(item[key]) for key in ("signature", "certificate"))
                signed = common_pb2.Signed(body=body, signature=signature, certificate=certificate)
                verify_signed(signed, authority, role=Role.PARTY)
            manifest = json.loads(body)
            yield path.parent, str(manifest["study"]["id"]), dt.datetime.fromisoformat(manifest["published_at"])
        except (OSError, ValueError, LookupError, TypeError, PeerFault):
            continue  # somebody else's, or no release
