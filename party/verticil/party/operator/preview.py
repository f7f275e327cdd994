"""What would leave this site, before anybody approves: ``verticil party preview``.

Promises
- The randomized codes are those of sticky noise (contract.md section 2), of every local record, in the order of the pseudonyms of
  this study. What is sent later are the records that all parties have in common, in the same order: a sub-sequence of these
  codes, packed alone. Where the common records are known already and randomized, the very bytes that are sent lie beside them.
- Everything that an approval looks at is looked at first (policy, data, budget): of what would be refused nothing is shown.
- Nothing leaves, so nothing is charged. The files are for this site's people: the table sets raw beside randomized frequencies,
  and whoever gets the codes has got a release. The folder is 0700 and its files 0600; it appears whole or not at all.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from verticil.party.config import PartyConfig
from verticil.party.local_dataset import unit_codes
from verticil.party.operator.view_model import (
    StudyName,
    name_keys,
    number,
    total,
)
from verticil.party.policy.approval_checks import Review
from verticil.party.policy.comparison import labels_of
from verticil.party.protocol.randomization import randomize
from verticil.party.site import Site
from verticil.party.storage.studies import Artifact, StudyRecord
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.view_models import document, inlined, left_out
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.mechanisms.subset import Subset
from verticil.shared.numerics.model import artifact
from verticil.shared.storage.disk import create_files, write_fault
from verticil.shared.storage.durable import rename, sync_directory
from verticil.shared.study.document import Study

_FREQUENCIES: Final = "frequencies.csv"
_DOCUMENT: Final = "preview.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Frequency:
    """Of a category: records that have it, and records that report it (with subset selection: in their set)."""

    category: str
    raw_records: int
    raw_share: float
    randomized_records: int
    randomized_share: float
    in_sets: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewColumn:
    """What would leave of a unit.

    Attributes:
        file, bytes, sha256: its codes, in the folder.
        would_be_charged: epsilon.
        leaving, leaving_sha256: the very bytes that are sent, where they are there already.
    """

    variables: tuple[str, ...]
    unit: int
    file: str
    bytes: int
    sha256: str
    would_be_charged: float | None
    frequencies: tuple[Frequency, ...]
    leaving: str | None = left_out()
    leaving_sha256: str | None = left_out()


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The folder that was made, and what is in it."""

    out: str
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preview(StudyName):
    """What would leave this site; `written` is None in the folder's own document."""

    party: str
    records: int
    order: str = "ascending pseudonym of this study; the upload is the sub-sequence of the common records"
    columns: tuple[PreviewColumn, ...]
    epsilon: float | None
    charged: float = 0.0
    left_the_site: bool = False
    written: Written | None = inlined()


def preview(config: PartyConfig, study: str, out: Path) -> Preview:
    """Write the randomized codes of all local records, and the table of frequencies, into a new folder.

    Args:
        config: party.toml.
        study: id or digest.
        out: the folder to make.

    Returns:
        What was written, with raw and randomized frequencies of each column.

    Raises:
        Misuse: STUDY_UNKNOWN, FILE_EXISTS, FILE_MISSING, CONFIG_INVALID.
        Refusal: whatever speaks against the study.
        DataFault: whatever is wrong with the tables, the state or the disk.
    """
    if os.path.lexists(out):
        raise Misuse("FILE_EXISTS", f"{out}: exists already", hint="name another folder")
    report, files = look_ahead(config, study)
    files[_FREQUENCIES] = _table(report.columns)
    files[_DOCUMENT] = (json.dumps(document(report), indent=2, ensure_ascii=False) + "\n").encode("utf-8")
    _write(out, files)
    return replace(report, written=Written(out=str(out), files=tuple(sorted(files))))


def look_ahead(config: PartyConfig, study: str) -> tuple[Preview, dict[str, bytes]]:
    """Return what `preview` says, and its files by name, without a folder; raises as it does, but for FILE_EXISTS."""
    with Site.open(config) as site:
        record = site.state.find(study)
        review = site.review(record, utc_now())
        files, columns = _contents(config, site, record, review)
    report = Preview(
        **name_keys(record),
        party=config.name,
        records=review.holding.n_records,
        columns=columns,
        epsilon=number(total(review)),
    )
    return report, files


