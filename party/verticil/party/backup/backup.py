"""Backup of a site: what cannot be made again, in one file that only a passphrase opens; and its way back.

In it: party.toml and federation.toml, the authority's certificate and deny-list, this node's certificate and keys (those that
wait for a renewal, and the sealing key, too), the linkage key, the site secret, the database (ledger, approvals, receipts), the
audit log, and what else the state directory keeps. Not in it: the site's tables; the spool and caches, which are made again, byte
for byte; the scalars of linkage ``dh-psi``, so that none blinds a second list after a restore (a study whose people were being
found then ends); approvers' private keys, which belong to people.

Promises
- The backup is one moment: the database is copied by SQLite's own means while nobody else may write to it, and the audit log with
  it. The daemon may run; it waits for a moment.
- The file is made whole or not at all, mode 0600, never over another. `sealing` says what the passphrase protects.
- Restoring makes a new folder, whole or not at all, after the whole file was checked, and writes into the audit log that it did.

A restored state is as old as its backup: it has forgotten what was sent since, and with it what that cost. `reckoning` finds this
out from the miner, and `recall` from the audit log of the state that is lost, where there is one. Between peers (Model I) nobody
can show it unless they sign what they have: `BETWEEN_PEERS` says so after a restore, and when the daemon starts after one.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final, cast

from verticil.party.audit.log import FILE_NAME as AUDIT
from verticil.party.audit.log import AuditLog, Event, What
from verticil.party.backup.sealing import seal, unseal
from verticil.party.config import PartyConfig, load_party
from verticil.party.protocol.blinding import BLINDING_KEY
from verticil.party.site import Site
from verticil.party.storage.database import FILE_NAME as DATABASE
from verticil.party.storage.database import Database
from verticil.shared.config import read_toml
from verticil.shared.disk import write_fault
from verticil.shared.durable import rename, sync_directory, sync_file
from verticil.shared.errors import GateFailed, Misuse
from verticil.shared.identity.pki import key_files, utc_now
from verticil.shared.membership.revocation import FILE_NAME as DENY_LIST
from verticil.shared.view import left_out
from verticil.shared.vitals import FILE_NAME as HEALTH

BETWEEN_PEERS: Final = (
    "between peers nobody can show what was sent after this backup was made, unless they sign it: start once with"
    " `verticil party run --accept-older`, which charges what they sign that they have, and lower the limits in party.toml"
    " by whatever else was spent since"
)
"""What a restored site without an account at a miner has to be told."""

_MADE_AGAIN: Final = frozenset({"spool", "cache", "review"})
_OF_THE_PROCESS: Final = (f"{DATABASE}-wal", f"{DATABASE}-shm", "party.lock", HEALTH)
_BLOCK: Final = 1 << 20
_OUTSIDE: Final = "outside"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """A file of a backup.

    Attributes:
        path: below the restored folder.
        origin: where it lay, if that was not below party.toml's folder; else empty.
        size: bytes.
    """

    path: str
    origin: str
    size: int

    def line(self) -> bytes:
        return json.dumps({"path": self.path, "origin": self.origin, "size": self.size}).encode() + b"\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """A backup that was made; `audit_head` is to be noted elsewhere."""

    backup: str
    bytes: int
    files: int
    ledger_rows: int
    audit_head: str
    made_at: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A site's folder that was made again.

    Attributes:
        ledger_rows, audit_head: None: the state was not opened, as `problem` says.
        problem: what is not as it should be; empty: nothing.
        between_peers: what a site with peers has to know.
        elsewhere: where the files lay that were not below party.toml's folder -> where they are now, below ``outside``.
    """

    folder: str
    party_toml: str
    party: str | None = left_out()
    ledger_rows: int | None
    audit_head: str | None
    problem: str
    between_peers: str | None = left_out()
    files: int
    elsewhere: Mapping[str, str]


