"""Backup of a site: what cannot be made again, in one file that only a passphrase opens; and its way back.

In it: party.toml and federation.toml, the authority's certificate and deny-list, this node's certificate and keys (those that
wait for a renewal, and the sealing key, too), the linkage key, the site secret, the database (ledger, approvals, receipts), the
audit log, and what else the state directory keeps. Not in it: the site's tables; the spool and caches, which are made again, byte
for byte; the scalars of linkage ``dh-psi``, so that none blinds a second list after a restore (a study whose people were being
found then ends); rounds of masked tables, which are never repeated: a restore ends those studies; approvers' private keys,
which belong to people.

Promises
- The backup is one moment: the database is copied by SQLite's own means while no other process may write to it, and the audit
  log with it. The daemon may run; it waits for a moment.
- The file is made whole or not at all, mode 0600, never over another. `sealed_file.seal` says what the passphrase protects.
- Restoring makes a new folder, whole or not at all, after the whole file was checked, and writes into the audit log that it did.

A restored state is as old as its backup: it has forgotten what was sent since, and with it what that cost. It is compared with
what the miner and peers prove (`verticil.party.protocol.reconciliation`), and with the audit log of the state that is lost,
where there is one (`verticil.party.policy.ledger_recovery`). `BETWEEN_PEERS` says what peers have to do with it after a
restore, and when the daemon starts after one.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final, cast

import verticil.party.protocol.shipped.registrations  # noqa: F401  # pyright: ignore[reportUnusedImport]  # the registry's entries
from verticil.party.audit.log import FILE_NAME as AUDIT
from verticil.party.audit.log import AuditLog, Event, What
from verticil.party.config import PartyConfig, load_party
from verticil.party.dataset.blinding import BLINDING_KEY
from verticil.party.operator.sealed_file import ANOTHER_COPY, make_version_fault, seal, unseal
from verticil.party.protocol.node.registry import folders_of_protocols
from verticil.party.site import Site
from verticil.party.storage.database import FILE_NAME as DATABASE
from verticil.party.storage.database import SCHEMA, Database
from verticil.shared.core.errors import DataFault, GateFailed, Misuse
from verticil.shared.core.health import FILE_NAME as HEALTH
from verticil.shared.documents.config import path_in, read_toml
from verticil.shared.documents.view_models import left_out
from verticil.shared.federation.identity.pki import key_files, utc_now
from verticil.shared.federation.membership.revocation import FILE_NAME as DENY_LIST
from verticil.shared.storage.database import version_of
from verticil.shared.storage.disk import write_fault
from verticil.shared.storage.durable import rename, sync_directory, sync_file

BETWEEN_PEERS: Final = (
    "what was sent after this backup was made is known to the miner and to peers alone: start once with"
    " `verticil party run --accept-older`, which charges what they prove, and lower the limits in party.toml"
    " by whatever else was spent since"
)
"""What the operator of a restored site without an account at a miner has to know."""

_MADE_AGAIN: Final = frozenset({"spool", "cache", "review"})
_OF_THE_PROCESS: Final = (f"{DATABASE}-wal", f"{DATABASE}-shm", "party.lock", HEALTH)
_BLOCK: Final = 1 << 20
LONGEST_LINE_BYTES: Final = 1 << 16
"""Most bytes of a line of a backup, as sealed as it is read."""
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


def backup(config: PartyConfig, out: Path, passphrase: str) -> Backup:
    """Make a backup.

    Args:
        config: party.toml.
        out: file to make.
        passphrase: that will open it.

    Raises:
        Misuse: FILE_EXISTS; FILE_MISSING; USAGE, the passphrase is too short.
        DataFault: DISK_FULL, SECRET_MISSING, STATE_CORRUPT.
    """
    now = utc_now()
    if out.exists():
        raise Misuse("FILE_EXISTS", f"{out}: exists already and is not overwritten", hint="name another file")
    with Site.open(config) as site, tempfile.TemporaryDirectory(dir=config.state_directory, prefix="backup-") as folder:
        with site.database.transaction():  # no other process writes to database or audit log meanwhile
            copy = Path(folder) / DATABASE
            _copy(site.database.path, copy)
            log = Path(folder) / AUDIT
            if site.audit.path.exists():
                shutil.copyfile(site.audit.path, log)
            head = site.database.first(bytes, "SELECT hash FROM audit_anchor") or b""
            rows = site.ledger.n_rows()
        files = _files(config, database=copy, log=log)
        head_fields = {"party": config.name, "made_at": f"{now:%Y-%m-%dT%H:%M:%SZ}", "audit_head": head.hex()}
        size = _write(out, seal(_pack_entries(files), passphrase, head_fields))
    return Backup(
        backup=str(out),
        bytes=size,
        files=len(files),
        ledger_rows=rows,
        audit_head=head.hex(),
        made_at=head_fields["made_at"],
    )


def _copy(database: Path, to: Path) -> None:
    with contextlib.closing(sqlite3.connect(database)) as source, contextlib.closing(sqlite3.connect(to)) as target:
        source.backup(target)


def _files(config: PartyConfig, *, database: Path, log: Path) -> list[tuple[_Entry, Path]]:
    state = config.state_directory
    keys = (config.key, config.signing_key, config.sealing_key)
    paths = [config.path, config.certificate, *(file for key in keys for file in key_files(key)), config.linkage_key]
    authority = config.federation.ca_certificate
    paths += [
        path_in(read_toml(config.path), "federation", config.path.parent),
        authority,
        authority.with_name(DENY_LIST),
    ]
    excluded_names = _MADE_AGAIN | {folder.name for folder in folders_of_protocols()}
    for path in sorted(state.rglob("*")):
        first = path.relative_to(state).parts[0]
        if (
            path.is_file()
            and first not in excluded_names
            and path.name != BLINDING_KEY
            and not first.startswith("backup-")
        ):
            paths.append(path)
    instead = {state / DATABASE: database, state / AUDIT: log}
    entries: list[tuple[_Entry, Path]] = []
    for path in dict.fromkeys(paths):
        content = instead.get(path, path)
        if path.name in _OF_THE_PROCESS or path.name.endswith(".part") or not content.is_file():
            continue
        entries.append((_entry(config.path.parent, path, content.stat().st_size, number=len(entries)), content))
    return entries


def _entry(folder: Path, path: Path, size: int, *, number: int) -> _Entry:
    inside = os.path.relpath(path.resolve(), folder.resolve())
    if inside.startswith(".."):
        return _Entry(path=f"{_OUTSIDE}/{number}-{path.name}", origin=str(path.resolve()), size=size)
    return _Entry(path=PurePosixPath(inside).as_posix(), origin="", size=size)


def _pack_entries(files: Iterable[tuple[_Entry, Path]]) -> Iterator[bytes]:
    n_files = 0
    for entry, content in files:
        yield entry.line()
        n_left = entry.size
        with content.open("rb") as file:
            while n_left and (block := file.read(min(_BLOCK, n_left))):
                yield block
                n_left -= len(block)
        if n_left:
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


def restore(file: Path, folder: Path, passphrase: str, *, audit_log: Path | None = None) -> Restored:
    """Make a site's folder again.

    Args:
        file: the backup.
        folder: to make; an empty one is taken.
        passphrase: that opens the backup.
        audit_log: of the state that is lost, which went on from the backup's: it takes that one's place, and what it tells is
            charged.

    Raises:
        Misuse: FILE_EXISTS, the folder is not empty; FILE_MISSING, no backup.
        GateFailed: BACKUP_INVALID, the passphrase, or the file was changed; BACKUP_UNSUPPORTED, a program before 1.0.0 made it;
            AUDIT_BROKEN, `audit_log` is another one's.
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    newer = b"" if audit_log is None else _log_of(audit_log)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Misuse("FILE_EXISTS", f"{folder}: is not empty", hint="a backup is restored into a folder of its own")
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as staging:
            staging_folder = Path(staging) / folder.name
            staging_folder.mkdir(mode=0o700)
            with file.open("rb") as stream:
                elsewhere, n_files = _unpack(unseal(stream, passphrase, file.name), staging_folder, file.name)
            _check_state(staging_folder, file.name)
            if audit_log is not None:
                _go_on_from(staging_folder, newer, audit_log)
            sync_directory(staging_folder)
            rename(staging_folder, folder)
            sync_directory(folder.parent)
    except FileNotFoundError:
        raise Misuse("FILE_MISSING", f"{file}: no such file", hint="made by: verticil party backup") from None
    except OSError as error:
        raise write_fault(error, folder) from None
    report = Restored(
        folder=str(folder),
        party_toml=str(folder / "party.toml"),
        ledger_rows=None,
        audit_head=None,
        problem="",
        files=n_files,
        elsewhere=elsewhere,
    )
    return _note_restore(report, folder, utc_now(), audit_log=audit_log is not None)


