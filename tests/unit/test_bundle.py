"""A release: written whole or not at all, signed, and refused as soon as anything in it does not hold."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import rfc8785
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from verticil.cli.main import main
from verticil.shared.core.errors import GateFailed, Misuse
from verticil.shared.federation.identity.authority import create_authority, issue, open_authority
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.membership.revocation import make_list
from verticil.shared.numerics.model.network import PairEstimate
from verticil.shared.privacy import events
from verticil.shared.privacy.accounts import Cost
from verticil.shared.release.content import FILES, ReleaseContent
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.formats import model_json
from verticil.shared.release.manifest import sign_release
from verticil.shared.release.verification import verify_release
from verticil.shared.study import canonical
from verticil.shared.study.document import CustomRule, ReleaseRule, TablesRule
from verticil.shared.study.tables import tables_sigma
from verticil.shared.synthesis.marginals import WITHIN
from verticil.wire.v1 import common_pb2

MADE = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)  # authority: 365 days, certificates: 90


@dataclasses.dataclass(frozen=True)
class House:
    """An authority and signing keys of what it issued."""

    ca: bytes
    fingerprint: str
    miner: SigningKey
    second_miner: SigningKey
    party: SigningKey
    folder: Path


def _house(folder: Path, federation: str = "hearts") -> House:
    fingerprint = create_authority(folder, federation, at=MADE)
    keys = []
    for name, role in (("miner", Role.MINER), ("other-miner", Role.MINER), ("clinic", Role.PARTY)):
        issued = issue(
            folder, name, role, folder / "nodes", hosts=("localhost",) if role is Role.MINER else (), at=MADE
        )
        keys.append(SigningKey.load(issued.signing_key, issued.certificate))
    miner, second_miner, party = keys
    return House((folder / "ca.crt").read_bytes(), fingerprint, miner, second_miner, party, folder)


@pytest.fixture(scope="module")
def house(tmp_path_factory) -> House:
    return _house(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory) -> House:
    return _house(tmp_path_factory.mktemp("stranger"))


def _receipt(content: ReleaseContent, key: SigningKey, index: int, changes: dict[str, Any] | None = None):
    body = {
        "artifact_sha256": "00" * 32, "size": 100, "n_records": content.n_common,
        "party": content.study.units[index].owner, "unit": index, "variables": list(content.study.units[index].variables),
        "effective_digest": content.effective_digest, "proposal_digest": content.study_digest, "miner": "miner",
        "received_at": "2026-11-20T09:00:00Z", **(changes or {}),
    }  # fmt: skip
    return key.sign(rfc8785.dumps(body))


@pytest.fixture(scope="module")
def content(release_content, house) -> ReleaseContent:
    """Not a simulation: with a receipt for each unit."""
    receipts = tuple(_receipt(release_content, house.miner, unit) for unit in range(5))
    return dataclasses.replace(release_content, receipts=receipts, simulation=False)


@pytest.fixture(scope="module")
def published(content, house, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("out") / "release"
    write_release(directory, content)
    sign_release(directory, house.miner, ca_certificate=house.ca)
    return directory


@pytest.fixture
def release(published, tmp_path: Path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "release"))


def test_everything_is_there_and_verifies(release, content, house):
    assert {path.name for path in release.iterdir()} == {*FILES, "manifest.json", "manifest.sig"}
    verified = verify_release(release, ca_certificate=house.ca)
    assert verified.publisher == "verticil://hearts/miner/miner"
    assert (verified.authority_sha256, verified.receipts, verified.common_records) == (house.fingerprint, 5, 1234)
    assert (verified.simulation, verified.seed_derived, verified.synthetic_records) == (False, False, 400)
    assert verified.epsilon_per_person is None  # one column is sent as it is
    assert (verified.study, verified.published_at) == ("heart", "2026-11-21T10:00:00Z")


def test_the_manifest_says_what_the_contract_asks_for(release, content):
    manifest = json.loads((release / "manifest.json").read_text())
    for name, entry in manifest["files"].items():
        data = (release / name).read_bytes()
        assert (entry["bytes"], entry["sha256"]) == (len(data), hashlib.sha256(data).hexdigest())
    assert (manifest["study_digest"], manifest["effective_digest"]) == ("ab" * 32, content.effective_digest)
    assert hashlib.sha256((release / "study.json").read_bytes()).hexdigest() == content.effective_digest
    assert (manifest["simulation"], manifest["seed_derived"]) == (False, False)
    assert [column["variables"][0] for column in manifest["privacy"]["columns"]] == list(content.study.schema.names)
    assert set(manifest["software"]) == {"name", "version"}
    assert len(manifest["receipts"]) == 5


def test_the_files_are_of_one_model(release, content):
    network = model_json.read((release / "model.json").read_bytes())
    for ours, theirs in zip(content.network.families, network.families, strict=True):
        np.testing.assert_array_equal(theirs.probability, ours.probability)
    pd.testing.assert_frame_equal(pd.read_parquet(release / "synthetic.parquet"), content.synthetic)


def test_the_same_content_gives_the_same_bytes(published, content, tmp_path):
    again = write_release(tmp_path / "release", content)
    assert (again / "manifest.json").read_bytes() == (published / "manifest.json").read_bytes()


@pytest.mark.parametrize("which", ["authority", "signer", "colons"])
def test_a_fingerprint_is_an_anchor_too(release, house, which):
    signer = hashlib.sha256(house.miner.certificate).hexdigest()
    colons = ":".join(house.fingerprint[i : i + 2] for i in range(0, 64, 2)).upper()
    text = {"authority": house.fingerprint, "signer": signer, "colons": colons}[which]
    assert verify_release(release, fingerprint=text).publisher_sha256 == signer


def test_without_an_anchor_it_is_consistent_and_untrusted(release):
    with pytest.raises(GateFailed, match="consistent in itself") as caught:
        verify_release(release)
    assert (caught.value.code, caught.value.exit_code) == ("RELEASE_UNTRUSTED", 6)


def test_another_authority_is_not_trusted(release, stranger):
    for anchor in ({"ca_certificate": stranger.ca}, {"fingerprint": stranger.fingerprint}):
        with pytest.raises(GateFailed) as caught:
            verify_release(release, **anchor)
        assert caught.value.code == "RELEASE_UNTRUSTED"
    with pytest.raises(GateFailed) as caught:  # both anchors must hold
        verify_release(release, ca_certificate=stranger.ca, fingerprint=hashlib.sha256(stranger.ca).hexdigest())
    assert caught.value.code == "RELEASE_UNTRUSTED"


def test_a_stranger_who_signs_the_same_manifest_is_not_trusted(release, stranger, house):
    sign_release(release, stranger.miner, ca_certificate=house.ca)
    with pytest.raises(GateFailed) as caught:
        verify_release(release, ca_certificate=house.ca)
    assert caught.value.code == "RELEASE_UNTRUSTED"
    with pytest.raises(GateFailed) as caught:  # his certificate was not issued by the authority beside it
        verify_release(release, fingerprint=hashlib.sha256(stranger.miner.certificate).hexdigest())
    assert caught.value.code == "RELEASE_INVALID"


def test_a_party_cannot_publish(release, house):
    sign_release(release, house.party, ca_certificate=house.ca)
    with pytest.raises(GateFailed, match="role is 'party'"):
        verify_release(release, ca_certificate=house.ca)


def test_a_release_outlives_the_certificate_but_not_backwards(content, house, tmp_path):
    """The signing certificate holds from 1 November 2026 for 90 days; what counts is the time of publication, not today's."""
    for number, (moment, good) in enumerate(
        [(MADE + dt.timedelta(days=89), True), (MADE + dt.timedelta(days=91), False)]
    ):
        directory = write_release(tmp_path / str(number), dataclasses.replace(content, published_at=moment))
        sign_release(directory, house.miner, ca_certificate=house.ca)
        if good:
            verify_release(directory, ca_certificate=house.ca)
        else:
            with pytest.raises(GateFailed, match="expired"):
                verify_release(directory, ca_certificate=house.ca)


