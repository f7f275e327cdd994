"""A release of Model I: signed by every party, and refused as soon as anything in it does not hold."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import json
import shutil
from pathlib import Path

import pytest
import rfc8785

from verticil.shared.core.errors import GateFailed, PeerFault
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.manifest import sign_release, write_signatures
from verticil.shared.release.peer_assembly import assemble
from verticil.shared.release.statement import statement_body
from verticil.shared.release.verification import verify_release
from verticil.shared.study import canonical
from verticil.shared.study.document import ShareRule
from verticil.shared.study.structure_document import parse_structure, structure_body

MADE = dt.datetime(2026, 11, 1, tzinfo=dt.UTC)
PARTIES = ("clinic", "registry", "insurer")


@dataclasses.dataclass(frozen=True)
class House:
    ca: bytes
    fingerprint: str
    keys: dict[str, SigningKey]


def _house(folder: Path) -> House:
    fingerprint = create_authority(folder, "hearts", at=MADE)
    keys = {}
    for name, role in (*((party, Role.PARTY) for party in (*PARTIES, "stranger")), ("miner", Role.MINER)):
        issued = issue(
            folder, name, role, folder / "nodes", hosts=("localhost",) if role is Role.MINER else (), at=MADE
        )
        keys[name] = SigningKey.load(issued.signing_key, issued.certificate)
    return House((folder / "ca.crt").read_bytes(), fingerprint, keys)


@pytest.fixture(scope="module")
def house(tmp_path_factory) -> House:
    return _house(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def other_house(tmp_path_factory) -> House:
    return _house(tmp_path_factory.mktemp("other"))


@pytest.fixture(scope="module")
def case(peer_case, peer_study):
    return peer_case(peer_study(share=ShareRule(noise="discrete-gaussian", epsilon=2.0, delta=1e-6)))


@pytest.fixture(scope="module")
def signed(case, house):
    return {
        party: house.keys[party].sign(statement_body(case.statement(party, minute=minute), case.study))
        for minute, party in enumerate(PARTIES)
    }


@pytest.fixture(scope="module")
def content(case, signed):
    return assemble(case.study, b"p" * 32, case.structure, list(signed.values()), simulation=False, seed_derived=False)


def _sign_by(folder: Path, house: House, names=PARTIES) -> None:
    manifest = (folder / "manifest.json").read_bytes()
    write_signatures(folder, [house.keys[name].sign(manifest) for name in names], ca_certificate=house.ca)


@pytest.fixture(scope="module")
def published(content, house, tmp_path_factory) -> Path:
    folder = write_release(tmp_path_factory.mktemp("out") / "release", content)
    _sign_by(folder, house)
    return folder


@pytest.fixture
def release(published, tmp_path) -> Path:
    return Path(shutil.copytree(published, tmp_path / "release"))


def _refused(release: Path, house: House, message: str, code: str = "RELEASE_INVALID") -> None:
    with pytest.raises(GateFailed, match=message) as caught:
        verify_release(release, ca_certificate=house.ca)
    assert caught.value.code == code


def test_it_verifies_and_says_who_signed(release, house):
    verified = verify_release(release, ca_certificate=house.ca)
    assert verified.signers == tuple(f"verticil://hearts/party/{name}" for name in sorted(PARTIES))
    assert (verified.statements, verified.receipts, verified.common_records) == (3, 0, 3000)
    assert verified.exact_parameters is False  # the study asks for share noise
    assert verified.published_at == "2026-11-21T10:02:00Z"
    assert verified.epsilon_per_person == pytest.approx(2.0 + 2.5 + 1.5)  # age, smoker, income: those that are read


def test_the_order_of_signatures_does_not_matter(release, house):
    first = (release / "manifest.sig").read_bytes()
    _sign_by(release, house, PARTIES[::-1])
    assert (release / "manifest.sig").read_bytes() == first


def test_each_signer_is_an_anchor(release, house):
    for party in PARTIES:
        fingerprint = hashlib.sha256(house.keys[party].certificate).hexdigest()
        assert verify_release(release, fingerprint=fingerprint).statements == 3
    with pytest.raises(GateFailed) as caught:
        verify_release(release)
    assert caught.value.code == "RELEASE_UNTRUSTED"


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (("clinic", "registry"), "2 signatures, expected one of each party"),
        (("clinic", "registry", "registry"), "signed by clinic, registry, expected clinic, registry, insurer"),
        (("clinic", "registry", "stranger"), "signed by clinic, registry, stranger"),
        (("clinic", "registry", "miner"), "role is 'miner', expected 'party'"),
        ((*PARTIES, "stranger"), "4 signatures"),
    ],
)
def test_every_party_and_nobody_else_must_have_signed(release, house, names, message):
    _sign_by(release, house, names)
    # A certificate of another role is a question of trust, a signature too few is not.
    _refused(release, house, message, "RELEASE_UNTRUSTED" if "role" in message else "RELEASE_INVALID")


def test_a_miner_cannot_publish_it_alone(release, house):
    sign_release(release, house.keys["miner"], ca_certificate=house.ca)
    _refused(release, house, "1 signatures, expected one of each party")


def test_another_federation_is_not_trusted(release, house, other_house):
    with pytest.raises(GateFailed) as caught:
        verify_release(release, ca_certificate=other_house.ca)
    assert caught.value.code == "RELEASE_UNTRUSTED"
    _sign_by(release, other_house)
    _refused(release, house, "certificate", "RELEASE_UNTRUSTED")


def test_a_changed_manifest_is_found(release, house):
    data = (release / "manifest.json").read_bytes()
    (release / "manifest.json").write_bytes(data.replace(b"3000", b"3001", 1))
    _refused(release, house, "the signature is not one of")


def test_who_signed_another_manifest_is_named(release, house, case):
    manifest = (release / "manifest.json").read_bytes()
    theirs = [house.keys["clinic"].sign(manifest), house.keys["registry"].sign(manifest + b" ")]
    with pytest.raises(PeerFault, match="party/registry signed one with the SHA-256") as caught:
        write_signatures(release, theirs, ca_certificate=house.ca)
    assert caught.value.code == "STUDY_MISMATCH"
    assert hashlib.sha256(manifest).hexdigest() in caught.value.message
    assert hashlib.sha256(manifest + b" ").hexdigest() in caught.value.message


def _resigned(release: Path, house: House, name: str, change) -> None:
    """Change a document and have all parties sign the result: what is left are the checks behind the signatures."""
    document = json.loads((release / name).read_bytes())
    change(document)
    (release / name).write_text(json.dumps(document))
    if name != "manifest.json":
        manifest = json.loads((release / "manifest.json").read_bytes())
        data = (release / name).read_bytes()
        manifest["files"][name].update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        (release / "manifest.json").write_text(json.dumps(manifest))
    _sign_by(release, house)


def _first_family(document, change) -> None:
    change(document["families"][0])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("manifest.json", lambda d: d["statements"].pop(), "2 statements, expected one of each"),
        ("manifest.json", lambda d: d["statements"].reverse(), "a statement of 'insurer', expected that of 'clinic'"),
        ("manifest.json", lambda d: d["statements"].__setitem__(1, d["statements"][0]), "a statement of 'clinic'"),
        ("manifest.json", lambda d: d["statements"][0].update(body="{}"), "statement of parameters"),
        ("manifest.json", lambda d: d["statements"][0].update(signature=d["statements"][1]["signature"]), "not one of"),
        ("manifest.json", lambda d: d["statements"][0].update(certificate=d["statements"][1]["certificate"]), "name is"),
        ("manifest.json", lambda d: d.update(n_common=2999), "the parties state 3000"),
        ("manifest.json", lambda d: d.update(published_at="2026-11-21T10:03:00Z"), "time of the latest statement"),
        ("manifest.json", lambda d: d.update(published_at="2026-11-21T10:01:00Z"), "later than the publication"),
        ("manifest.json", lambda d: d.update(structure=d["statements"][0]), "where study.json gives it"),
        ("manifest.json", lambda d: d["peer"].update(exact_parameters=True), "readers and noise"),
        ("manifest.json", lambda d: d["peer"]["share"].update(epsilon=0.5), "readers and noise"),
        ("manifest.json", lambda d: d["peer"]["columns"].pop(), "readers and noise"),
        ("manifest.json", lambda d: d["privacy"].update(epsilon_per_person=1.0), "the matrices in study.json give 6"),
        ("manifest.json", lambda d: d["study"].update(model="central"), "got 'central', expected 'peer'"),
        ("manifest.json", lambda d: d.pop("peer"), "'peer' is missing"),
        ("model.json", lambda d: d["peer"]["columns"][0].update(read_by=[]), "readers and noise"),
        ("model.json", lambda d: _first_family(d, lambda f: f.update(probability=[[0.25, 0.25, 0.5]])), "not what its party"),
        ("model.json", lambda d: _first_family(d, lambda f: f.update(standard_error=[[0, 0, 0]])), "standard_error of"),
        ("model.json", lambda d: _first_family(d, lambda f: f.update(unstable=[[True] * 3])), "unstable of variable 'age'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_refused_even_when_all_have_signed(release, house, name, change, message):
    _resigned(release, house, name, change)
    _refused(release, house, message)


def test_a_statement_of_another_study_is_refused(content, case, signed, house, tmp_path, peer_study):
    """The same party, properly signed, but about a study with another title."""
    other = dataclasses.replace(case, study=dataclasses.replace(case.study, title="Another"))
    foreign = house.keys["registry"].sign(statement_body(other.statement("registry", minute=1), other.study))
    changed = dataclasses.replace(content, statements=(signed["clinic"], foreign, signed["insurer"]))
    folder = write_release(tmp_path / "release", changed)
    _sign_by(folder, house)
    _refused(folder, house, "effective_sha256")


def test_a_statement_with_other_numbers_is_not_the_models(content, case, signed, house, tmp_path):
    """A party that signs two statements: the model is of one of them only."""
    second = house.keys["insurer"].sign(statement_body(case.statement("insurer", minute=2, key=b"k" * 32), case.study))
    changed = dataclasses.replace(content, statements=(signed["clinic"], signed["registry"], second))
    folder = write_release(tmp_path / "release", changed)
    _sign_by(folder, house)
    _refused(folder, house, "is not what its party states")


def test_a_statement_that_another_party_signed_is_refused(content, case, signed, house, tmp_path):
    foreign = house.keys["clinic"].sign(signed["insurer"].body)
    changed = dataclasses.replace(content, statements=(signed["clinic"], signed["registry"], foreign))
    folder = write_release(tmp_path / "release", changed)
    _sign_by(folder, house)
    _refused(folder, house, "name is 'clinic', expected 'insurer'")


def test_a_learned_structure_must_be_the_miners(case, signed, house, tmp_path):
    rule = dataclasses.replace(case.study.structure, method="genetic", parents=None)
    study = dataclasses.replace(case.study, structure=rule)
    digest = canonical.digest(study)
    body = structure_body(digest, case.structure.dag.parents, {"method": "genetic", "fitness": 0.5})
    structure = parse_structure(body, study, digest)
    readers = {"clinic": (2, 3, 4, 5), "registry": (0, 4, 5), "insurer": (1, 2)}

    def stated(party):
        document = json.loads(signed[party].body)
        template = {"n_records": 3000, "sha256": "00" * 32}
        document.update(
            effective_sha256=digest.hex(),
            structure_sha256=structure.sha256.hex(),
            received=[{**template, "unit": unit, "owner": study.units[unit].owner} for unit in readers[party]],
        )
        return house.keys[party].sign(rfc8785.dumps(document))

    for number, (signer, message) in enumerate([("miner", None), ("clinic", "role is 'party', expected 'miner'")]):
        content = assemble(
            study, b"p" * 32, structure, [stated(party) for party in PARTIES], simulation=False, seed_derived=False,
            structure_signed=house.keys[signer].sign(body),
        )  # fmt: skip
        folder = write_release(tmp_path / str(number), content)
        _sign_by(folder, house)
        if message is None:
            assert verify_release(folder, ca_certificate=house.ca).statements == 3
            model = json.loads((folder / "model.json").read_text())
            assert model["structure"]["search"] == {"method": "genetic", "fitness": 0.5}
            assert model["peer"]["columns"][2]["scored_by"] == ["clinic"]
            _resigned(folder, house, "manifest.json", lambda d: d.update(structure=None))
            _refused(folder, house, "expected the one that was learned")
        else:
            _refused(folder, house, message)


def test_a_certificate_that_had_ended_does_not_sign(case, signed, house, tmp_path):
    """Certificates of this authority hold for 90 days from 1 November 2026."""

    def late(party):
        document = json.loads(signed[party].body)
        document["computed_at"] = "2027-03-01T00:00:00Z"
        return house.keys[party].sign(rfc8785.dumps(document))

    content = assemble(
        case.study, b"p" * 32, case.structure, [late(party) for party in PARTIES], simulation=False, seed_derived=False
    )
    folder = write_release(tmp_path / "release", content)
    _sign_by(folder, house)
    with pytest.raises(GateFailed, match="expired"):
        verify_release(folder, ca_certificate=house.ca)
