"""A bundle as one file: ``VERTICIL-CARRIED-1``, the signed statement, the content in pieces.

Statement. It says whose the bundle is, for whom, which in the row, what it answers, and every byte of it. A bundle travels in one
of two directions, between the miner and one party. Each side numbers its own bundles 1, 2, 3, and each names the last one of the
other side that its maker had taken in (`answers`), by number and SHA-256. The SHA-256 of a bundle is that of its statement, which
lists the SHA-256 of every piece of its content; so it names all of it. The statement is in clear in the file: who finds it learns
the federation's and the party's name, when it was made, and how large it is. What it is about is in the content.

Entries. The content is `BundleEntries`: for each the length of its message (4 bytes, big endian), the message
(`verticil.wire.v1.carried_pb2.CarriedEntry`) and its payload. They are a folder, filled by the side that makes a bundle, and
written out of a bundle by the side that takes one in. What is kept of it (`keep`) can be read again by another process.

Pieces. The content is cut into pieces of 512 KiB, each sealed for the recipient or plain, and the statement lists the SHA-256 of
each as it stands in the file: whatever was changed or is missing is found before anything is believed, and its place is named.
`pack` leaves the whole file or none. `unpack` leaves the whole content or none, in memory for a piece at a time.

Encryption. Each piece is sealed (HPKE, `verticil.shared.federation.transport.sealing`), which keeps it from who finds the file.
Both sides have a sealing key (``NAME.seal``), whose public halves stand in federation.toml: the party's in ``[sealing]``, the
miner's as ``sealing_key`` in ``[miner]``. Bound into a seal are federation, direction, party, the bundle's number and the piece's
place, so that no piece opens in another bundle or at another place. The recipient's private key opens everything that was ever
sealed for it: guard it as the disk that holds what was received.

Verification. `verify_bundle` finds who sent a bundle, and whether it is for this side: what a connection's handshake checks, for
a file. The maker is the one whom the certificate that signed the statement names: issued by this federation's authority for
signing, valid now, not on the deny-list, of the role that makes bundles in that direction. The content is not looked at before.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import os
import tempfile
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, BinaryIO, ClassVar, Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from google.protobuf.message import DecodeError

from verticil.shared.core.errors import DataFault, GateFailed, Misuse, printable
from verticil.shared.documents.config import Federation
from verticil.shared.documents.record import Count, Sha256, decode, encode, tame
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.signing import verify_signed
from verticil.shared.federation.transport.authorization import Revocations, check_revoked
from verticil.shared.federation.transport.sealing import OVERHEAD, load_sealing_key, open_sealed, seal
from verticil.shared.federation.transport.version import agree
from verticil.shared.storage.disk import write_fault
from verticil.shared.storage.durable import remove_tree, rename, sync_directory, sync_file
from verticil.wire.v1 import carried_pb2, common_pb2

Direction = Literal["to-miner", "to-party"]
STATEMENT_BYTES: Final = 64 * 2**20
"""Most bytes of the statement at the beginning of a carried file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """One bundle of one side: its number there, and its SHA-256."""

    number: Count
    sha256: Sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What is signed; `record.encode` makes its bytes.

    Attributes:
        federation: in which it counts.
        direction: who made it for whom.
        party: the party's name, in either direction.
        number: of this bundle among those of its maker for this party.
        answers: the last bundle of the other side that its maker had taken in; None: none yet.
        made_at: UTC, whole seconds.
        protocol: version that its maker speaks.
        sealed: whether the content is sealed for the recipient.
        size: bytes of the content before it was sealed.
        pieces: SHA-256 of every piece as it stands in the file.
    """

    MARK: ClassVar = {"form": "verticil/carried/v1"}

    federation: Annotated[str, 80]
    direction: Direction
    party: Annotated[str, 80]
    number: Count
    answers: Reference | None
    made_at: dt.datetime
    protocol: Count
    sealed: bool
    size: Count
    pieces: tuple[Sha256, ...]

    @property
    def name(self) -> str:
        """For people: which bundle it is."""
        maker = f"party '{self.party}'" if self.direction == "to-miner" else f"the miner for party '{self.party}'"
        return f"bundle {self.number} of {maker}"


def digest_of(body: bytes) -> bytes:
    """Return the SHA-256 that names a bundle."""
    return hashlib.sha256(body).digest()


def parse_statement(body: bytes) -> Statement:
    """Read a statement; the signature is checked by the caller.

    >>> from verticil.shared.documents.record import encode
    >>> at = dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC)
    >>> said = Statement(federation="hearts", direction="to-miner", party="clinic", number=2,
    ...     answers=Reference(number=1, sha256=bytes(32)), made_at=at, protocol=2, sealed=True, size=7, pieces=(bytes(32),))
    >>> parse_statement(encode(said)) == said
    True

    Raises:
        GateFailed: BUNDLE_INVALID.
    """
    return decode(
        Statement,
        body,
        source="the signed statement at its beginning",
        limit=STATEMENT_BYTES,
        fault=lambda error: GateFailed("BUNDLE_INVALID", tame(error.message), hint=tame(error.hint)),
    )


ENTRY_BYTES: Final = 32 * 2**20
"""Most bytes of an entry of a carried file, without its payload; a study's task is the largest."""
_INDEX: Final = "entries"
_LENGTH_BYTES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Item:
    """An entry and the file of its payload; None: it has none."""

    entry: carried_pb2.CarriedEntry
    payload: Path | None = None

    @property
    def what(self) -> str:
        """Which kind of entry it is; empty for one that this version does not know."""
        return self.entry.WhichOneof("what") or ""