def _deny(house: House, since: dt.datetime) -> bytes:
    """A list with the miner's signing certificate."""
    serial = x509.load_der_x509_certificate(house.miner.certificate).serial_number
    return make_list(open_authority(house.folder), {serial: since}, number=1, at=since).public_bytes(Encoding.PEM)


@pytest.mark.parametrize(("minutes", "refused"), [(-60 * 24, True), (0, True), (1, False)])
def test_feature_29_a_signature_counts_if_its_certificate_was_revoked_later(
    release, content, house, stranger, tmp_path, capsys, minutes, refused
):
    since = content.published_at + dt.timedelta(minutes=minutes)
    (tmp_path / "ca.crt").write_bytes(house.ca)
    command = ["release", "verify", str(release), "--ca", str(tmp_path / "ca.crt"), "--format", "json"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)["deny_list"] is None
    (tmp_path / "told.crl").write_bytes(_deny(house, since))
    for place, options in (("told.crl", ["--revoked", str(tmp_path / "told.crl")]), ("revoked.crl", [])):
        shutil.copy(tmp_path / "told.crl", tmp_path / "revoked.crl")  # beside ca.crt it needs no option
        assert main([*command, *options]) == (6 if refused else 0)
        said = json.loads(capsys.readouterr().out)
        who = f"the certificate of verticil://hearts/miner/miner with serial {_serial(house)}"
        words = f"{who} was revoked at {since:%Y-%m-%d %H:%M} UTC"
        if refused:
            assert said["error"]["code"] == "RELEASE_UNTRUSTED"
            assert words in said["error"]["message"]
        else:
            receipts = ", ".join(f"manifest.json: receipts[{unit}]" for unit in range(5))
            assert said["revoked_later"] == [f"{words}, after it had signed manifest.sig, {receipts}"]
            assert said["deny_list"] == str(tmp_path / place)
    (tmp_path / "told.crl").write_bytes(_deny(stranger, since))
    assert main([*command, "--revoked", str(tmp_path / "told.crl")]) == 5
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "CERTIFICATE_INVALID"


