"""The party's one database file, and the lock of the daemon that works on it.

How it is kept stands in `verticil.shared.storage.database`. Other processes (``party approve``) write to the same file;
`Database.changed` tells the daemon that one did. What the tables mean stands with those who use them,
`verticil.party.storage.studies` and `verticil.party.policy.ledger`.
"""

from __future__ import annotations

import fcntl
import json
import math
import os
import sqlite3
from pathlib import Path
from typing import Final

from verticil.shared.core.errors import DataFault
from verticil.shared.storage import database as storage
from verticil.shared.storage.database import Schema, disk_faults, take

FILE_NAME: Final = "party.sqlite"

_SCHEMA: Final = """
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
  percent INTEGER NOT NULL,
  n_common INTEGER,                      -- of the confirmed common list
  common_sha256 BLOB
) STRICT;
CREATE TABLE vote (                      -- one approver's yes to exactly this content
  digest BLOB NOT NULL, approver TEXT NOT NULL, content BLOB NOT NULL, voted_at TEXT NOT NULL,
  PRIMARY KEY (digest, approver)
) STRICT;
CREATE TABLE approval (                  -- enough votes: the body that is signed and sent
  digest BLOB PRIMARY KEY, body BLOB NOT NULL, approved_at TEXT NOT NULL
) STRICT;
CREATE TABLE denial (
  digest BLOB PRIMARY KEY, approver TEXT NOT NULL, reason TEXT NOT NULL, denied_at TEXT NOT NULL, sent INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE failure (                   -- this party cannot go on with the study
  digest BLOB PRIMARY KEY, code TEXT NOT NULL, message TEXT NOT NULL, hint TEXT NOT NULL,
  failed_at TEXT NOT NULL, sent INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE artifact (                  -- a randomized unit in the spool
  digest BLOB NOT NULL, unit INTEGER NOT NULL, effective_digest BLOB NOT NULL, sha256 BLOB NOT NULL, size INTEGER NOT NULL,
  facts TEXT NOT NULL,                   -- what the ledger will say about it (verticil.party.policy.ledger.Release)
  version_tag BLOB NOT NULL,             -- that its noise was drawn with
  receipt BLOB,                          -- body of the miner's signed receipt
  cleared INTEGER NOT NULL DEFAULT 0,    -- the study ended and the spool may have dropped the bytes
  PRIMARY KEY (digest, unit)
) STRICT;
CREATE TABLE ledger (                    -- one row for each unit and attempted send; never changed
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  at TEXT NOT NULL, study_digest BLOB NOT NULL, study_id TEXT NOT NULL, unit INTEGER NOT NULL, variables TEXT NOT NULL,
  dataset TEXT NOT NULL, sources TEXT NOT NULL, codebook_digest BLOB NOT NULL, transition_digest BLOB NOT NULL,
  secret_id BLOB NOT NULL, fingerprint BLOB NOT NULL, version_tag BLOB NOT NULL,
  epsilon REAL NOT NULL,                 -- of the unit; may be infinite
  charged REAL NOT NULL,                 -- epsilon, or 0 when the same values had been charged before
  recipient TEXT NOT NULL, artifact_sha256 BLOB NOT NULL, size INTEGER NOT NULL
) STRICT;
CREATE INDEX ledger_source ON ledger (dataset, sources);
CREATE TRIGGER ledger_keeps BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'ledger rows are never changed'); END;
CREATE TRIGGER ledger_stays BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'ledger rows are never deleted'); END;
CREATE TABLE heartbeat (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  pid INTEGER NOT NULL, at TEXT NOT NULL, connected INTEGER NOT NULL, problem TEXT NOT NULL
) STRICT;
"""
_BETWEEN_PEERS: Final = """
CREATE TABLE peer_item (                 -- Model I: what peers told, and what is told to them
  digest BLOB NOT NULL, kind TEXT NOT NULL,
  name TEXT NOT NULL,                    -- of the party, or the unit's index; empty where there is only one
  sha256 BLOB NOT NULL, size INTEGER NOT NULL,
  PRIMARY KEY (digest, kind, name)
) STRICT;
"""
_SINCE_WHEN: Final = """
ALTER TABLE study ADD COLUMN stage_at TEXT NOT NULL DEFAULT '';  -- since when `stage` is shown; empty: written by version 2
"""
_RECORD: Final = """
-- what this site writes down of what it did (verticil.party.audit)
CREATE TABLE audit_anchor (              -- the last line of audit.jsonl that is known to be on the disk
  one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL, hash BLOB NOT NULL, size INTEGER NOT NULL
) STRICT;
CREATE TABLE in_force (                  -- certificate and configuration, as the audit log last told them
  name TEXT PRIMARY KEY, sha256 BLOB NOT NULL
) STRICT;
CREATE TABLE common_set (                -- the people of a study, in a file of keyed hashes
  digest BLOB PRIMARY KEY, sha256 BLOB NOT NULL, size INTEGER NOT NULL,
  near TEXT NOT NULL                     -- JSON list: digests of earlier studies with nearly the same people
) STRICT;
CREATE TABLE revocation (                -- an approval that was taken back
  digest BLOB PRIMARY KEY, who TEXT NOT NULL, reason TEXT NOT NULL, revoked_at TEXT NOT NULL,
  published INTEGER NOT NULL,            -- the release was out by then
  sent INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE deletion (                  -- the miner's signed statement that this party's columns are deleted
  digest BLOB PRIMARY KEY, body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL
) STRICT;
"""
_DECISIONS: Final = """
-- deciding: signed votes, what they were about, countersignatures (verticil.party.policy.decision_store)
ALTER TABLE vote ADD COLUMN signature BLOB NOT NULL DEFAULT x'';  -- by the approver's key; empty: party.toml named nobody
CREATE TABLE basis (                     -- where the data of an approved content came from, to say what changed; never leaves
  digest BLOB NOT NULL, content BLOB NOT NULL, facts TEXT NOT NULL, noted_at TEXT NOT NULL,
  PRIMARY KEY (digest, content)
) STRICT;
CREATE TABLE review (                    -- a release that waits at the miner for countersignatures
  digest BLOB PRIMARY KEY, manifest_sha256 BLOB NOT NULL,
  fetched INTEGER NOT NULL DEFAULT 0,    -- the release is in the state directory, for this party's people to read
  body BLOB, signature BLOB, certificate BLOB,  -- this party's countersignature
  sent INTEGER NOT NULL DEFAULT 0
) STRICT;
"""
_CONFIRMATIONS: Final = """
-- Model I: deleted after the end of a study, and what is signed of it (party.evidence.confirmations)
CREATE TABLE dropped_item (              -- rows of `peer_item` that had been somebody else's
  digest BLOB NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, sha256 BLOB NOT NULL, size INTEGER NOT NULL,
  PRIMARY KEY (digest, kind, name)
) STRICT;
CREATE TABLE peer_deletion (             -- `signer` says that it deleted what was `party`'s
  digest BLOB NOT NULL, signer TEXT NOT NULL, party TEXT NOT NULL,
  body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL,  -- empty: this party signs the body when it is asked
  PRIMARY KEY (digest, signer, party)
) STRICT;
"""
_OF_OTHERS: Final = """
CREATE TABLE counted_event (             -- of which the audit log has one line a day (verticil.party.audit.log)
  kind TEXT PRIMARY KEY, day TEXT NOT NULL,
  more INTEGER NOT NULL                  -- on that day, after the one that has the line
) STRICT;
CREATE TABLE repeated_send (             -- further sends of the bytes of a ledger row to the same recipient
  number INTEGER PRIMARY KEY, times INTEGER NOT NULL, last_at TEXT NOT NULL
) STRICT;
"""
_SUBMITTERS: Final = """
-- what the miner says of a study besides, and nobody here can check
ALTER TABLE study ADD COLUMN submitter TEXT NOT NULL DEFAULT '';   -- the analyst; empty: not told, or loaded by the operator
ALTER TABLE study ADD COLUMN ended_words TEXT NOT NULL DEFAULT ''; -- why it ended
"""
_BUDGET: Final = """
-- what else decides how much may still be spent (verticil.party.policy.ledger)
CREATE TABLE delta_charge (              -- delta of the noise on what a study shares; `draw` names what it was computed from
  study_digest BLOB NOT NULL, dataset TEXT NOT NULL, draw BLOB NOT NULL, study_id TEXT NOT NULL,
  delta REAL NOT NULL, at TEXT NOT NULL,
  PRIMARY KEY (study_digest, dataset, draw)
) STRICT;
CREATE TRIGGER delta_keeps BEFORE UPDATE ON delta_charge BEGIN SELECT RAISE(ABORT, 'deltas are never changed'); END;
CREATE TRIGGER delta_stays BEFORE DELETE ON delta_charge BEGIN SELECT RAISE(ABORT, 'deltas are never deleted'); END;
CREATE TABLE reserved (                  -- what a study under way will be charged; unit -1: for what it shares
  study_digest BLOB NOT NULL, unit INTEGER NOT NULL, dataset TEXT NOT NULL, sources TEXT NOT NULL, codebook_digest BLOB NOT NULL,
  transition_digest BLOB NOT NULL, secret_id BLOB NOT NULL, fingerprint BLOB NOT NULL, version_tag BLOB NOT NULL,
  epsilon REAL NOT NULL, delta REAL NOT NULL,
  PRIMARY KEY (study_digest, unit, dataset)
) STRICT;
-- earlier versions charged the epsilon of shared statistics and no delta: it stands in the proposal
INSERT INTO delta_charge
  SELECT l.study_digest, l.dataset, l.codebook_digest, l.study_id,
    coalesce(CASE WHEN json_valid(s.text) THEN json_extract(s.text, '$.share.delta') END, 1e-6), min(l.at)
  FROM ledger l LEFT JOIN (SELECT digest, CAST(proposal AS TEXT) AS text FROM study) s ON s.digest = l.study_digest
  WHERE l.unit = -1 AND l.charged > 0 AND l.charged < 9e999
  GROUP BY l.study_digest, l.dataset, l.codebook_digest;
"""
_GIVEN_TO_PEERS: Final = """
CREATE TABLE kept_approval (             -- Model I: a peer's signed approval of a study that has ended
  digest BLOB NOT NULL, party TEXT NOT NULL, signed BLOB NOT NULL,
  PRIMARY KEY (digest, party)
) STRICT;
"""
_BY_RULE: Final = """
CREATE TABLE rule_approval (             -- an approval by rule, for the daily limit (verticil.party.policy.by_rule)
  number INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL, at TEXT NOT NULL
) STRICT;
"""
_FORGOTTEN: Final = """
ALTER TABLE study ADD COLUMN forgotten TEXT NOT NULL DEFAULT '';  -- by the miner: 'study' or 'revocation'; else empty
"""
_VERSION_5: Final = _SUBMITTERS + _BUDGET + _GIVEN_TO_PEERS + _BY_RULE + _OF_OTHERS + _FORGOTTEN