def parse_entry(data: bytes) -> carried_pb2.CarriedEntry:
    """Read an entry.

    Raises:
        GateFailed: BUNDLE_INVALID.
    """
    try:
        return carried_pb2.CarriedEntry.FromString(data)
    except DecodeError:
        raise GateFailed("BUNDLE_INVALID", "an entry of its content cannot be read") from None


class BundleEntries:
    """Entries in order, in a folder of their own.

    Args:
        folder: exists.
        items: what is in it already.
    """

    def __init__(self, folder: Path, items: tuple[Item, ...] = ()) -> None:
        self.folder = folder
        self._items = list(items)

    @classmethod
    def anew(cls, folder: Path) -> BundleEntries:
        """Make an empty one in a new folder; what is there is removed.

        Raises:
            DataFault: DISK_FULL.
            Misuse: FILE_MISSING, nothing can be written there.
        """
        remove_tree(folder, ignore_errors=True)
        try:
            folder.mkdir(mode=0o700)
        except OSError as error:
            raise write_fault(error, folder) from None
        return cls(folder)

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(tuple(self._items))

    def payload(self) -> Path:
        """Return a name for the next payload's file."""
        return self.folder / f"{len(self._items):06d}.payload"

    def add(self, entry: carried_pb2.CarriedEntry, payload: Path | bytes | None = None) -> None:
        """Put an entry in.

        Args:
            entry: its ``payload_size`` is set here.
            payload: what follows it: bytes, or a file that does not change any more.

        Raises:
            OSError: the payload cannot be written.
        """
        if isinstance(payload, bytes):
            path = self.payload()
            path.write_bytes(payload)
            payload = path
        entry.payload_size = 0 if payload is None else payload.stat().st_size
        self._items.append(Item(entry=entry, payload=payload))

    def keep(self) -> None:
        """Write down what is in it and flush all of it to the disk.

        Raises:
            OSError: it cannot be written.
        """
        index = self.folder / _INDEX
        with index.open("wb") as file:
            for item in self._items:
                data = item.entry.SerializeToString()
                file.write(len(data).to_bytes(_LENGTH_BYTES, "big") + data)
            file.flush()
            sync_file(file.fileno(), index)
        for item in self._items:
            if item.payload is not None:
                with item.payload.open("rb") as payload:
                    sync_file(payload.fileno(), item.payload)
        sync_directory(self.folder)

    @classmethod
    def read(cls, folder: Path) -> BundleEntries | None:
        """Return what `keep` wrote; None when there is no such folder.

        Raises:
            DataFault: STATE_CORRUPT.
        """
        try:
            data = (folder / _INDEX).read_bytes()
        except FileNotFoundError:
            return None
        items: list[Item] = []
        at = 0
        try:
            while at < len(data):
                length = int.from_bytes(data[at : at + _LENGTH_BYTES], "big")
                entry = parse_entry(data[at + _LENGTH_BYTES : at + _LENGTH_BYTES + length])
                at += _LENGTH_BYTES + length
                path = folder / f"{len(items):06d}.payload"
                items.append(Item(entry=entry, payload=path if entry.payload_size else None))
        except GateFailed as error:
            raise DataFault(
                "STATE_CORRUPT", f"{folder}: {error.message}", hint="import the last bundle again"
            ) from None
        return cls(folder, tuple(items))


