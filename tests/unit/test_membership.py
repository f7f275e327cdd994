"""Joining a federation with keys made at each site, renewal, installation, revocation: the commands, and what they refuse.

Chains and the deny-list are also read by OpenSSL's command line, where it is there.
"""

from __future__ import annotations

import datetime as dt
import errno
import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from verticil.cli.main import main
from verticil.pki.register import RequestStatus, check_request, entries, revoke, sign_request
from verticil.pki.request import create_renewal, create_request, parse_request, read_request
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.config import Federation, load_federation
from verticil.shared.documents.foreign_files.reading import read_at_most
from verticil.shared.federation.identity.authority import ISSUED, create_authority, issue, open_authority
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import load_credentials, read_certificates
from verticil.shared.federation.identity.signing import SigningKey, verify_signed
from verticil.shared.federation.membership import revocation
from verticil.shared.federation.membership.current import certificate_state
from verticil.shared.federation.membership.installation import install
from verticil.shared.federation.membership.revocation import FILE_NAME, DenyList, make_list, number_of, parse_list
from verticil.shared.storage.disk import FollowedFiles

NOW = dt.datetime(2026, 11, 21, 10, 0, 0, tzinfo=dt.UTC)
DAY = dt.timedelta(days=1)
HASH = hashes.SHA256()
CLINIC = Identity(federation="fed", role=Role.PARTY, name="clinic")


def federation_of(home: Path) -> Federation:
    return Federation(
        name="fed",
        ca_certificate=home / "ca.crt",
        ca_sha256=read_certificates(home / "ca" / "ca.crt")[0].fingerprint(HASH).hex(),
        endpoint="localhost:1",
        idle_timeout_seconds=1.0,
        chunk_bytes=1024,
    )


@pytest.fixture
def home(tmp_path: Path) -> Path:
    create_authority(tmp_path / "ca", "fed", at=NOW)
    return tmp_path


def fails(code: str, call: Callable[[], object]) -> VerticilError:
    with pytest.raises(VerticilError) as caught:
        call()
    assert caught.value.code == code, caught.value
    return caught.value


def joined(home: Path, identity: Identity = CLINIC, *, at: dt.datetime = NOW, days: int = 90) -> Path:
    """A site with a certificate in `home`/NAME."""
    site = home / identity.name
    path, _ = create_request(site, identity)
    answer(home, path, at=at, days=days)
    return site


def answer(home: Path, request: Path, *, at: dt.datetime = NOW, days: int = 90, replace: bool = False) -> None:
    authority = open_authority(home / "ca", at=at)
    signed = home / f"{request.stem}-{at:%Y%m%d%H%M%S}.signed"
    sign_request(authority, read_request(request), signed, days=days, at=at, replace=replace)
    federation = federation_of(home)
    install(signed, request.parent, fingerprint=federation.ca_sha256, federation=federation, at=at)


# --- feature 8: keys are made at the site and stay there ---


def private_bytes(folder: Path) -> list[bytes]:
    """Every form in which the private keys of a folder could be found again: their lines of PEM, and their secret numbers."""
    found: list[bytes] = []
    for path in folder.rglob("*"):
        if path.suffix in {".key", ".sign", ".seal"}:
            pem = path.read_bytes()
            key = load_pem_private_key(pem, password=None)
            found += [line for line in pem.splitlines() if not line.startswith(b"-----")]
            if isinstance(key, ec.EllipticCurvePrivateKey):
                found.append(key.private_numbers().private_value.to_bytes(32, "big"))
            else:
                found.append(key.private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption()))
    return found


def assert_no_key_outside(root: Path, sites: list[Path]) -> None:
    for site in sites:
        own = private_bytes(site) if site.exists() else []
        for path in root.rglob("*"):
            if path.is_file() and not path.is_relative_to(site):
                content = path.read_bytes()
                assert not any(secret in content for secret in own), f"a key of {site.name} stands in {path}"
    for path in root.rglob("*"):
        if path.is_file() and b"PRIVATE KEY" in path.read_bytes():
            assert path.suffix in {".key", ".sign", ".seal"}
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            assert any(path.is_relative_to(site) for site in sites), path


