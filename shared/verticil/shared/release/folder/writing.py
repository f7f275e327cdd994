"""The folder of a release: all its files, and the manifest that lists them.

`write_release` makes the folder appear whole or not at all: it is written beside its place under a hidden name, flushed to the
disk and renamed. The signatures are written after it (`verticil.shared.release.manifest`). Nothing else is ever added to a
release that exists; checking one is `verticil.shared.release.verification`'s.

The manifest lists size and SHA-256 of every file, both digests of the study, the parties' receipts (in Model I their signed
parameters), versions, seeds and the privacy figures.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.documents.json_document import Json, to_text
from verticil.shared.numerics.knowledge.columns import columns as columns_of
from verticil.shared.numerics.knowledge.columns import complete_network
from verticil.shared.privacy.statement import privacy_statement
from verticil.shared.release.content import PROPOSAL, ReleaseContent
from verticil.shared.release.formats import bif, joint, model_json
from verticil.shared.release.formats import posterior as posterior_json
from verticil.shared.release.formats.table_files import Resource, datapackage, write_csv, write_parquet
from verticil.shared.release.manifest import MANIFEST, MANIFEST_FORMAT, write_bytes
from verticil.shared.release.posterior import set_file, set_records
from verticil.shared.release.protocols import release_protocol
from verticil.shared.release.related import write_related
from verticil.shared.release.signatures import parties_left_out, signed_document
from verticil.shared.release.wording import remarks
from verticil.shared.storage.disk import is_disk_full
from verticil.shared.storage.durable import rename, sync_directory
from verticil.shared.study import canonical
from verticil.shared.study.protocols import protocol_of
from verticil.shared.synthesis.table_columns import PiecewiseTable

if TYPE_CHECKING:
    import pandas as pd


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
        write_bytes(staging / MANIFEST, to_text(_manifest(staging, content)))
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


def _write_files(folder: Path, content: ReleaseContent, progress: Callable[[int], None]) -> None:
    from verticil.shared.release.report.page import render

    study, network = content.study, content.network
    complete = complete_network(network, study.knowledge)
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
    if (posterior := content.posterior) is not None:
        digests = {"study_digest": content.study_digest, "effective_digest": content.effective_digest}
        nodes = model_json.deterministic(complete, network.schema)
        writers[posterior_json.FILE] = lambda: posterior_json.write(posterior, network.schema, digests, nodes)
    if content.study.left_out:
        writers[PROPOSAL] = lambda: content.proposal
    for name, make in writers.items():
        write_bytes(folder / name, make())
    _write_tables(folder, content.synthetic, content, progress)


def _write_tables(
    folder: Path, synthetic: pd.DataFrame | PiecewiseTable, content: ReleaseContent, progress: Callable[[int], None]
) -> None:
    n_written = 0

    def pieces() -> Iterator[pd.DataFrame]:
        nonlocal n_written
        for piece in synthetic if isinstance(synthetic, PiecewiseTable) else (synthetic,):
            yield piece
            n_written += len(piece)
            progress(n_written)

    written = columns_of(content.study.knowledge, content.study.schema).published
    identifier = content.study.identifier
    write_csv(pieces(), folder / "synthetic.csv", schema=written, identifier=identifier)
    marks = {"verticil:synthetic": "true", "verticil:study_digest": content.study_digest}
    write_parquet(pieces(), folder / "synthetic.parquet", metadata=marks, identifier=identifier)
    paths = {"synthetic-csv": "synthetic.csv", "synthetic-parquet": "synthetic.parquet"}
    for number, network in enumerate(() if content.posterior is None else content.posterior.networks, 1):
        records = set_records(network, content.study, len(synthetic), number)
        write_csv(records, folder / set_file(number), schema=written, identifier=identifier)
        paths[f"set-{number}"] = set_file(number)

    def measured(path: str, name: str = "") -> Resource:
        size, sha256 = _measure(folder / path)
        form = path.rpartition(".")[2]
        return Resource(name=name or path.replace(".", "-"), path=path, format=form, size=size, sha256=sha256)

    write_related(folder, pieces, content.study)
    resources = [measured(path, name) for name, path in paths.items()]
    is_bounded = privacy_statement(content.study, content.network.dag).bounds_everybody
    package = datapackage(
        content.columns, content.study, resources, created=content.published_text, bounded=is_bounded, measure=measured
    )
    write_bytes(folder / "datapackage.json", to_text(package))


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


def _refuse_existing(directory: Path) -> None:
    if os.path.lexists(directory):
        raise Misuse(
            "FILE_EXISTS", f"{directory}: exists already", hint="a release is never overwritten: give a new folder"
        )