def backup(config: PartyConfig, out: Path, passphrase: str, *, at: dt.datetime | None = None) -> Backup:
    """Make a backup.

    Args:
        config: party.toml.
        out: file to make.
        passphrase: that will open it.
        at: now.

    Raises:
        Misuse: FILE_EXISTS; FILE_MISSING; USAGE, the passphrase is too short.
        DataFault: DISK_FULL, SECRET_MISSING, STATE_CORRUPT.
    """
    now = at if at is not None else utc_now()
    if out.exists():
        raise Misuse("FILE_EXISTS", f"{out}: exists already and is not overwritten", hint="name another file")
    with Site.open(config) as site, tempfile.TemporaryDirectory(dir=config.state_directory, prefix="backup-") as made:
        with site.database.transaction():  # nobody writes to database or audit log meanwhile
            copy = Path(made) / DATABASE
            _copy(site.database.path, copy)
            audit = config.state_directory / "audit.jsonl"
            log = Path(made) / "audit.jsonl"
            if audit.exists():
                shutil.copyfile(audit, log)
            anchor = site.database.rows("SELECT hash FROM audit_anchor")
            head, rows = cast("bytes", anchor[0][0]) if anchor else b"", len(site.ledger.rows())
        files = _files(config, database=copy, log=log)
        told = {"party": config.name, "made_at": f"{now:%Y-%m-%dT%H:%M:%SZ}", "audit_head": head.hex()}
        size = _write(out, seal(_packed(files), passphrase, told))
    return Backup(
        backup=str(out),
        bytes=size,
        files=len(files),
        ledger_rows=rows,
        audit_head=head.hex(),
        made_at=told["made_at"],
    )


def _copy(database: Path, to: Path) -> None:
    with contextlib.closing(sqlite3.connect(database)) as source, contextlib.closing(sqlite3.connect(to)) as target:
        source.backup(target)


def _files(config: PartyConfig, *, database: Path, log: Path) -> list[tuple[_Entry, Path]]:
    state = config.state_directory
    keys = (config.key, config.signing_key, config.sealing_key)
    wanted = [config.path, config.certificate, *(file for key in keys for file in key_files(key)), config.linkage_key]
    authority = config.federation.ca_certificate
    wanted += [
        read_toml(config.path).path_value("federation", config.path.parent),
        authority,
        authority.with_name(DENY_LIST),
    ]
    for path in sorted(state.rglob("*")):
        first = path.relative_to(state).parts[0]
        if (
            path.is_file()
            and first not in _MADE_AGAIN
            and path.name != BLINDING_KEY
            and not first.startswith("backup-")
        ):
            wanted.append(path)
    instead = {state / DATABASE: database, state / "audit.jsonl": log}
    found: list[tuple[_Entry, Path]] = []
    for path in dict.fromkeys(wanted):
        content = instead.get(path, path)
        if path.name in _OF_THE_PROCESS or path.name.endswith(".part") or not content.is_file():
            continue
        found.append((_entry(config.path.parent, path, content.stat().st_size, number=len(found)), content))
    return found


def _entry(folder: Path, path: Path, size: int, *, number: int) -> _Entry:
    inside = os.path.relpath(path.resolve(), folder.resolve())
    if inside.startswith(".."):
        return _Entry(path=f"{_OUTSIDE}/{number}-{path.name}", origin=str(path.resolve()), size=size)
    return _Entry(path=PurePosixPath(inside).as_posix(), origin="", size=size)


def _packed(files: Iterable[tuple[_Entry, Path]]) -> Iterator[bytes]:
    n_files = 0
    for entry, content in files:
        yield entry.line()
        left = entry.size
        with content.open("rb") as file:
            while left and (block := file.read(min(_BLOCK, left))):
                yield block
                left -= len(block)
        if left:
            raise Misuse("FILE_MISSING", f"{content}: it became shorter while it was read", hint="try again")
        n_files += 1
    yield json.dumps({"files": n_files}).encode() + b"\n"


def _write(out: Path, data: Iterable[bytes]) -> int:
    try:
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as staging:
            part = Path(staging) / out.name
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                for piece in data:
                    file.write(piece)
                file.flush()
                sync_file(file.fileno(), part)
                size = file.tell()
            rename(part, out)
            sync_directory(out.parent)
    except OSError as error:
        raise write_fault(error, out) from None
    return size