def test_feature_08_no_private_key_is_ever_outside_its_own_sites_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The whole join of a miner, two parties and an analyst, command by command, and a renewal with new keys."""
    names = {"miner": "miner", "clinic": "party", "insurer": "party", "lee": "analyst"}
    sites = [tmp_path / "coordinator", *(tmp_path / name for name in names)]
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))
    shown: list[str] = []

    def run(*arguments: object) -> dict[str, Any]:
        assert main([*map(str, arguments), "--format", "json"]) == 0
        streams = capsys.readouterr()
        shown.append(streams.out + streams.err)
        assert_no_key_outside(tmp_path, sites)
        made: dict[str, Any] = json.loads(streams.out)
        return made

    authority = tmp_path / "coordinator" / "ca"
    fingerprint = run("pki", "init", "--federation", "fed", "--endpoint", "miner.org:1", "--out", authority)[
        "ca_sha256"
    ]
    for name, role in names.items():
        site = tmp_path / name
        site.mkdir()
        shutil.copy(authority / "federation.toml", site)
        folder = site / "pki"
        place = ["--dir", folder, "--federation", site / "federation.toml"]
        host = ["--host", "miner.org"] if role == "miner" else []
        asked = run("pki", "request", name, "--role", role, *place, *host)
        (sent := tmp_path / "mail" / f"{name}.req").parent.mkdir(exist_ok=True)
        shutil.copy(str(asked["request"]), sent)
        signed = run("pki", "sign", sent, "--ca", authority, "--role", role, "--yes")
        assert signed["key_hash"] == asked["key_hash"]
        installed = run("pki", "install", str(signed["signed"]), "--fingerprint", fingerprint, *place)
        assert installed["identity"] == f"verticil://fed/{role}/{name}"
        loaded = load_credentials(
            folder / f"{name}.crt", folder / f"{name}.key", load_federation(site / "federation.toml")
        )
        assert str(loaded.identity) == installed["identity"]
    before = set(private_bytes(tmp_path / "clinic"))
    renewal = run("pki", "renew", tmp_path / "clinic" / "pki" / "clinic.crt", "--new-keys")
    signed = run("pki", "sign", str(renewal["request"]), "--ca", authority, "--out", tmp_path / "mail" / "2.signed")
    run("pki", "install", str(signed["signed"]), "--fingerprint", fingerprint, *["--dir", tmp_path / "clinic" / "pki"],
        "--federation", tmp_path / "clinic" / "federation.toml")  # fmt: skip
    assert set(private_bytes(tmp_path / "clinic")) > before
    assert list((tmp_path / "tmp").iterdir()) == []
    assert "PRIVATE" not in "".join(shown)


def test_feature_08_the_search_for_keys_finds_one(tmp_path: Path) -> None:
    create_request(tmp_path / "clinic", CLINIC)
    assert_no_key_outside(tmp_path, [tmp_path / "clinic"])
    shutil.copy(tmp_path / "clinic" / "clinic.key", tmp_path / "copy.txt")
    with pytest.raises(AssertionError, match="a key of clinic stands in"):
        assert_no_key_outside(tmp_path, [tmp_path / "clinic"])


def test_keys_are_never_overwritten(home: Path) -> None:
    create_request(home / "clinic", CLINIC)
    before = {path: path.read_bytes() for path in (home / "clinic").iterdir()}
    fails("FILE_EXISTS", lambda: create_request(home / "clinic", CLINIC))
    assert {path: path.read_bytes() for path in (home / "clinic").iterdir()} == before


# --- requests ---


@pytest.mark.parametrize("part", ["tls", "signing"])
def test_a_request_whose_parts_were_changed_is_refused(home: Path, part: str) -> None:
    path, made = create_request(home / "clinic", CLINIC, hosts=["clinic.org", "10.0.0.5"])
    assert made.hosts == ("clinic.org", "10.0.0.5")
    assert (made.identity, made.renews) == (CLINIC, None)
    assert read_request(path).key_hash == made.key_hash
    other_path, _ = create_request(home / "b", Identity(federation="fed", role=Role.MINER, name="clinic"))
    document, other = json.loads(path.read_bytes()), json.loads(other_path.read_bytes())
    mixed = json.dumps({**document, part: other[part]}).encode()
    fails("CERTIFICATE_INVALID", lambda: parse_request(mixed))  # two identities
    der = bytearray(x509.load_pem_x509_csr(document[part].encode()).public_bytes(Encoding.DER))
    der[-1] ^= 1
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(Encoding.PEM).decode()
    fails("CERTIFICATE_INVALID", lambda: parse_request(json.dumps({**document, part: forged}).encode()))


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"{}", b"[" * 60_000, b'{"schema": 1, "kind": "verticil certificate request", "tls": 1, "signing": 2}',
     b"x" * 70_000, "ü".encode(), b'{"schema": 1, "kind": "verticil certificate request", "tls": "", "signing": "", "role": ""}'],
)  # fmt: skip
def test_what_is_no_request_is_a_clear_error(content: bytes) -> None:
    assert "request" in fails("MESSAGE_INVALID", lambda: parse_request(content)).message


def test_signing_refuses_what_the_operator_did_not_expect(home: Path) -> None:
    joined(home)
    authority = open_authority(home / "ca", at=NOW)
    other = read_request(create_request(home / "thief", CLINIC)[0])
    error = fails("IDENTITY_REFUSED", lambda: sign_request(authority, other, home / "x", at=NOW))
    assert "--replace" in error.hint
    fails("USAGE", lambda: sign_request(authority, other, home / "x", at=NOW, role=Role.MINER))
    foreign = read_request(create_request(home / "f", Identity(federation="g", role=Role.PARTY, name="a"))[0])
    fails("CONFIG_INVALID", lambda: sign_request(authority, foreign, home / "x", at=NOW))
    miner = read_request(create_request(home / "m", Identity(federation="fed", role=Role.MINER, name="miner"))[0])
    assert "--host" in fails("CONFIG_INVALID", lambda: sign_request(authority, miner, home / "x", at=NOW)).hint
    assert not (home / "x").exists()
    assert len(list((home / "ca" / ISSUED).iterdir())) == 1
    sign_request(authority, other, home / "x", at=NOW, replace=True)
    assert sign_request(authority, other, home / "y", at=NOW + 91 * DAY).identity == CLINIC  # nobody has it any more


def test_adding_a_site_touches_no_other(home: Path) -> None:
    joined(home)
    before = {path: path.read_bytes() for path in home.rglob("*") if path.is_file()}
    joined(home, Identity(federation="fed", role=Role.AUDITOR, name="court"))
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize(
    ("role", "first"),
    [("party", "verticil doctor"), ("analyst", "verticil study submit"), ("consumer", "verticil release fetch")],
)
def test_a_new_member_reads_where_the_authority_is_and_what_to_type_first(
    role: str, first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["pki", "init", "--federation", "fed", "--endpoint", "miner.org:1", "--out", "ca"]) == 0
    shutil.copy("ca/federation.toml", "federation.toml")
    assert main(["pki", "request", "ann", "--role", role]) == 0
    assert main(["pki", "sign", "pki/ann.req", "--ca", "ca", "--role", role, "--yes", "--out", "ann.signed"]) == 0
    capsys.readouterr()
    fingerprint = load_federation(Path("federation.toml")).ca_sha256
    assert main(["pki", "install", "ann.signed", "--fingerprint", fingerprint]) == 0
    shown = capsys.readouterr().out
    assert "authority: ca.crt" in shown
    assert f"next: {first}" in shown
    assert role == "party" or shown.rstrip().endswith("--certificate pki/ann.crt")


# --- renewal and installation ---


@pytest.mark.parametrize("new_keys", [False, True])
def test_a_renewal_needs_nothing_but_a_signature(home: Path, new_keys: bool) -> None:
    site = joined(home)
    old = {path.name: path.read_bytes() for path in site.iterdir()}
    later = NOW + 80 * DAY
    path, made = create_renewal(site / "clinic.crt", new_keys=new_keys)
    assert (
        create_renewal(site / "clinic.crt", new_keys=new_keys)[1].key_hash == made.key_hash
    )  # asking twice is one request
    assert made.renews is not None
    answer(home, path, at=later)
    assert ((site / "clinic.key").read_bytes() != old["clinic.key"]) is new_keys
    assert ((site / "clinic.sign").read_bytes() != old["clinic.sign"]) is new_keys
    kept = {path.name for path in site.iterdir()} - set(old)
    assert kept == ({"clinic.retired-2027-02-09.key", "clinic.retired-2027-02-09.sign"} if new_keys else set())
    after = load_credentials(site / "clinic.crt", site / "clinic.key", federation_of(home), at=later + 80 * DAY)
    assert after.identity == CLINIC
    signed = SigningKey.load(site / "clinic.sign", site / "clinic.crt").sign(b"{}")
    verify_signed(signed, (home / "ca.crt").read_bytes(), role=Role.PARTY, name="clinic", at=later)


def test_a_renewal_is_only_as_good_as_what_it_renews(home: Path) -> None:
    site = joined(home)
    path, _ = create_renewal(site / "clinic.crt")
    authority = open_authority(home / "ca", at=NOW)
    assert check_request(authority, read_request(path), at=NOW) == RequestStatus(is_renewal=True, notes=())
    late = check_request(authority, read_request(path), at=NOW + 91 * DAY)
    assert (late.is_renewal, "expired on 2027-02-19" in late.notes[0]) == (
        False,
        True,
    )  # to be decided, as a first request
    document = json.loads(path.read_bytes())
    joined(home, Identity(federation="fed", role=Role.PARTY, name="thief"))
    stolen = json.loads(create_renewal(home / "thief" / "thief.crt")[0].read_bytes())
    mixed = {**document, "renews": {**document["renews"], "signature": stolen["renews"]["signature"]}}
    fails("CERTIFICATE_INVALID", lambda: parse_request(json.dumps(mixed).encode()))  # not signed by the old key
    mixed = {**stolen, "renews": document["renews"]}
    fails("CERTIFICATE_INVALID", lambda: parse_request(json.dumps(mixed).encode()))  # signed, but for another request
    revoke(authority, "clinic", at=NOW)
    fails("CERTIFICATE_REVOKED", lambda: answer(home, path, at=NOW + DAY))


def test_hosts_are_kept_by_a_renewal_unless_others_are_given(home: Path) -> None:
    miner = Identity(federation="fed", role=Role.MINER, name="miner")
    answer(home, create_request(home / "miner", miner, hosts=["old.org", "10.0.0.5"])[0])
    assert create_renewal(home / "miner" / "miner.crt")[1].hosts == ("old.org", "10.0.0.5")
    assert create_renewal(home / "miner" / "miner.crt", hosts=["new.org"])[1].hosts == ("new.org",)


def test_an_answer_is_installed_only_with_the_right_fingerprint_and_keys(home: Path, tmp_path: Path) -> None:
    site, federation = home / "clinic", federation_of(home)
    path, _ = create_request(site, CLINIC)
    authority = open_authority(home / "ca", at=NOW)
    sign_request(authority, read_request(path), home / "1.signed", at=NOW)
    before = sorted(site.iterdir())

    def attempt(answer: Path, fingerprint: str = federation.ca_sha256, folder: Path = site) -> None:
        install(answer, folder, fingerprint=fingerprint, federation=federation, at=NOW)

    error = fails("CERTIFICATE_INVALID", lambda: attempt(home / "1.signed", "0" * 64))
    assert "telephone" in error.hint
    fails("USAGE", lambda: attempt(home / "1.signed", "abc"))
    create_authority(home / "twin", "fed", at=NOW)
    sign_request(open_authority(home / "twin", at=NOW), read_request(path), home / "2.signed", at=NOW)
    fails("CERTIFICATE_INVALID", lambda: attempt(home / "2.signed"))
    swapped = (home / "2.signed").read_bytes().split(b"-----BEGIN")[1:3]
    own = (home / "1.signed").read_bytes().split(b"-----BEGIN")
    (home / "3.signed").write_bytes(
        b"-----BEGIN".join([b"", *swapped, own[3]])
    )  # a stranger's certificates, our authority's
    fails("CERTIFICATE_INVALID", lambda: attempt(home / "3.signed"))
    create_request(home / "elsewhere", CLINIC)
    fails("SECRET_MISSING", lambda: attempt(home / "1.signed", folder=home / "elsewhere"))
    assert sorted(site.iterdir()) == before
    assert not (home / "ca.crt").exists()
    shown = ":".join(federation.ca_sha256[i : i + 2] for i in range(0, 64, 2)).upper()
    attempt(home / "1.signed", shown)
    attempt(home / "1.signed", shown)
    assert (home / "ca.crt").read_bytes() == (home / "ca" / "ca.crt").read_bytes()


@pytest.mark.parametrize("dies_at", range(6))
def test_an_installation_that_dies_anywhere_leaves_a_pair_that_works(
    home: Path, dies_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate and two new keys are three files; whichever renaming is the last, certificate and key fit, and the same
    command finishes the rest."""
    site = joined(home)
    path, _ = create_renewal(site / "clinic.crt", new_keys=True)
    federation, later = federation_of(home), NOW + DAY
    sign_request(open_authority(home / "ca", at=later), read_request(path), home / "n.signed", at=later)
    left = [dies_at]

    def dying(real: Callable[..., None]) -> Callable[..., None]:
        def rename(source: Path, target: Path) -> None:
            if left[0] == 0:
                raise KeyboardInterrupt
            left[0] -= 1
            real(source, target)

        return rename

    def attempt() -> None:
        install(home / "n.signed", site, fingerprint=federation.ca_sha256, federation=federation, at=later)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", dying(os.replace))
        patched.setattr(os, "rename", dying(os.rename))
        if dies_at < 5:  # one replace and two renames for each of two keys
            with pytest.raises(KeyboardInterrupt):
                attempt()
        else:
            attempt()
    load_credentials(site / "clinic.crt", site / "clinic.key", federation, at=later)
    SigningKey.load(site / "clinic.sign", site / "clinic.crt")
    attempt()
    assert not list(site.glob("*.next.*"))
    assert len(list(site.glob("*.retired-*"))) == 2
    load_credentials(site / "clinic.crt", site / "clinic.key", federation, at=later)