_CONTEXT: Final = "verticil/carried/v1"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BundleEncryption:
    """Seals and opens pieces between the miner and one party.

    Attributes:
        own: this side's private sealing key.
        other: the other side's public one, 32 bytes.
        federation, party: between whom.
    """

    own: X25519PrivateKey
    other: bytes
    federation: str
    party: str

    def seal(self, piece: bytes, *, direction: Direction, number: int, place: int) -> bytes:
        """Seal a piece for the other side.

        Raises:
            Misuse: CONFIG_INVALID, the other side's pinned key is none.
        """
        try:
            return seal(
                piece,
                recipient=X25519PublicKey.from_public_bytes(self.other),
                sender=self.own,
                info=self._info(direction),
                aad=_place(number, place),
            )
        except ValueError:  # a point of small order
            raise Misuse("CONFIG_INVALID", "federation.toml: the other side's sealing key is not usable") from None

    def open(self, sealed: bytes, *, direction: Direction, number: int, place: int) -> bytes:
        """Open a piece of the other side's.

        Raises:
            GateFailed: BUNDLE_INVALID, it is not sealed by the other side for this one.
        """
        plain = open_sealed(
            sealed,
            recipient=self.own,
            sender=X25519PublicKey.from_public_bytes(self.other),
            info=self._info(direction),
            aad=_place(number, place),
        )
        if plain is None:
            raise GateFailed(
                "BUNDLE_INVALID",
                f"piece {place}: not sealed with the keys that federation.toml pins for the two sides",
                hint="the same federation.toml belongs at both sides; verticil pki seal NAME.crt shows a key",
            )
        return plain

    def _info(self, direction: Direction) -> bytes:
        return "\n".join((_CONTEXT, self.federation, direction, self.party)).encode("utf-8")


def bundle_encryption(federation: Federation, key: Path, party: str, *, at_miner: bool) -> BundleEncryption:
    """Return what seals bundles between the miner and a party.

    Args:
        federation: pins the public keys of both sides.
        key: file of this side's private sealing key.
        party: its name.
        at_miner: this side is the miner.

    Raises:
        Misuse: CONFIG_INVALID, a key of the two is not pinned, or this side's is another one.
        DataFault: SECRET_MISSING.
    """
    key_pins = [("miner.sealing_key", federation.miner_sealing), (f"sealing.{party}", federation.sealing.get(party))]
    (own_name, own), (other_name, other) = key_pins if at_miner else reversed(key_pins)
    if own is None or other is None:
        raise Misuse(
            "CONFIG_INVALID",
            f"federation.toml: {own_name if own is None else other_name}: missing, so a bundle cannot be sealed",
            hint="verticil pki seal NAME.crt shows a node's key; or --plain, and anybody who finds the file can read it",
        )
    return BundleEncryption(own=load_sealing_key(key, own), other=other, federation=federation.name, party=party)