def _check_state(staging_folder: Path, name: str) -> None:
    """Refuse a state of before 1.0.0 before its folder is made; what else is wrong with it is found when it is opened."""
    for database in staging_folder.rglob(DATABASE):
        with contextlib.suppress(DataFault):
            try:
                version_of(database, SCHEMA)
            except DataFault as error:
                if error.code == "STATE_UNSUPPORTED":
                    raise make_version_fault(name) from None
                raise


def _log_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise Misuse(
            "FILE_MISSING", f"{path}: cannot be read", hint="state/audit.jsonl of the state that is lost"
        ) from None


def _go_on_from(staging_folder: Path, newer: bytes, source: Path) -> None:
    """Put an audit log in the place of the backup's, whose lines it begins with."""
    (target,) = [database.with_name(AUDIT) for database in staging_folder.rglob(DATABASE)]
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


def _note_restore(report: Restored, folder: Path, at: dt.datetime, *, audit_log: bool) -> Restored:
    """Check what was restored, and write down that it was, if party.toml finds what it names."""
    try:
        config = load_party(folder / "party.toml")
    except Misuse as error:
        return replace(report, problem=error.message)
    with _readable(folder), Site.open(config, accept_older=audit_log) as site:
        head, problem = None, ""
        try:
            head = AuditLog(site.database, config.state_directory).verify().head.hex()
        except GateFailed as error:
            problem = error.message
        full_report = replace(
            report,
            party=config.name,
            ledger_rows=site.ledger.n_rows(),
            audit_head=head,
            problem=problem,
            between_peers=BETWEEN_PEERS if config.peer is not None else "",
        )
        for own in folders_of_protocols():
            own.after_restore(site, at)
        site.audit.record(Event(what=What.RESTORED, who="operator"), at)
        return full_report