_VERSION_6: Final = """
-- the ledger keeps what happened (verticil.shared.privacy.events), and a delta beside each epsilon
DROP TRIGGER ledger_keeps;
DROP TRIGGER ledger_stays;
DROP INDEX ledger_source;
ALTER TABLE ledger RENAME TO ledger_5;
CREATE TABLE ledger (                    -- one row for each event and attempted send; never changed
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  at TEXT NOT NULL, study_digest BLOB NOT NULL, study_id TEXT NOT NULL,
  unit INTEGER,                          -- index in the study; empty: of no single unit, or nobody remembers of which
  variables TEXT NOT NULL, dataset TEXT NOT NULL, sources TEXT NOT NULL, codebook_digest BLOB NOT NULL,
  transition_digest BLOB NOT NULL, secret_id BLOB NOT NULL, fingerprint BLOB NOT NULL, version_tag BLOB NOT NULL,
  event TEXT NOT NULL CHECK (json_valid(event)),  -- kind and parameters of what was drawn
  kind TEXT GENERATED ALWAYS AS (json_extract(event, '$.kind')) VIRTUAL,
  epsilon REAL NOT NULL, delta REAL NOT NULL,     -- what it costs, as the accountant said then; epsilon may be infinite
  charged REAL NOT NULL, charged_delta REAL NOT NULL,  -- nothing when the same values had been charged before
  recipient TEXT NOT NULL, artifact_sha256 BLOB NOT NULL, size INTEGER NOT NULL
) STRICT;
INSERT INTO ledger (number, at, study_digest, study_id, unit, variables, dataset, sources, codebook_digest, transition_digest,
    secret_id, fingerprint, version_tag, event, epsilon, delta, charged, charged_delta, recipient, artifact_sha256, size)
  SELECT number, at, study_digest, study_id, CASE WHEN unit >= 0 THEN unit END, variables, dataset, sources, codebook_digest,
    transition_digest, secret_id, fingerprint, version_tag, event_of_5(unit, epsilon, stated), epsilon,
    CASE WHEN unit = -1 AND epsilon < 9e999 THEN stated ELSE 0.0 END, charged, coalesce(first_delta, 0.0),
    recipient, artifact_sha256, size
  FROM (
    SELECT l.*,
      coalesce((SELECT d.delta FROM delta_charge d
        WHERE d.study_digest = l.study_digest AND d.dataset = l.dataset ORDER BY d.at LIMIT 1), 1e-6) AS stated,
      (SELECT d.delta FROM delta_charge d
        WHERE d.study_digest = l.study_digest AND d.dataset = l.dataset AND d.draw = l.codebook_digest
        AND l.number = (SELECT min(e.number) FROM ledger_5 e WHERE e.unit = -1 AND e.charged > 0 AND e.charged < 9e999
          AND e.study_digest = d.study_digest AND e.dataset = d.dataset AND e.codebook_digest = d.draw)) AS first_delta
    FROM ledger_5 l
  ) ORDER BY number;
DROP TABLE ledger_5;
DROP TABLE delta_charge;
CREATE INDEX ledger_source ON ledger (dataset, sources);
CREATE TRIGGER ledger_keeps BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'ledger rows are never changed'); END;
CREATE TRIGGER ledger_stays BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'ledger rows are never deleted'); END;
ALTER TABLE reserved RENAME TO reserved_5;
CREATE TABLE reserved (                  -- what a study under way will be charged
  study_digest BLOB NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL,
  unit INTEGER,                          -- empty: for statistics
  dataset TEXT NOT NULL, sources TEXT NOT NULL, codebook_digest BLOB NOT NULL,
  transition_digest BLOB NOT NULL, secret_id BLOB NOT NULL, fingerprint BLOB NOT NULL, version_tag BLOB NOT NULL,
  epsilon REAL NOT NULL, delta REAL NOT NULL,
  PRIMARY KEY (study_digest, number)
) STRICT;
INSERT INTO reserved
  SELECT study_digest, row_number() OVER (PARTITION BY study_digest ORDER BY unit < 0, unit, dataset) - 1,
    CASE WHEN unit >= 0 THEN 'randomized-column' ELSE 'gaussian-counts' END, CASE WHEN unit >= 0 THEN unit END,
    dataset, sources, codebook_digest, transition_digest, secret_id, fingerprint, version_tag, epsilon, delta
  FROM reserved_5;
DROP TABLE reserved_5;
UPDATE artifact SET facts = facts_of_5(facts);
"""