def test_feature_29_a_receipt_signed_with_a_revoked_certificate_is_refused(content, house, tmp_path):
    """Its time is what counts, not that of the publication, which another certificate has signed."""
    receipts = (_receipt(content, house.miner, 0), *(_receipt(content, house.miner, unit) for unit in range(1, 5)))
    directory = write_release(tmp_path / "release", dataclasses.replace(content, receipts=receipts))
    renewed = issue(house.folder, "miner", Role.MINER, tmp_path / "renewed", hosts=("localhost",), at=MADE)
    sign_release(directory, SigningKey.load(renewed.signing_key, renewed.certificate), ca_certificate=house.ca)
    received = dt.datetime(2026, 11, 20, 9, tzinfo=dt.UTC)
    with pytest.raises(GateFailed, match=r"receipts\[0\]: the certificate of .* was revoked"):
        verify_release(directory, ca_certificate=house.ca, revoked=_deny(house, received))
    verified = verify_release(
        directory, ca_certificate=house.ca, revoked=_deny(house, received + dt.timedelta(minutes=1))
    )
    (words,) = verified.revoked_later
    assert [f"receipts[{unit}]" in words for unit in range(5)] == [True] * 5
    assert "manifest.sig" not in words  # another certificate signed that


def _serial(house: House) -> str:
    return f"{x509.load_der_x509_certificate(house.miner.certificate).serial_number:x}"


def _flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def _said(release: Path, **changed: Any) -> None:
    """Let manifest.sig say something else of itself; the signatures stay."""
    path = release / "manifest.sig"
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


@pytest.mark.parametrize("name", sorted(FILES))
def test_one_changed_bit_in_any_file(release, house, name):
    _flip(release / name, 40)
    with pytest.raises(GateFailed, match="SHA-256 is") as caught:
        verify_release(release, ca_certificate=house.ca)
    assert caught.value.code == "RELEASE_INVALID"
    assert name in caught.value.message


