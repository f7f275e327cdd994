"""Feature 38: the file itself. What is read is what was written, and whatever byte is changed or missing, it is refused."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from verticil.shared.core.errors import GateFailed, PeerFault, VerticilError
from verticil.shared.federation.airgap.bundle import (
    PIECE_BYTES,
    BundleEncryption,
    BundleEntries,
    Reference,
    Statement,
    pack,
    unpack,
    verify_bundle,
)
from verticil.shared.federation.airgap.exchange import Journal, check_arrival, load_journal, store_journal
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.authorization import EMPTY_DENY_LIST
from verticil.wire.v1 import carried_pb2, coordinator_pb2

NOW = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)
SAID = Statement(
    federation="fed",
    direction="to-miner",
    party="clinic",
    number=3,
    answers=Reference(number=2, sha256=bytes(32)),
    made_at=NOW,
    protocol=2,
    sealed=False,
    size=0,
    pieces=(),
)


@pytest.fixture(scope="module")
def ca(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ca")
    create_authority(folder / "ca", "fed", at=NOW)
    issue(folder / "ca", "clinic", Role.PARTY, folder / "pki", at=NOW)
    return folder


def write(ca: Path, place: Path, *payloads: bytes, encryption: BundleEncryption | None = None) -> Path:
    place.mkdir()
    entries = BundleEntries(place)
    for number, payload in enumerate(payloads):
        column = coordinator_pb2.BeginUploadRequest(unit=number, size=len(payload))
        entries.add(carried_pb2.CarriedEntry(column=column), payload)
    key = SigningKey.load(ca / "pki" / "clinic.sign", ca / "pki" / "clinic.crt")
    pack(entries, place / "bundle", SAID, sign=key.sign, encryption=encryption, before=lambda _: None)
    return place / "bundle"


def read(ca: Path, file: Path, place: Path, *, encryption: BundleEncryption | None = None) -> list[bytes]:
    verify_bundle(
        file,
        federation="fed",
        direction="to-miner",
        party=None,
        authority=(ca / "ca" / "ca.crt").read_bytes(),
        revocations=EMPTY_DENY_LIST,
        at=NOW,
    )
    return [item.payload.read_bytes() if item.payload else b"" for item in unpack(file, place, encryption=encryption)]


def covers() -> tuple[BundleEncryption, BundleEncryption]:
    one, two = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    publics = [key.public_key().public_bytes_raw() for key in (one, two)]
    return (
        BundleEncryption(own=one, other=publics[1], federation="fed", party="clinic"),
        BundleEncryption(own=two, other=publics[0], federation="fed", party="clinic"),
    )


@pytest.mark.parametrize("sealed", [False, True])
def test_feature_38_what_is_read_is_what_was_written(ca: Path, tmp_path: Path, sealed: bool) -> None:
    out, back = covers() if sealed else (None, None)
    payloads = [b"", b"raw" * 9, bytes(range(256)) * (2 * PIECE_BYTES // 256) + b"end"]
    file = write(ca, tmp_path / "out", *payloads, encryption=out)
    assert read(ca, file, tmp_path / "in", encryption=back) == payloads
    kept = BundleEntries.read(tmp_path / "in")
    assert kept is not None
    assert [item.entry.column.unit for item in kept] == [0, 1, 2]
    assert (b"rawrawraw" in file.read_bytes()) is not sealed


def test_feature_38_only_the_recipient_opens_a_sealed_file(ca: Path, tmp_path: Path) -> None:
    file = write(ca, tmp_path / "out", b"x", encryption=covers()[0])
    with pytest.raises(GateFailed, match="piece 0: not sealed with the keys"):
        read(ca, file, tmp_path / "in", encryption=covers()[1])


def test_feature_38_no_byte_can_be_changed_or_missing(ca: Path, tmp_path: Path) -> None:
    data = write(ca, tmp_path / "out", b"payload").read_bytes()
    file = tmp_path / "file"
    for at in range(0, len(data), 7):
        changed = bytearray(data)
        changed[at] ^= 0x10
        for number, content in enumerate((bytes(changed), data[:at])):
            file.write_bytes(content)
            with pytest.raises((GateFailed, PeerFault)):
                read(ca, file, tmp_path / f"in-{at}-{number}")


def test_feature_38_a_bundle_counts_once_and_in_order(tmp_path: Path) -> None:
    made, first = Reference(number=2, sha256=bytes(32)), Reference(number=3, sha256=b"\1" * 32)
    journal = Journal(told={}).with_made(made, (("withdrawal", bytes(32)),)).with_taken(first)
    store_journal(tmp_path, journal)
    journal = load_journal(tmp_path)
    assert (journal.made, journal.taken, journal.next_number) == ((made,), (first,), 3)
    assert check_arrival(journal, SAID, first.sha256) is None
    with pytest.raises(GateFailed, match="another one of the same number"):
        check_arrival(journal, SAID, b"\2" * 32)
    empty = Journal(told={})
    with pytest.raises(GateFailed, match=r"answers bundle 2 .* which did not make it"):
        check_arrival(empty, SAID, first.sha256)
    grown = check_arrival(empty, SAID, first.sha256, accept_older=True)
    assert grown is not None
    assert grown.next_number == 3


@pytest.mark.machine
def test_feature_38_a_full_disk_leaves_no_part_of_a_file(ca: Path, tmp_path: Path, small_disk: object) -> None:
    del small_disk
    stick = tmp_path / "disk"
    place = tmp_path / "out"
    place.mkdir()
    entries = BundleEntries(place)
    entries.add(carried_pb2.CarriedEntry(column=coordinator_pb2.BeginUploadRequest()), bytes(64 * 2**20))
    key = SigningKey.load(ca / "pki" / "clinic.sign", ca / "pki" / "clinic.crt")
    before = set(stick.iterdir())
    with pytest.raises(VerticilError, match="DISK_FULL"):
        pack(entries, stick / "bundle", SAID, sign=key.sign, encryption=None, before=lambda _: None)
    assert set(stick.iterdir()) == before