def _place(number: int, place: int) -> bytes:
    return number.to_bytes(8, "big") + place.to_bytes(8, "big")


PIECE_BYTES: Final = 524_288
_MAGIC: Final = b"VERTICIL-CARRIED-1\n"
_BLOCK: Final = 1 << 20

Sign = Callable[[bytes], common_pb2.Signed]


def pack(
    entries: BundleEntries,
    target: Path,
    statement: Statement,
    *,
    sign: Sign,
    encryption: BundleEncryption | None,
    before: Callable[[bytes], None],
) -> Statement:
    """Write a bundle.

    Args:
        entries: what is in it.
        target: the file to make.
        statement: what to say of it; `sealed`, `size` and `pieces` are filled in here.
        sign: signs the statement.
        encryption: seals the pieces; None: they are plain.
        before: called with the statement's bytes when all is ready, right before the file is written.

    Returns:
        The statement as it was signed.

    Raises:
        Misuse: FILE_EXISTS; FILE_MISSING, nothing can be written there.
        DataFault: DISK_FULL.
    """
    if target.exists():
        raise Misuse("FILE_EXISTS", f"{target}: exists already and is not overwritten", hint="name another file")
    body = entries.folder / "content.part"
    try:
        digests, size = [], 0
        with body.open("wb") as file:
            for place, piece in enumerate(_pieces(entries)):
                size += len(piece)
                piece_bytes = piece
                if encryption is not None:
                    piece_bytes = encryption.seal(
                        piece, direction=statement.direction, number=statement.number, place=place
                    )
                file.write(piece_bytes)
                digests.append(hashlib.sha256(piece_bytes).digest())
        full_statement = replace(statement, sealed=encryption is not None, size=size, pieces=tuple(digests))
        body_of_it = encode(full_statement)
        signed = sign(body_of_it).SerializeToString()
        before(body_of_it)
        _write(target, signed, body)
    except OSError as error:
        raise write_fault(error, target) from None
    return full_statement


def read_statement(path: Path) -> tuple[Statement, common_pb2.Signed]:
    """Return what a file says of itself; nothing of it is verified.

    Raises:
        Misuse: FILE_MISSING.
        GateFailed: BUNDLE_INVALID.
    """
    with _open_bundle(path) as file:
        return _head(file, path)


def unpack(path: Path, folder: Path, *, encryption: BundleEncryption | None) -> BundleEntries:
    """Write the content of a bundle, whose statement the caller has verified, into a new folder.

    Args:
        path: the bundle.
        folder: to be made; the caller removes it if this raises.
        encryption: opens sealed pieces; None: there is no key.

    Raises:
        Misuse: FILE_MISSING; CONFIG_INVALID, it is sealed and there is no key.
        GateFailed: BUNDLE_INVALID, with the place.
        DataFault: DISK_FULL.
    """
    with _open_bundle(path) as file:
        statement, _ = _head(file, path)
        if statement.sealed and encryption is None:
            raise Misuse(
                "CONFIG_INVALID",
                f"{path.name}: is sealed, and federation.toml lacks a sealing key of the party or of the miner",
                hint="verticil pki seal NAME.crt shows a key: a party's stands in [sealing], the miner's in [miner]",
            )
        try:
            folder.mkdir(mode=0o700)
            entries = BundleEntries(folder)
            content = _Content(_read_pieces(file, path, statement, encryption))
            while (length := content.exactly(_LENGTH_BYTES, or_end=True)) is not None:
                entry = parse_entry(content.exactly(int.from_bytes(length, "big")) or b"")
                payload = entries.payload() if entry.payload_size else None
                if payload is not None:
                    with payload.open("wb") as out:
                        content.copy(entry.payload_size, out)
                entries.add(entry, payload)
            entries.keep()
        except OSError as error:
            raise write_fault(error, folder) from None
        except GateFailed as error:
            raise GateFailed(error.code, f"{path.name}: {error.message}", hint=error.hint) from None
    return entries


