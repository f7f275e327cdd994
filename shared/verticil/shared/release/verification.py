"""Checking a release that comes from somewhere: is it whole, who published it, and does everything in it belong together?

In this order: every file of the manifest is there with its size and SHA-256, and no other file is; the documents belong to the
same study; where there is a joint model, the synthetic records can have been drawn from it, and where graphs were sampled, each
set of records from its network; the publisher's signature over the
manifest holds; its certificate, and those of all receipts, were issued by one authority to one miner (in Model I every party of
the study has signed, and the protocol checks what each has stated); so many parties have countersigned as the study asks for; and
that authority, or that certificate, is the one that the reader trusts.
Without an anchor of the reader's own (the CA certificate, or a fingerprint from a trusted place) all but the last is checked and
the result is still "untrusted": anybody can make a consistent release.

A release outlives the certificates it was signed with. So validity is checked at the time at which the publisher says that it
published (each receipt: was received), not now. That time is the publisher's own word: the thief of a signing key can sign
backdated releases with it after its certificate has ended. A deny-list is held against the same time: what was signed before its
certificate was revoked stays valid, and the result says so.
"""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import math
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509

from verticil.shared.core.errors import GateFailed, Misuse, VerticilError, printable
from verticil.shared.documents.foreign_files.limits import CERTIFICATE_BYTES, DENY_LIST_BYTES
from verticil.shared.documents.foreign_files.reading import TooLargeError, read_at_most
from verticil.shared.documents.json_document import Json, JsonNode, parse
from verticil.shared.documents.record import write as written
from verticil.shared.documents.view_models import document, left_out
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.membership.revocation import FILE_NAME as DENY_LIST
from verticil.shared.federation.membership.revocation import parse_list, revoked_in
from verticil.shared.numerics.joint.worth import Worth, read_worth
from verticil.shared.numerics.knowledge.columns import complete_network
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.numerics.model.network import Network
from verticil.shared.privacy.statement import AccountStatement, ColumnStatement, privacy_statement
from verticil.shared.release.content import joint_fault, may_have_joint
from verticil.shared.release.figures import check_figures
from verticil.shared.release.formats import joint, model_json
from verticil.shared.release.formats import posterior as posterior_json
from verticil.shared.release.formats.posterior import PublishedPosterior
from verticil.shared.release.manifest import (
    MANIFEST,
    MANIFEST_FORMAT,
    SIGNATURE,
    SIGNATURE_ALGORITHM,
    SIGNATURE_FORMAT,
    SIGNATURE_VERSION,
    to_der,
)
from verticil.shared.release.posterior import check_posterior_file, posterior_remarks
from verticil.shared.release.protocols import release_protocol
from verticil.shared.release.related import check_related
from verticil.shared.release.signatures import (
    Denied,
    Trust,
    base64_bytes,
    check_countersignatures,
    check_sub_model_evidence,
    expect,
    read_document,
    utc_time,
)
from verticil.shared.release.worth import worth_document
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import protocol_of
from verticil.shared.synthesis.record_checks import FALSE_ALARMS, record_fault
from verticil.wire.v1 import common_pb2

REQUIRED = ("model.json", "study.json")


