"""Writing a release: a folder with all its files, listed in a manifest, and the publisher's signature over the manifest.

`write_release` makes the folder appear whole or not at all: it is written beside its place under a hidden name, flushed to the
disk and renamed. `sign_release` adds `manifest.sig`; in Model I, where every party signs, `write_signatures` does. Nothing else
is ever added to a release that exists; checking one is `verification`'s.

The manifest lists size and SHA-256 of every file, both digests of the study, the parties' receipts (in Model I their signed
parameters), versions, seeds and the privacy figures. What is signed is the manifest's bytes, so they are written for people
(indented) and never rewritten.

How large a release may be is what its study announces, before anything of it has arrived (`release_limits`).

A published table of a study has one row for each synthetic record and the declared labels; its documents grow with the
probabilities that the study allows. Whatever is larger was not made by an honest miner, however small it travels. Bounds are
generous: they keep a disk and a memory, they do not prove anything.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, Protocol

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from verticil.shared.core.errors import DataFault, Misuse, PeerFault
from verticil.shared.documents.json_document import Json, to_text
from verticil.shared.federation.identity.pki import identity_of
from verticil.shared.numerics.knowledge.columns import columns, completed, node_cells
from verticil.shared.privacy.statement import privacy_statement
from verticil.shared.release.content import FILES, PROPOSAL, ReleaseContent, SignedStatement, may_have_joint
from verticil.shared.release.evidence import base64_text, parties_left_out, signed_document
from verticil.shared.release.formats import bif, joint, model_json
from verticil.shared.release.formats import posterior as posterior_json
from verticil.shared.release.formats.tables import Resource, datapackage, write_atomically, write_csv, write_parquet
from verticil.shared.release.posterior import posterior_files, set_file, set_records
from verticil.shared.release.protocols import release_protocol
from verticil.shared.release.report.wording import remarks
from verticil.shared.storage.disk import is_disk_full
from verticil.shared.storage.durable import rename, sync_directory
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import protocol_of
from verticil.shared.synthesis.synthetic import TABLES, table_bytes
from verticil.shared.synthesis.written import PiecewiseTable

if TYPE_CHECKING:
    import pandas as pd

MANIFEST: Final = "manifest.json"
SIGNATURE: Final = "manifest.sig"
MANIFEST_FORMAT: Final = "verticil-release"
SIGNATURE_FORMAT: Final = "verticil-signature"
SIGNATURE_VERSION: Final = 1
SIGNATURE_ALGORITHM: Final = "Ed25519"


class Signer(Protocol):
    """What signs a release: the publisher's signing key."""

    def sign(self, body: bytes) -> SignedStatement:
        """Sign a body."""
        ...


