"""The party's one database file, and the lock of the daemon that works on it.

How it is kept stands in `verticil.shared.storage.database`. Other processes (``party approve``) write to the same file;
`Database.changed` tells the daemon that one did. What the tables mean stands with those who use them,
`verticil.party.storage.studies` and `verticil.party.policy.ledger`.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Final

from verticil.shared.core.errors import DataFault
from verticil.shared.storage import database as storage
from verticil.shared.storage.database import Schema, disk_faults

FILE_NAME: Final = "party.sqlite"

_TABLES: Final = """
CREATE TABLE study (
  digest BLOB PRIMARY KEY,               -- SHA-256 of the proposal
  study_id TEXT NOT NULL,
  proposal BLOB NOT NULL,
  seen_at TEXT NOT NULL,
  version INTEGER NOT NULL,              -- of the miner's task, as last polled
  remote_state INTEGER NOT NULL,
  effective BLOB NOT NULL,               -- empty until every party has approved
  effective_digest BLOB NOT NULL,
  remote_approved INTEGER NOT NULL,
  pseudonyms_complete INTEGER NOT NULL,
  alignment_confirmed INTEGER NOT NULL,
  units_received TEXT NOT NULL,          -- JSON list of unit indices
  remote_failure TEXT NOT NULL,          -- code of a study that failed at the miner, else empty
  stage TEXT NOT NULL,                   -- shown by `status`
  stage_at TEXT NOT NULL DEFAULT '',     -- since when `stage` is shown
  percent INTEGER NOT NULL,
  n_common INTEGER,                      -- of the confirmed common list
  common_sha256 BLOB,
  -- what the miner says of a study besides, and nobody here can check
  submitter TEXT NOT NULL DEFAULT '',    -- the analyst; empty: not told, or loaded by the operator
  ended_words TEXT NOT NULL DEFAULT '',  -- why it ended
  forgotten TEXT NOT NULL DEFAULT ''     -- by the miner: 'study' or 'revocation'; else empty
) STRICT;