_MAX_SIGNATURE: Final = 32 * 2**20
_COMPOSED: Final = 1e-6
"""Of itself a figure that was composed numerically may differ between machines; they differ by less than 1e-9."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedRelease:
    """What a verified release says about itself: with `document`, what ``verticil release verify --format json`` says of it.

    Attributes:
        study, study_digest, effective_digest: of which study; its id, and its digests.
        publisher: identity URI of the miner that signed it; in Model I of the first of `signers`.
        publisher_sha256: fingerprint of its signing certificate.
        signers: identity URIs of all that signed it: the miner, or in Model I every party of the study.
        authority_sha256: fingerprint of the CA certificate.
        published_at: by the publisher's clock, ISO 8601.
        common_records: people that all parties have in common.
        synthetic_records: rows of the synthetic table.
        epsilon_per_person: of all randomized columns together; None without a bound. In Model I it is a promise against their
            readers and not about the parameters.
        accounts: what all of the study costs a person, for each reader.
        receipts: how many receipts of the miner were checked.
        statements: Model I: how many parties' signed parameters were checked.
        opened_tables_sha256: Model III: SHA-256 of the opened tables that it names, hex; None: none.
        alarms: Model III: where it says that these do not fit together.
        countersigned_by: parties that looked at it before it was published.
        parties_left_out: parties that the study went on without: it is a sub-model.
        revoked_later: signers whose certificates were revoked after they had signed, in words.
        exact_parameters: Model I: the parameters are exact functions of raw data, no noise was added to them; None in Model II.
        chains_agree: of a study that samples graphs: whether its chains do; None: it samples none.
        posterior_remarks: what else is to be said of its posterior, see `posterior.posterior_remarks`; None: nothing.
        worth: what it says that its records are worth; None: it does not say it.
        simulation, seed_derived: whether it says that it was simulated, or that its noise can be computed again.
        files: names of all files, the manifest and its signature excepted.
    """

    study: str
    study_digest: str
    effective_digest: str
    publisher: str
    publisher_sha256: str
    signers: tuple[str, ...]
    authority_sha256: str
    published_at: str
    common_records: int
    synthetic_records: int
    epsilon_per_person: float | None
    accounts: tuple[AccountStatement, ...]
    receipts: int
    statements: int
    opened_tables_sha256: str | None
    alarms: tuple[str, ...]
    countersigned_by: tuple[str, ...]
    parties_left_out: tuple[str, ...]
    revoked_later: tuple[str, ...]
    exact_parameters: bool | None
    chains_agree: bool | None = left_out()
    posterior_remarks: tuple[str, ...] | None = left_out()
    worth: Worth | None = left_out()
    simulation: bool
    seed_derived: bool
    files: tuple[str, ...]

    def document(self) -> dict[str, Json]:
        """Return the view model in JSON's terms."""
        answer = {"verified": True, **document(self), "accounts": [item.document() for item in self.accounts]}
        return answer if self.worth is None else {**answer, "worth": worth_document(self.worth)}


def verify_release_with(
    directory: Path, *, ca: Path | None = None, fingerprint: str | None = None, revoked: Path | None = None
) -> tuple[VerifiedRelease, Path | None]:
    """Verify a release with anchors from files.

    Args:
        directory, fingerprint: as for `verify_release`.
        ca: the CA certificate's file.
        revoked: the deny-list's; None: the one beside the CA certificate, where it is there.

    Returns:
        What the release says, and the deny-list that was held against it.

    Raises:
        VerticilError: as `verify_release`; FILE_MISSING, a file is not there.
    """
    if revoked is None and ca is not None and (beside := ca.parent / DENY_LIST).is_file():
        revoked = beside
    for path in (ca, revoked):
        if path is not None and not path.is_file():
            raise Misuse("FILE_MISSING", f"{path}: no such file")
    release = verify_release(
        directory,
        ca_certificate=None if ca is None else _anchor_file(ca, CERTIFICATE_BYTES),
        fingerprint=fingerprint,
        revoked=None if revoked is None else _anchor_file(revoked, DENY_LIST_BYTES),
    )
    return release, revoked


def _anchor_file(path: Path, most: int) -> bytes:
    """Read a file that a release is held against; its size is what a certificate or a deny-list can have."""
    try:
        return read_at_most(path, most)
    except TooLargeError as error:
        raise Misuse("CONFIG_INVALID", f"{path}: {error}, expected a certificate or a deny-list") from None
    except OSError as error:
        raise Misuse("FILE_MISSING", f"{path}: cannot be read ({error.strerror})") from None


def _check_program(directory: Path, version: str) -> None:
    if version.startswith("0."):
        raise GateFailed(
            "RELEASE_UNSUPPORTED",
            f"{directory}: made by verticil {printable(version)}; this version reads releases of 1.0.0 and later",
            hint="begin anew: publish the study again with 1.0.0; what is there stays, and the version that made it verifies it",
        )