def restore(
    file: Path, folder: Path, passphrase: str, *, audit_log: Path | None = None, at: dt.datetime | None = None
) -> Restored:
    """Make a site's folder again.

    Args:
        file: the backup.
        folder: to make; an empty one is taken.
        passphrase: that opens the backup.
        audit_log: of the state that is lost, which went on from the backup's: it takes that one's place, and what it tells is
            charged.
        at: now.

    Raises:
        Misuse: FILE_EXISTS, the folder is not empty; FILE_MISSING, no backup.
        GateFailed: BACKUP_INVALID, the passphrase, or the file was changed; AUDIT_BROKEN, `audit_log` is another one's.
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    newer = b"" if audit_log is None else _log_of(audit_log)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Misuse("FILE_EXISTS", f"{folder}: is not empty", hint="a backup is restored into a folder of its own")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as staging:
            made = Path(staging) / folder.name
            made.mkdir(mode=0o700)
            with file.open("rb") as opened:
                elsewhere, n_files = _unpack(unseal(opened, passphrase, file.name), made, file.name)
            if audit_log is not None:
                _go_on_from(made, newer, audit_log)
            sync_directory(made)
            rename(made, folder)
            sync_directory(folder.parent)
    except FileNotFoundError:
        raise Misuse("FILE_MISSING", f"{file}: no such file", hint="made by: verticil party backup") from None
    except OSError as error:
        raise write_fault(error, folder) from None
    restored = Restored(
        folder=str(folder),
        party_toml=str(folder / "party.toml"),
        ledger_rows=None,
        audit_head=None,
        problem="",
        files=n_files,
        elsewhere=elsewhere,
    )
    return _noted(restored, folder, at if at is not None else utc_now(), audit_log=audit_log is not None)


def _log_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise Misuse(
            "FILE_MISSING", f"{path}: cannot be read", hint="state/audit.jsonl of the state that is lost"
        ) from None


def _go_on_from(made: Path, newer: bytes, source: Path) -> None:
    """Put an audit log in the place of the backup's, whose lines it begins with."""
    (target,) = [database.with_name(AUDIT) for database in made.rglob(DATABASE)]
    if not newer.startswith(target.read_bytes() if target.exists() else b""):
        raise GateFailed(
            "AUDIT_BROKEN",
            f"{source}: does not begin with the lines of the backup's audit log",
            hint="restore without it; keep it, and compare the two",
        )
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(newer)
        file.flush()
        sync_file(file.fileno(), target)


def _noted(restored: Restored, folder: Path, at: dt.datetime, *, audit_log: bool) -> Restored:
    """Check what was restored, and write down that it was, if party.toml finds what it names."""
    try:
        config = load_party(folder / "party.toml")
    except Misuse as error:
        return replace(restored, problem=error.message)
    with Site.open(config, accept_older=audit_log) as site:
        head, problem = None, ""
        try:
            head = AuditLog(site.database, config.state_directory).verify().head.hex()
        except GateFailed as error:
            problem = error.message
        found = replace(
            restored,
            party=config.name,
            ledger_rows=len(site.ledger.rows()),
            audit_head=head,
            problem=problem,
            between_peers=BETWEEN_PEERS if config.peer is not None else "",
        )
        site.audit.record(Event(what=What.RESTORED, who="operator"), at)
        return found


def is_just_restored(config: PartyConfig, database: Database) -> bool:
    """Whether nothing was done since this state was restored from a backup."""
    passing = {What.CONFIGURATION, What.CERTIFICATE, What.CERTIFICATE_ENDS}
    done = [
        entry for entry in AuditLog(database, config.state_directory).entries() if entry.get("event") not in passing
    ]
    return bool(done) and done[-1].get("event") == What.RESTORED


def _unpack(data: Iterator[bytes], folder: Path, name: str) -> tuple[Mapping[str, str], int]:
    reader, elsewhere, n_files = _Reader(data), dict[str, str](), 0
    while True:
        try:
            said = cast("dict[str, object]", json.loads(reader.line()))
            if "files" in said:
                break
            entry = _Entry(
                path=cast("str", said["path"]), origin=cast("str", said["origin"]), size=cast("int", said["size"])
            )
        except (ValueError, KeyError):
            raise GateFailed(
                "BACKUP_INVALID", f"{name}: what is in it cannot be read", hint="is it of a later version?"
            ) from None
        path = PurePosixPath(entry.path)
        if (
            path.is_absolute() or ".." in path.parts
        ):  # whoever knows the passphrase wrote this; still, never outside the folder
            raise GateFailed("BACKUP_INVALID", f"{name}: a file in it would lie outside the folder")
        target = folder / path
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for piece in reader.take(entry.size):
                file.write(piece)
            file.flush()
            sync_file(file.fileno(), target)
        if entry.origin:
            elsewhere[entry.origin] = entry.path
        n_files += 1
    if reader.line() or said["files"] != n_files:
        raise GateFailed("BACKUP_INVALID", f"{name}: holds {n_files} files, expected {said['files']}")
    return elsewhere, n_files


class _Reader:
    """Lines and counted bytes out of pieces of any size."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._held = bytearray()

    def line(self) -> bytes:
        while (end := self._held.find(b"\n")) < 0:
            if (piece := next(self._pieces, None)) is None:
                end = len(self._held) - 1
                break
            self._held += piece
        found = bytes(self._held[: end + 1])
        del self._held[: end + 1]
        return found

    def take(self, size: int) -> Iterator[bytes]:
        while size:
            if not self._held:
                if (piece := next(self._pieces, None)) is None:
                    raise GateFailed("BACKUP_INVALID", "the backup ends early", hint="try another copy of it")
                self._held += piece
                continue
            found = bytes(self._held[:size])
            del self._held[:size]
            size -= len(found)
            yield found