def write_release(
    directory: Path, content: ReleaseContent, *, progress: Callable[[int], None] = lambda done: None
) -> Path:
    """Write everything but the signature.

    Args:
        directory: the folder to make; its parent exists.
        content: what to publish.
        progress: called with the number of records that are written, to either table.

    Returns:
        `directory`.

    Raises:
        Misuse: FILE_EXISTS when there is something at `directory`, FILE_MISSING when its parent does not exist.
        DataFault: DISK_FULL; nothing is left behind.
    """
    _refuse_existing(directory)
    if not directory.parent.is_dir():
        raise Misuse(
            "FILE_MISSING", f"{directory.parent}: no such folder", hint="make it, or give another place for the release"
        )
    staging = directory.with_name(f".{directory.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
    try:
        staging.mkdir()
        _write_files(staging, content, progress)
        _write_bytes(staging / MANIFEST, to_text(_manifest(staging, content)))
        sync_directory(staging)
        _refuse_existing(directory)
        rename(staging, directory)
        sync_directory(directory.parent)
    except OSError as error:
        if is_disk_full(error):
            raise DataFault(
                "DISK_FULL", f"{directory}: the disk is full, nothing was written", hint="make room and run again"
            ) from None
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return directory


def sign_release(
    directory: Path, signer: Signer, *, ca_certificate: bytes, countersigned: Sequence[SignedStatement] = ()
) -> None:
    """Sign the manifest of a written release.

    Args:
        directory: the release.
        signer: the publisher's signing key.
        ca_certificate: the federation's CA certificate (PEM or DER); it goes beside the signature, so that a reader who only
            knows its fingerprint can check the chain. It proves nothing by itself.
        countersigned: see `write_signatures`; signing again with them adds them to what was signed before.

    Raises:
        Misuse: FILE_MISSING when there is no manifest.
        DataFault: DISK_FULL.
    """
    manifest = _read_manifest(directory)
    write_signatures(directory, [signer.sign(manifest)], ca_certificate=ca_certificate, countersigned=countersigned)


def write_signatures(
    directory: Path,
    signed: Sequence[SignedStatement],
    *,
    ca_certificate: bytes,
    countersigned: Sequence[SignedStatement] = (),
) -> None:
    """Write `manifest.sig`: one signature of the manifest, or in Model I one of each party.

    The order does not matter: the same signatures give the same file.

    Args:
        directory: the release.
        signed: their bodies are the manifest's bytes; whether the signatures hold is not checked here.
        ca_certificate: see `sign_release`.
        countersigned: statements of parties that have looked at the release (`countersignature`).

    Raises:
        PeerFault: STUDY_MISMATCH, somebody signed another manifest: both digests are shown.
        Misuse: FILE_MISSING when there is no manifest.
        DataFault: DISK_FULL.
    """
    manifest = _read_manifest(directory)
    for item in signed:
        if item.body != manifest:
            raise PeerFault(
                "STUDY_MISMATCH",
                f"{MANIFEST}: {_signer_name(item.certificate)} signed one with the SHA-256 "
                f"{hashlib.sha256(item.body).hexdigest()}, this one has {hashlib.sha256(manifest).hexdigest()}",
                hint="the parties did not assemble the same release: compare versions of verticil, numpy, pandas and pyarrow",
            )
    ordered = sorted(signed, key=lambda item: (_signer_name(item.certificate), item.certificate))
    document: dict[str, Json] = {
        "format": SIGNATURE_FORMAT,
        "version": SIGNATURE_VERSION,
        "file": MANIFEST,
        "algorithm": SIGNATURE_ALGORITHM,
        "signatures": [
            {"signature": base64_text(item.signature), "certificate": base64_text(item.certificate)} for item in ordered
        ],
        "authority": base64_text(to_der(ca_certificate)),
    }
    if countersigned:
        by_name = sorted(countersigned, key=lambda item: _signer_name(item.certificate))
        document["countersignatures"] = [signed_document(item) for item in by_name]
    # Made beside the folder, not in it: a crash must not leave an unlisted file in a release.
    staging = directory.with_name(f".{directory.name}.{SIGNATURE}")
    _write_bytes(staging, to_text(document))
    rename(staging, directory / SIGNATURE)
    sync_directory(directory)


def _read_manifest(directory: Path) -> bytes:
    try:
        return (directory / MANIFEST).read_bytes()
    except FileNotFoundError:
        raise Misuse("FILE_MISSING", f"{directory / MANIFEST}: no such file", hint="write the release first") from None


def _signer_name(certificate: bytes) -> str:
    """The identity in a signer's certificate, for an order and a message."""
    return identity_of(x509.load_der_x509_certificate(certificate)).uri


def _write_files(folder: Path, content: ReleaseContent, progress: Callable[[int], None]) -> None:
    from verticil.shared.release.report.page import render

    study, network = content.study, content.network
    complete = completed(network, study.knowledge)
    context = model_json.ModelContext(
        study=study,
        study_digest=content.study_digest,
        effective_digest=content.effective_digest,
        n_common=content.n_common,
        search=content.search,
        simulation=content.simulation,
        warnings=remarks(study, network, content.marginals, content.n_common, content.search),
        pairs=content.accuracy,
        joint=content.joint,
        joint_facts=content.joint_facts,
        complete=complete,
    )
    writers: dict[str, Callable[[], bytes]] = {
        "study.json": lambda: canonical.to_bytes(study),
        "model.json": lambda: model_json.write(network, content.marginals, context),
        "network.bifxml": lambda: bif.network_to_xmlbif(complete),
        "network.bif": lambda: bif.network_to_bif(complete),
        "labels.json": lambda: bif.write_label_map(complete.schema),
        "report.html": lambda: render(content).encode("utf-8"),
    }
    if (model := content.joint) is not None:
        writers[joint.FILE] = lambda: joint.to_xmlbif(model, network.schema, complete)
    if (found := content.posterior) is not None:
        digests = {"study_digest": content.study_digest, "effective_digest": content.effective_digest}
        nodes = model_json.deterministic(complete, network.schema)
        writers[posterior_json.FILE] = lambda: posterior_json.write(found, network.schema, digests, nodes)
    if content.study.left_out:
        writers[PROPOSAL] = lambda: content.proposal
    for name, make in writers.items():
        _write_bytes(folder / name, make())
    _write_tables(folder, content.synthetic, content, progress)


def _write_tables(
    folder: Path, synthetic: pd.DataFrame | PiecewiseTable, content: ReleaseContent, progress: Callable[[int], None]
) -> None:
    written = 0

    def pieces() -> Iterator[pd.DataFrame]:
        nonlocal written
        for piece in synthetic if isinstance(synthetic, PiecewiseTable) else (synthetic,):
            yield piece
            written += len(piece)
            progress(written)

    write_csv(pieces(), folder / "synthetic.csv")
    marks = {"verticil:synthetic": "true", "verticil:study_digest": content.study_digest}
    write_parquet(pieces(), folder / "synthetic.parquet", metadata=marks)
    paths = {"synthetic-csv": "synthetic.csv", "synthetic-parquet": "synthetic.parquet"}
    for number, network in enumerate(() if content.posterior is None else content.posterior.networks, 1):
        write_csv(set_records(network, content.study, len(synthetic), number), folder / set_file(number))
        paths[f"set-{number}"] = set_file(number)
    resources = [
        Resource(name=name, path=path, format=path.rpartition(".")[2], size=size, sha256=sha256)
        for name, path in paths.items()
        for size, sha256 in (_measure(folder / path),)
    ]
    bounded = privacy_statement(content.study, content.network.dag).bounds_everybody
    package = datapackage(content.columns, content.study, resources, created=content.published_text, bounded=bounded)
    _write_bytes(folder / "datapackage.json", to_text(package))


def _manifest(folder: Path, content: ReleaseContent) -> Json:
    study = content.study
    besides = protocol_of(study).statement(study, content.network.dag)
    files: dict[str, Json] = {}
    for name in sorted(content.files):
        size, sha256 = _measure(folder / name)
        files[name] = {"bytes": size, "sha256": sha256, "what": content.files[name]}
    return {
        "format": MANIFEST_FORMAT,
        "version": 1,
        "study": {"id": study.id, "title": study.title, "purpose": study.purpose, "model": study.model},
        "study_digest": content.study_digest,
        "effective_digest": content.effective_digest,
        "published_at": content.published_text,
        "software": {"name": "verticil", "version": importlib.metadata.version("verticil")},
        "parties": list(study.parties),
        **({} if content.sub_model is None else parties_left_out(study, signed_document(content.sub_model))),
        "n_common": content.n_common,
        "synthetic_records": len(content.synthetic),
        "simulation": content.simulation,
        "seed_derived": content.seed_derived,
        "seeds": {"structure": study.structure.seed, "synthetic": study.release.seed},
        "search": dict(content.search),
        "provenance": dict(content.provenance),
        "privacy": privacy_statement(study, content.network.dag).document(),
        "files": files,
        **({} if besides is None else {besides.key: besides.document()}),
        **release_protocol(study).evidence(content),
    }


def _measure(path: Path) -> tuple[int, str]:
    with path.open("rb") as file:
        return path.stat().st_size, hashlib.file_digest(file, "sha256").hexdigest()


def _write_bytes(path: Path, data: bytes) -> None:
    def write(file: BinaryIO) -> None:
        file.write(data)

    write_atomically(path, write)


def to_der(certificate: bytes) -> bytes:
    """A certificate in DER, from PEM or DER.

    Raises:
        ValueError: it is neither.
    """
    if certificate.lstrip().startswith(b"-----BEGIN"):
        return x509.load_pem_x509_certificate(certificate).public_bytes(Encoding.DER)
    return x509.load_der_x509_certificate(certificate).public_bytes(Encoding.DER)


def _refuse_existing(directory: Path) -> None:
    if os.path.lexists(directory):
        raise Misuse(
            "FILE_EXISTS", f"{directory}: exists already", hint="a release is never overwritten: give a new folder"
        )


_DOCUMENT: Final = 8 * 2**20
_EACH_PROBABILITY: Final = 512
_EACH_BYTE_OF_THE_STUDY: Final = 64
_EACH_STATEMENT: Final = 2**13


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseLimits:
    """What is fetched at most.

    Attributes:
        files: the files that a release of the study can have -> bytes of each.
        total: bytes of all together that this machine takes.
    """

    files: Mapping[str, int]
    total: int


def release_limits(study: Study, n_common: int, *, total: int) -> ReleaseLimits:
    """The limits of one study's release.

    Args:
        study: the effective study.
        n_common: people in common.
        total: see `ReleaseLimits`.
    """
    size = len(canonical.to_bytes(study))
    document = _DOCUMENT + _EACH_PROBABILITY * _probabilities(study) + _EACH_BYTE_OF_THE_STUDY * size
    table = table_bytes(columns(study.knowledge, study.schema).published, study.release.synthetic_records or n_common)
    signed = _DOCUMENT // 8 + _EACH_STATEMENT * (len(study.units) + len(study.parties)) + _EACH_BYTE_OF_THE_STUDY * size
    names = {*FILES, *((PROPOSAL,) if study.left_out else ()), *posterior_files(study)}
    tables = {*TABLES, *(posterior_files(study).keys() - {posterior_json.FILE})}
    posterior_limits: dict[str, int] = {}
    if study.samples_graphs:
        posterior_limits = {posterior_json.FILE: _DOCUMENT + study.posterior.data_sets * document}
    joint_files: dict[str, int] = {}
    if may_have_joint(study):
        nodes = _EACH_PROBABILITY * _following(study)
        joint_files = {joint.FILE: joint.LIMIT + nodes, "model.json": document + joint.LIMIT}
    return ReleaseLimits(
        files={
            **{name: table if name in tables else document for name in names},
            **posterior_limits,
            **joint_files,
            MANIFEST: signed,
            SIGNATURE: signed,
        },
        total=total,
    )


def _probabilities(study: Study) -> int:
    """Most probabilities that a network of the study has, with those that follow, and cells of the pairs that it names."""
    n_states = study.schema.n_states
    rule = study.structure
    named = sum(math.prod(n_states[study.schema.index(name)] for name in pair) for pair in study.release.pairs)
    named += _following(study)
    if (dag := study.given_dag) is not None:
        families = ((*parents, child) for child, parents in enumerate(dag.parents))
        return named + sum(math.prod(n_states[v] for v in family) for family in families)
    largest = math.prod(sorted(n_states)[-rule.max_parents :]) if rule.max_parents else 1
    return named + sum(min(rule.max_family_cells, states * largest) for states in n_states)


def _following(study: Study) -> int:
    """Cells of the nodes that follow from others, with room for their names."""
    return sum(cells + 100 for cells in node_cells(study.knowledge, study.schema).values())
