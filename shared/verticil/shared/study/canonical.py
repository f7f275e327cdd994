"""The study as bytes: UTF-8 JSON with sorted keys and RFC 8785 numbers, and its digest.

One study has exactly one form: `from_bytes` accepts only what `to_bytes` would write, so a digest has one meaning. The bytes
come from other nodes: size, shape, type and range of every field are checked, and whatever is wrong is one clean error.
Matrices are whole numbers of units of 2^-64 as decimal strings, because JSON numbers cannot hold them (contract.md section 1).
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from typing import Final, Literal, cast

from verticil.shared.channels.subset import Subset
from verticil.shared.channels.transition import Transition
from verticil.shared.config import Table
from verticil.shared.errors import Misuse
from verticil.shared.estimation.estimators import ESTIMATORS
from verticil.shared.model.schema import Missing, Schema, Variable
from verticil.shared.record import MAX_BYTES, Json, canonical_json, parse, peer_fault
from verticil.shared.study import rules, vocabulary
from verticil.shared.study.document import (
    LinkageRule,
    ParameterRule,
    ReleaseRule,
    Sampling,
    ShareRule,
    Study,
    TwoLevel,
    Unit,
)
from verticil.shared.study.prior import prior_from, prior_to_json
from verticil.shared.study.protocols import PROTOCOLS
from verticil.shared.study.publication import publish_from, publish_to_json
from verticil.shared.study.quorum import left_out_from, left_out_to_json, quorum_from_json, quorum_to_json
from verticil.shared.study.schemes import SCHEMES
from verticil.shared.study.structure_json import is_null, optional, structure_from, structure_to_json

_WEIGHT: Final = re.compile(r"0|[1-9][0-9]{0,19}", re.ASCII)
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)


def to_bytes(study: Study) -> bytes:
    """The canonical bytes of a study.

    Raises:
        Misuse: STUDY_INVALID, the study is larger than 16 MiB.
    """
    data = canonical_json(_to_json(study))
    if len(data) > MAX_BYTES:
        raise Misuse("STUDY_INVALID", f"study '{study.id}': {len(data)} bytes, expected at most {MAX_BYTES}")
    return data


def digest(study: Study) -> bytes:
    """SHA-256 of the canonical bytes (32 bytes): the name of the study for programs."""
    return hashlib.sha256(to_bytes(study)).digest()


def from_bytes(data: bytes, *, source: str = "study", wire: bool = True) -> Study:
    """Read and check the canonical bytes of a study.

    Args:
        data: the bytes, from anyone.
        source: name of the document, for messages.
        wire: the bytes come from another node: what is wrong with them is the peer's fault.

    Raises:
        PeerFault: MESSAGE_INVALID, with `wire`.
        Misuse: STUDY_INVALID, STUDY_UNSUPPORTED, MATRIX_INVALID or MATRIX_SINGULAR, without.
    """
    try:
        study = _study(parse(data, source=source, limit=MAX_BYTES))
        rules.check(study, source=source)
        if to_bytes(study) != data:
            raise Misuse(
                "STUDY_INVALID",
                f"{source}: not in canonical form",
                hint="only the bytes of a resolved study are accepted",
            )
    except Misuse as error:
        if wire:
            raise peer_fault(error) from None
        raise
    return study


# ---- writing ----------------------------------------------------------------------------------------------------------


def _to_json(study: Study) -> Json:
    document: dict[str, Json] = {
        "schema": 1,
        "id": study.id,
        "title": study.title,
        "purpose": study.purpose,
        "model": study.model,
        "expires": study.expires.isoformat(),
        "parties": list(study.parties),
        "linkage": {
            "mode": study.linkage.mode,
            "normalise": list(study.linkage.normalise),
            "minimum_common_records": study.linkage.minimum_common_records,
        },
        "variables": [_variable_to_json(variable) for variable in study.schema.variables],
        "units": [unit_to_json(unit) for unit in study.units],
        "structure": structure_to_json(study.structure),
        "parameters": {
            "estimator": study.parameters.estimator,
            **({} if study.parameters.prior_count is None else {"prior_count": study.parameters.prior_count}),
            "interval_level": study.parameters.interval_level,
            **prior_to_json(study.parameters),
        },
        "release": _release_to_json(study.release),
    }
    # Keys of later features stand only in studies that use them: all others keep their digest.
    if study.breach is not None:
        document["breach"] = {"prior": study.breach.prior, "posterior": study.breach.posterior}
    if (share := study.share) is not None:
        document["share"] = {"epsilon": share.epsilon, "delta": share.delta, "minimum_count": share.minimum_count}
    if study.quorum is not None:
        document["quorum"] = quorum_to_json(study.quorum)
    if study.left_out:
        document["left_out"] = left_out_to_json(study.left_out)
    if study.publish is not None:
        document["publish"] = publish_to_json(study.publish)
    return document


def _release_to_json(release: ReleaseRule) -> Json:
    document: dict[str, Json] = {"synthetic_records": release.synthetic_records, "seed": release.seed}
    if release.sampling != "systematic":
        document["sampling"] = release.sampling
    if release.pairs:
        document["pairs"] = [list(pair) for pair in release.pairs]
    return document


def _variable_to_json(variable: Variable) -> Json:
    missing = variable.missing
    document: dict[str, Json] = {
        "name": variable.name,
        "party": variable.owner,
        "labels": list(variable.labels),
        "bins": None if variable.bins is None else list(variable.bins),
        "integer": variable.integer,
        "outside": variable.outside,
        "other": variable.other,
        "missing": None if missing is None else {"category": missing.category, "spellings": list(missing.spellings)},
    }
    if variable.representatives is not None:
        document["representatives"] = list(variable.representatives)
    if variable.means is not None:
        document["means"] = list(variable.means)
    return document


def unit_to_json(unit: Unit) -> dict[str, Json]:
    """One unit as a JSON object."""
    document: dict[str, Json] = {"variables": list(unit.variables), "party": unit.owner, "scheme": unit.scheme}
    if isinstance(unit.transition, Subset):
        document["subset"] = {
            "n_states": unit.transition.n_states,
            "size": unit.transition.size,
            "weight": str(unit.transition.weight),
        }
    else:
        document["matrix"] = [[str(weight) for weight in row] for row in unit.transition.weights]
    if unit.impossible:
        document["impossible"] = [list(combination) for combination in unit.impossible]
    if (levels := unit.two_level) is not None:
        document["two_level"] = {
            "groups": [list(group) for group in levels.groups],
            "epsilon_group": levels.epsilon_group,
            "epsilon_within": levels.epsilon_within,
        }
    return document


# ---- reading ----------------------------------------------------------------------------------------------------------


def _study(table: Table) -> Study:
    if (version := table.value(int, "schema")) != 1:
        table.fail("schema", f"got {version}, expected 1", hint="the other side runs a newer version")
    variable_tables = table.tables("variables")
    if len(variable_tables) > vocabulary.MAX_VARIABLES:
        table.fail("variables", f"{len(variable_tables)} variables, expected at most {vocabulary.MAX_VARIABLES}")
    linkage, parameters, release = table.table("linkage"), table.table("parameters"), table.table("release")
    variables = tuple(_variable(item) for item in variable_tables)
    try:
        schema = Schema(variables=variables)
    except ValueError as error:
        table.fail("variables", str(error))
    study = Study(
        id=table.value(str, "id"),
        title=table.value(str, "title"),
        purpose=table.value(str, "purpose"),
        model=table.choice("model", PROTOCOLS.names),
        expires=date_from(table, "expires"),
        parties=table.strings("parties"),
        linkage=LinkageRule(
            mode=linkage.choice("mode", vocabulary.LINKAGE_MODES),
            normalise=linkage.strings("normalise"),
            minimum_common_records=linkage.value(int, "minimum_common_records"),
        ),
        schema=schema,
        units=tuple(unit_from(item) for item in table.tables("units")),
        structure=structure_from(table.table("structure")),
        parameters=ParameterRule(
            estimator=parameters.choice("estimator", ESTIMATORS),
            prior_count=parameters.value(float, "prior_count") if parameters.has("prior_count") else None,
            interval_level=parameters.value(float, "interval_level"),
            **prior_from(parameters, schema.names),
        ),
        release=ReleaseRule(
            synthetic_records=optional(release, int, "synthetic_records"),
            sampling=cast("Sampling", release.choice("sampling", vocabulary.SAMPLING, "systematic")),
            seed=release.value(int, "seed"),
            pairs=rules.edges_from(release, "pairs", each='["one", "other"]'),
        ),
        breach=rules.breach_from(table, "breach"),
        share=_share(table.table("share")) if table.has("share") else None,
        quorum=quorum_from_json(table.table("quorum")) if table.has("quorum") else None,
        publish=publish_from(table),
        left_out=left_out_from(table, "left_out"),
    )
    for part in (linkage, parameters, release, table):
        part.finish()
    return study


def _variable(table: Table) -> Variable:
    bins = None if is_null(table, "bins") else table.numbers("bins")
    variable = rules.make_variable(
        name=table.value(str, "name"),
        owner=table.value(str, "party"),
        labels=table.strings("labels"),
        bins=bins,
        integer=table.value(bool, "integer"),
        representatives=table.numbers("representatives") if table.has("representatives") else None,
        means=table.numbers("means") if table.has("means") else None,
        outside=cast("Literal['error', 'clamp']", table.choice("outside", ("error", "clamp"))),
        other=optional(table, str, "other"),
        missing=None if is_null(table, "missing") else _missing(table.table("missing")),
        where=f"{table.source}: {table.where}",
    )
    table.finish()
    return variable


def _missing(table: Table) -> Missing:
    missing = Missing(category=table.value(str, "category"), spellings=table.strings("spellings"))
    table.finish()
    return missing


def unit_from(table: Table) -> Unit:
    """Read what `unit_to_json` wrote; that the unit fits its study is checked elsewhere.

    Raises:
        Misuse: STUDY_INVALID.
    """
    unit = Unit(
        variables=table.strings("variables"),
        owner=table.value(str, "party"),
        scheme=table.choice("scheme", SCHEMES),
        transition=_subset(table.table("subset")) if table.has("subset") else _matrix(table),
        two_level=_two_level(table.table("two_level")) if table.has("two_level") else None,
        impossible=_positions(table, "impossible") if table.has("impossible") else (),
    )
    table.finish()
    return unit


def _matrix(table: Table) -> Transition:
    rows = table.rows("matrix")
    if len(rows) ** 2 > vocabulary.MAX_CELLS:
        table.fail("matrix", f"{len(rows)} rows, expected at most {vocabulary.MAX_CELLS} cells")
    try:
        return Transition(weights=tuple(tuple(_weight(cell) for cell in row) for row in rows))
    except ValueError as error:
        return table.fail("matrix", str(error))


def _subset(table: Table) -> Subset:
    try:
        selection = Subset(
            n_states=table.value(int, "n_states"),
            size=table.value(int, "size"),
            weight=_weight(table.value(str, "weight")),
        )
    except ValueError as error:
        return table.fail("weight", str(error))
    if selection.n_states**2 > vocabulary.MAX_CELLS:
        table.fail("n_states", f"got {selection.n_states}, expected at most {vocabulary.MAX_CELLS} cells")
    table.finish()
    return selection


def _positions(table: Table, key: str) -> tuple[tuple[int, ...], ...]:
    """Lists of whole numbers."""
    rows = table.rows(key)
    if any(type(cell) is not int for row in rows for cell in row):
        table.fail(key, "expected lists of positions of categories")
    return cast("tuple[tuple[int, ...], ...]", rows)


def _share(table: Table) -> ShareRule:
    share = ShareRule(
        epsilon=optional(table, float, "epsilon"),
        delta=optional(table, float, "delta"),
        minimum_count=table.value(int, "minimum_count"),
    )
    table.finish()
    return share


def _two_level(table: Table) -> TwoLevel:
    levels = TwoLevel(
        groups=_positions(table, "groups"),
        epsilon_group=table.value(float, "epsilon_group"),
        epsilon_within=table.value(float, "epsilon_within"),
    )
    table.finish()
    return levels


def _weight(cell: object) -> int:
    if not isinstance(cell, str) or not _WEIGHT.fullmatch(cell):
        raise ValueError("a weight is not a whole number in decimal digits, as a string")
    return int(cell)


def date_from(table: Table, key: str) -> dt.date:
    """The date at `key`, written ``YYYY-MM-DD``.

    Raises:
        Misuse: the table's code.
    """
    text = table.value(str, key)
    if _DATE.fullmatch(text):
        try:
            return dt.date.fromisoformat(text)
        except ValueError:
            pass
    return table.fail(key, "expected a date, YYYY-MM-DD")
