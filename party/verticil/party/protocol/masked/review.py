"""What a release with masked tables is compared with before this party countersigns it: the tables that were opened for it.

The release follows from those tables, by their digest; nothing is compared with exact counts (model-three.md section 4.7).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from verticil.party.protocol.masked.rounds import folder_of
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import GateFailed, PeerFault
from verticil.shared.documents.json_document import parse
from verticil.shared.study.document import Study


def check_release(site: Site, record: StudyRecord, study: Study, folder: Path) -> None:
    """Compare a release with the opened tables, as the miner signed them for this party; see `ReleaseCheck`."""
    del study
    tables = folder_of(site.config.state_directory, record.digest) / "tables"
    if not tables.is_file():
        raise PeerFault(
            "NOT_READY",
            f"study '{record.study_id}': the opened tables are not on this disk, so the release cannot be compared",
            hint="they come with the end of the round: verticil party status; after a loss of the disk they do not come again",
        )
    manifest = parse((folder / "manifest.json").read_bytes(), source="manifest.json")
    node, ours = manifest["opened"]["tables_sha256"], hashlib.sha256(tables.read_bytes()).hexdigest()
    if node.text() != ours:
        raise GateFailed(
            "RELEASE_INVALID",
            f"{folder}: it was made from other tables ({node.text()}) than those that were opened for this party ({ours})",
            hint="do not countersign; compare the digest with the other parties'",
        )