# --- revocation ---


def test_revoking_a_name_a_serial_or_a_certificate(home: Path, tmp_path: Path) -> None:
    joined(home)
    issue(home / "ca", "lee", Role.ANALYST, home / "lee", at=NOW)
    issue(home / "ca", "old", Role.PARTY, home / "old", at=NOW)
    for path in (home / "ca" / ISSUED).glob("party-old-*"):
        path.unlink()  # issued by version 0.1, which kept no register
    authority = open_authority(home / "ca", at=NOW)
    by_name = {entry.identity.name: entry for entry in entries(home / "ca")}
    path, matching, count = revoke(authority, "clinic", at=NOW)
    assert ([entry.identity for entry in matching], count, path.name) == ([CLINIC], 2, FILE_NAME)
    assert revoke(authority, f"{by_name['lee'].serials[1]:X}", at=NOW)[2] == 4  # the signing serial names both
    assert revoke(authority, str(home / "old" / "old.crt"), at=NOW)[2] == 6
    assert {entry.identity.name for entry in entries(home / "ca") if entry.revoked_at} == {"clinic", "lee"}
    for wrong in ("nobody", "", "0", "clinic "):
        fails("USAGE", lambda wrong=wrong: revoke(authority, wrong, at=NOW))  # type: ignore[misc]
    found = parse_list(path.read_bytes(), authority.certificate, what="list")
    assert (number_of(found), len(found)) == (3, 6)


