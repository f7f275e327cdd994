-- party.sqlite of schema 2, as that version made it
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
  facts TEXT NOT NULL,                   -- what the ledger will say about it (verticil.party.control.ledger.Release)
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

CREATE TABLE peer_item (                 -- Model I: what peers told, and what is told to them (verticil.party.peer.shelf)
  digest BLOB NOT NULL, kind TEXT NOT NULL,
  name TEXT NOT NULL,                    -- of the party, or the unit's index; empty where there is only one
  sha256 BLOB NOT NULL, size INTEGER NOT NULL,
  PRIMARY KEY (digest, kind, name)
) STRICT;
-- what a site of that time had: one study sent and one denied, made up
INSERT INTO study (digest, study_id, proposal, seen_at, version, remote_state, effective, effective_digest, remote_approved, pseudonyms_complete, alignment_confirmed, units_received, remote_failure, stage, percent, n_common, common_sha256) VALUES (x'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'hearts', x'7b7d', '2026-01-02T03:04:05Z', 7, 9, x'7b7d', x'eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee', 1, 1, 1, '[0]', '', 'all columns sent', 100, 1234, x'cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc');
INSERT INTO study (digest, study_id, proposal, seen_at, version, remote_state, effective, effective_digest, remote_approved, pseudonyms_complete, alignment_confirmed, units_received, remote_failure, stage, percent, n_common, common_sha256) VALUES (x'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', 'lungs', x'7b7d', '2026-02-02T03:04:05Z', 2, 11, x'', x'', 0, 0, 0, '[]', '', 'denied here', 0, NULL, NULL);
INSERT INTO vote (digest, approver, content, voted_at) VALUES (x'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'officer@clinic', x'0102', '2026-01-02T04:00:00Z');
INSERT INTO approval VALUES (x'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', x'7b7d', '2026-01-02T04:00:00Z');
INSERT INTO denial VALUES (x'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', 'officer@clinic', 'too little noise', '2026-02-03T00:00:00Z', 1);
INSERT INTO artifact (digest, unit, effective_digest, sha256, size, facts, version_tag, receipt) VALUES (x'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 0, x'eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee', x'5555555555555555555555555555555555555555555555555555555555555555', 166, '{}', x'', x'7b7d');
INSERT INTO ledger (at, study_digest, study_id, unit, variables, dataset, sources, codebook_digest, transition_digest, secret_id, fingerprint, version_tag, epsilon, charged, recipient, artifact_sha256, size)
  VALUES ('2026-01-02T05:00:00Z', x'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'hearts', 0, '["smoker"]', 'people', '["smoker"]', x'1111111111111111111111111111111111111111111111111111111111111111', x'2222222222222222222222222222222222222222222222222222222222222222', x'33333333333333333333333333333333', x'4444444444444444444444444444444444444444444444444444444444444444', x'', 2.5, 2.5, 'miner', x'5555555555555555555555555555555555555555555555555555555555555555', 166);
INSERT INTO heartbeat VALUES (1, 4711, '2026-02-03T00:00:00Z', 1, '');
INSERT INTO peer_item VALUES (x'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', 'statement', 'insurer', x'6666666666666666666666666666666666666666666666666666666666666666', 42);
PRAGMA user_version = 2;