def verify_release(
    directory: Path,
    *,
    ca_certificate: bytes | None = None,
    fingerprint: str | None = None,
    revoked: bytes | None = None,
    before_publication: bool = False,
) -> VerifiedRelease:
    """Verify a release.

    Args:
        directory: the release.
        ca_certificate: the federation's CA certificate (PEM or DER), from a trusted place.
        fingerprint: SHA-256 of the CA certificate's or of the publisher's signing certificate's DER, from a trusted place; hex,
            colons and blanks allowed.
        revoked: the deny-list of the federation (revoked.crl, PEM or DER): what was signed with a certificate after this was
            revoked is refused. What was signed before stays valid, and is named in the result.
        before_publication: the parties are still to look at it: countersignatures may be missing, those that are there must hold.

    Returns:
        What the release says, all of it covered by the signature.

    Raises:
        Misuse: FILE_MISSING when there is no such folder; USAGE when `fingerprint` is not one.
        PeerFault: CERTIFICATE_INVALID, the authority did not sign the deny-list.
        GateFailed: RELEASE_INVALID when something in it does not hold; RELEASE_UNTRUSTED when all holds, but not from an anchor
            that was given (or none was); RELEASE_UNSUPPORTED, a program before 1.0.0 made it.
        DataFault: DISK_FULL, STATE_CORRUPT, the folder in which very many records wait (`synthetic.read_records`).
    """
    if not directory.is_dir():
        raise Misuse("FILE_MISSING", f"{directory}: no such folder", hint="give the folder of a release")
    digest = None if fingerprint is None else _fingerprint(fingerprint)
    anchor = None if ca_certificate is None else _anchor(ca_certificate)
    manifest_bytes = read_document(directory, MANIFEST)
    manifest = parse(manifest_bytes, source=MANIFEST)
    expect(manifest["format"], MANIFEST_FORMAT)
    if manifest["version"].integer() != 1:
        manifest["version"].fail("made by a newer version of verticil")
    _check_program(directory, manifest["software"]["version"].text())
    files = _check_files(directory, manifest)
    study, model, joint_model, posterior = _check_documents(directory, manifest)
    published_at = utc_time(manifest["published_at"])

    signature = _signature_document(directory)
    authority_bytes = base64_bytes(signature["authority"])
    authority = authority_bytes if anchor is None else anchor
    deny_list = Denied({} if revoked is None else _revoked(revoked, authority))
    trust = Trust(authority=authority, anchored=anchor is not None, denied=deny_list)
    signers = _check_signatures(signature, manifest_bytes, study, trust, published=published_at)
    if authority_bytes != authority:
        signature["authority"].fail("names another authority than the one that the signers' certificates are of")
    publishers = [identity for identity, _ in signers]
    result = release_protocol(study).check(
        manifest, study, model, trust, publisher=publishers[0].name, published=published_at
    )
    model_bytes = read_document(directory, "model.json")
    check_figures(directory, model_bytes, study, (model, joint_model), manifest["n_common"].integer())
    model_document = parse(model_bytes, source="model.json")
    naming = (manifest, model_document)
    absent = check_sub_model_evidence(directory, manifest, naming, study, trust, published=published_at)
    entries = signature.get("countersignatures")
    countersigned = check_countersignatures(
        () if entries is None else entries.items(),
        study,
        trust,
        study_digest=manifest["study_digest"].text(),
        manifest_sha256=hashlib.sha256(manifest_bytes).digest(),
        # In a simulation on one machine no party can look, as no miner can give a receipt.
        complete=not before_publication and (result.receipts > 0 or not manifest["simulation"].boolean()),
    )

    authority_sha256 = hashlib.sha256(authority).hexdigest()
    names = ", ".join(identity.uri for identity in publishers)
    if digest is not None and digest not in (authority_sha256, *(sha256 for _, sha256 in signers)):
        certificates = ", ".join(sha256 for _, sha256 in signers)
        raise GateFailed(
            "RELEASE_UNTRUSTED",
            f"{directory}: published by {names} (certificate {certificates}, authority {authority_sha256}), "
            f"expected the fingerprint {digest}",
            hint="the release is consistent, but it is not from the federation that you named",
        )
    if digest is None and anchor is None:
        raise GateFailed(
            "RELEASE_UNTRUSTED",
            f"{directory}: the release is consistent in itself, but nothing was given to check that {names} published it"
            f" (it names the authority {authority_sha256})",
            hint="give --ca FILE or --fingerprint HEX from a trusted place (federation.toml has it as ca_sha256)",
        )
    total = privacy_statement(study, model.dag)
    besides = protocol_of(study).statement(study, model.dag)
    return VerifiedRelease(
        study=study.id,
        study_digest=manifest["study_digest"].text(),
        effective_digest=manifest["effective_digest"].text(),
        publisher=publishers[0].uri,
        publisher_sha256=signers[0][1],
        signers=tuple(identity.uri for identity in publishers),
        authority_sha256=authority_sha256,
        published_at=manifest["published_at"].text(),
        common_records=manifest["n_common"].integer(),
        synthetic_records=manifest["synthetic_records"].integer(),
        receipts=result.receipts,
        statements=result.statements,
        opened_tables_sha256=result.opened or None,
        alarms=result.alarms,
        countersigned_by=countersigned,
        parties_left_out=absent,
        exact_parameters=None if besides is None else besides.exact,
        simulation=manifest["simulation"].boolean(),
        seed_derived=manifest["seed_derived"].boolean(),
        epsilon_per_person=total.epsilon_per_person if total.has_bound else None,
        accounts=total.accounts,
        revoked_later=deny_list.later,
        files=files,
        chains_agree=None if posterior is None else posterior.agreement.agree,
        posterior_remarks=None if posterior is None else (posterior_remarks(posterior, study.schema.names) or None),
        worth=read_worth(model_document.value) if isinstance(model_document.value, dict) else None,
    )


