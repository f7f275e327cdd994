"""Keys, certificates, credentials and signed statements. The chains are also verified by OpenSSL's command line."""

from __future__ import annotations

import datetime as dt
import shutil
import stat
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.config import Federation
from verticil.shared.federation.identity.authority import (
    IssuedFiles,
    create_authority,
    issue,
    open_authority,
    private_pem,
)
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import (
    DEMO_MARKER,
    SIGNING_PURPOSE,
    check_serves,
    identity_of,
    is_demo_authority,
    load_credentials,
    read_certificates,
)
from verticil.shared.federation.identity.signing import SigningKey, verify_signed
from verticil.wire.v1 import common_pb2

NOW = dt.datetime(2026, 11, 21, 10, 0, 0, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)


def federation(authority: Path, name: str = "fed", sha256: str | None = None) -> Federation:
    ca = authority / "ca.crt"
    return Federation(
        name=name,
        ca_certificate=ca,
        ca_sha256=sha256 or x509.load_pem_x509_certificate(ca.read_bytes()).fingerprint(hashes.SHA256()).hex(),
        endpoint="localhost:1",
        idle_timeout_seconds=1.0,
        chunk_bytes=1024,
    )


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("pki")
    for name in ("a", "b"):
        create_authority(home / name, "fed", at=NOW)
        issue(home / name, "alice", Role.PARTY, home / f"{name}-nodes", at=NOW)
        issue(home / name, "miner", Role.MINER, home / f"{name}-nodes", hosts=["localhost", "127.0.0.1", "::1"], at=NOW)
    return home


def files(home: Path, name: str, authority: str = "a") -> IssuedFiles:
    base = home / f"{authority}-nodes" / name
    return IssuedFiles(
        certificate=base.with_suffix(".crt"),
        key=base.with_suffix(".key"),
        signing_key=base.with_suffix(".sign"),
        not_after=NOW,
    )


def fails(code: str, call: Callable[[], object]) -> VerticilError:
    with pytest.raises(VerticilError) as caught:
        call()
    assert caught.value.code == code, caught.value
    return caught.value


def test_files_have_the_right_modes_and_are_never_overwritten(home: Path, tmp_path: Path) -> None:
    alice = files(home, "alice")
    for path, mode in (
        (alice.key, 0o600),
        (alice.signing_key, 0o600),
        (alice.certificate, 0o644),
        (home / "a" / "ca.key", 0o600),
    ):
        assert stat.S_IMODE(path.stat().st_mode) == mode
    before = {path: path.read_bytes() for path in alice.key.parent.iterdir()}
    fails("FILE_EXISTS", lambda: issue(home / "a", "alice", Role.PARTY, alice.key.parent, at=NOW))
    fails("FILE_EXISTS", lambda: create_authority(home / "a", "fed", at=NOW))
    assert {path: path.read_bytes() for path in alice.key.parent.iterdir()} == before
    (tmp_path / "bob.sign").write_bytes(b"somebody's")
    fails("FILE_EXISTS", lambda: issue(home / "a", "bob", Role.PARTY, tmp_path, at=NOW))
    assert [path.name for path in tmp_path.iterdir()] == ["bob.sign"]


def test_a_certificate_file_holds_the_tls_and_then_the_signing_certificate_of_one_identity(home: Path) -> None:
    tls, signing = read_certificates(files(home, "miner").certificate)
    assert identity_of(tls) == identity_of(signing) == Identity(federation="fed", role=Role.MINER, name="miner")
    assert isinstance(signing.public_key(), ed25519.Ed25519PublicKey)
    names = tls.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    # printf verticil://fed/miner/miner | sha256sum | cut -c-40
    own = "49a16561a7d500ce41afcb0639d097110df4d381.verticil"
    assert names.get_values_for_type(x509.DNSName) == [own, "localhost"]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]


