-- catalogue.sqlite of schema 3, as that version made it
CREATE TABLE study (
  sequence INTEGER PRIMARY KEY AUTOINCREMENT, digest BLOB NOT NULL UNIQUE, study_id TEXT NOT NULL, version INTEGER NOT NULL,
  proposal BLOB NOT NULL, submitter TEXT NOT NULL, submitted_at TEXT NOT NULL,
  effective BLOB NOT NULL DEFAULT x'', effective_digest BLOB NOT NULL DEFAULT x'',
  n_common INTEGER, common_sha256 BLOB NOT NULL DEFAULT x'',
  uploading INTEGER NOT NULL DEFAULT 0, learning TEXT, attempts INTEGER NOT NULL DEFAULT 0,
  failure_code TEXT, failure_message TEXT, failure_hint TEXT,
  withdrawn INTEGER NOT NULL DEFAULT 0, expired INTEGER NOT NULL DEFAULT 0, published_at TEXT,
  linkage_removed INTEGER NOT NULL DEFAULT 0, columns_removed INTEGER NOT NULL DEFAULT 0);
CREATE INDEX study_by_effective ON study (effective_digest);
CREATE TABLE approval (study BLOB, party TEXT, body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL,
  PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE denial (study BLOB, party TEXT, reason TEXT NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE pseudonyms (study BLOB, party TEXT, size INTEGER NOT NULL, sha256 BLOB NOT NULL, committed INTEGER NOT NULL,
  complete INTEGER NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE bitmap (study BLOB, party TEXT, size INTEGER NOT NULL, sha256 BLOB NOT NULL,
  PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE confirmation (study BLOB, party TEXT, PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE upload (upload_id TEXT PRIMARY KEY, study BLOB NOT NULL, unit INTEGER NOT NULL, size INTEGER NOT NULL,
  sha256 BLOB NOT NULL, committed INTEGER NOT NULL, UNIQUE (study, unit)) WITHOUT ROWID;
CREATE TABLE stored_column (study BLOB, unit INTEGER, upload_id TEXT NOT NULL UNIQUE,
  artifact_sha256 BLOB NOT NULL, artifact_size INTEGER NOT NULL,
  n_records INTEGER NOT NULL, item_bytes INTEGER NOT NULL, column_sha256 BLOB NOT NULL,
  body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL, PRIMARY KEY (study, unit)) WITHOUT ROWID;
CREATE TABLE release_file (study BLOB, path TEXT, size INTEGER NOT NULL, sha256 BLOB NOT NULL,
  PRIMARY KEY (study, path)) WITHOUT ROWID;
CREATE TABLE scored_study (digest BLOB PRIMARY KEY, effective BLOB NOT NULL, expires TEXT NOT NULL, brought_by TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0, body BLOB, signature BLOB, certificate BLOB,
  failure_code TEXT, failure_message TEXT, failure_hint TEXT) WITHOUT ROWID;
CREATE TABLE score (study BLOB, party TEXT, information BLOB NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;
-- what a miner of that time had: one study published and one that waits for approvals, made up
CREATE TABLE revocation (study BLOB, party TEXT, reason TEXT NOT NULL, revoked_at TEXT NOT NULL,
  PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE deletion (study BLOB, party TEXT, body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL,
  PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE review (study BLOB PRIMARY KEY, manifest_sha256 BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE countersignature (study BLOB, party TEXT, body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL,
  PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE commitment (study BLOB, party TEXT, n_records INTEGER NOT NULL, nodes BLOB NOT NULL,
  body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL, PRIMARY KEY (study, party)) WITHOUT ROWID;
CREATE TABLE blinded (study BLOB, owner INTEGER, hop INTEGER, size INTEGER NOT NULL, sha256 BLOB NOT NULL,
  committed INTEGER NOT NULL, complete INTEGER NOT NULL,
  body BLOB NOT NULL, signature BLOB NOT NULL, certificate BLOB NOT NULL, PRIMARY KEY (study, owner, hop)) WITHOUT ROWID;
INSERT INTO study (digest, study_id, version, proposal, submitter, submitted_at, effective, effective_digest, n_common, common_sha256, uploading, learning, attempts, published_at, linkage_removed)
  VALUES (x'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'hearts', 12, x'7b7d', 'anna', '2026-01-02T03:04:05Z', x'7b7d', x'eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee', 1234, x'cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc', 1, 'learning', 1, '2026-01-03T00:00:00Z', 1);
INSERT INTO study (digest, study_id, version, proposal, submitter, submitted_at) VALUES (x'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', 'lungs', 3, x'7b7d', 'anna', '2026-02-02T03:04:05Z');
INSERT INTO approval VALUES (x'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'clinic', x'7b7d', x'01', x'02');
INSERT INTO approval VALUES (x'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'insurer', x'7b7d', x'03', x'04');
INSERT INTO denial VALUES (x'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', 'clinic', 'too little noise');
INSERT INTO pseudonyms VALUES (x'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'clinic', 16, x'1111111111111111111111111111111111111111111111111111111111111111', 16, 1);
INSERT INTO bitmap VALUES (x'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'clinic', 1, x'2222222222222222222222222222222222222222222222222222222222222222');
INSERT INTO confirmation VALUES (x'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'clinic');
INSERT INTO upload VALUES ('u1', x'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 1, 166, x'3333333333333333333333333333333333333333333333333333333333333333', 100);
INSERT INTO stored_column VALUES (x'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 0, 'u0', x'4444444444444444444444444444444444444444444444444444444444444444', 166, 1234, 1, x'5555555555555555555555555555555555555555555555555555555555555555', x'7b7d', x'05', x'06');
INSERT INTO release_file VALUES (x'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', 'model.json', 42, x'6666666666666666666666666666666666666666666666666666666666666666');
INSERT INTO scored_study (digest, effective, expires, brought_by, attempts) VALUES (x'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', x'7b7d', '2099-12-31', 'clinic', 1);
INSERT INTO score VALUES (x'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', 'clinic', x'0100000000000000');
INSERT INTO revocation VALUES (x'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb', 'insurer', 'consent withdrawn', '2026-02-03T00:00:00Z');
PRAGMA user_version = 3;
