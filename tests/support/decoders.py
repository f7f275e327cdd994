"""The one table of everything that reads foreign bytes, and what a document may do there."""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import io
import tempfile
import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding
from google.protobuf.message import DecodeError

from support.knowledge import GRAPH
from support.releases import random_mixture, random_records, with_joint, with_posterior
from verticil.miner.config import load_miner
from verticil.party.audit.log import AuditLog, Event, What
from verticil.party.config import load_party
from verticil.party.dataset.keyfile import read_key
from verticil.party.dataset.pseudonyms import common_from_bitmap
from verticil.party.operator import sealed_file
from verticil.party.operator.limits import publish, read_limits
from verticil.party.operator.sealed_file import read_head
from verticil.party.policy.approval_checks import content_of
from verticil.party.policy.decision_store import ApproverKey
from verticil.party.storage.database import Database
from verticil.party.storage.secret import FILE_NAME as SECRET_NAME
from verticil.party.storage.secret import read_secret
from verticil.pki.register import sign_request
from verticil.pki.request import create_request, parse_request, read_request
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents import json_document
from verticil.shared.documents.config import load_federation, read_toml
from verticil.shared.documents.record import encode, parse
from verticil.shared.federation.airgap.bundle import BundleEntries, Reference, parse_entry, read_statement
from verticil.shared.federation.airgap.bundle import Statement as CarriedStatement
from verticil.shared.federation.airgap.bundle import pack as pack_bundle
from verticil.shared.federation.airgap.bundle import parse_statement as parse_carried_statement
from verticil.shared.federation.airgap.bundle import unpack as unpack_bundle
from verticil.shared.federation.airgap.exchange import Journal, load_journal, store_journal
from verticil.shared.federation.alignment.statements import common_body, parse_common
from verticil.shared.federation.audit import entries
from verticil.shared.federation.audit import verify as verify_audit
from verticil.shared.federation.identity.authority import create_authority, issue, open_authority
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import (
    load_credentials,
    load_private_key,
    read_certificates,
    read_private_file,
)
from verticil.shared.federation.identity.signing import SigningKey, verify_signed
from verticil.shared.federation.membership.installation import install, read_fingerprint
from verticil.shared.federation.membership.revocation import make_list, parse_list
from verticil.shared.federation.transport import sealing as hpke
from verticil.shared.federation.transport.chunks import ChunkReader, make_chunks, plain_data
from verticil.shared.federation.transport.errors_on_wire import from_detail
from verticil.shared.masked.arithmetic.derivation import PURPOSE
from verticil.shared.masked.arithmetic.streams import encode_fields as fields_listed
from verticil.shared.masked.round import envelope
from verticil.shared.masked.round.proof import read_signed_message
from verticil.shared.masked.round.schedule import Kind
from verticil.shared.numerics.knowledge.turtle import read_turtle
from verticil.shared.numerics.model.artifact import pack, unpack
from verticil.shared.numerics.model.joint import JointModel
from verticil.shared.numerics.model.network import PairEstimate
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.formats import model_json
from verticil.shared.release.formats import posterior as posterior_json
from verticil.shared.release.formats.deletion import (
    Deleted,
    Deletion,
    PeerDeletion,
    PeerHolding,
    parse_deletion,
    parse_peer_deletion,
    parse_peer_holding,
)
from verticil.shared.release.manifest import sign_release
from verticil.shared.release.signatures import Countersignature, read_countersignature
from verticil.shared.release.statement import parse_statement, statement_body
from verticil.shared.release.verification import verify_release
from verticil.shared.study import canonical
from verticil.shared.study.approval import Approval, declared_units, parse_approval
from verticil.shared.study.canonical import parse_canonical
from verticil.shared.study.document import LeftOut
from verticil.shared.study.reading import read_declarations, read_study
from verticil.shared.study.structure_document import parse_structure, structure_body
from verticil.shared.study.sub_model import SubModel, parse_sub_model
from verticil.shared.synthesis.record_checks import read_records
from verticil.simulation.provision import OPEN_LIMITS, csv_site, provision
from verticil.wire.v1 import carried_pb2, common_pb2, coordinator_pb2


