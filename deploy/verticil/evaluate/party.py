"""A party's own columns against a release: what one organisation can see for itself, and what nobody in the federation can.

Nothing leaves: the table is read where it lies, as party.toml says, and the release is verified first. A party has only its own
columns, so what goes together across parties is held against no real records, by nobody. In its place stand the release's joint
tables, which were estimated from the randomized columns and have intervals.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from verticil.evaluate.evaluation import Evaluation, Progress, evaluate_texts
from verticil.evaluate.following_columns import derived_from
from verticil.evaluate.reading import check_table
from verticil.party.config import PartyConfig
from verticil.party.dataset.sources.source_table import DATABASES, DatasetRule
from verticil.party.local_dataset import Origin, origins
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.json_document import Json
from verticil.shared.documents.written_values.on_scale import value_text
from verticil.shared.documents.written_values.reading import MOMENTS, value_reader
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.release import wording
from verticil.shared.release.signatures import read_document
from verticil.shared.release.verification import verify_release
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.tables.reading import guess_reading
from verticil.tables.texts import TextTable, texts_of


def evaluate_own(
    config: PartyConfig,
    release: Path,
    *,
    holdout: Path | None = None,
    only: Sequence[str] = (),
    full: bool = False,
    seed: int = 0,
    progress: Progress | None = None,
) -> Evaluation:
    """Hold a release's columns of this party against its own table.

    Args:
        config: of the site.
        release: its folder.
        holdout: a table like the party's own, of people who are not in the study.
        only, full, seed, progress: as for `evaluate`.

    Raises:
        GateFailed: RELEASE_INVALID, RELEASE_UNTRUSTED: it is not opened.
        Misuse: FILE_MISSING; USAGE, the party is not in the study, or has its columns in several tables.
        DataFault: see `evaluate`.
    """
    checks = verify_release(release, ca_certificate=config.federation.authority())
    study = canonical.from_bytes(read_document(release, "study.json"), source="study.json", wire=False)
    if config.name not in study.parties:
        raise Misuse(
            "USAGE", f"'{config.name}' is no party of the study", hint=f"its parties are {', '.join(study.parties)}"
        )
    places = {name: origin for name, origin in origins(config, study).items() if not origin.flag}
    if len(datasets := Counter(origin.dataset for origin in places.values())) != 1:
        raise Misuse(
            "USAGE",
            f"the columns of '{config.name}' are in {len(datasets)} data sets, expected one: rows of several are not joined here",
            hint="join them, and run: verticil evaluate --real JOINED --synthetic RELEASE/synthetic.parquet --study STUDY",
        )
    rule = config.datasets[next(iter(datasets))]
    synthetic = texts_of("the release", release / "synthetic.parquet")
    own = {name: synthetic.columns[name] for name in (*places, *derived_from(study, list(places)))}
    evaluation = evaluate_texts(
        _own(rule, places, study, name="your table"),
        {"release": check_table(dataclasses.replace(synthetic, columns=own), "the release")},
        None if holdout is None else _own(_of_holdout(rule, holdout), places, study, name="the holdout"),
        study=study,
        only=only,
        full=full,
        seed=seed,
        progress=progress,
    )
    note = (
        f"the release is about the {checks.common_records:,} people that all organisations have in common, your table about "
        "all of yours: where these differ, the figures of fidelity show it"
    )
    document = json.loads(read_document(release, "model.json"))
    across = _across(study, document.get("pairs", {"tables": []})["tables"])
    return dataclasses.replace(evaluation, notes=(note, *evaluation.notes), across=across)


def _of_holdout(rule: DatasetRule, path: Path) -> DatasetRule:
    """Return the rule to read a file with the columns of the party's table: as that is, unless it is in a database."""
    if rule.format not in DATABASES:
        return dataclasses.replace(rule, path=path)
    return dataclasses.replace(guess_reading(path).rule, id=rule.id, columns=rule.columns)


def _own(rule: DatasetRule, places: Mapping[str, Origin], study: Study, *, name: str) -> TextTable:
    """Return the party's columns under the study's names, with the spellings and numbers that party.toml says they have."""
    table = texts_of(name, rule.path, rule=rule, only=[origin.source for origin in places.values()])
    columns = {}
    for variable, origin in places.items():
        column = table.columns[origin.source]
        own = study.schema[study.schema.index(variable)]
        texts = [_convert_text(text, origin, own) for text in column.texts]
        columns[variable] = dataclasses.replace(column, source=variable, texts=texts)
    return check_table(dataclasses.replace(table, columns=columns), name)


def _convert_text(text: str, origin: Origin, variable: Variable) -> str:
    text = origin.recode.get(text, text)
    if not variable.n_valued or origin.written == "plain":
        return text
    number = value_reader(variable.kind, origin.written)(text)
    if number is None:
        return text
    return value_text(variable.kind, number) if variable.kind in MOMENTS else repr(number)


def _across(study: Study, tables: Sequence[Mapping[str, Any]]) -> dict[str, Json]:
    """Describe the pairs that nobody can evaluate, and what the release says of them, of a verified model.json."""
    owner = {variable.name: variable.owner for variable in study.schema.variables}
    n_pairs = math.comb(len(owner), 2)
    crossing = sum(a != b for a, b in itertools.combinations(owner.values(), 2))
    joint_tables = [table for table in tables if len({owner[name] for name in table["variables"]}) == 2]
    says = (
        f"{crossing:,} of the {n_pairs:,} pairs of columns are held by two organisations. Nobody has both columns of such a "
        "pair, so nobody can hold them against real records: not you, not the others, and not who published."
    )
    return {
        "says": says,
        "pairs_across": crossing,
        "level": wording.percent(study.parameters.interval_level, 0),
        "pairs": [_pair(table, owner) for table in joint_tables],
    }


def _pair(table: Mapping[str, Any], owner: Mapping[str, str]) -> dict[str, Json]:
    """Combinations that the release does not show are null, and left out."""
    estimate, synthetic = (
        np.array([math.nan if cell is None else cell for row in table[key] for cell in row])
        for key in ("estimate", "synthetic")
    )
    ends = [ends for row in table["interval"] for ends in row]
    is_inside = [
        low <= share <= high for (low, high), share in ((e, x) for e, x in zip(ends, synthetic, strict=True) if e)
    ]
    return {
        "columns": list(table["variables"]),
        "parties": [owner[name] for name in table["variables"]],
        "moved": wording.percent(float(np.nansum(np.abs(synthetic - estimate))) / 2),
        "inside": f"{sum(is_inside):,} of {len(is_inside):,}",
        "verdict": table["verdict"],
    }
