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
- The file is made whole or not at all, mode 0600, never over another. `seal` says what the passphrase protects.
- Restoring makes a new folder, whole or not at all, after the whole file was checked, and writes into the audit log that it did.

A restored state is as old as its backup: it has forgotten what was sent since, and with it what that cost. It is compared with
what the miner and peers prove (`verticil.party.protocol.reconciliation`), and with the audit log of the state that is lost,
where there is one (`verticil.party.policy.ledger_recovery`). `BETWEEN_PEERS` says what peers have to do with it after a
restore, and when the daemon starts after one.

The file: a file that only a passphrase opens: scrypt (RFC 7914) for the key, ChaCha20-Poly1305 (RFC 8439) for the bytes.

Promises
- One who has the file and not the passphrase learns its size and what the head says in clear: the party's name and when it was
  made.
- Any change is found, and nothing that was changed is ever handed out: the head, each frame of a mebibyte, their order and the
  end are authenticated (the STREAM construction of Hoang, Reyhanitabar, Rogaway and Vizár, CRYPTO 2015: the nonce is the frame's
  number and whether it is the last; the key is new for each file, because its salt is).
- Opening costs 128 MiB and a fraction of a second for each guess. That is no help to a short passphrase: at least 12 letters.

Memory is bounded by the frame, whatever the size of the file.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import errno
import hashlib
import json
import os
import secrets
import shutil
import sqlite3
import tempfile
from collections.abc import Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import IO, Final, cast

import rfc8785
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

import verticil.party.protocol.shipped.registrations  # noqa: F401  # pyright: ignore[reportUnusedImport]  # the registry's entries
from verticil.party.audit.log import FILE_NAME as AUDIT
from verticil.party.audit.log import AuditLog, Event, What
from verticil.party.config import PartyConfig, load_party
from verticil.party.dataset.blinding import BLINDING_KEY
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
_LONGEST_LINE: Final = 1 << 16
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
            rows = len(site.ledger.rows())
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
                    raise _of_before(name) from None
                raise


def _of_before(name: str) -> GateFailed:
    return GateFailed(
        "BACKUP_UNSUPPORTED",
        f"{name}: a backup of before version 1.0.0 of verticil, which this version does not read",
        hint=f"{SCHEMA.anew}, and the version that made the backup still restores it",
    )


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
            ledger_rows=len(site.ledger.rows()),
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
            "BACKUP_INVALID", f"{name}: a file in it has no place beside the others", hint=_ANOTHER_COPY
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
            if len(self._held) > _LONGEST_LINE:
                raise GateFailed("BACKUP_INVALID", f"a line in it has more than {_LONGEST_LINE} bytes")
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


# ---- the sealed file

LEAST_LETTERS: Final = 12
"""The shortest passphrase."""
_MAGIC: Final = b"verticil backup 1\n"
_COST: Final = 2**17
_BLOCK_SIZE: Final = 8
_MOST_COST: Final = 2**20
"""A file says what opening it costs; more than this, a gibibyte, is not spent on one that may be anybody's."""
_FRAME: Final = 1 << 20
_TAG: Final = 16
_LARGEST_HEAD: Final = 4096
_CHECK: Final = b"\xff" * 12
"""Nonce of no frame: the empty text under it says whether a key is the right one, as the first frame would."""
_ANOTHER_COPY: Final = "it is damaged, whatever the passphrase is: take another copy of the backup"


def _nonce(number: int, *, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])


