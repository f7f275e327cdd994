"""What a design page changes in a study.toml: only what was edited, and every comment stays.

A form has one field for each thing that can be edited; a field that says what the file says changes nothing, so the rest of the
file keeps its bytes (tomlkit). Columns are named as the study names them; a column that is left out goes with its own
``[[randomization]]``.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import tomlkit
from tomlkit.exceptions import ParseError

from verticil.shared.core.errors import Misuse
from verticil.shared.study.typed_variables import PRIVATE
from verticil.shared.study.vocabulary import PLACEHOLDERS

_LARGEST: Final = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DesignColumn:
    """One column as the file has it.

    Attributes:
        bins: its edges, as they are typed; empty: it has categories, or its bins are measured.
        bounds: of bins that are measured with noise; empty: they are not.
        categories: or points, of a column without bins.
        epsilon: of its own ``[[randomization]]``; None: the default's, or its scheme has none.
        is_fixed: its scheme has no ε to edit, or it is randomized together with others.
        from_table: its categories were taken from a table and wait for a review.
    """

    name: str
    party: str
    bins: str
    bounds: str
    categories: tuple[str, ...]
    epsilon: float | None
    is_fixed: bool
    from_table: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """What of a study can be edited.

    Attributes:
        default_epsilon: of ``[randomization_default]``; None: it has none.
        tables_epsilon: of ``[tables]``; None: there is no noise on tables.
        reviewed: of ``[draft]``; None: the study is no draft.
    """

    id: str
    title: str
    purpose: str
    default_epsilon: float | None
    tables_epsilon: float | None
    reviewed: bool | None
    columns: tuple[DesignColumn, ...]

    @property
    def to_review(self) -> tuple[str, ...]:
        """What of a draft still waits for somebody who knows better."""
        texts = {"title": self.title, "purpose": self.purpose}
        waits = [key for key, text in texts.items() if text == PLACEHOLDERS[key]]
        return (*waits, *(column.name for column in self.columns if column.from_table))


def parse(text: str) -> Any:
    """Return the document of a study.toml.

    Raises:
        Misuse: STUDY_INVALID, it is no TOML.
    """
    try:
        return tomlkit.parse(text)
    except ParseError as error:
        raise Misuse("STUDY_INVALID", f"not TOML: line {error.line}") from None


def design_of(text: str) -> Design:
    """Return what of a study.toml can be edited; raises as `parse`."""
    document = parse(text)
    rules = _rules(document)
    default = document.get("randomization_default", {})
    columns = []
    for variable in document.get("variable", []):
        name = str(variable.get("name", ""))
        rule = next((rule for rule in rules if name in list(rule.get("variables", []))), None)
        is_fixed = rule is not None and (len(rule["variables"]) > 1 or "epsilon" not in rule)
        is_fixed = is_fixed or (rule is None and "epsilon" not in default)
        is_measured = variable.get("bins") == PRIVATE
        columns.append(
            DesignColumn(
                name=name,
                party=str(variable.get("party", "")),
                bins="" if is_measured else ", ".join(map(_plain, variable.get("bins", []))),
                bounds=" and ".join(map(_plain, variable.get("bounds", []))) if is_measured else "",
                categories=tuple(map(str, variable.get("categories") or variable.get("points", []))),
                epsilon=None if rule is None or is_fixed else float(rule["epsilon"]),
                is_fixed=is_fixed,
                from_table=variable.get("from") == "table",
            )
        )
    return Design(
        id=str(document.get("id", "")),
        title=str(document.get("title", "")),
        purpose=str(document.get("purpose", "")),
        default_epsilon=_number(default.get("epsilon")),
        tables_epsilon=_number(document.get("tables", {}).get("epsilon")),
        reviewed=document["draft"].get("reviewed") if "draft" in document else None,
        columns=tuple(columns),
    )


def edited(text: str, form: Mapping[str, str]) -> str:
    """Return the text of a study.toml with what a form changes.

    Args:
        text: of the file.
        form: ``id``, ``title``, ``purpose``, ``epsilon`` (the default), ``tables_epsilon``, ``total`` (of all columns of each
            party: every column then gets the same part), ``reviewed``; for the column at position i: ``in-i``, ``bins-i``,
            ``epsilon-i``, ``public-i``. A box that is not ticked has no field, so boxes count only with ``boxes``.

    Raises:
        Misuse: STUDY_INVALID, naming the field.
    """
    document, design = parse(text), design_of(text)
    for key in ("id", "title", "purpose"):
        if key in form and form[key].strip() != getattr(design, key):
            document[key] = form[key].strip()
    boxes = "boxes" in form
    if boxes and design.reviewed is not None and ("reviewed" in form) != design.reviewed:
        document["draft"]["reviewed"] = "reviewed" in form
    if form.get("tables_epsilon", "") and design.tables_epsilon is not None:
        _set_epsilon(document["tables"], form["tables_epsilon"], "tables.epsilon")
    total = form.get("total", "").strip()
    if design.default_epsilon is not None and form.get("epsilon", "") and not total:
        _set_epsilon(document["randomization_default"], form["epsilon"], "randomization_default.epsilon")
    for place, (column, variable) in enumerate(zip(design.columns, document.get("variable", []), strict=True)):
        _edit_column(variable, column, form.get(f"bins-{place}", column.bins))
        if boxes:
            _mark_origin(variable, column, is_public=f"public-{place}" in form)
        own = form.get(f"epsilon-{place}", "").strip()
        if not column.is_fixed and not total and own and _epsilon(own, column.name) != column.epsilon:
            _set_own_epsilon(document, column.name, _epsilon(own, column.name))
    if boxes:
        _leave_out(document, [c.name for i, c in enumerate(design.columns) if f"in-{i}" not in form])
    if total:
        _spread(document, _epsilon(total, "total"))
    return tomlkit.dumps(document)


def _edit_column(variable: Any, column: DesignColumn, bins: str) -> None:
    if column.bins and _parts(bins) != _parts(column.bins):
        variable["bins"] = [_edge(part, column.name) for part in _parts(bins)]


def _mark_origin(variable: Any, column: DesignColumn, *, is_public: bool) -> None:
    """Write down whether somebody has replaced what was taken from a table by what is public."""
    if is_public == column.from_table and variable.get("from") in ("table", "public"):
        variable["from"] = "public" if is_public else "table"


def _leave_out(document: Any, names: Sequence[str]) -> None:
    for name in names:
        variables = document["variable"]
        place = next(i for i, variable in enumerate(variables) if variable["name"] == name)
        del variables[place]
        rules = _rules(document)
        for place in reversed([i for i, rule in enumerate(rules) if list(rule.get("variables", [])) == [name]]):
            del rules[place]
    if names and "randomization" in document and not document["randomization"]:
        del document["randomization"]


def _spread(document: Any, total: float) -> None:
    """Give every column the same part of one total for each party: of the party with the most columns."""
    parties = [str(variable["party"]) for variable in document["variable"]]
    part = total / max(map(parties.count, parties))
    part = math.floor(part * 100) / 100  # never more than the total
    if part <= 0:
        raise Misuse("STUDY_INVALID", f"total: {total:g} is less than 0.01 for each column", hint="leave columns out")
    if "randomization_default" in document:
        document["randomization_default"]["epsilon"] = part
    for rule in _rules(document):
        if "epsilon" in rule:
            rule["epsilon"] = math.floor(part * len(rule["variables"]) * 100) / 100


def _set_own_epsilon(document: Any, name: str, epsilon: float) -> None:
    rule = next((rule for rule in _rules(document) if list(rule.get("variables", [])) == [name]), None)
    if rule is not None:
        rule["epsilon"] = epsilon
        return
    default = document["randomization_default"]
    if float(default["epsilon"]) == epsilon:
        return
    rule = tomlkit.table()
    rule.update({"variables": [name], "scheme": str(default["scheme"]), "epsilon": epsilon})
    if "randomization" not in document:
        document["randomization"] = tomlkit.aot()
    document["randomization"].append(rule)


def _rules(document: Any) -> Any:
    return document.get("randomization", [])


def _set_epsilon(table: Any, text: str, where: str) -> None:
    value = _epsilon(text, where)
    if float(table["epsilon"]) != value:
        table["epsilon"] = value


def _epsilon(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= _LARGEST:
        raise Misuse("STUDY_INVALID", f"{where}: epsilon: got '{text[:40]}', expected above 0 and at most {_LARGEST:g}")
    return value


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _edge(text: str, where: str) -> Any:
    """Read an edge as it is typed: a number, or a date, a moment or a time of day as TOML writes them."""
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if math.isfinite(value):
            return value
    with contextlib.suppress(ParseError, ValueError):
        if isinstance(moment := tomlkit.value(text), dt.date | dt.time):
            return moment
    raise Misuse(
        "STUDY_INVALID",
        f"column '{where}': bins: got '{text[:40]}', expected numbers, or dates such as 2024-01-31",
        hint="write a comma between two edges: 0, 18, 65",
    )


def _plain(edge: object) -> str:
    return str(edge)


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