@dataclass(frozen=True)
class Decoder:
    """One of them.

    Attributes:
        decode: takes the bytes; an error of ours is fine, everything else is a fault.
        example: bytes that it accepts.
    """

    decode: Callable[[bytes], object]
    example: bytes


def _file(place: Path, name: str, use: Callable[[Path], object]) -> Callable[[bytes], object]:
    """A decoder of a file, which is put among the others of its folder; what it says must survive that."""

    def decode(data: bytes) -> object:
        path = place / name
        before = path.read_bytes()
        mode = path.stat().st_mode & 0o777
        path.write_bytes(data)
        path.chmod(mode)
        try:
            return use(path)
        finally:
            path.write_bytes(before)
            path.chmod(mode)

    return decode


def _parse_proto(kind: Any, use: Callable[[Any], object]) -> Callable[[bytes], object]:
    def decode(data: bytes) -> object:
        try:
            message = kind.FromString(data)
        except DecodeError:
            return None
        return use(message)

    return decode


def _value_error_is_fine(parse: Callable[[str], object], text: str) -> object:
    """Of a function that says so; its callers make it an error of ours."""
    try:
        return parse(text)
    except ValueError:
        return None


def make_decoders(
    folder: Path, release_study: Any, release_content: Any, peer_case: Any, peer_study: Any
) -> dict[str, Decoder]:
    """The table. Everything in it is made by the project's own encoders."""
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)
    identity = Identity(federation="fuzz", role=Role.PARTY, name="clinic")
    create_authority(folder / "ca", "fuzz", demo=True, days=1)
    authority = open_authority(folder / "ca")
    ca = (folder / "ca" / "ca.crt").read_bytes()
    miner = issue(folder / "ca", "miner", Role.MINER, folder / "miner", hosts=("localhost",), days=1)
    signer = SigningKey.load(miner.signing_key, miner.certificate)
    request_path, _ = create_request(folder / "site", identity)
    answer = folder / "clinic.signed"
    sign_request(authority, read_request(request_path), answer, days=1, at=now)
    (folder / "table.csv").write_text("id,age\n1,2\n")
    made = provision(
        folder / "federation",
        federation="fuzz",
        sites=[csv_site("clinic", folder / "table.csv")],
        limits=OPEN_LIMITS,
        endpoint="localhost:1",
        listen="127.0.0.1:0",
        hosts=("localhost",),
    )
    node = made.parties["clinic"]
    federation = load_federation(node / "federation.toml")
    of_answer = dataclasses.replace(
        federation,
        ca_certificate=folder / "ca" / "ca.crt",
        ca_sha256=authority.certificate.fingerprint(hashes.SHA256()).hex(),
    )

    study_text = (Path(__file__).parents[1] / "vectors" / "study_example.toml").read_bytes()
    study_path = folder / "study.toml"
    study_path.write_bytes(study_text)
    declared = read_study(study_path)
    declaration = folder / "declaration.toml"
    first = declared.units[0]
    declaration.write_text(
        f'schema = 1\n[[declaration]]\nvariables = ["{first.variables[0]}"]\nscheme = "symmetric"\nepsilon = 0.5\n'
    )

    mine = release_study.units_of("clinic")
    approval = encode(Approval(
        proposal_digest=canonical.digest(release_study), party="clinic",
        units=declared_units({index: release_study.units[index] for index in mine}, dict.fromkeys(mine, "ab" * 32)),
            minimum_common_records=10, approver="a person", approved_at=now, expires=release_study.expires,
    ))  # fmt: skip
    peers = peer_study()
    case = peer_case(peers, n=300)
    effective = canonical.digest(peers)
    deletion = encode(
        Deletion(study_digest=bytes(32), study_id="hearts", party="clinic", artifacts={0: bytes(32)}, why="revoked",
                 miner="miner", deleted_at=now)
    )  # fmt: skip
    held_at_peer = encode(
        PeerHolding(
            study_digest=bytes(32),
            party="clinic",
            columns={0: Deleted(sha256=bytes(32), size=9)},
            parameters=Deleted(sha256=bytes(32), size=11),
            peer="insurer",
        )
    )
    deleted_at_peer = encode(
        PeerDeletion(study_digest=bytes(32), study_id="hearts", party="clinic", columns={0: Deleted(sha256=bytes(32), size=9)},
                     parameters=None, ended="withdrawn", peer="insurer", deleted_at=now)
    )  # fmt: skip

    countersignature = encode(
        Countersignature(
            study_digest=bytes(32), manifest_sha256=bytes(32), party="clinic", approver="a person", signed_at=now
        )
    )

    left_out = (LeftOut(party="bank", missing="linkage"),)
    sub_model = encode(
        SubModel(proposal_digest=bytes(32), effective_digest=bytes(32), left_out=left_out, decided_at=now)
    )

    release = folder / "release"
    write_release(release, dataclasses.replace(release_content, published_at=now))
    sign_release(release, signer, ca_certificate=ca)

    def joint(name: str, model: Callable[[tuple[int, ...]], JointModel]) -> Decoder:
        schema = release_content.study.schema
        written = write_release(folder / name, with_joint(release_content, model(schema.n_states))) / "model.json"
        return Decoder(lambda data: model_json.read_joint(data, schema), written.read_bytes())

    def pairs() -> Decoder:
        shares = np.full(release_content.study.schema.n_states[:2], 0.1)
        pair = PairEstimate(first=0, second=1, estimate=shares, low=shares - 0.05, high=shares + 0.07, exact=False)
        written = write_release(folder / "pairs", dataclasses.replace(release_content, pairs=(pair,))) / "model.json"
        return Decoder(lambda data: model_json.read_pairs(data, release_content.study.schema), written.read_bytes())

    def posterior() -> Decoder:
        schema = release_content.study.schema
        written = write_release(folder / "posterior", with_posterior(release_content)) / posterior_json.FILE
        return Decoder(lambda data: posterior_json.read(data, schema), written.read_bytes())

    state = folder / "audited"
    state.mkdir()
    with Database(state, create=True) as database:
        log = AuditLog(database, state)
        for number in range(5):
            log.record(Event(what=What.CHECK, who="lee", study=bytes(32), study_id=f"s{number}", detail="OK"), now)
        audit = next(state.glob("audit*")).read_bytes()

    pseudonyms = np.sort(np.array([hashlib.sha256(b"%d" % i).digest()[:16] for i in range(64)], dtype="S16"))
    listed = np.frombuffer(pseudonyms.tobytes(), np.uint8).reshape(64, 16)
    sha256_of_common = hashlib.sha256(pseudonyms[::2].tobytes()).digest()
    bitmap = np.packbits(np.arange(64) % 2 == 0, bitorder="little").tobytes()
    chunk = next(iter(make_chunks(bytes(range(256)) * 8)))
    signed = signer.sign(b"a statement")
    linkage_key = node / "secrets" / "linkage.key"
    secret = node / "state" / SECRET_NAME
    (limits := folder / "limits.json").write_text(publish(load_party(node / "party.toml"), dt.datetime.now(dt.UTC)))
    denied = make_list(authority, {5: now}, number=3, at=now).public_bytes(Encoding.DER)

    def verified(name: str) -> Decoder:
        return Decoder(
            _file(release, name, lambda path: verify_release(path.parent, ca_certificate=ca)),
            (release / name).read_bytes(),
        )

    def records(name: str) -> Decoder:
        n_records = (release / "synthetic.csv").read_bytes().count(b"\n") - 1
        return Decoder(
            _file(release, name, lambda path: read_records(path, release_study.schema, n_records)),
            (release / name).read_bytes(),
        )

    to, of = X25519PrivateKey.generate(), X25519PrivateKey.generate()
    masked, sizes = folder / "masked", (40, 8)
    envelope.write(
        masked, map(bytes, sizes), count=2, what=b"w", recipient=to.public_key(), sender=of, sign=signer.sign
    )

    def frames(path: Path) -> list[bytes]:
        sender = of.public_key()
        return list(envelope.read_frames(path, what=b"w", recipient=to, sender=sender, name="x", sizes=sizes))

    return {
        "party.operator.sealed_file.read_head": Decoder(
            lambda data: read_head(io.BytesIO(data), "backup"),
            b"".join(sealed_file.seal([b"state"], "a passphrase", {"party": "clinic"}, cost=2)),
        ),
        "shared.federation.transport.sealing.open_sealed": Decoder(
            lambda data: hpke.open_sealed(data, recipient=to, sender=of.public_key(), info=b"i", aad=b"a"),
            hpke.seal(b"message", recipient=to.public_key(), sender=of, info=b"i", aad=b"a"),
        ),
        "shared.masked.round.envelope.read_frames": Decoder(_file(folder, masked.name, frames), masked.read_bytes()),
        "shared.masked.round.envelope.read_signed": Decoder(
            _file(folder, masked.name, lambda path: envelope.read_signed(path, what=b"w", name="x", sizes=sizes)),
            masked.read_bytes(),
        ),
        "shared.masked.round.proof.read_signed_message": Decoder(
            read_signed_message,
            fields_listed(
                fields_listed(PURPOSE, "message", bytes(32), 1, bytes(32), "", Kind.HELLO, "clinic", "", bytes(32)),
                b"",
                b"",
            ),
        ),
        **_of_carried(folder, SigningKey.load(node / "pki" / "clinic.sign", node / "pki" / "clinic.crt"), now),
        "shared.numerics.model.artifact.unpack": Decoder(
            lambda data: unpack(data, 5, 1000), pack(np.arange(1000, dtype=np.uint8) % 5, 5)
        ),
        "shared.federation.alignment.statements.parse_common": Decoder(
            parse_common,
            common_body(mode="dh-psi", study=bytes(32), party="clinic", n_common=32, common_sha256=sha256_of_common),
        ),
        "shared.release.formats.deletion.parse_deletion": Decoder(parse_deletion, deletion),
        "shared.release.formats.deletion.parse_peer_deletion": Decoder(parse_peer_deletion, deleted_at_peer),
        "shared.release.formats.deletion.parse_peer_holding": Decoder(parse_peer_holding, held_at_peer),
        "shared.documents.json_document.parse": Decoder(
            lambda data: json_document.parse(data, source="x"), (release / "manifest.json").read_bytes()
        ),
        "shared.release.formats.model_json.read": Decoder(model_json.read, (release / "model.json").read_bytes()),
        "shared.release.formats.model_json.read_marginals": Decoder(
            lambda data: model_json.read_marginals(data, release_study.schema), (release / "model.json").read_bytes()
        ),
        "shared.release.formats.model_json.read_pairs": pairs(),
        "shared.release.formats.model_json.read_joint": joint("mixture", random_mixture),
        "shared.release.formats.model_json.read_joint of records": joint("records", random_records),
        "shared.release.formats.posterior.read": posterior(),
        "shared.release.statement.parse_statement": Decoder(
            lambda data: parse_statement(data, peers), statement_body(case.statement("clinic"), peers)
        ),
        "shared.synthesis.record_checks.read_records": records("synthetic.csv"),
        "shared.synthesis.record_checks.read_records of Parquet": records("synthetic.parquet"),
        "shared.release.verification.verify_release": verified("manifest.json"),
        "shared.release.verification.verify_release of the signature": verified("manifest.sig"),
        "shared.study.approval.parse_approval": Decoder(parse_approval, approval),
        "shared.study.canonical.from_bytes": Decoder(canonical.from_bytes, canonical.to_bytes(release_study)),
        "shared.study.canonical.from_bytes between peers": Decoder(canonical.from_bytes, canonical.to_bytes(peers)),
        "shared.documents.record.parse": Decoder(
            lambda data: parse(data, source="x", limit=10**6), canonical.to_bytes(release_study)
        ),
        "shared.study.canonical.parse_canonical": Decoder(parse_canonical, canonical.to_bytes(release_study)),
        "shared.study.sub_model.parse_sub_model": Decoder(parse_sub_model, sub_model),
        "shared.study.structure_document.parse_structure": Decoder(
            lambda data: parse_structure(data, peers, effective),
            structure_body(effective, case.structure.dag.parents, {"method": "genetic"}),
        ),
        "shared.study.reading.read_study": Decoder(_file(folder, "study.toml", read_study), study_text),
        "shared.numerics.knowledge.turtle.read_turtle": Decoder(
            lambda data: read_turtle(data, source="rules.ttl", values={"sex": ("Male", "Female")}), GRAPH.encode()
        ),
        "shared.study.reading.read_declarations": Decoder(
            _file(
                folder,
                "declaration.toml",
                lambda path: read_declarations(read_toml(path).tables("declaration"), declared, first.owner),
            ),
            declaration.read_bytes(),
        ),
        "shared.documents.config.read_toml": Decoder(_file(folder, "study.toml", read_toml), study_text),
        "shared.documents.config.load_federation": Decoder(
            _file(node, "federation.toml", load_federation), (node / "federation.toml").read_bytes()
        ),
        "party.config.load_party": Decoder(_file(node, "party.toml", load_party), (node / "party.toml").read_bytes()),
        "party.operator.limits.read_limits": Decoder(
            _file(
                folder,
                "limits.json",
                lambda path: read_limits(path, made.ca_certificate.read_bytes(), dt.datetime.now(dt.UTC)),
            ),
            limits.read_bytes(),
        ),
        "miner.config.load_miner": Decoder(
            _file(made.miner, "miner.toml", load_miner), (made.miner / "miner.toml").read_bytes()
        ),
        "pki.request.parse_request": Decoder(parse_request, request_path.read_bytes()),
        "pki.request.read_request": Decoder(
            _file(request_path.parent, request_path.name, read_request), request_path.read_bytes()
        ),
        "shared.federation.membership.installation.install": Decoder(
            _file(
                folder,
                "clinic.signed",
                lambda path: install(
                    path, request_path.parent, fingerprint=of_answer.ca_sha256, federation=of_answer, at=now
                ),
            ),
            answer.read_bytes(),
        ),
        "shared.federation.membership.installation.read_fingerprint": Decoder(
            lambda data: read_fingerprint(data.decode("latin-1")), b"ab:" * 31 + b"ab"
        ),
        "shared.federation.membership.revocation.parse_list": Decoder(
            lambda data: parse_list(data, authority.certificate, what="list"), denied
        ),
        "shared.federation.transport.chunks.plain_data": Decoder(
            _parse_proto(common_pb2.Chunk, plain_data), chunk.SerializeToString()
        ),
        "shared.federation.transport.chunks.plain_data of a zlib stream": Decoder(
            lambda data: plain_data(common_pb2.Chunk(data=data, encoding=common_pb2.ENCODING_ZLIB)),
            zlib.compress(b"x" * 9000),
        ),
        "shared.federation.transport.chunks.ChunkReader.read": Decoder(
            _parse_proto(common_pb2.Chunk, lambda chunk: ChunkReader(offset=0, size=2048).read(chunk)),
            chunk.SerializeToString(),
        ),
        "shared.federation.transport.errors_on_wire.from_detail": Decoder(
            _parse_proto(common_pb2.ErrorDetail, from_detail),
            common_pb2.ErrorDetail(code="DISK_FULL", message="full", hint="room").SerializeToString(),
        ),
        "shared.federation.identity.identity.Identity.parse": Decoder(
            lambda data: _value_error_is_fine(Identity.parse, data.decode("utf-8", errors="surrogateescape")),
            identity.uri.encode(),
        ),
        "shared.federation.identity.pki.read_certificates": Decoder(
            _file(folder, "clinic.signed", read_certificates), answer.read_bytes()
        ),
        "shared.federation.identity.pki.read_private_file": Decoder(
            _file(node / "pki", "clinic.key", lambda path: read_private_file(path, what="key")),
            (node / "pki" / "clinic.key").read_bytes(),
        ),
        "shared.federation.identity.pki.load_private_key": Decoder(
            _file(node / "pki", "clinic.key", lambda path: load_private_key(path, what="key")),
            (node / "pki" / "clinic.key").read_bytes(),
        ),
        "shared.federation.identity.pki.load_credentials": Decoder(
            _file(
                node / "pki",
                "clinic.crt",
                lambda path: load_credentials(path, path.with_suffix(".key"), federation, role=Role.PARTY),
            ),
            (node / "pki" / "clinic.crt").read_bytes(),
        ),
        "shared.federation.identity.signing.SigningKey.load": Decoder(
            _file(node / "pki", "clinic.sign", lambda path: SigningKey.load(path, path.with_suffix(".crt"))),
            (node / "pki" / "clinic.sign").read_bytes(),
        ),
        "shared.federation.identity.signing.verify_signed": Decoder(
            _parse_proto(common_pb2.Signed, lambda signed: verify_signed(signed, ca, role=Role.MINER)),
            common_pb2.Signed(
                body=signed.body, signature=signed.signature, certificate=signed.certificate
            ).SerializeToString(),
        ),
        "party.storage.secret.read_secret": Decoder(
            _file(secret.parent, secret.name, lambda path: read_secret(path.parent)), secret.read_bytes()
        ),
        "party.dataset.keyfile.read_key": Decoder(
            _file(linkage_key.parent, linkage_key.name, read_key), linkage_key.read_bytes()
        ),
        "shared.federation.audit.verify": Decoder(
            lambda data: verify_audit(data, anchor_number=0, anchor_hash=bytes(32), name="audit.jsonl"), audit
        ),
        "party.policy.decision_store.ApproverKey.load": Decoder(
            _file(node / "pki", "clinic.sign", ApproverKey.load), (node / "pki" / "clinic.sign").read_bytes()
        ),
        "shared.release.signatures.read_countersignature": Decoder(read_countersignature, countersignature),
        "shared.federation.audit.entries": Decoder(lambda data: list(entries(data)), audit),
        "party.policy.approval_checks.content_of": Decoder(content_of, approval),
        "party.dataset.pseudonyms.common_from_bitmap": Decoder(
            lambda data: common_from_bitmap(listed, data, expected_sha256=sha256_of_common, n_common=32, minimum=1),
            bitmap,
        ),
    }