def test_only_a_certificate_with_hosts_carries_the_name_that_peers_ask_for(home: Path, tmp_path: Path) -> None:
    issue(home / "a", "bob", Role.PARTY, tmp_path, hosts=["bob.example.org"], at=NOW)
    at = NOW + DAY
    bob = load_credentials(tmp_path / "bob.crt", tmp_path / "bob.key", federation(home / "a"), at=at)
    check_serves(bob)
    alice = load_credentials(files(home, "alice").certificate, files(home, "alice").key, federation(home / "a"), at=at)
    error = fails("CERTIFICATE_INVALID", lambda: check_serves(alice))
    assert "verticil://fed/party/alice" in error.message
    assert "--host" in error.hint
    fails("CERTIFICATE_INVALID", lambda: check_serves(replace(bob, identity=alice.identity)))


@pytest.mark.machine
@pytest.mark.parametrize(
    ("name", "purpose", "accepted"),
    [
        ("miner", "sslserver", True),
        ("miner", "sslclient", True),
        ("alice", "sslclient", True),
        ("alice", "sslserver", False),
    ],
)
def test_openssl_agrees_with_the_profiles(
    home: Path, program: Callable[[str], str], name: str, purpose: str, accepted: bool
) -> None:
    command = [program("openssl"), "verify", "-x509_strict", "-attime", str(int(NOW.timestamp())), "-purpose", purpose]
    done = subprocess.run(
        [*command, "-CAfile", home / "a" / "ca.crt", files(home, name).certificate], capture_output=True, check=False
    )
    assert (done.returncode == 0) is accepted, done.stderr


@pytest.mark.machine
def test_openssl_refuses_the_signing_certificate_for_tls(
    home: Path, tmp_path: Path, program: Callable[[str], str]
) -> None:
    chain = files(home, "miner").certificate.read_bytes()
    (tmp_path / "signing.crt").write_bytes(b"-----BEGIN" + chain.split(b"-----BEGIN")[2])
    command = [
        program("openssl"),
        "verify",
        "-x509_strict",
        "-attime",
        str(int(NOW.timestamp())),
        "-CAfile",
        home / "a" / "ca.crt",
    ]
    for arguments, accepted in (([], True), (["-purpose", "sslclient"], False), (["-purpose", "sslserver"], False)):
        done = subprocess.run([*command, *arguments, tmp_path / "signing.crt"], capture_output=True, check=False)
        assert (done.returncode == 0) is accepted


def test_credentials_load_and_never_show_the_key(home: Path) -> None:
    alice = files(home, "alice")
    credentials = load_credentials(
        alice.certificate, alice.key, federation(home / "a"), role=Role.PARTY, name="alice", at=NOW
    )
    assert credentials.identity.uri == "verticil://fed/party/alice"
    assert credentials.not_after == NOW + 90 * DAY
    assert not credentials.is_demo
    assert "PRIVATE" not in repr(credentials)


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("CERTIFICATE_INVALID", {"at": NOW + 91 * DAY}),
        ("CERTIFICATE_INVALID", {"at": NOW - DAY}),
        ("CERTIFICATE_INVALID", {"certificate": "b-nodes/alice.crt", "key": "b-nodes/alice.key"}),
        ("CERTIFICATE_INVALID", {"key": "a-nodes/miner.key"}),
        ("CERTIFICATE_INVALID", {"key": "a-nodes/alice.sign"}),
        ("CERTIFICATE_INVALID", {"key": "a-nodes/alice.crt"}),
        ("CERTIFICATE_INVALID", {"certificate": "a-nodes/alice.key"}),
        ("CERTIFICATE_INVALID", {"sha256": "0" * 64}),
        ("IDENTITY_REFUSED", {"role": Role.MINER}),
        ("IDENTITY_REFUSED", {"name": "bob"}),
        ("IDENTITY_REFUSED", {"federation_name": "other"}),
        ("SECRET_MISSING", {"key": "absent.key"}),
        ("FILE_MISSING", {"certificate": "absent.crt"}),
    ],
    ids=str,
)
def test_what_does_not_belong_together_is_refused(home: Path, code: str, change: dict[str, Any]) -> None:
    given = {
        "certificate": "a-nodes/alice.crt",
        "key": "a-nodes/alice.key",
        "at": NOW,
        "role": None,
        "name": None,
    } | change
    ours = federation(home / "a", name=str(given.pop("federation_name", "fed")), sha256=given.pop("sha256", None))  # type: ignore[arg-type]
    certificate, key = home / str(given.pop("certificate")), home / str(given.pop("key"))
    error = fails(code, lambda: load_credentials(certificate, key, ours, **given))  # type: ignore[arg-type]
    assert "BEGIN" not in str(error)