@pytest.mark.machine
def test_openssl_reads_the_deny_list(home: Path, program: Callable[[str], str]) -> None:
    path, _, _ = revoke(open_authority(home / "ca", at=NOW), "7", at=NOW)
    command = [program("openssl"), "crl", "-in", path, "-CAfile", home / "ca" / "ca.crt", "-noout"]
    done = subprocess.run(command, capture_output=True, check=False)
    assert b"verify OK" in done.stderr + done.stdout


def test_a_deny_list_never_goes_back_and_outlives_a_restart(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = open_authority(home / "ca", at=NOW)
    ca = (home / "ca" / "ca.crt").read_bytes()
    one, two = (make_list(authority, dict.fromkeys(range(1, n + 1), NOW), number=n, at=NOW) for n in (1, 2))
    now, source, kept = [0.0], home / "revoked.crl", home / "state" / "revoked.crl"

    def opened() -> DenyList:
        return DenyList(ca, [source], path=kept, monotonic=lambda: now[0])

    denied = opened()
    assert (denied.serials(), denied.number(), denied.newer_than(0)) == (frozenset(), 0, b"")
    source.write_bytes(two.public_bytes(Encoding.PEM))
    assert denied.number() == 0  # looked at a moment ago
    now[0] += 5
    assert denied.serials() == {1, 2}
    assert parse_list(denied.newer_than(1), authority.certificate, what="x") == two
    assert denied.newer_than(2) == b""
    source.write_bytes(one.public_bytes(Encoding.PEM))
    now[0] += 5
    assert (denied.number(), denied.offer(one.public_bytes(Encoding.DER))) == (2, False)
    source.unlink()
    assert opened().serials() == {1, 2}
    create_authority(home / "twin", "fed", at=NOW)
    forged = make_list(open_authority(home / "twin", at=NOW), {9: NOW}, number=9, at=NOW)
    fails("CERTIFICATE_INVALID", lambda: denied.offer(forged.public_bytes(Encoding.DER)))
    for broken in (b"", b"x", b"\0" * 2_000_000):
        fails("CERTIFICATE_INVALID", lambda broken=broken: denied.offer(broken))  # type: ignore[misc]
    source.write_bytes(forged.public_bytes(Encoding.PEM))
    now[0] += 5
    assert denied.serials() == {1, 2}
    assert "stays as it is" in caplog.text


def test_a_deny_list_that_cannot_be_read_is_warned_about_once_and_read_again(
    home: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = open_authority(home / "ca", at=NOW)
    now, source, is_refused = [0.0], home / "revoked.crl", [False]

    def read(path: Path, most: int) -> bytes:
        if is_refused[0]:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read_at_most(path, most)

    monkeypatch.setattr(revocation, "read_at_most", read)
    deny_list = DenyList((home / "ca" / "ca.crt").read_bytes(), [source], monotonic=lambda: now[0])
    assert deny_list.faults() == ()  # there is none, which is no fault
    for number in (1, 2):
        source.write_bytes(make_list(authority, {number: NOW}, number=number, at=NOW).public_bytes(Encoding.PEM))
        is_refused[0] = True
        for _ in range(3):
            now[0] += 5
            assert deny_list.number() == number - 1  # what was read last stays in use
        (fault,) = deny_list.faults()
        assert (fault.code, "cannot be read (Permission denied)" in fault.message) == ("FILE_MISSING", True)
        assert caplog.text.count("cannot be read (Permission denied)") == number
        is_refused[0] = False  # no file is another
        now[0] += 5
        assert (deny_list.serials(), deny_list.faults()) == ({number}, ())
    assert caplog.text.count("no deny-list is in use") == caplog.text.count("stays as it is") == 1


def test_a_new_mode_is_a_change_of_a_followed_file(tmp_path: Path) -> None:
    (path := tmp_path / "file").write_text("x")
    path.chmod(0o600)
    files = FollowedFiles([path], every_seconds=0)
    assert not files.changed()
    time.sleep(0.05)  # the file system's clock has steps of some milliseconds
    path.chmod(0o644)
    assert files.changed()


def test_list_and_status_tell_when_certificates_end(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    create_authority(home / "real", "fed", days=365)
    issue(home / "real", "lee", Role.CONSUMER, home / "lee", days=20)
    assert main(["pki", "list", "--ca", str(home / "real"), "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["certificates"]
    assert (row["name"], row["role"], row["warning"], row["revoked_at"]) == ("lee", "consumer", True, None)
    assert main(["pki", "revoke", row["serial"], "--ca", str(home / "real"), "--yes"]) == 0
    assert main(["pki", "list", "--ca", str(home / "real")]) == 0
    assert "revoked" in capsys.readouterr().out.splitlines()[-1]
    end = read_certificates(home / "lee" / "lee.crt")[0].not_valid_after_utc
    facts = certificate_state(home / "lee" / "lee.crt", end - 7 * DAY)
    assert facts is not None
    assert (facts.seconds_left, facts.warning, facts.words) == (7 * 86_400, 7, "ends in 7 days")
    assert certificate_state(home / "none.crt", end) is None


@pytest.mark.parametrize(
    ("arguments", "code", "exit_code"),
    [
        (["sign", "{home}/clinic/clinic.req", "--ca", "{home}/real"], "USAGE", 2),  # nobody confirmed
        (["sign", "{home}/none.req", "--ca", "{home}/real", "--yes"], "FILE_MISSING", 2),
        (["sign", "{home}/real/ca.crt", "--ca", "{home}/real", "--yes"], "MESSAGE_INVALID", 5),
        (["sign", "{home}/clinic/clinic.req", "--ca", "{home}/none", "--yes"], "FILE_MISSING", 2),
        (["revoke", "clinic", "--ca", "{home}/real"], "USAGE", 2),
        (["revoke", "nobody", "--ca", "{home}/real", "--yes"], "USAGE", 2),
        (["renew", "{home}/none.crt"], "FILE_MISSING", 2),
        (["renew", "{home}/real/ca.crt"], "IDENTITY_REFUSED", 5),
        (["list", "--ca", "{home}/none"], "FILE_MISSING", 2),
        (["request", "a/b", "--role", "party", "--federation", "{home}/real/federation.toml"], "CONFIG_INVALID", 2),
        (["request", "m", "--role", "miner", "--federation", "{home}/real/federation.toml"], "USAGE", 2),
        (["install", "{home}/none", "--fingerprint", "0" * 64, "--federation", "{home}/real/federation.toml"],
         "FILE_MISSING", 2),
    ],
)  # fmt: skip
def test_feature_23_every_failure_is_one_envelope_with_code_and_hint(
    home: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: str, exit_code: int
) -> None:
    assert main(["pki", "init", "--federation", "fed", "--out", str(home / "real"), "--format", "json"]) == 0
    create_request(home / "clinic", CLINIC)
    capsys.readouterr()
    assert main(["pki", *(text.format(home=home) for text in arguments), "--format", "json"]) == exit_code
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == code
    assert error["message"]
