"""Whether two runs published the same release and cost the same: model, networks, synthetic records, received bytes, ledgers.

The time of publication stands in the report, in the manifest (with each receipt's) and in datapackage.json; so of the manifest
what was received is compared, of the two others nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from verticil.party.config import load_party
from verticil.party.operator import reports
from verticil.shared.privacy.figures import total_epsilon

_TIMED: Final = frozenset({"manifest.json", "manifest.sig", "report.html", "datapackage.json"})


def essence(release: Path) -> dict[str, str]:
    """SHA-256 of each file that has no time in it, and of each randomized column that was received, by name.

    Args:
        release: the folder of a verified release.
    """
    found = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(release.iterdir())
        if path.name not in _TIMED
    }
    manifest: dict[str, Any] = json.loads((release / "manifest.json").read_bytes())
    for receipt in manifest.get("receipts") or ():
        body: dict[str, Any] = json.loads(receipt["body"])
        if "artifact_sha256" in body:  # not of columns whose tables get noise
            found[f"column {body['unit']}"] = str(body["artifact_sha256"])
    return found


def differences(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    """What two releases do not have in common, by name.

    >>> differences({"a": "1", "b": "2"}, {"a": "1", "b": "3", "c": "4"})
    ['b', 'c']
    """
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


def charged(parties: Mapping[str, Path]) -> dict[str, float]:
    """What each party's ledger says was spent, after its audit log has been verified.

    Raises:
        GateFailed: AUDIT_BROKEN.
    """
    spent: dict[str, float] = {}
    for name, folder in parties.items():
        config = load_party(folder / "party.toml")
        reports.verify_audit(config)
        spent[name] = total_epsilon(dataset.epsilon_spent for dataset in reports.ledger(config).datasets)
    return spent
