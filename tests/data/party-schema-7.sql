CREATE TABLE approval (                  -- enough votes: the body that is signed and sent
  digest BLOB PRIMARY KEY, body BLOB NOT NULL, approved_at TEXT NOT NULL
) STRICT;
INSERT INTO "approval" (digest, body, approved_at) VALUES(X'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',X'7B7D','2026-01-02T04:00:00Z');
CREATE TABLE artifact (                  -- a randomized unit in the spool
  digest BLOB NOT NULL, unit INTEGER NOT NULL, effective_digest BLOB NOT NULL, sha256 BLOB NOT NULL, size INTEGER NOT NULL,
  facts TEXT NOT NULL,                   -- what the ledger will say about it (verticil.party.control.ledger.Release)
  version_tag BLOB NOT NULL,             -- that its noise was drawn with
  receipt BLOB,                          -- body of the miner's signed receipt
  cleared INTEGER NOT NULL DEFAULT 0,    -- the study ended and the spool may have dropped the bytes
  PRIMARY KEY (digest, unit)
) STRICT;
INSERT INTO "artifact" (digest, unit, effective_digest, sha256, size, facts, version_tag, receipt, cleared) VALUES(X'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',0,X'EEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEE',X'5555555555555555555555555555555555555555555555555555555555555555',166,'[["smoker"], "people", ["SMOKER"], "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1", "c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2", "c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3c3", "c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4c4", "{\"epsilon\": 1.0986122886681098, \"kind\": \"randomized-column\", \"relation\": \"replace one person\", \"sensitivity\": null}"]',X'',X'7B7D',0);
CREATE TABLE audit_anchor (              -- the last line of audit.jsonl that is known to be on the disk
  one INTEGER PRIMARY KEY CHECK (one = 1), number INTEGER NOT NULL, hash BLOB NOT NULL, size INTEGER NOT NULL
) STRICT;
INSERT INTO "audit_anchor" (one, number, hash, size) VALUES(1,3,X'7777777777777777777777777777777777777777777777777777777777777777',900);
CREATE TABLE basis (                     -- where the data of an approved content came from, to say what changed; never leaves
  digest BLOB NOT NULL, content BLOB NOT NULL, facts TEXT NOT NULL, noted_at TEXT NOT NULL,
  PRIMARY KEY (digest, content)
) STRICT;
INSERT INTO "basis" (digest, content, facts, noted_at) VALUES(X'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',X'0102','{}','2026-01-02T04:00:00Z');
CREATE TABLE common_set (                -- the people of a study, in a file of keyed hashes
  digest BLOB PRIMARY KEY, sha256 BLOB NOT NULL, size INTEGER NOT NULL,
  near TEXT NOT NULL                     -- JSON list: digests of earlier studies with nearly the same people
) STRICT;
INSERT INTO "common_set" (digest, sha256, size, near) VALUES(X'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',X'7979797979797979797979797979797979797979797979797979797979797979',4321,'[]');
CREATE TABLE counted_event (             -- of which the audit log has one line a day (verticil.party.evidence.audit)
  kind TEXT PRIMARY KEY, day TEXT NOT NULL,
  more INTEGER NOT NULL                  -- on that day, after the one that has the line
) STRICT;
INSERT INTO "counted_event" (kind, day, more) VALUES('miner: replayed','2026-03-01',3);
CREATE TABLE deletion (                  -- the miner's signed statement that this party's columns are deleted
  digest BLOB PRIMARY KEY, body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL
) STRICT;
CREATE TABLE denial (
  digest BLOB PRIMARY KEY, approver TEXT NOT NULL, reason TEXT NOT NULL, denied_at TEXT NOT NULL, sent INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO "denial" (digest, approver, reason, denied_at, sent) VALUES(X'BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB','officer@clinic','too little noise','2026-02-03T00:00:00Z',1);
CREATE TABLE dropped_item (              -- rows of `peer_item` that had been somebody else's
  digest BLOB NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, sha256 BLOB NOT NULL, size INTEGER NOT NULL,
  PRIMARY KEY (digest, kind, name)
) STRICT;
CREATE TABLE failure (                   -- this party cannot go on with the study
  digest BLOB PRIMARY KEY, code TEXT NOT NULL, message TEXT NOT NULL, hint TEXT NOT NULL,
  failed_at TEXT NOT NULL, sent INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE heartbeat (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  pid INTEGER NOT NULL, at TEXT NOT NULL, connected INTEGER NOT NULL, problem TEXT NOT NULL
) STRICT;
INSERT INTO "heartbeat" (one, pid, at, connected, problem) VALUES(1,4711,'2026-02-03T00:00:00Z',1,'');
CREATE TABLE in_force (                  -- certificate and configuration, as the audit log last told them
  name TEXT PRIMARY KEY, sha256 BLOB NOT NULL
) STRICT;
INSERT INTO "in_force" (name, sha256) VALUES('certificate',X'7878787878787878787878787878787878787878787878787878787878787878');
CREATE TABLE kept_approval (             -- Model I: a peer's signed approval of a study that has ended (verticil.party.peer)
  digest BLOB NOT NULL, party TEXT NOT NULL, signed BLOB NOT NULL,
  PRIMARY KEY (digest, party)
) STRICT;
INSERT INTO "kept_approval" (digest, party, signed) VALUES(X'DDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDD','bank',X'7B7D');
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
, reader TEXT
  GENERATED ALWAYS AS (coalesce(json_extract(event, '$.reader'), 'columns')) VIRTUAL) STRICT;
INSERT INTO "ledger" (number, at, study_digest, study_id, unit, variables, dataset, sources, codebook_digest, transition_digest, secret_id, fingerprint, version_tag, event, epsilon, delta, charged, charged_delta, recipient, artifact_sha256, size) VALUES(1,'2026-01-02T05:00:00Z',X'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA','hearts',0,'["smoker"]','people','["smoker"]',X'1111111111111111111111111111111111111111111111111111111111111111',X'2222222222222222222222222222222222222222222222222222222222222222',X'33333333333333333333333333333333',X'4444444444444444444444444444444444444444444444444444444444444444',X'','{"epsilon": 2.5, "kind": "randomized-column", "relation": "replace one person", "sensitivity": null}',2.5,0.0,2.5,0.0,'miner',X'5555555555555555555555555555555555555555555555555555555555555555',166);
INSERT INTO "ledger" (number, at, study_digest, study_id, unit, variables, dataset, sources, codebook_digest, transition_digest, secret_id, fingerprint, version_tag, event, epsilon, delta, charged, charged_delta, recipient, artifact_sha256, size) VALUES(2,'2026-03-02T05:00:00Z',X'DDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDD','peers',2,'["age"]','clinic','["AGE"]',X'C1C1',X'C2C2',X'C3C3',X'C4C4',X'','{"epsilon": 0.30000000000000004, "kind": "randomized-column", "relation": "replace one person", "sensitivity": null}',3.00000000000000044408e-01,0.0,3.00000000000000044408e-01,0.0,'bank',X'5656',99);
INSERT INTO "ledger" (number, at, study_digest, study_id, unit, variables, dataset, sources, codebook_digest, transition_digest, secret_id, fingerprint, version_tag, event, epsilon, delta, charged, charged_delta, recipient, artifact_sha256, size) VALUES(3,'2026-03-02T05:00:00Z',X'DDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDD','peers',NULL,'["age"]','clinic','["AGE"]',X'D1D1',X'C2C2',X'C3C3',X'C4C4',X'','{"delta": 3e-07, "epsilon": 0.5, "kind": "gaussian-counts", "relation": "replace one person", "sensitivity": null, "tables": null}',0.5,3.0e-07,0.5,3.0e-07,'miner',X'5656',99);
INSERT INTO "ledger" (number, at, study_digest, study_id, unit, variables, dataset, sources, codebook_digest, transition_digest, secret_id, fingerprint, version_tag, event, epsilon, delta, charged, charged_delta, recipient, artifact_sha256, size) VALUES(4,'2026-03-02T05:00:00Z',X'DDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDD','peers',NULL,'["age"]','clinic','["AGE"]',X'D2D2',X'C2C2',X'C3C3',X'C4C4',X'','{"delta": 3e-07, "epsilon": 0.5, "kind": "gaussian-counts", "relation": "replace one person", "sensitivity": null, "tables": null}',0.5,3.0e-07,0.0,0.0,'everyone',X'5656',99);
INSERT INTO "ledger" (number, at, study_digest, study_id, unit, variables, dataset, sources, codebook_digest, transition_digest, secret_id, fingerprint, version_tag, event, epsilon, delta, charged, charged_delta, recipient, artifact_sha256, size) VALUES(5,'2026-03-02T05:00:00Z',X'DDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDD','peers',NULL,'["weight"]','clinic','["AGE"]',X'',X'C2C2',X'C3C3',X'C4C4',X'','{"epsilon": 1.25, "kind": "randomized-column", "relation": "replace one person", "sensitivity": null}',1.25,0.0,1.25,0.0,'bank',X'5656',99);
INSERT INTO "ledger" (number, at, study_digest, study_id, unit, variables, dataset, sources, codebook_digest, transition_digest, secret_id, fingerprint, version_tag, event, epsilon, delta, charged, charged_delta, recipient, artifact_sha256, size) VALUES(6,'2026-03-03T05:00:00Z',X'EEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEE','exact',NULL,'["age"]','clinic','["AGE"]',X'D3',X'',X'C3C3',X'C4C4',X'','{"kind": "exact-statistics", "relation": "replace one person", "sensitivity": null}',9.0e+999,0.0,9.0e+999,0.0,'everyone',X'57',99);
CREATE TABLE peer_deletion (             -- `signer` says that it deleted what was `party`'s
  digest BLOB NOT NULL, signer TEXT NOT NULL, party TEXT NOT NULL,
  body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL,  -- empty: this party signs the body when it is asked
  PRIMARY KEY (digest, signer, party)
) STRICT;
INSERT INTO "peer_deletion" (digest, signer, party, body, signature, certificate) VALUES(X'DDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDD','insurer','clinic',X'7B7D',X'01',X'02');
CREATE TABLE peer_item (                 -- Model I: what peers told, and what is told to them (verticil.party.peer.shelf)
  digest BLOB NOT NULL, kind TEXT NOT NULL,
  name TEXT NOT NULL,                    -- of the party, or the unit's index; empty where there is only one
  sha256 BLOB NOT NULL, size INTEGER NOT NULL,
  PRIMARY KEY (digest, kind, name)
) STRICT;
INSERT INTO "peer_item" (digest, kind, name, sha256, size) VALUES(X'DDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDDD','statement','insurer',X'6666666666666666666666666666666666666666666666666666666666666666',42);
CREATE TABLE repeated_send (             -- further sends of the bytes of a ledger row to the same recipient
  number INTEGER PRIMARY KEY, times INTEGER NOT NULL, last_at TEXT NOT NULL
) STRICT;
INSERT INTO "repeated_send" (number, times, last_at) VALUES(1,2,'2026-03-01T05:00:00Z');
CREATE TABLE reserved (                  -- what a study under way will be charged
  study_digest BLOB NOT NULL, number INTEGER NOT NULL, kind TEXT NOT NULL,
  unit INTEGER,                          -- empty: for statistics
  dataset TEXT NOT NULL, sources TEXT NOT NULL, codebook_digest BLOB NOT NULL,
  transition_digest BLOB NOT NULL, secret_id BLOB NOT NULL, fingerprint BLOB NOT NULL, version_tag BLOB NOT NULL,
  epsilon REAL NOT NULL, delta REAL NOT NULL, event TEXT,
  PRIMARY KEY (study_digest, number)
) STRICT;
INSERT INTO "reserved" (study_digest, number, kind, unit, dataset, sources, codebook_digest, transition_digest, secret_id, fingerprint, version_tag, epsilon, delta, event) VALUES(X'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',0,'randomized-column',0,'people','["SEX"]',X'C1',X'C2',X'C3',X'C4',X'',0.7,0.0,'{"epsilon": 0.7, "kind": "randomized-column", "relation": "replace one person", "sensitivity": null}');
INSERT INTO "reserved" (study_digest, number, kind, unit, dataset, sources, codebook_digest, transition_digest, secret_id, fingerprint, version_tag, epsilon, delta, event) VALUES(X'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',1,'gaussian-counts',NULL,'people','',X'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',X'',X'',X'',X'',0.4,2.0e-07,NULL);
CREATE TABLE review (                    -- a release that waits at the miner for countersignatures
  digest BLOB PRIMARY KEY, manifest_sha256 BLOB NOT NULL,
  fetched INTEGER NOT NULL DEFAULT 0,    -- the release is in the state directory, for this party's people to read
  body BLOB, signature BLOB, certificate BLOB,  -- this party's countersignature
  sent INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO "review" (digest, manifest_sha256, fetched, body, signature, certificate, sent) VALUES(X'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA',X'7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A7A',1,X'7B7D',X'01',X'02',1);
CREATE TABLE revocation (                -- an approval that was taken back
  digest BLOB PRIMARY KEY, who TEXT NOT NULL, reason TEXT NOT NULL, revoked_at TEXT NOT NULL,
  published INTEGER NOT NULL,            -- the release was out by then
  sent INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE rule_approval (             -- an approval by rule, for the daily limit (verticil.party.control.by_rule)
  number INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL, at TEXT NOT NULL
) STRICT;
INSERT INTO "rule_approval" (number, digest, at) VALUES(1,X'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA','2026-03-01T05:00:00Z');
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
, stage_at TEXT NOT NULL DEFAULT '', submitter TEXT NOT NULL DEFAULT '', ended_words TEXT NOT NULL DEFAULT '', forgotten TEXT NOT NULL DEFAULT '') STRICT;
INSERT INTO "study" (digest, study_id, proposal, seen_at, version, remote_state, effective, effective_digest, remote_approved, pseudonyms_complete, alignment_confirmed, units_received, remote_failure, stage, percent, n_common, common_sha256, stage_at, submitter, ended_words, forgotten) VALUES(X'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA','hearts',X'7B7D','2026-01-02T03:04:05Z',7,9,X'7B7D',X'EEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEEE',1,1,1,'[0]','','all columns sent',100,1234,X'CCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCCC','2026-01-02T06:00:00Z','','','');
INSERT INTO "study" (digest, study_id, proposal, seen_at, version, remote_state, effective, effective_digest, remote_approved, pseudonyms_complete, alignment_confirmed, units_received, remote_failure, stage, percent, n_common, common_sha256, stage_at, submitter, ended_words, forgotten) VALUES(X'BBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBBB','lungs',X'7B7D','2026-02-02T03:04:05Z',2,11,X'',X'',0,0,0,'[]','','denied here',0,NULL,NULL,'2026-01-02T06:00:00Z','analyst','no longer wanted','');
CREATE TABLE vote (                      -- one approver's yes to exactly this content
  digest BLOB NOT NULL, approver TEXT NOT NULL, content BLOB NOT NULL, voted_at TEXT NOT NULL, signature BLOB NOT NULL DEFAULT x'',
  PRIMARY KEY (digest, approver)
) STRICT;
INSERT INTO "vote" (digest, approver, content, voted_at, signature) VALUES(X'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA','officer@clinic',X'0102','2026-01-02T04:00:00Z',X'');
CREATE TRIGGER ledger_keeps BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'ledger rows are never changed'); END;
CREATE INDEX ledger_source ON ledger (dataset, sources);
CREATE TRIGGER ledger_stays BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'ledger rows are never deleted'); END;
DELETE FROM sqlite_sequence;
INSERT INTO "sqlite_sequence" VALUES('rule_approval',1);
INSERT INTO "sqlite_sequence" VALUES('ledger',6);
PRAGMA user_version = 7;