def _link(release: Path) -> None:
    data = release / "synthetic.csv"
    data.rename(release.parent / "elsewhere.csv")
    data.symlink_to(release.parent / "elsewhere.csv")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda r: (r / "synthetic.csv").unlink(), "synthetic.csv is listed in manifest.json but missing"),
        (lambda r: (r / "extra.txt").write_text("x"), "extra.txt is not listed"),
        (lambda r: (r / "folder").mkdir(), "folder is not listed"),
        (lambda r: (r / "\x1b[2Jall is well").write_text("x"), r"\\x1b\[2Jall is well is not listed"),
        (lambda r: Path(os.fsdecode(os.fsencode(r) + b"/\xff")).write_text("x"), r"\\udcff is not listed"),
        (
            lambda r: (r / "synthetic.csv").open("a").close() or (r / "synthetic.csv").write_bytes(b"x"),
            "1 bytes, expected",
        ),
        (_link, "not the name of a plain file"),
        (lambda r: (r / "manifest.sig").unlink(), "missing"),
        (lambda r: (r / "manifest.json").unlink(), "missing"),
        (lambda r: _flip(r / "manifest.json", -3), "manifest"),
        (
            lambda r: (r / "manifest.json").write_bytes(
                (r / "manifest.json").read_bytes().replace(b"1234", b"1235", 1)
            ),
            "signature",
        ),
        (lambda r: (r / "manifest.sig").write_text("{}"), "'format' is missing"),
        (lambda r: _said(r, version=2), "version: expected 1: made by another version"),
        (lambda r: _said(r, algorithm="Ed448"), "algorithm"),
        (lambda r: _said(r, file="other.json"), "file"),
        (lambda r: _said(r, authority="AAAA"), "authority: names another authority"),
        (
            lambda r: (r / "manifest.sig").write_text(
                (r / "manifest.sig").read_text().replace('"signature": "', '"signature": "AAAA')
            ),
            "signature is not one of",
        ),
    ],
)
def test_damage_is_found(release, house, damage, message):
    damage(release)
    with pytest.raises(GateFailed, match=message) as caught:
        verify_release(release, ca_certificate=house.ca)
    assert caught.value.code == "RELEASE_INVALID"


def _resigned(release: Path, house: House, name: str, change) -> None:
    """Change a document and have the miner sign the result: what is left are the checks behind the signature."""
    document = json.loads((release / name).read_bytes())
    change(document)
    (release / name).write_text(json.dumps(document))
    if name != "manifest.json":
        manifest = json.loads((release / "manifest.json").read_bytes())
        data = (release / name).read_bytes()
        manifest["files"][name].update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        (release / "manifest.json").write_text(json.dumps(manifest))
    sign_release(release, house.miner, ca_certificate=house.ca)


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("manifest.json", lambda d: d["files"].update({"../x": d["files"].pop("labels.json")}), "x is listed"),
        ("manifest.json", lambda d: d["files"].pop("model.json"), "does not list model.json"),
        ("manifest.json", lambda d: d.update(effective_digest="cd" * 32), "study.json: SHA-256"),
        ("manifest.json", lambda d: d.update(published_at="yesterday"), "expected a UTC time"),
        ("manifest.json", lambda d: d.update(version=2), "newer version"),
        ("manifest.json", lambda d: d.update(n_common=999), "n_records: got 1234, expected 999"),
        (
            "manifest.json",
            lambda d: d["privacy"]["columns"][0].update(epsilon=1.0),
            "the matrices in study.json give 2",
        ),
        ("manifest.json", lambda d: d["privacy"].update(epsilon_per_person=5.0), "give inf"),
        ("manifest.json", lambda d: d["receipts"].pop(), "receipts for 4 of 5"),
        ("manifest.json", lambda d: d["receipts"].append(d["receipts"][0]), "has a receipt already"),
        ("manifest.json", lambda d: d["receipts"][0].update(body="{}"), "'received_at' is missing"),
        ("model.json", lambda d: d["study"].update(effective_digest="cd" * 32), "model.json: study: effective_digest"),
        ("model.json", lambda d: d["privacy"]["columns"].pop(), "4 columns, expected 5"),
        ("model.json", lambda d: d["variables"][0].update(owner="registry"), "not those of study.json"),
    ],
)
def test_documents_that_do_not_fit_together_are_refused_even_when_signed(release, house, name, change, message):
    _resigned(release, house, name, change)
    with pytest.raises(GateFailed, match=message) as caught:
        verify_release(release, ca_certificate=house.ca)
    assert caught.value.code == "RELEASE_INVALID"


@pytest.mark.parametrize("name", ["manifest.json", "model.json"])
@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("k_measure", 99),
        ("scheme", "subset"),
        ("owner", "registry"),
        ("kept_least", 0.999),
        ("kept_most", 0.001),
        ("kept_most", 10**400),  # no float is so large
        ("condition_number", 1.0),
        ("gamma_exact", "1"),
        ("bounded", False),
        ("posterior_of_prior_0.15", 0.15),
        ("released", "as it is"),
    ],
)
def test_no_figure_of_a_column_is_another_than_its_matrix_gives(release, house, name, key, value):
    _resigned(release, house, name, lambda document: document["privacy"]["columns"][0].update({key: value}))
    with pytest.raises(GateFailed, match=rf"{name}: privacy: columns\[0\]: {key}: not what the matrix"):
        verify_release(release, ca_certificate=house.ca)