def _to_version_6(connection: sqlite3.Connection) -> None:
    connection.create_function("event_of_5", 3, _event_of_5, deterministic=True)
    connection.create_function("facts_of_5", 1, _facts_of_5, deterministic=True)
    take(_VERSION_6, connection)


def _event_of_5(unit: int, epsilon: float, delta: float) -> str:
    """The event of a ledger's row of version 5, where the unit -1 stood for statistics."""
    said: dict[str, object] = {"relation": "replace one person", "sensitivity": None}
    if unit != -1:
        said |= {"kind": "randomized-column", "epsilon": "infinite" if math.isinf(epsilon) else epsilon}
    elif math.isinf(epsilon):
        said |= {"kind": "exact-statistics"}
    else:
        said |= {"kind": "gaussian-counts", "epsilon": epsilon, "delta": delta, "tables": None}
    return json.dumps(said, sort_keys=True)


def _facts_of_5(facts: str) -> str:
    """What the ledger will say of a unit in the spool, with its event in place of its epsilon."""
    try:
        *release, epsilon = json.loads(facts)
        return json.dumps([*release, _event_of_5(0, float(epsilon), 0.0)])
    except (TypeError, ValueError):  # nothing that can be read as a release, now or before
        return facts


_VERSION_7: Final = """
-- accounts by reader (verticil.shared.privacy.accounts); earlier events were all read by whoever reads columns
ALTER TABLE ledger ADD COLUMN reader TEXT
  GENERATED ALWAYS AS (coalesce(json_extract(event, '$.reader'), 'columns')) VIRTUAL;
ALTER TABLE reserved ADD COLUMN event TEXT;  -- as in the ledger; empty: written by version 6
"""