def test_an_expired_certificate_says_so_and_since_when(home: Path) -> None:
    alice = files(home, "alice")
    error = fails(
        "CERTIFICATE_INVALID",
        lambda: load_credentials(alice.certificate, alice.key, federation(home / "a"), at=NOW + 100 * DAY),
    )
    assert "this machine's clock (2027-03-01T10:00:00Z) it expired at 2027-02-19T10:00:00Z" in error.message
    assert error.exit_code == 5


def test_a_demo_authority_is_marked_and_lives_for_a_day(tmp_path: Path) -> None:
    create_authority(tmp_path / "demo", "fed", demo=True, days=30, at=NOW)
    create_authority(tmp_path / "real", "fed", days=1, at=NOW)
    demo, real = (read_certificates(tmp_path / name / "ca.crt")[0] for name in ("demo", "real"))
    assert demo.not_valid_after_utc - demo.not_valid_before_utc == DAY
    assert is_demo_authority(demo)
    assert not is_demo_authority(real)
    node = issue(tmp_path / "demo", "alice", Role.PARTY, tmp_path, days=90, at=NOW)
    assert node.not_after == demo.not_valid_after_utc
    assert load_credentials(node.certificate, node.key, federation(tmp_path / "demo"), at=NOW).is_demo


def test_a_marked_authority_that_lives_longer_is_no_demo_authority() -> None:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    for hours, demo in ((24, True), (25, False)):
        authority = (
            x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + dt.timedelta(hours=hours))
            .add_extension(x509.UnrecognizedExtension(DEMO_MARKER, b"\x05\x00"), critical=False)
            .sign(key, hashes.SHA256())
        )
        assert is_demo_authority(authority) is demo


@pytest.mark.parametrize(
    ("name", "role", "hosts", "days"),
    [
        ("a/b", Role.PARTY, [], 90),
        ("", Role.PARTY, [], 90),
        ("m", Role.MINER, [], 90),
        ("m", Role.MINER, ["host:8443"], 90),
        ("m", Role.MINER, ["höst"], 90),
        ("m", Role.MINER, ["*.verticil"], 90),
        ("m", Role.PARTY, ["49a16561a7d500ce41afcb0639d097110df4d381.Verticil"], 90),
        ("a", Role.PARTY, [], 0),
    ],
)
def test_bad_requests_make_no_files(
    home: Path, tmp_path: Path, name: str, role: Role, hosts: list[str], days: int
) -> None:
    fails("CONFIG_INVALID", lambda: issue(home / "a", name, role, tmp_path, hosts=hosts, days=days, at=NOW))
    assert not list(tmp_path.iterdir())


def test_issuing_needs_a_valid_authority_and_its_key(home: Path, tmp_path: Path) -> None:
    fails("FILE_MISSING", lambda: issue(tmp_path, "a", Role.PARTY, tmp_path, at=NOW))
    fails("CERTIFICATE_INVALID", lambda: issue(home / "a", "late", Role.PARTY, tmp_path, at=NOW + 400 * DAY))
    shutil.copy(home / "a" / "ca.crt", tmp_path)
    fails("SECRET_MISSING", lambda: issue(tmp_path, "a", Role.PARTY, tmp_path, at=NOW))
    shutil.copy(home / "b" / "ca.key", tmp_path)
    fails("CERTIFICATE_INVALID", lambda: issue(tmp_path, "a", Role.PARTY, tmp_path, at=NOW))


# --- signed statements ----------------------------------------------------------------------------------------------------


@pytest.fixture
def signer(home: Path) -> SigningKey:
    miner = files(home, "miner")
    return SigningKey.load(miner.signing_key, miner.certificate)


@pytest.fixture
def ca(home: Path) -> bytes:
    return (home / "a" / "ca.crt").read_bytes()