def _signature_document(directory: Path) -> JsonNode:
    """`manifest.sig`, when all that it says of its form is what this version knows."""
    signature = parse(
        read_document(directory, SIGNATURE, most=_MAX_SIGNATURE, hint="the release was never signed, or is not whole"),
        source=SIGNATURE,
    )
    expect(signature["format"], SIGNATURE_FORMAT)
    if signature["version"].integer() != SIGNATURE_VERSION:
        signature["version"].fail(f"expected {SIGNATURE_VERSION}: made by another version of verticil")
    expect(signature["file"], MANIFEST)
    expect(signature["algorithm"], SIGNATURE_ALGORITHM)
    return signature


def _check_files(directory: Path, manifest: JsonNode) -> tuple[str, ...]:
    """Check that every listed file is there as listed, and no other."""
    files = manifest["files"]
    names = files.keys()
    present = {path.name for path in directory.iterdir()} - {MANIFEST, SIGNATURE}
    if missing := sorted(set(REQUIRED) - set(names)):
        files.fail(f"does not list {', '.join(missing)}")
    if absent := sorted(set(names) - present):
        raise GateFailed(
            "RELEASE_INVALID", f"{directory}: {printable(', '.join(absent))} is listed in {MANIFEST} but missing"
        )
    if extra := sorted(present - set(names)):
        raise GateFailed("RELEASE_INVALID", f"{directory}: {printable(', '.join(extra))} is not listed in {MANIFEST}")
    for name in names:
        path = directory / name
        if path.name != name or not name.isprintable() or not stat.S_ISREG(path.lstat().st_mode):
            files.fail(f"'{printable(name)}' is not the name of a plain file in this folder")
        expected_size, sha256 = files[name]["bytes"].integer(), files[name]["sha256"].text()
        if (size := path.stat().st_size) != expected_size:
            raise GateFailed(
                "RELEASE_INVALID", f"{path}: {size} bytes, expected {expected_size}", hint="fetch the release again"
            )
        with path.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != sha256:
            raise GateFailed(
                "RELEASE_INVALID", f"{path}: SHA-256 is {actual}, expected {sha256}", hint="fetch the release again"
            )
    return names