_VERSION_8: Final = """
-- what a site remembers of people and data depends on nothing that a study chooses
ALTER TABLE common_set ADD COLUMN exact_sum BLOB NOT NULL DEFAULT x'';  -- of the people's exact keys; empty: keys are of tags
ALTER TABLE ledger ADD COLUMN source_fingerprint BLOB NOT NULL DEFAULT x'';  -- of ids and texts; empty: not known then
ALTER TABLE reserved ADD COLUMN source_fingerprint BLOB NOT NULL DEFAULT x'';
ALTER TABLE reserved ADD COLUMN drawn INTEGER NOT NULL DEFAULT 1;  -- 0: kept by the approval, and nothing was drawn yet
-- which people a data set is about (verticil.party.people)
ALTER TABLE ledger ADD COLUMN people BLOB;  -- SHA-256 of their sketch; empty: written by version 7, or put back
CREATE TABLE people_sketch (             -- SHA-256 of files of keyed hashes; empty: there is none
  dataset TEXT PRIMARY KEY,
  exact BLOB NOT NULL, loose BLOB NOT NULL,            -- at the last reading
  ever_exact BLOB NOT NULL, ever_loose BLOB NOT NULL,  -- of everybody who was in the table at a reading for a study
  added BLOB NOT NULL                                  -- `exact` of the last of these readings
) STRICT;
CREATE TABLE people_share (              -- the largest share of the smaller one's people who are in the other
  one TEXT NOT NULL, other TEXT NOT NULL, share REAL NOT NULL,
  PRIMARY KEY (one, other)
) STRICT;
"""

SCHEMA: Final = Schema(
    steps=(
        _SCHEMA,
        _BETWEEN_PEERS,
        _SINCE_WHEN,
        _RECORD + _DECISIONS + _CONFIRMATIONS,
        _VERSION_5,
        _to_version_6,
        _VERSION_7,
        _VERSION_8,
    ),
    what="a party's state database",
    upgrade="`verticil party status` upgrades an older state; a newer one needs the version that wrote it",
)
SCHEMA_VERSION: Final = SCHEMA.version


class Database(storage.Database):
    """The database of a state directory.

    Args:
        directory: the state directory.
        create: make the file when it is absent (`party init`); else that is an error.
        read_only: only look, see `verticil.shared.storage.database.Database`.

    Raises:
        DataFault: STATE_CORRUPT (absent, not ours, of a newer version), STATE_READ_ONLY, DISK_FULL.
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
    """Whether the state database is missing, of zero length, or without tables: lost, or its making was broken off.

    Raises:
        DataFault: STATE_CORRUPT, STATE_READ_ONLY: it cannot be read.
    """
    return storage.version_of(directory / FILE_NAME) == 0


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