def _of_carried(folder: Path, key: SigningKey, now: dt.datetime) -> dict[str, Decoder]:
    """Those of files that are carried by hand."""
    place, journal = folder / "entries", folder / "journal"
    place.mkdir()
    journal.mkdir()
    entries = BundleEntries(place)
    for unit, payload in enumerate((b"", b"randomized" * 9)):
        entries.add(carried_pb2.CarriedEntry(column=coordinator_pb2.BeginUploadRequest(unit=unit)), payload)
    entries.keep()
    made = Reference(number=2, sha256=bytes(32))
    carried = CarriedStatement(
        federation="fuzz", direction="to-miner", party="clinic", number=3, answers=made, made_at=now, protocol=2,
        sealed=False, size=0, pieces=(),
    )  # fmt: skip
    bundle = folder / "3.bundle"
    pack_bundle(entries, bundle, carried, sign=key.sign, encryption=None, before=lambda _: None)
    statement, _ = read_statement(bundle)
    store_journal(journal, Journal(told={}).with_made(made, (("withdrawal", bytes(32)),)))
    (kept,) = journal.iterdir()

    def unpacked(path: Path) -> object:
        with tempfile.TemporaryDirectory(dir=folder) as fresh:
            return unpack_bundle(path, Path(fresh) / "in", encryption=None)

    return {
        "shared.federation.airgap.bundle.unpack": Decoder(_file(folder, bundle.name, unpacked), bundle.read_bytes()),
        "shared.federation.airgap.bundle.read_statement": Decoder(
            _file(folder, bundle.name, read_statement), bundle.read_bytes()
        ),
        "shared.federation.airgap.exchange.load_journal": Decoder(
            _file(journal, kept.name, lambda path: load_journal(path.parent)), kept.read_bytes()
        ),
        "shared.federation.airgap.bundle.BundleEntries.read": Decoder(
            _file(place, "entries", lambda path: BundleEntries.read(path.parent)), (place / "entries").read_bytes()
        ),
        "shared.federation.airgap.bundle.parse_entry": Decoder(
            parse_entry, next(iter(entries)).entry.SerializeToString()
        ),
        "shared.federation.airgap.bundle.parse_statement": Decoder(parse_carried_statement, encode(statement)),
    }