def _check_documents(
    directory: Path, manifest: JsonNode
) -> tuple[Study, Network, JointModel | None, PublishedPosterior | None]:
    """study.json is the study of the manifest's digest, and model.json and the privacy figures are of that study."""
    study_bytes = read_document(directory, "study.json")
    effective = manifest["effective_digest"].text()
    if (digest := hashlib.sha256(study_bytes).hexdigest()) != effective:
        raise GateFailed(
            "RELEASE_INVALID", f"study.json: SHA-256 is {digest}, expected the effective digest {effective}"
        )
    try:
        study = canonical.from_bytes(study_bytes, source="study.json", wire=False)
    except VerticilError as error:
        raise GateFailed("RELEASE_INVALID", error.message) from None
    model_bytes = read_document(directory, "model.json")
    model = parse(model_bytes, source="model.json")
    for key in ("study_digest", "effective_digest"):
        expect(model["study"][key], manifest[key].text())
    network = model_json.read(model_bytes)
    if network.schema != study.schema:
        raise GateFailed("RELEASE_INVALID", "model.json: its variables are not those of study.json")
    custom = study.custom_network()
    if custom is not None and (leaks := custom.leaks(network.dag)):
        s, q = (study.schema.names[v] for v in leaks[0])
        raise GateFailed(
            "RELEASE_INVALID",
            f"model.json: the custom network of study.json is not kept: '{s}' is not separated from '{q}' by "
            f"'{study.schema.names[custom.target]}'",
        )
    for root in (manifest, model):
        _check_privacy(root["privacy"], study, network.dag)
        _check_statement(root, study, network.dag)
    knowledge = None if (node := model.get("knowledge")) is None else node.value
    if not _equal(knowledge, None if study.knowledge is None else written(study.knowledge)):
        raise GateFailed(
            "RELEASE_INVALID", "model.json: what it says is known of all records is not what study.json states"
        )
    written_as = network_in_files(model, network, study)
    joint_model = model_json.read_joint(model_bytes, study.schema)
    _check_joint(directory, manifest, study, written_as, joint_model)
    _check_sampled_from(model, study, joint_model)
    _check_rules(directory, manifest, study, network, joint_model)
    check_related(directory, study, study.release.synthetic_records or manifest["n_common"].integer())
    has_posterior = manifest["files"].get(posterior_json.FILE) is not None
    posterior = check_posterior_file(
        directory,
        read_document(directory, posterior_json.FILE) if has_posterior else None,
        study,
        network.dag,
        study.release.synthetic_records or manifest["n_common"].integer(),
        nodes=model_json.deterministic(written_as, study.schema),
    )
    expect(manifest["study"]["id"], study.id)
    expect(manifest["study"]["model"], study.model)
    return study, network, joint_model, posterior


def network_in_files(model: JsonNode, network: Network, study: Study) -> Network:
    """Return the network that a release's files have: with a node for each column that follows from others.

    Args:
        model: of model.json.
        network: of it, over the study's variables.
        study: of study.json.

    Raises:
        GateFailed: RELEASE_INVALID, the nodes of model.json are not those that follow from the study.
    """
    complete, node = complete_network(network, study.knowledge), model.get("deterministic")
    if not _equal(None if node is None else node.value, model_json.deterministic(complete, study.schema) or None):
        model.fail("deterministic: it is not what follows from others in study.json")
    return complete


def _check_joint(directory: Path, manifest: JsonNode, study: Study, network: Network, model: JointModel | None) -> None:
    """Check that a joint model is one that the study permits, the same in both files, and the source of the synthetic
    records.
    """
    has_joint = manifest["files"].get(joint.FILE) is not None
    if has_joint != (model is not None):
        raise GateFailed("RELEASE_INVALID", f"{directory}: model.json and {joint.FILE} do not both have a joint model")
    if model is None:
        return
    if problem := joint_fault(study, model):
        raise GateFailed("RELEASE_INVALID", f"model.json: joint: {problem}")
    if read_document(directory, joint.FILE) != joint.to_xmlbif(model, study.schema, network):
        raise GateFailed("RELEASE_INVALID", f"{joint.FILE}: it is not the joint model of model.json")
    _check_records(directory, study, model, study.release.synthetic_records or manifest["n_common"].integer())


