"""The tables of the catalogue, whole: version 1, which shipped with 1.0.0. What comes later is a step of its own behind it."""

from __future__ import annotations

from typing import Final

from verticil.shared.storage.database import Schema

CATALOGUE: Final = "catalogue.sqlite"

_TABLES: Final = """
CREATE TABLE study (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL UNIQUE, study_id TEXT NOT NULL, version INTEGER NOT NULL,
  proposal BLOB NOT NULL, submitter TEXT NOT NULL, submitted_at TEXT NOT NULL,
  effective BLOB NOT NULL DEFAULT x'', effective_digest BLOB NOT NULL DEFAULT x'',  -- empty until every party has approved
  n_common INTEGER, common_sha256 BLOB NOT NULL DEFAULT x'',                        -- of the common list
  uploading INTEGER NOT NULL DEFAULT 0,
  learning TEXT, attempts INTEGER NOT NULL DEFAULT 0,                               -- the stage of the job; how often it began
  failure_code TEXT, failure_message TEXT, failure_hint TEXT,
  withdrawn INTEGER NOT NULL DEFAULT 0, expired INTEGER NOT NULL DEFAULT 0, published_at TEXT,
  linkage_removed INTEGER NOT NULL DEFAULT 0, columns_removed INTEGER NOT NULL DEFAULT 0);  -- what was deleted of it
CREATE INDEX study_by_effective ON study (effective_digest);
CREATE INDEX study_by_submitter ON study (submitter, submitted_at);

-- what parties and operators decide
CREATE TABLE approval (study BLOB, party TEXT, body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL,
  PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE void_approval (study BLOB, party TEXT, revoked_at TEXT NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE denial (study BLOB, party TEXT, reason TEXT NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE declined (study BLOB, party TEXT, reason TEXT NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE revocation (study BLOB, party TEXT, reason TEXT NOT NULL, revoked_at TEXT NOT NULL,
  PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE closure (study BLOB PRIMARY KEY, reason TEXT NOT NULL, closed_at TEXT NOT NULL) WITHOUT ROWID;  -- by an operator
CREATE TABLE sub_model (study BLOB PRIMARY KEY, decided_at TEXT NOT NULL, body BLOB NOT NULL, signature BLOB NOT NULL,
  certificate BLOB NOT NULL) WITHOUT ROWID;  -- that a study goes on without some of its parties

-- linkage: who is common
CREATE TABLE pseudonyms (study BLOB, party TEXT, size INTEGER NOT NULL, sha256 BLOB NOT NULL, committed INTEGER NOT NULL,
  complete INTEGER NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE commitment (study BLOB, party TEXT, n_records INTEGER NOT NULL, nodes BLOB NOT NULL,
  body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE blinded (study BLOB, owner INTEGER, hop INTEGER, size INTEGER NOT NULL, sha256 BLOB NOT NULL,
  committed INTEGER NOT NULL, complete INTEGER NOT NULL,
  body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL, PRIMARY KEY (study, owner, hop)) WITHOUT ROWID;
CREATE TABLE bitmap (study BLOB, party TEXT, size INTEGER NOT NULL, sha256 BLOB NOT NULL,
  PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE confirmation (study BLOB, party TEXT, PRIMARY KEY (study, party)) WITHOUT ROWID;

-- columns: under way, and stored with the signed receipt
CREATE TABLE upload (upload_id TEXT PRIMARY KEY, study BLOB NOT NULL, unit INTEGER NOT NULL, size INTEGER NOT NULL,
  sha256 BLOB NOT NULL, committed INTEGER NOT NULL, UNIQUE (study, unit)) WITHOUT ROWID;
CREATE TABLE stored_column (study BLOB, unit INTEGER, upload_id TEXT NOT NULL UNIQUE,
  artifact_sha256 BLOB NOT NULL, artifact_size INTEGER NOT NULL,
  n_records INTEGER NOT NULL, item_bytes INTEGER NOT NULL, column_sha256 BLOB NOT NULL,
  body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL, PRIMARY KEY (study, unit)) WITHOUT ROWID;

-- Model I with a miner that searches structures: scores, and the structure that they gave
CREATE TABLE scored_study (digest BLOB PRIMARY KEY, effective BLOB NOT NULL, expires TEXT NOT NULL, brought_by TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0, body BLOB, signature BLOB, certificate BLOB,
  failure_code TEXT, failure_message TEXT, failure_hint TEXT) WITHOUT ROWID;
CREATE TABLE score (study BLOB, party TEXT, information BLOB NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;

-- releases, reviews, and what is deleted behind them
CREATE TABLE release_file (study BLOB, path TEXT, size INTEGER NOT NULL, sha256 BLOB NOT NULL,
  PRIMARY KEY (study, path)) WITHOUT ROWID;
CREATE TABLE review (study BLOB PRIMARY KEY, manifest_sha256 BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE countersignature (study BLOB, party TEXT, body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL,
  PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE deletion (study BLOB, party TEXT, body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL,
  PRIMARY KEY (study, party)) WITHOUT ROWID;

CREATE TABLE party_certificate (party TEXT PRIMARY KEY, serial TEXT NOT NULL, not_before TEXT NOT NULL, not_after TEXT NOT NULL,
  carried_at TEXT NOT NULL) WITHOUT ROWID;  -- that a party showed last
CREATE TABLE forgotten (digest BLOB PRIMARY KEY, at TEXT NOT NULL) WITHOUT ROWID;  -- studies whose facts were lost
"""

SCHEMA: Final = Schema(
    steps=(_TABLES,),
    application_id=int.from_bytes(b"Vcl\x02", "big"),
    what="the miner's catalogue",
    disk="the miner's disk",
    in_use="catalogue",
    anew="begin anew: set another state_directory in miner.toml, and have studies submitted again; nothing was deleted",
)