def test_a_figure_that_every_column_has_is_not_left_out(release, house):
    _resigned(release, house, "model.json", lambda document: document["privacy"]["columns"][1].pop("k_measure"))
    with pytest.raises(GateFailed, match="k_measure: not what the matrix"):
        verify_release(release, ca_certificate=house.ca)


@pytest.mark.parametrize("key", ["mode", "miner", "parties", "together"])
def test_what_is_said_of_linkage_is_what_the_study_says(release, house, key):
    _resigned(
        release, house, "manifest.json", lambda document: document["privacy"]["alignment"].update({key: "nothing"})
    )
    with pytest.raises(GateFailed, match="alignment: what it says that finding the common people revealed"):
        verify_release(release, ca_certificate=house.ca)


def _shift(shares: list[float]) -> None:
    shares[0], shares[1] = shares[1] + 0.01, shares[0] - 0.01


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: _shift(d["marginals"][1]["model"]), "the marginal of 'smoker': model"),
        (lambda d: d["marginals"][1]["interval"][0].reverse(), "the marginal of 'smoker': interval"),
        (lambda d: _shift(d["pairs"]["tables"][0]["network"][0]), "the pair of 'age' and 'smoker': network"),
        (lambda d: _shift(d["pairs"]["tables"][0]["synthetic"][0]), "the pair of 'age' and 'smoker': synthetic"),
        (lambda d: d["pairs"]["tables"][0].update(joint=d["pairs"]["tables"][0]["network"]), "smoker': joint"),
        (lambda d: d["pairs"]["tables"][0].update(verdict=WITHIN), "smoker': verdict"),
        (lambda d: d["pairs"]["tables"][0]["estimate"][0].__setitem__(0, 0.9), "smoker': interval"),
    ],
)
def test_shares_that_follow_from_the_models_and_records_are_computed_again(content, house, tmp_path, change, message):
    table = np.full((3, 2), 1 / 6)
    pair = PairEstimate(first=0, second=1, estimate=table, low=table - 0.01, high=table + 0.01, exact=False)
    study = dataclasses.replace(content.study, release=ReleaseRule(synthetic_records=len(content.synthetic), seed=7))
    shown = dataclasses.replace(
        content,
        study=study,
        effective_digest=canonical.digest(study).hex(),
        pairs=(pair,),
        receipts=(),
        simulation=True,
    )
    folder = write_release(tmp_path / "pairs", shown)
    sign_release(folder, house.miner, ca_certificate=house.ca)
    verify_release(folder, ca_certificate=house.ca)
    _resigned(folder, house, "model.json", change)
    with pytest.raises(GateFailed, match=message):
        verify_release(folder, ca_certificate=house.ca)


@pytest.mark.parametrize(
    ("signer", "changes", "message"),
    [
        ("second_miner", {}, "name is 'other-miner', expected 'miner'"),
        ("party", {}, "role is 'party'"),
        ("miner", {"party": "registry"}, "party: got 'registry', expected 'clinic'"),
        ("miner", {"variables": ["smoker"]}, "variables"),
        ("miner", {"effective_digest": "cd" * 32}, "effective_digest"),
        ("miner", {"proposal_digest": "cd" * 32}, "proposal_digest"),
        ("miner", {"unit": 7}, "none of that number"),
        ("miner", {"received_at": "2026-11-22T10:00:00Z"}, "later than the publication"),
        ("miner", {"received_at": "2020-01-01T10:00:00Z"}, "is valid from"),
    ],
)
def test_receipts_are_checked_one_by_one(content, house, tmp_path, signer, changes, message):
    receipts = (_receipt(content, getattr(house, signer), 0, changes), *content.receipts[1:])
    directory = write_release(tmp_path / "release", dataclasses.replace(content, receipts=receipts))
    sign_release(directory, house.miner, ca_certificate=house.ca)
    with pytest.raises(GateFailed, match=message):
        verify_release(directory, ca_certificate=house.ca)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("altered", "receipts[0]: the signature is not one of"),
        ("missing", "receipts for 4 of 5 randomized columns"),
        ("of another study", "proposal_digest: got"),
        ("a changed table", "synthetic.csv"),
    ],
)
def test_feature_27_a_bundle_is_verified_offline(content, house, tmp_path, capsys, fault, message):
    """Signed by the real miner, so that only the receipts, or the files, can tell; as a consumer runs it."""
    first, *rest = content.receipts
    if fault == "altered":
        body = first.body.replace(b'"size":100', b'"size":101')
        receipts = (common_pb2.Signed(body=body, signature=first.signature, certificate=first.certificate), *rest)
    elif fault == "missing":
        receipts = tuple(rest)
    elif fault == "of another study":
        receipts = (_receipt(content, house.miner, 0, {"proposal_digest": "cd" * 32}), *rest)
    else:
        receipts = content.receipts
    directory = write_release(tmp_path / "release", dataclasses.replace(content, receipts=receipts))
    sign_release(directory, house.miner, ca_certificate=house.ca)
    (tmp_path / "ca.crt").write_bytes(house.ca)
    if fault == "a changed table":
        table = directory / "synthetic.csv"
        table.write_bytes(table.read_bytes()[:-2] + b"9\n")
    arguments = ["release", "verify", str(directory), "--ca", str(tmp_path / "ca.crt"), "--format", "json"]
    assert main(arguments) == 6
    error = json.loads(capsys.readouterr().out)["error"]
    assert error["code"] == "RELEASE_INVALID"
    assert message in error["message"]