def test_a_statement_verifies_and_the_signature_is_over_the_body_itself(signer: SigningKey, ca: bytes) -> None:
    signed = signer.sign(b'{"a":1}')
    assert signed == signer.sign(b'{"a":1}')
    for authority in (ca, x509.load_pem_x509_certificate(ca).public_bytes(Encoding.DER)):
        assert verify_signed(signed, authority, role=Role.MINER, name="miner", at=NOW) == signer.identity
    key = x509.load_der_x509_certificate(signed.certificate).public_key()
    assert isinstance(key, ed25519.Ed25519PublicKey)
    key.verify(signed.signature, b'{"a":1}')


def test_a_release_outlives_its_signers_certificate_but_a_new_approval_does_not(signer: SigningKey, ca: bytes) -> None:
    signed = signer.sign(b"x")
    verify_signed(signed, ca, role=Role.MINER)
    fails("CERTIFICATE_INVALID", lambda: verify_signed(signed, ca, role=Role.MINER, at=NOW + 91 * DAY))
    fails("CERTIFICATE_INVALID", lambda: verify_signed(signed, ca, role=Role.MINER, at=NOW - DAY))


def test_feature_29_a_statement_of_a_revoked_certificate_is_refused_unless_it_is_older(
    signer: SigningKey, ca: bytes
) -> None:
    signed = signer.sign(b"x")
    revoked = {x509.load_der_x509_certificate(signed.certificate).serial_number: NOW}
    for at in (NOW, NOW + DAY, None):
        fails("CERTIFICATE_REVOKED", lambda at=at: verify_signed(signed, ca, role=Role.MINER, at=at, deny_list=revoked))  # type: ignore[misc]
    earlier = NOW - dt.timedelta(seconds=1)
    verify_signed(signed, ca, role=Role.MINER, at=earlier, deny_list=revoked)
    later = dict.fromkeys(revoked, NOW + DAY)
    for known in (None, {}, {1: NOW}, later):
        verify_signed(signed, ca, role=Role.MINER, at=NOW, deny_list=known)


def test_statements_that_do_not_hold(home: Path, signer: SigningKey, ca: bytes) -> None:
    signed = signer.sign(b"body")

    def verify(**changes: bytes) -> Any:
        changed = common_pb2.Signed(body=signed.body, signature=signed.signature, certificate=signed.certificate)
        for name, value in changes.items():
            setattr(changed, name, value)
        return verify_signed(changed, ca, role=Role.MINER, name="miner", at=NOW)

    assert verify()
    fails("MESSAGE_INVALID", lambda: verify(body=b"bodY"))
    fails("MESSAGE_INVALID", lambda: verify(signature=signed.signature[:-1]))
    fails("MESSAGE_INVALID", lambda: verify(signature=b""))
    for position in range(0, 64, 7):
        forged = bytearray(signed.signature)
        forged[position] ^= 1
        fails("MESSAGE_INVALID", lambda forged=forged: verify(signature=bytes(forged)))
    fails("CERTIFICATE_INVALID", lambda: verify(certificate=b""))
    fails("CERTIFICATE_INVALID", lambda: verify(certificate=b"\x30" * 100_000))
    tls = read_certificates(files(home, "miner").certificate)[0].public_bytes(Encoding.DER)
    fails("CERTIFICATE_INVALID", lambda: verify(certificate=tls))
    other = files(home, "miner", "b")
    foreign = SigningKey.load(other.signing_key, other.certificate).sign(b"body")
    fails("CERTIFICATE_INVALID", lambda: verify_signed(foreign, ca, role=Role.MINER))
    fails("IDENTITY_REFUSED", lambda: verify_signed(signed, ca, role=Role.PARTY))
    fails("IDENTITY_REFUSED", lambda: verify_signed(signed, ca, role=Role.MINER, name="other"))


def _certified(
    authority: Path, key: ed25519.Ed25519PrivateKey, *, uri: str, purpose: x509.ObjectIdentifier
) -> SigningKey:
    """What this authority's own key signs, valid for ten years, whatever it would refuse to sign as a program."""
    issuer = open_authority(authority, at=NOW)
    certificate = (
        x509.CertificateBuilder(
            issuer_name=issuer.certificate.subject,
            subject_name=x509.Name([]),
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=NOW - DAY,
            not_valid_after=NOW + 3650 * DAY,
        )
        .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        .sign(issuer.key, hashes.SHA256())
    )
    return SigningKey(key, certificate)