@contextlib.contextmanager
def _readable(folder: Path) -> Generator[None]:
    """Name a state whose rows this program did not write: whoever knew the passphrase could change them."""
    try:
        yield
    except (TypeError, ValueError, KeyError, AttributeError, IndexError, OverflowError) as error:
        raise DataFault(
            "STATE_CORRUPT",
            f"{folder}: what is in the restored state is not what this program writes ({type(error).__name__})",
            hint="the backup was changed by somebody who knows its passphrase: take another copy",
        ) from error


def is_just_restored(config: PartyConfig, database: Database) -> bool:
    """Return whether nothing was done since this state was restored from a backup."""
    passing = {What.CONFIGURATION, What.CERTIFICATE, What.CERTIFICATE_ENDS}
    events = [
        entry for entry in AuditLog(database, config.state_directory).entries() if entry.get("event") not in passing
    ]
    return bool(events) and events[-1].get("event") == What.RESTORED


def _unpack(data: Iterator[bytes], folder: Path, name: str) -> tuple[Mapping[str, str], int]:
    reader, elsewhere, n_files = _Reader(data), dict[str, str](), 0
    while isinstance(entry := _parse_line(reader.line(), name), _Entry):
        target = folder / PurePosixPath(entry.path)
        with _put(target, name):
            target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(file, "wb") as stream:
            for piece in reader.take(entry.size):
                stream.write(piece)
            stream.flush()
            sync_file(stream.fileno(), target)
        if entry.origin:
            elsewhere[entry.origin] = entry.path
        n_files += 1
    if reader.line() or entry != n_files:
        raise GateFailed("BACKUP_INVALID", f"{name}: holds {n_files} files, expected {entry}")
    return elsewhere, n_files


@contextlib.contextmanager
def _put(target: Path, name: str) -> Generator[None]:
    """Make a place for a file; two of one name, or one below another, are the backup's fault."""
    try:
        yield
    except OSError as error:
        if error.errno not in {errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG, errno.ELOOP}:
            raise
        raise GateFailed(
            "BACKUP_INVALID", f"{name}: a file in it has no place beside the others", hint=ANOTHER_COPY
        ) from None


def _parse_line(line: bytes, name: str) -> _Entry | int:
    """Parse a line of a backup: a file, or at the end their number. Whoever knows the passphrase wrote it."""
    fault = GateFailed("BACKUP_INVALID", f"{name}: what is in it cannot be read", hint="is it of a later version?")
    try:
        fields = cast("object", json.loads(line))
    except (ValueError, RecursionError):
        raise fault from None
    match fields:
        case {"files": int(n_files)} if not isinstance(n_files, bool):
            return n_files
        case {"path": str(path), "origin": str(origin), "size": int(size)} if size >= 0 and not isinstance(size, bool):
            parts = PurePosixPath(path).parts
        case _:
            raise fault
    try:
        is_name = bool(parts) and b"\0" not in os.fsencode(path) + os.fsencode(origin)
    except UnicodeEncodeError:
        raise fault from None
    if not is_name:
        raise fault
    if path.startswith("/") or ".." in parts:  # never outside the folder
        raise GateFailed("BACKUP_INVALID", f"{name}: a file in it would lie outside the folder")
    return _Entry(path=path, origin=origin, size=size)


class _Reader:
    """Lines and counted bytes out of pieces of any size."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._held = bytearray()

    def line(self) -> bytes:
        while (end := self._held.find(b"\n")) < 0:
            if len(self._held) > LONGEST_LINE_BYTES:
                raise GateFailed("BACKUP_INVALID", f"a line in it has more than {LONGEST_LINE_BYTES} bytes")
            if (piece := next(self._pieces, None)) is None:
                end = len(self._held) - 1
                break
            self._held += piece
        line = bytes(self._held[: end + 1])
        del self._held[: end + 1]
        return line

    def take(self, size: int) -> Iterator[bytes]:
        while size:
            if not self._held:
                if (piece := next(self._pieces, None)) is None:
                    raise GateFailed("BACKUP_INVALID", "the backup ends early", hint="try another copy of it")
                self._held += piece
                continue
            data = bytes(self._held[:size])
            del self._held[:size]
            size -= len(data)
            yield data