NAMES = (
    "party.operator.sealed_file.read_head",
    "shared.federation.transport.sealing.open_sealed",
    "shared.masked.round.envelope.read_frames",
    "shared.masked.round.envelope.read_signed",
    "shared.masked.round.proof.read_signed_message",
    "shared.federation.airgap.bundle.unpack",
    "shared.federation.airgap.bundle.read_statement",
    "shared.federation.airgap.exchange.load_journal",
    "shared.federation.airgap.bundle.BundleEntries.read",
    "shared.federation.airgap.bundle.parse_entry",
    "shared.federation.airgap.bundle.parse_statement",
    "shared.numerics.model.artifact.unpack",
    "shared.federation.alignment.statements.parse_common",
    "shared.release.formats.deletion.parse_deletion",
    "shared.release.formats.deletion.parse_peer_deletion",
    "shared.release.formats.deletion.parse_peer_holding",
    "shared.documents.json_document.parse",
    "shared.release.formats.model_json.read",
    "shared.release.formats.model_json.read_marginals",
    "shared.release.formats.model_json.read_pairs",
    "shared.release.formats.model_json.read_joint",
    "shared.release.formats.model_json.read_joint of records",
    "shared.release.formats.posterior.read",
    "shared.release.statement.parse_statement",
    "shared.synthesis.record_checks.read_records",
    "shared.synthesis.record_checks.read_records of Parquet",
    "shared.release.verification.verify_release",
    "shared.release.verification.verify_release of the signature",
    "shared.study.approval.parse_approval",
    "shared.study.canonical.from_bytes",
    "shared.study.canonical.from_bytes between peers",
    "shared.documents.record.parse",
    "shared.study.canonical.parse_canonical",
    "shared.study.sub_model.parse_sub_model",
    "shared.study.structure_document.parse_structure",
    "shared.study.reading.read_study",
    "shared.study.reading.read_declarations",
    "shared.numerics.knowledge.turtle.read_turtle",
    "shared.documents.config.read_toml",
    "shared.documents.config.load_federation",
    "party.config.load_party",
    "party.operator.limits.read_limits",
    "miner.config.load_miner",
    "pki.request.parse_request",
    "pki.request.read_request",
    "shared.federation.membership.installation.install",
    "shared.federation.membership.installation.read_fingerprint",
    "shared.federation.membership.revocation.parse_list",
    "shared.federation.transport.chunks.plain_data",
    "shared.federation.transport.chunks.plain_data of a zlib stream",
    "shared.federation.transport.chunks.ChunkReader.read",
    "shared.federation.transport.errors_on_wire.from_detail",
    "shared.federation.identity.identity.Identity.parse",
    "shared.federation.identity.pki.read_certificates",
    "shared.federation.identity.pki.read_private_file",
    "shared.federation.identity.pki.load_private_key",
    "shared.federation.identity.pki.load_credentials",
    "shared.federation.identity.signing.SigningKey.load",
    "shared.federation.identity.signing.verify_signed",
    "party.storage.secret.read_secret",
    "party.dataset.keyfile.read_key",
    "shared.federation.audit.verify",
    "party.policy.decision_store.ApproverKey.load",
    "shared.release.signatures.read_countersignature",
    "shared.federation.audit.entries",
    "party.policy.approval_checks.content_of",
    "party.dataset.pseudonyms.common_from_bitmap",
)


RAW = (
    b"", b"\0", b"\xff\xfe", b"[" * 100_000, b'{"a":' * 50_000, b"1" * 10_000, b"1e999", b"NaN", b'"\\ud800"', b"{}",
    b"\xed\xa0\x80", b"a.b.c" * 5000, b"x = " + b"[" * 20_000,
    b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    b"x = 1979-05-27T00:32:00.999999+24:00", b"PK\x03\x04" + b"\0" * 100, b"VTC1\x03\0\0\0" + b"\xff" * 8, b"\n" * 9,
)  # fmt: skip


def harmless(decoder: Decoder, data: bytes) -> None:
    begun = time.process_time()
    told = None
    try:
        decoder.decode(data)
    except VerticilError as error:
        told = error
    if told is not None:
        assert told.code != "INTERNAL", told
        str(told).encode("utf-8")  # can be shown anywhere
        assert len(str(told)) < 20_000
    assert time.process_time() - begun < 5