def _contents(
    config: PartyConfig, site: Site, record: StudyRecord, review: Review
) -> tuple[dict[str, bytes], tuple[PreviewColumn, ...]]:
    """Return the artifacts by file name, and what is said of each unit."""
    study, holding = review.study, review.holding
    artifacts = _find_artifacts(config, site, record, study)
    files: dict[str, bytes] = {}
    columns: list[PreviewColumn] = []
    for index, assessment in review.assessments.items():
        unit = study.units[index]
        codes = randomize(
            holding,
            holding.everyone,
            study,
            index,
            column_draw=review.column_draws[index],
            version_tag=assessment.version_tag,
            site_secret=site.site_secret,
        )
        name = f"unit-{index:03d}.vtc"
        files[name] = artifact.pack(codes, unit.transition.n_states)
        item = artifacts.get(index)
        spooled_bytes = None if item is None else _in_spool(config, item.sha256)
        if spooled_bytes is not None:
            files[f"leaving-{name}"] = spooled_bytes
        columns.append(
            PreviewColumn(
                variables=tuple(unit.variables),
                unit=index,
                file=name,
                bytes=len(files[name]),
                sha256=hashlib.sha256(files[name]).hexdigest(),
                would_be_charged=number(assessment.charge.epsilon),
                frequencies=_frequencies(
                    labels_of(study, index),
                    unit_codes(study, index, holding.codes),
                    codes,
                    n_records=holding.n_records,
                    in_sets=isinstance(unit.transition, Subset),
                ),
                leaving=None if spooled_bytes is None else f"leaving-{name}",
                leaving_sha256=None if spooled_bytes is None or item is None else item.sha256.hex(),
            )
        )
    return files, tuple(columns)


def _find_artifacts(config: PartyConfig, site: Site, record: StudyRecord, study: Study) -> dict[int, Artifact]:
    """Return what is randomized already, by unit of the proposal: in a sub-model the units stand at other positions."""
    there = site.state.artifacts(record.digest, record.task.effective_digest)
    if not there:
        return {}
    places = zip(study.units_of(config.name), record.task.effective_study.units_of(config.name), strict=True)
    return {index: there[place] for index, place in places if place in there}


def _in_spool(config: PartyConfig, sha256: bytes) -> bytes | None:
    """Return the bytes that wait in the daemon's spool, which is its own and only read here."""
    try:
        data = (config.state_directory / "spool" / sha256.hex()).read_bytes()
    except FileNotFoundError:
        return None
    return data if hashlib.sha256(data).digest() == sha256 else None


def _frequencies(
    labels: tuple[str, ...], raw: Codes, reports: Codes, *, n_records: int, in_sets: bool
) -> tuple[Frequency, ...]:
    true = np.bincount(raw, minlength=len(labels))
    report_counts = np.bincount(reports, minlength=len(labels))
    return tuple(
        Frequency(
            category=label,
            raw_records=int(true[code]),
            raw_share=int(true[code]) / max(n_records, 1),
            randomized_records=int(report_counts[code]),
            randomized_share=int(report_counts[code]) / max(n_records, 1),
            in_sets=in_sets,
        )
        for code, label in enumerate(labels)
    )


def _table(columns: tuple[PreviewColumn, ...]) -> bytes:
    """Write the frequencies of all columns as CSV."""
    text = io.StringIO()
    heading = ("category", "raw_records", "raw_share", "randomized_records", "randomized_share")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["column", *heading])
    for column in columns:
        for row in column.frequencies:
            writer.writerow([" & ".join(column.variables), *(getattr(row, key) for key in heading)])
    return text.getvalue().encode("utf-8")


def _write(out: Path, files: dict[str, bytes]) -> None:
    """Make the folder under another name and give it its own when it is whole."""
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        staging = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))  # 0700
        try:
            create_files({staging / name: (data, 0o600) for name, data in files.items()}, exists_hint="")
            rename(staging, out)
            sync_directory(out.parent)
        finally:
            shutil.rmtree(staging, ignore_errors=True)
    except OSError as error:
        raise write_fault(error, out) from None