def test_a_release_of_noisy_tables_states_two_limits_and_names_no_bytes_that_were_received(
    content, house, tmp_path, monkeypatch
):
    """Its receipts have no digest of a column, and it verifies with its own sigma and totals only."""
    study = dataclasses.replace(content.study, tables=TablesRule(epsilon=1.0, delta=1e-9))
    digest = canonical.digest(study).hex()
    content = dataclasses.replace(content, study=study, effective_digest=digest)

    def published(name: str, *, named: bool = False) -> Path:
        bodies = (json.loads(_receipt(content, house.miner, unit).body) for unit in range(5))
        kept = ({key: value for key, value in body.items() if named or key != "artifact_sha256"} for body in bodies)
        receipts = tuple(house.miner.sign(rfc8785.dumps(body)) for body in kept)
        directory = write_release(tmp_path / name, dataclasses.replace(content, receipts=receipts))
        sign_release(directory, house.miner, ca_certificate=house.ca)
        return directory

    honest = published("honest")
    verified = verify_release(honest, ca_certificate=house.ca)
    assert [item.cost for item in verified.accounts] == [Cost(epsilon=math.inf), Cost(epsilon=1.0, delta=1e-9)]
    report = " ".join((honest / "report.html").read_text(encoding="utf-8").split())
    assert (
        "learns of one person, with all columns together, at most ε = 1.00, δ = 10⁻⁹. <strong>This second limit"
        in report
    )
    assert f"noise of standard deviation {tables_sigma(study):.4g} to every count" in report
    assert "for everybody but the miner. This rests on the miner" in report
    with pytest.raises(GateFailed, match="a function of one column"):
        verify_release(published("named", named=True), ca_certificate=house.ca)
    for name, changes in (("sigma", {"sigma": 12.0}), ("total", {"epsilon": 0.5}), ("tables", {"tables": 3})):
        with monkeypatch.context() as bypass:
            kind = events._KINDS["noisy-tables"]
            less = [
                dataclasses.replace(item, event=dataclasses.replace(item.event, **changes))
                for item in kind.of_study(study, "clinic")
            ]
            bypass.setitem(events._KINDS, kind.name, dataclasses.replace(kind, of_study=lambda *_, less=less: less))
            dishonest = published(name)
        with pytest.raises(GateFailed, match="events: what it says was drawn of people's data is not what"):
            verify_release(dishonest, ca_certificate=house.ca)


def test_only_a_simulation_goes_without_receipts(content, house, tmp_path):
    for simulation in (True, False):
        directory = tmp_path / str(simulation)
        write_release(directory, dataclasses.replace(content, receipts=(), simulation=simulation))
        sign_release(directory, house.miner, ca_certificate=house.ca)
    assert verify_release(tmp_path / "True", ca_certificate=house.ca).simulation
    with pytest.raises(GateFailed, match="receipts for 0 of 5"):
        verify_release(tmp_path / "False", ca_certificate=house.ca)