def _check_records(directory: Path, study: Study, model: Network | JointModel, n_records: int) -> None:
    if fault := record_fault(
        directory, study.schema, model, n_records, FALSE_ALARMS, knowledge=study.knowledge, identifier=study.identifier
    ):
        raise GateFailed("RELEASE_INVALID", f"{directory}: {fault}", hint="do not use these records")


def _check_rules(
    directory: Path, manifest: JsonNode, study: Study, network: Network, joint_model: JointModel | None
) -> None:
    """Records of a network meet the study's rules, and hold the values of its types and keys, where it has any; those of other
    models were looked at with their models.
    """
    is_typed = study.identifier is not None or any(variable.kind is not None for variable in study.schema.variables)
    has_rules = is_typed or study.knowledge is not None
    if joint_model is None and study.records_from != "posterior" and has_rules:
        _check_records(directory, study, network, study.release.synthetic_records or manifest["n_common"].integer())


def _check_sampled_from(document: JsonNode, study: Study, model: JointModel | None) -> None:
    """Check that what records are said to come from, where the study leaves it open, are shares, and of sources that are
    there.
    """
    if (node := document.get("sampled_from")) is None:
        return
    shares = [node[source].number() for source in ("joint", "network")]
    if not (study.leaves_source_open and may_have_joint(study)):
        node.fail("by study.json it is not open what the records come from")
    if not (min(shares) >= 0 and math.isclose(sum(shares), 1.0, abs_tol=1e-9)):
        node.fail(f"got {shares[0]:g} of the joint model and {shares[1]:g} of the network, expected two shares of 1")
    if (shares[0] > 0) != (model is not None):
        node.fail(
            f"got {shares[0]:g} of the joint model, {'which is there' if model is not None else 'but none is there'}"
        )


def _check_signatures(
    signature: JsonNode, manifest: bytes, study: Study, trust: Trust, *, published: dt.datetime
) -> list[tuple[Identity, str]]:
    """Check that the miner, or in Model I every party, signed the manifest; return who, and the certificate's fingerprint."""
    entries = signature["signatures"].items()
    role, n_signers = (Role.MINER, 1) if protocol_of(study).coordinated else (Role.PARTY, len(study.parties))
    if len(entries) != n_signers:
        whose = "one of each party" if role is Role.PARTY else "the miner's"
        signature["signatures"].fail(f"{len(entries)} signatures, expected {whose}")
    signers: list[tuple[Identity, str]] = []
    for entry in entries:
        signed = common_pb2.Signed(
            body=manifest,
            signature=base64_bytes(entry["signature"]),
            certificate=base64_bytes(entry["certificate"]),
        )
        identity = trust.signer(signed, role=role, at=published, where=SIGNATURE, anchored=trust.anchored)
        signers.append((identity, hashlib.sha256(signed.certificate).hexdigest()))
    names = {identity.name for identity, _ in signers}
    if role is Role.PARTY and names != set(study.parties):
        signature["signatures"].fail(f"signed by {', '.join(sorted(names))}, expected {', '.join(study.parties)}")
    return signers