def test_only_a_certificate_for_signing_signs_statements_of_its_own_federation_while_the_authority_holds(
    home: Path, ca: bytes
) -> None:
    """Each of the four alone, all the rest in order: the purpose, the federation, the authority's end."""
    key = ed25519.Ed25519PrivateKey.generate()
    good = {"uri": "verticil://fed/miner/miner", "purpose": SIGNING_PURPOSE}

    def verified(at: dt.datetime | None = NOW, **changes: Any) -> Identity:
        signed = _certified(home / "a", key, **{**good, **changes}).sign(b"body")  # type: ignore[arg-type]
        return verify_signed(signed, ca, role=Role.MINER, at=at)

    assert str(verified()) == good["uri"]
    error = fails("CERTIFICATE_INVALID", lambda: verified(purpose=ExtendedKeyUsageOID.CLIENT_AUTH))
    assert "not one for signing" in error.message
    error = fails("IDENTITY_REFUSED", lambda: verified(uri="verticil://other/miner/miner"))
    assert "federation is 'other', expected 'fed'" in error.message
    assert verified(at=NOW + 364 * DAY)
    error = fails("CERTIFICATE_INVALID", lambda: verified(at=NOW + 400 * DAY))
    assert error.message.startswith("authority: by this machine's clock (2027-")


def test_credentials_of_an_expired_authority_or_another_federation_are_refused(home: Path, tmp_path: Path) -> None:
    """The node's own certificate is valid, and issued by the authority: it is the authority that ended, or another's name."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = open_authority(home / "a", at=NOW)

    def load(uri: str, at: dt.datetime) -> Identity:
        certificate = (
            x509.CertificateBuilder(
                issuer.certificate.subject, x509.Name([]), key.public_key(), 7, NOW - DAY, NOW + 3650 * DAY
            )
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(uri)]), critical=False)
            .sign(issuer.key, hashes.SHA256())
        )
        (tmp_path / "node.crt").write_bytes(certificate.public_bytes(Encoding.PEM))
        return load_credentials(
            tmp_path / "node.crt", tmp_path / "node.key", federation(home / "a"), at=at
        ).identity  # fmt: skip

    (tmp_path / "node.key").write_bytes(private_pem(key))
    ours = "verticil://fed/party/alice"
    assert load(ours, NOW).uri == ours
    error = fails("CERTIFICATE_INVALID", lambda: load(ours, NOW + 400 * DAY))
    assert error.message.startswith(f"{home / 'a' / 'ca.crt'}: by this machine's clock (")
    error = fails("IDENTITY_REFUSED", lambda: load("verticil://other/party/alice", NOW))
    assert "federation is 'other', expected 'fed'" in error.message


def test_a_party_cannot_sign_for_the_miner(home: Path, signer: SigningKey, ca: bytes) -> None:
    alice = files(home, "alice")
    by_alice = SigningKey.load(alice.signing_key, alice.certificate).sign(b"body")
    fails("IDENTITY_REFUSED", lambda: verify_signed(by_alice, ca, role=Role.MINER))
    by_alice.certificate = signer.certificate
    fails("MESSAGE_INVALID", lambda: verify_signed(by_alice, ca, role=Role.MINER))


def test_a_signing_key_needs_its_own_certificate(home: Path) -> None:
    alice, miner = files(home, "alice"), files(home, "miner")
    fails("CERTIFICATE_INVALID", lambda: SigningKey.load(alice.signing_key, miner.certificate))
    fails("CERTIFICATE_INVALID", lambda: SigningKey.load(alice.key, alice.certificate))
    fails("CERTIFICATE_INVALID", lambda: SigningKey.load(alice.certificate, alice.certificate))
    fails(
        "SECRET_MISSING",
        lambda: SigningKey.load(replace(alice, signing_key=home / "absent").signing_key, alice.certificate),
    )