def test_nothing_is_overwritten_and_nothing_half_made_is_left(content, tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(Misuse) as caught:
        write_release(tmp_path / "there", content)
    assert caught.value.code == "FILE_EXISTS"
    with pytest.raises(Misuse) as caught:
        write_release(tmp_path / "no" / "such", content)
    assert caught.value.code == "FILE_MISSING"
    mixed = content.synthetic.assign(age=[1, "a"] * 200)  # no format has a column like that
    with pytest.raises(Exception, match="age"):
        write_release(tmp_path / "release", dataclasses.replace(content, synthetic=mixed))
    assert [path.name for path in tmp_path.iterdir()] == ["there"]


def test_what_a_killed_run_left_is_no_obstacle(content, tmp_path):
    leftover = tmp_path / ".release.partial"
    leftover.mkdir()
    (leftover / "junk").write_text("x")
    write_release(tmp_path / "release", content)
    assert [path.name for path in tmp_path.iterdir()] == ["release"]
    assert not (tmp_path / "release" / "junk").exists()


@pytest.mark.parametrize(
    ("arguments", "code"),
    [({"fingerprint": "abc"}, "USAGE"), ({"ca_certificate": b"no certificate"}, "USAGE")],
)
def test_an_anchor_that_is_none_is_the_callers_mistake(release, arguments, code):
    with pytest.raises(Misuse) as caught:
        verify_release(release, **arguments)
    assert caught.value.code == code


def test_no_such_release(tmp_path, house):
    with pytest.raises(Misuse) as caught:
        verify_release(tmp_path / "nothing", ca_certificate=house.ca)
    assert caught.value.code == "FILE_MISSING"
    with pytest.raises(Misuse):
        sign_release(tmp_path, house.miner, ca_certificate=house.ca)


@pytest.mark.parametrize(
    "changes",
    [
        {"effective_digest": "cd" * 32},
        {"codes": ()},
        {"marginals": ()},
        {"published_at": dt.datetime(2026, 11, 21)},  # without a zone is what is refused
    ],
)
def test_parts_that_do_not_belong_together_are_no_content(content, changes):
    with pytest.raises(ValueError, match=r"."):
        dataclasses.replace(content, **changes)


@pytest.mark.parametrize(("name", "limit"), [("manifest.json", 2**28), ("manifest.sig", 2**25)])
def test_a_huge_manifest_is_not_even_read(release, house, name, limit):
    with (release / name).open("ab") as file:
        file.truncate(limit + 1)
    with pytest.raises(GateFailed, match=f"{name}: {limit + 1} bytes, expected at most {limit}"):
        verify_release(release, ca_certificate=house.ca)


def test_swapped_receipts_are_found(content, house, tmp_path):
    """A receipt's signature over another receipt's body."""
    first, second, *rest = content.receipts
    swapped = [
        common_pb2.Signed(body=one.body, signature=other.signature, certificate=one.certificate)
        for one, other in ((first, second), (second, first))
    ]
    directory = write_release(tmp_path / "release", dataclasses.replace(content, receipts=(*swapped, *rest)))
    sign_release(directory, house.miner, ca_certificate=house.ca)
    with pytest.raises(GateFailed, match=r"receipts\[0\]: the signature is not one of"):
        verify_release(directory, ca_certificate=house.ca)


def test_a_network_that_leaks_around_a_custom_networks_target_is_refused(
    release_content, make_network, house, tmp_path
):
    study = release_content.study
    custom = CustomRule(target="income", sensitive=("region",), hide_from=("age",))
    study = dataclasses.replace(study, structure=dataclasses.replace(study.structure, custom=custom))
    effective = canonical.digest(study).hex()
    content = dataclasses.replace(release_content, study=study, effective_digest=effective)
    directory = tmp_path / "release"
    write_release(directory, content)
    sign_release(directory, house.miner, ca_certificate=house.ca)
    assert verify_release(directory, ca_certificate=house.ca).effective_digest == effective
    context = model_json.ModelContext(
        study=study, study_digest=content.study_digest, effective_digest=effective, n_common=content.n_common,
        search=content.search, simulation=True,
    )  # fmt: skip
    leaking = make_network(study.schema.variables, ((), (0,), (0, 1), (), (0,)), seed=1)  # age -> region
    forged = json.loads(model_json.write(leaking, content.marginals, context))
    _resigned(directory, house, "model.json", lambda document: (document.clear(), document.update(forged)))
    with pytest.raises(GateFailed, match="'region' is not separated from 'age' by 'income'"):
        verify_release(directory, ca_certificate=house.ca)