def _pieces(entries: BundleEntries) -> Iterator[bytes]:
    waiting = bytearray()
    for item in entries:
        data = item.entry.SerializeToString()
        waiting += len(data).to_bytes(_LENGTH_BYTES, "big") + data
        if item.payload is not None:
            with item.payload.open("rb") as file:
                while block := file.read(_BLOCK):
                    waiting += block
                    while len(waiting) >= PIECE_BYTES:
                        yield bytes(waiting[:PIECE_BYTES])
                        del waiting[:PIECE_BYTES]
    while waiting:
        yield bytes(waiting[:PIECE_BYTES])
        del waiting[:PIECE_BYTES]


def _write(target: Path, signed: bytes, body: Path) -> None:
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    part = Path(name)
    try:
        with open(descriptor, "wb") as file, body.open("rb") as content:
            file.write(_MAGIC + len(signed).to_bytes(_LENGTH_BYTES, "big") + signed)
            while block := content.read(_BLOCK):
                file.write(block)
            file.flush()
            sync_file(file.fileno(), part)
        rename(part, target)
        sync_directory(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


@contextlib.contextmanager
def _open_bundle(path: Path) -> Generator[BinaryIO]:
    try:
        file = path.open("rb")
    except OSError as error:
        raise Misuse("FILE_MISSING", f"{path}: cannot be read ({error.strerror})", hint="name a bundle") from None
    with file:
        yield file


def _head(file: BinaryIO, path: Path) -> tuple[Statement, common_pb2.Signed]:
    begin = file.read(len(_MAGIC) + _LENGTH_BYTES)
    if not begin.startswith(_MAGIC):
        raise GateFailed("BUNDLE_INVALID", f"{path.name}: is not a bundle of this program", hint="name another file")
    length = int.from_bytes(begin[len(_MAGIC) :], "big")
    n_left = os.fstat(file.fileno()).st_size - file.tell()
    if len(begin) < len(_MAGIC) + _LENGTH_BYTES or length > min(n_left, STATEMENT_BYTES):
        raise _cut_off(path, "in the statement at its beginning")
    try:
        signed = common_pb2.Signed.FromString(file.read(length))
    except DecodeError:
        raise GateFailed("BUNDLE_INVALID", f"{path.name}: the statement at its beginning was altered") from None
    try:
        return parse_statement(signed.body), signed
    except GateFailed as error:
        raise GateFailed(error.code, f"{path.name}: {error.message}") from None


def _read_pieces(
    file: BinaryIO, path: Path, statement: Statement, encryption: BundleEncryption | None
) -> Iterator[bytes]:
    """Yield the verified plain pieces of the content."""
    overhead = OVERHEAD if statement.sealed else 0
    for place, digest in enumerate(statement.pieces):
        begin, n_left = file.tell(), statement.size - place * PIECE_BYTES
        length = min(PIECE_BYTES, n_left) + overhead
        if n_left <= 0:
            raise GateFailed("BUNDLE_INVALID", "the statement lists more pieces than its size has")
        piece_bytes = file.read(length)
        if len(piece_bytes) < length:
            raise _cut_off(
                path, f"after {begin + len(piece_bytes):,} bytes, in piece {place} of {len(statement.pieces)}"
            )
        if hashlib.sha256(piece_bytes).digest() != digest:
            raise GateFailed(
                "BUNDLE_INVALID",
                f"was altered in piece {place}, bytes {begin:,} to {begin + length:,} of the file",
                hint="nothing of it was taken in; have the file copied again from where it was made",
            )
        if statement.sealed and encryption is not None:
            piece_bytes = encryption.open(
                piece_bytes, direction=statement.direction, number=statement.number, place=place
            )
        yield piece_bytes
    if len(statement.pieces) * PIECE_BYTES < statement.size:
        raise GateFailed("BUNDLE_INVALID", "the statement lists fewer pieces than its size has")
    if file.read(1):
        raise GateFailed("BUNDLE_INVALID", f"has bytes after its end at {file.tell() - 1:,}")


def _cut_off(path: Path, where: str) -> GateFailed:
    return GateFailed(
        "BUNDLE_INVALID",
        f"{path.name}: is cut off {where}" if not where.startswith("after") else f"is cut off {where}",
        hint="nothing of it was taken in; have the file copied again from where it was made",
    )


class _Content:
    """Reads the pieces as one stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._held = bytearray()

    def exactly(self, size: int, *, or_end: bool = False) -> bytes | None:
        """Return the next `size` bytes; None at the end, where that is allowed."""
        if size > ENTRY_BYTES:
            raise GateFailed("BUNDLE_INVALID", f"an entry of {size} bytes, expected at most {ENTRY_BYTES}")
        while len(self._held) < size:
            piece = next(self._pieces, None)
            if piece is None:
                if or_end and not self._held:
                    return None
                raise GateFailed("BUNDLE_INVALID", "its content ends within an entry")
            self._held += piece
        data = bytes(self._held[:size])
        del self._held[:size]
        return data

    def copy(self, size: int, out: BinaryIO) -> None:
        """Write the next `size` bytes to a file."""
        while size:
            if not self._held:
                self._held += next(self._pieces, b"")
                if not self._held:
                    raise GateFailed("BUNDLE_INVALID", "its content ends within a payload")
            block = self._held[:size]
            out.write(block)
            size -= len(block)
            del self._held[: len(block)]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedBundle:
    """A bundle whose statement holds.

    Attributes:
        statement: what it says.
        sha256: names it.
        maker: who signed it.
        certificate: that it was signed with.
    """

    statement: Statement
    sha256: bytes
    maker: Identity
    certificate: x509.Certificate

    @property
    def reference(self) -> Reference:
        """The number and SHA-256 of the bundle."""
        return Reference(number=self.statement.number, sha256=self.sha256)


def verify_bundle(
    path: Path,
    *,
    federation: str,
    direction: Direction,
    party: str | None,
    authority: bytes,
    revocations: Revocations,
    at: dt.datetime,
) -> VerifiedBundle:
    """Verify the statement of a bundle.

    Args:
        path: the file.
        federation: this side's.
        direction: in which bundles for this side travel.
        party: this party's name; None at the miner, which takes those of any.
        authority: certificate of the federation's authority.
        revocations: the deny-list.
        at: now.

    Raises:
        Misuse: FILE_MISSING.
        GateFailed: BUNDLE_INVALID, no bundle, or one for somebody else.
        PeerFault: CERTIFICATE_INVALID, CERTIFICATE_REVOKED, IDENTITY_REFUSED, MESSAGE_INVALID (the signature is not one),
            VERSION_UNSUPPORTED.
    """
    statement, signed = read_statement(path)
    for what, actual, target, hint in (
        ("federation", statement.federation, federation, "name a bundle of this federation"),
        ("direction", statement.direction, direction, "import at the other side what this side exported"),
        ("party", statement.party, statement.party if party is None else party, "it belongs at that party's site"),
    ):
        if actual != target:
            raise GateFailed(
                "BUNDLE_INVALID", f"{path.name}: {what} is '{printable(actual)}', expected '{target}'", hint=hint
            )
    to_miner = direction == "to-miner"
    maker = verify_signed(
        signed,
        authority,
        role=Role.PARTY if to_miner else Role.MINER,
        name=statement.party if to_miner else None,
        at=at,
    )
    certificate = x509.load_der_x509_certificate(signed.certificate)
    check_revoked(certificate.serial_number, maker, revocations)
    agree(statement.protocol, here="this side", there="the side that made the bundle")
    return VerifiedBundle(statement=statement, sha256=digest_of(signed.body), maker=maker, certificate=certificate)