def _sum(head: Mapping[str, object]) -> str:
    """Return a checksum of everything else in the head: it tells damage from another passphrase, and proves nothing."""
    rest = {name: value for name, value in head.items() if name != "sum"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()[:16]


def _check(head: Mapping[str, object], cipher: ChaCha20Poly1305, name: str) -> None:
    """Check that the head is whole, and the passphrase the right one.

    Raises:
        GateFailed: BACKUP_INVALID, the head was changed, or it is another passphrase; BACKUP_UNSUPPORTED, it is of before 1.0.0.
    """
    if "sum" not in head:
        raise _of_before(name)
    if head["sum"] != _sum(head):
        raise GateFailed("BACKUP_INVALID", f"{name}: was changed in its head", hint=_ANOTHER_COPY)
    if head.get("check") != cipher.encrypt(_CHECK, b"", None).hex():
        raise GateFailed(
            "BACKUP_INVALID", f"{name}: does not open with this passphrase", hint="the file itself looks whole"
        )


def _cipher(passphrase: str, head: Mapping[str, object]) -> ChaCha20Poly1305:
    n, r, p = (cast("int", head[name]) for name in ("n", "r", "p"))
    key = Scrypt(salt=bytes.fromhex(cast("str", head["salt"])), length=32, n=n, r=r, p=p).derive(passphrase.encode())
    return ChaCha20Poly1305(key)


def _split_frames(data: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    """Frames of `data`, each with whether it is the last; there is always a last one, and it may be empty."""
    buffer = bytearray()
    for piece in data:
        buffer += piece
        while len(buffer) > _FRAME:
            yield bytes(buffer[:_FRAME]), False
            del buffer[:_FRAME]
    yield bytes(buffer), True


def seal(
    data: Iterable[bytes], passphrase: str, head_fields: Mapping[str, str], *, cost: int = _COST
) -> Iterator[bytes]:
    """Encrypt.

    Args:
        data: in pieces of any size.
        passphrase: that opens it.
        head_fields: stands in the head, in clear.
        cost: scrypt's N, a power of two; a guess takes 1 KiB of memory for each unit.

    Yields:
        The file's bytes.

    Raises:
        Misuse: USAGE, the passphrase is too short.
    """
    if len(passphrase) < LEAST_LETTERS:
        raise Misuse(
            "USAGE",
            f"the passphrase has {len(passphrase)} letters, expected at least {LEAST_LETTERS}",
            hint="choose a few words of your own, and keep them in another place than the backup",
        )
    head: dict[str, str | int] = {
        **head_fields,
        "n": cost,
        "r": _BLOCK_SIZE,
        "p": 1,
        "salt": secrets.token_bytes(16).hex(),
    }
    cipher = _cipher(passphrase, head)
    head["check"] = cipher.encrypt(_CHECK, b"", None).hex()
    head["sum"] = _sum(head)
    text = rfc8785.dumps({**head})
    yield _MAGIC + len(text).to_bytes(2, "big") + text
    for number, (frame, last) in enumerate(_split_frames(data)):
        yield cipher.encrypt(_nonce(number, last=last), frame, text)


def read_head(file: IO[bytes], name: str) -> tuple[Mapping[str, object], bytes]:
    """Return the fields of the head, not yet authenticated, and its bytes.

    Raises:
        Misuse: FILE_MISSING, it is no such file.
        GateFailed: BACKUP_INVALID, the head was changed.
    """
    if file.read(len(_MAGIC)) != _MAGIC:
        raise Misuse("FILE_MISSING", f"{name}: is not a backup of a party", hint="made by: verticil party backup")
    fault = GateFailed("BACKUP_INVALID", f"{name}: was changed in its head", hint=_ANOTHER_COPY)
    text = file.read(int.from_bytes(file.read(2), "big"))
    try:
        head = cast("object", json.loads(text)) if len(text) <= _LARGEST_HEAD else None
    except (ValueError, RecursionError):
        raise fault from None
    if not isinstance(head, dict):
        raise fault
    fields = cast("dict[str, object]", head)
    numbers = [fields.get(key) for key in ("n", "r", "p")]
    salt = fields.get("salt")
    if not all(isinstance(number, int) and 1 <= number <= _MOST_COST for number in numbers) or not isinstance(
        salt, str
    ):
        raise fault
    n, r, p = cast("list[int]", numbers)
    if (
        n < 2
        or n & (n - 1)
        or n * r > _MOST_COST * 8
        or p > 16
        or len(salt) != 32
        or set(salt) - set("0123456789abcdef")
    ):
        raise fault
    return fields, text


def unseal(file: IO[bytes], passphrase: str, name: str) -> Iterator[bytes]:
    """Decrypt.

    Args:
        file: what `seal` made, from its beginning.
        passphrase: that it was made with.
        name: for messages.

    Yields:
        Pieces of the data, each checked before it is handed out.

    Raises:
        Misuse: FILE_MISSING, it is no such file.
        GateFailed: BACKUP_INVALID, another passphrase, or (which the message tells apart) the file was changed or cut off; what
            was handed out before is true but not the whole. BACKUP_UNSUPPORTED, it is of before 1.0.0.
    """
    head, text = read_head(file, name)
    cipher = _cipher(passphrase, head)
    _check(head, cipher, name)
    number = 0
    frame = file.read(_FRAME + _TAG)
    while True:
        following = file.read(_FRAME + _TAG) if len(frame) == _FRAME + _TAG else b""
        last = not following
        try:
            plain = cipher.decrypt(_nonce(number, last=last), frame, text)
        except InvalidTag:
            raise GateFailed(
                "BACKUP_INVALID", f"{name}: was changed or cut off in frame {number}", hint=_ANOTHER_COPY
            ) from None
        yield plain
        if last:
            return
        frame, number = following, number + 1