-- deciding: votes, what they were about, approvals and their end (verticil.party.policy.decision_store)
CREATE TABLE vote (                      -- one approver's yes to exactly this content
  digest BLOB NOT NULL, approver TEXT NOT NULL, content BLOB NOT NULL, voted_at TEXT NOT NULL,
  signature BLOB NOT NULL DEFAULT x'',   -- by the approver's key; empty: party.toml named nobody
  PRIMARY KEY (digest, approver)
) STRICT;
CREATE TABLE basis (                     -- where the data of an approved content came from, to say what changed; never leaves
  digest BLOB NOT NULL, content BLOB NOT NULL, facts TEXT NOT NULL, noted_at TEXT NOT NULL,
  PRIMARY KEY (digest, content)
) STRICT;
CREATE TABLE approval (                  -- enough votes: the body that is signed and sent
  digest BLOB PRIMARY KEY, body BLOB NOT NULL, approved_at TEXT NOT NULL
) STRICT;
CREATE TABLE rule_approval (             -- an approval by rule, for the daily limit (verticil.party.policy.rule_approval)
  number INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL, at TEXT NOT NULL
) STRICT;
CREATE TABLE kept_approval (             -- Model I: a peer's signed approval of a study that has ended
  digest BLOB NOT NULL, party TEXT NOT NULL, signed BLOB NOT NULL,
  PRIMARY KEY (digest, party)
) STRICT;
CREATE TABLE denial (
  digest BLOB PRIMARY KEY, approver TEXT NOT NULL, reason TEXT NOT NULL, denied_at TEXT NOT NULL, sent INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE failure (                   -- this party cannot go on with the study
  digest BLOB PRIMARY KEY, code TEXT NOT NULL, message TEXT NOT NULL, hint TEXT NOT NULL,
  failed_at TEXT NOT NULL, sent INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE revocation (                -- an approval that was taken back
  digest BLOB PRIMARY KEY, who TEXT NOT NULL, reason TEXT NOT NULL, revoked_at TEXT NOT NULL,
  published INTEGER NOT NULL,            -- the release was out by then
  sent INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE review (                    -- a release that waits at the miner for countersignatures
  digest BLOB PRIMARY KEY, manifest_sha256 BLOB NOT NULL,
  fetched INTEGER NOT NULL DEFAULT 0,    -- the release is in the state directory, for this party's people to read
  body BLOB, signature BLOB, certificate BLOB,  -- this party's countersignature
  sent INTEGER NOT NULL DEFAULT 0
) STRICT;

-- what is sent, and what of it is deleted again
CREATE TABLE artifact (                  -- a randomized unit in the spool
  digest BLOB NOT NULL, unit INTEGER NOT NULL, effective_digest BLOB NOT NULL, sha256 BLOB NOT NULL, size INTEGER NOT NULL,
  facts TEXT NOT NULL,                   -- what the ledger will say about it (verticil.party.dataset.column_draws.Release)
  version_tag BLOB NOT NULL,             -- that its noise was drawn with
  receipt BLOB,                          -- body of the miner's signed receipt
  cleared INTEGER NOT NULL DEFAULT 0,    -- the study ended and the spool may have dropped the bytes
  PRIMARY KEY (digest, unit)
) STRICT;
CREATE TABLE deletion (                  -- the miner's signed statement that this party's columns are deleted
  digest BLOB PRIMARY KEY, body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL
) STRICT;
CREATE TABLE peer_item (                 -- Model I: what peers told, and what is told to them
  digest BLOB NOT NULL, kind TEXT NOT NULL,
  name TEXT NOT NULL,                    -- of the party, or the unit's index; empty where there is only one
  sha256 BLOB NOT NULL, size INTEGER NOT NULL,
  PRIMARY KEY (digest, kind, name)
) STRICT;
CREATE TABLE dropped_item (              -- Model I: rows of `peer_item` that had been somebody else's, deleted after the end
  digest BLOB NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, sha256 BLOB NOT NULL, size INTEGER NOT NULL,
  PRIMARY KEY (digest, kind, name)
) STRICT;
CREATE TABLE peer_deletion (             -- Model I: `signer` says that it deleted what was `party`'s
  digest BLOB NOT NULL, signer TEXT NOT NULL, party TEXT NOT NULL,
  body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL,  -- empty: this party signs the body when it is asked
  PRIMARY KEY (digest, signer, party)
) STRICT;

-- the ledger: what happened (verticil.shared.privacy.events), and what it cost (verticil.party.policy.ledger)
CREATE TABLE ledger (                    -- one row for each event and attempted send; never changed
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  at TEXT NOT NULL, study_digest BLOB NOT NULL, study_id TEXT NOT NULL,
  unit INTEGER,                          -- index in the study; empty: of no single unit, or nobody remembers of which
  variables TEXT NOT NULL, dataset TEXT NOT NULL, sources TEXT NOT NULL, codebook_digest BLOB NOT NULL,
  transition_digest BLOB NOT NULL, secret_id BLOB NOT NULL, fingerprint BLOB NOT NULL, version_tag BLOB NOT NULL,
  source_fingerprint BLOB NOT NULL DEFAULT x'',   -- of ids and texts; empty: of statistics, or not known
  event TEXT NOT NULL CHECK (json_valid(event)),  -- kind and parameters of what was drawn
  kind TEXT GENERATED ALWAYS AS (json_extract(event, '$.kind')) VIRTUAL,
  reader TEXT GENERATED ALWAYS AS (coalesce(json_extract(event, '$.reader'), 'columns')) VIRTUAL,  -- whose account it counts in
  epsilon REAL NOT NULL, delta REAL NOT NULL,     -- what it costs, as the accountant said then; epsilon may be infinite
  charged REAL NOT NULL, charged_delta REAL NOT NULL,  -- nothing when the same values had been charged before
  recipient TEXT NOT NULL, artifact_sha256 BLOB NOT NULL, size INTEGER NOT NULL,
  people BLOB                            -- SHA-256 of the sketch of whom it is about (verticil.party.people); empty: put back
) STRICT;
CREATE INDEX ledger_source ON ledger (dataset, sources);
CREATE TRIGGER ledger_keeps BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'ledger rows are never changed'); END;
CREATE TRIGGER ledger_stays BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'ledger rows are never deleted'); END;
CREATE TABLE repeated_send (             -- further sends of the bytes of a ledger row to the same recipient
  number INTEGER PRIMARY KEY, times INTEGER NOT NULL, last_at TEXT NOT NULL
) STRICT;
CREATE TABLE reserved (                  -- what a study under way will be charged
  study_digest BLOB NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL,
  unit INTEGER,                          -- empty: for statistics
  dataset TEXT NOT NULL, sources TEXT NOT NULL, codebook_digest BLOB NOT NULL,
  transition_digest BLOB NOT NULL, secret_id BLOB NOT NULL, fingerprint BLOB NOT NULL, version_tag BLOB NOT NULL,
  source_fingerprint BLOB NOT NULL DEFAULT x'',
  event TEXT NOT NULL CHECK (json_valid(event)),  -- as in the ledger
  epsilon REAL NOT NULL, delta REAL NOT NULL,
  drawn INTEGER NOT NULL DEFAULT 1,      -- 0: kept by the approval, and nothing was drawn yet
  PRIMARY KEY (study_digest, number)
) STRICT;

-- who the people of studies and data sets are; nothing that a study chooses moves it
CREATE TABLE common_set (                -- the people of a study, in a file of keyed hashes (verticil.party.audit.common_sets)
  digest BLOB PRIMARY KEY, sha256 BLOB NOT NULL, size INTEGER NOT NULL,
  exact_sum BLOB NOT NULL,               -- of the people's exact keys
  near TEXT NOT NULL                     -- JSON list: digests of earlier studies with nearly the same people
) STRICT;
CREATE TABLE people_sketch (             -- SHA-256 of files of keyed hashes; empty: there is none (verticil.party.people)
  dataset TEXT PRIMARY KEY,
  exact BLOB NOT NULL, loose BLOB NOT NULL,            -- at the last reading
  ever_exact BLOB NOT NULL, ever_loose BLOB NOT NULL,  -- of everybody who was in the table at a reading for a study
  added BLOB NOT NULL                                  -- `exact` of the last of these readings
) STRICT;
CREATE TABLE people_share (              -- the largest share of the smaller one's people who are in the other
  one TEXT NOT NULL, other TEXT NOT NULL, share REAL NOT NULL,
  PRIMARY KEY (one, other)
) STRICT;

-- what this site writes down of what it did (verticil.party.audit), and of its daemon
CREATE TABLE audit_anchor (              -- the last line of audit.jsonl that is known to be on the disk
  one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL, hash BLOB NOT NULL, size INTEGER NOT NULL
) STRICT;
CREATE TABLE counted_event (             -- of which the audit log has one line a day (verticil.party.audit.log)
  kind TEXT PRIMARY KEY, day TEXT NOT NULL,
  more INTEGER NOT NULL                  -- on that day, after the one that has the line
) STRICT;
CREATE TABLE in_force (                  -- certificate and configuration, as the audit log last told them
  name TEXT PRIMARY KEY, sha256 BLOB NOT NULL
) STRICT;
CREATE TABLE heartbeat (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  pid INTEGER NOT NULL, at TEXT NOT NULL, connected INTEGER NOT NULL, problem TEXT NOT NULL
) STRICT;
"""
"""All of version 1, which shipped with 1.0.0: what comes later is a step of its own behind it."""

SCHEMA: Final = Schema(
    steps=(_TABLES,),
    application_id=int.from_bytes(b"Vcl\x01", "big"),
    what="a party's state database",
    upgrade="`verticil party status` upgrades an older state; a newer one needs the version that wrote it",
    anew="begin anew: `verticil party init` in another folder, with lower limits for what was spent; nothing was deleted",
)
SCHEMA_VERSION: Final = SCHEMA.version


class Database(storage.Database):
    """The database of a state directory.

    Args:
        directory: the state directory.
        create: make the file when it is absent (`party init`); else that is an error.
        read_only: only look, see `verticil.shared.storage.database.Database`.

    Raises:
        DataFault: STATE_CORRUPT (absent, not ours, of a newer version), STATE_UNSUPPORTED (of before 1.0.0), STATE_READ_ONLY,
            DISK_FULL.
    """

    def __init__(self, directory: Path, *, create: bool = False, read_only: bool = False) -> None:
        path = directory / FILE_NAME
        if not create and holds_nothing(directory):
            raise DataFault(
                "STATE_CORRUPT",
                f"{path}: no state database",
                hint="restore your backup; if `verticil party init` was broken off here, run it again",
            )
        super().__init__(path, SCHEMA, read_only=read_only)


def holds_nothing(directory: Path) -> bool:
    """Return whether the state database is missing, of zero length, or without tables: lost, or its making was broken off.

    Raises:
        DataFault: STATE_CORRUPT, STATE_READ_ONLY: it cannot be read; STATE_UNSUPPORTED, it is of before 1.0.0.
    """
    return storage.version_of(directory / FILE_NAME, SCHEMA) == 0


class DaemonLock:
    """Held while a daemon runs on a state directory; the operating system drops it when the process dies.

    Raises:
        DataFault: STATE_LOCKED when another daemon holds it.
    """

    def __init__(self, directory: Path) -> None:
        path = directory / "party.lock"
        with disk_faults(path):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._descriptor)
            message = f"{path}: another party daemon runs on this state directory"
            raise DataFault(
                "STATE_LOCKED", message, hint="stop the other daemon, or use another state_directory"
            ) from None

    def close(self) -> None:
        """Give the lock up."""
        os.close(self._descriptor)