def _check_privacy(node: JsonNode, study: Study, dag: Dag) -> None:
    """Check that the published epsilons are those of the matrices in study.json, and the events those that the study
    causes.
    """
    statement = privacy_statement(study, dag)
    columns = node["columns"].items()
    if len(columns) != len(statement.columns):
        node["columns"].fail(f"{len(columns)} columns, expected {len(statement.columns)}")
    figures = [(node["epsilon_per_person"], statement.epsilon_per_person)]
    for column, target in zip(columns, statement.columns, strict=True):
        if column["variables"].texts() != target.variables:
            column["variables"].fail(f"expected {', '.join(target.variables)}")
        figures.append((column["epsilon"], target.epsilon))
    for figure, value in figures:
        figure_value = math.inf if figure.value is None else figure.number()
        if figure_value != value and not math.isclose(figure_value, value, rel_tol=1e-9, abs_tol=1e-12):
            figure.fail(f"got {figure_value}, the matrices in study.json give {value}")
    for column, target in zip(columns, statement.columns, strict=True):
        _check_column(column, target)
    if not _equal((alignment := node["alignment"]).value, dict(statement.alignment.document())):
        alignment.fail("what it says that finding the common people revealed is not what study.json gives")
    published_events = node.get("events")
    event_entries = None if published_events is None else published_events.value
    if not _equal(event_entries, statement.events_document, within=_COMPOSED):
        (published_events or node).fail("events: what it says was drawn of people's data is not what study.json gives")
    masked = None if statement.masked is None else statement.masked.document()
    if not _equal(None if (masked_node := node.get("masked")) is None else masked_node.value, masked, within=_COMPOSED):
        (masked_node or node).fail("masked: what it says of the four figures is not what study.json gives")
    if not _equal((accounts := node["accounts"]).value, statement.accounts_document, within=_COMPOSED):
        accounts.fail("what it says that the study costs each person is not what study.json gives")


def _check_column(node: JsonNode, expected: ColumnStatement) -> None:
    """Check that every figure of a column is the one that its matrix in study.json gives, and nothing else is said of it."""
    figures, entries = expected.document(), node.object().value
    assert isinstance(figures, dict)
    assert isinstance(entries, dict)
    for name in sorted(entries.keys() | figures.keys()):
        if name not in entries or name not in figures or not _equal(entries[name], figures[name], within=_COMPOSED):
            node.fail(f"{name}: not what the matrix in study.json gives")


def _check_statement(document: JsonNode, study: Study, dag: Dag) -> None:
    """Check that a document says of readers and of the parameters' noise what the study and the structure give."""
    target = protocol_of(study).statement(study, dag)
    if target is not None and not _equal((node := document[target.key]).value, target.document()):
        node.fail("what it says of readers and noise is not what the study and the structure give")


def _equal(got: object, expected: object, *, within: float = 1e-9) -> bool:
    """Return whether two JSON values are the same; numbers but for a part of themselves, because machines round
    differently.
    """
    if isinstance(expected, dict):
        return (
            isinstance(got, dict)
            and got.keys() == expected.keys()
            and all(_equal(got[key], expected[key], within=within) for key in got)
        )
    if isinstance(expected, list):
        return (
            isinstance(got, list)
            and len(got) == len(expected)
            and all(map(functools.partial(_equal, within=within), got, expected))
        )
    if isinstance(expected, float):
        if not isinstance(got, int | float) or isinstance(got, bool):
            return False
        # A whole number may be longer than any float: the first comparison is exact.
        return abs(got) <= sys.float_info.max and abs(got - expected) <= within * abs(expected)
    return type(got) is type(expected) and got == expected


def _revoked(encoded: bytes, authority: bytes) -> dict[int, dt.datetime]:
    try:
        issuer = x509.load_der_x509_certificate(authority)
    except ValueError:
        raise GateFailed("RELEASE_INVALID", f"{SIGNATURE}: authority: expected an X.509 certificate") from None
    return revoked_in(parse_list(encoded, issuer, what="deny-list"))


def _anchor(certificate: bytes) -> bytes:
    try:
        return to_der(certificate)
    except ValueError:
        raise Misuse("USAGE", "CA certificate: expected one X.509 certificate, PEM or DER") from None


def _fingerprint(text: str) -> str:
    digits = "".join(text.replace(":", "").split()).lower()
    if len(digits) != 64 or set(digits) - set("0123456789abcdef"):
        raise Misuse(
            "USAGE", f"fingerprint: got {len(digits)} characters, expected the 64 hexadecimal digits of a SHA-256"
        )
    return digits
