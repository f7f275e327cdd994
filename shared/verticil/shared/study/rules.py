"""What holds for every resolved study, whether it was read from TOML or came as bytes from another node.

`check` looks at the value alone: names, ranges, sizes, ownership, and what this version does not support yet (refused by
name). It does not judge whether the study is wise; that is `lint`.
"""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NoReturn

import numpy as np

from verticil.shared.config import Table
from verticil.shared.errors import Misuse
from verticil.shared.model.privacy import Breach, gamma
from verticil.shared.model.schema import MAX_STATES, Missing, Variable
from verticil.shared.model.transition import SCALE, two_level, validate_matrix
from verticil.shared.study.document import Study, Unit

__all__ = [
    "ESTIMATORS",
    "LINKAGE_MODES",
    "MAX_CELLS",
    "MAX_SAFE",
    "MAX_TEXT",
    "MAX_VARIABLES",
    "METHODS",
    "MODELS",
    "NORMALISE_STEPS",
    "SCHEMES",
    "SCORES",
    "bin_labels",
    "breach_from",
    "check",
    "check_supported",
    "edge_text",
    "edges_from",
    "is_party_name",
    "make_variable",
]

MAX_VARIABLES: Final = 1000
MAX_CELLS: Final = 700_000
"""Cells of all matrices together. Written out in decimal they then stay below 16 MiB."""
MAX_TEXT: Final = 200
"""Letters in a name or label."""
MAX_PURPOSE: Final = 4000
_FARTHEST: Final = 1e15
_NARROWEST: Final = 1e-15
"""Bins must be such that numbers inside can be written."""
_LISTED: Final = 5
"""Columns named in one message."""
MAX_SAFE: Final = 2**53 - 1
"""The largest whole number that RFC 8785 can write."""

# What a study may name -> whether this version does it.
MODELS: Final = {"central": True, "peer": False}
LINKAGE_MODES: Final = {"keyed-hash": True, "order-commitment": False, "dh-psi": False}
SCHEMES: Final = {
    "symmetric": True,
    "binary": True,
    "blocks": True,
    "matrix": True,
    "none": True,
    "two-level": True,
    "subset": False,
}
METHODS: Final = {
    "genetic": True,
    "greedy": False,
    "order": False,
    "tree": False,
    "hill-climb": False,
    "given": False,
    "auto": False,
}
SCORES: Final = {"mutual-information": True}
ESTIMATORS: Final = ("em", "inverse", "clip", "simplex")
NORMALISE_STEPS: Final = ("nfkc", "trim", "casefold", "digits-only")

_STUDY_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_PARTY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")  # what a certificate can carry, see transport.identity
_BIDI_CONTROLS: Final = frozenset({"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"})
_INVISIBLE: Final = frozenset(
    map(chr, (0xAD, 0x61C, 0x180E, 0x200B, 0x200E, 0x200F, *range(0x2060, 0x2070), 0xFEFF, *range(0xFFF9, 0x10000)))
) - {"\ufffc", "\ufffd"} | frozenset(map(chr, range(0xE0000, 0xE0080)))
"""Letters that are not seen: with them two categories, or two studies' names, could look the same to the person who approves.
The joiners U+200C and U+200D are not among them: Persian and the languages of India are written with them."""


def check(study: Study, *, source: str) -> None:
    """Check a resolved study.

    Args:
        study: the study.
        source: name of the document, for messages.

    Raises:
        Misuse: STUDY_INVALID, STUDY_UNSUPPORTED, MATRIX_INVALID or MATRIX_SINGULAR.
    """
    rules = _Rules(source)
    rules.head(study)
    rules.linkage(study)
    for variable in study.schema.variables:
        rules.variable(variable, study.parties)
    rules.owners(study)
    rules.units(study)
    rules.breach(study)
    rules.structure(study)
    rules.numbers(study)


def check_supported(table: dict[str, bool], value: str, *, where: str) -> None:
    """Refuse a `value` that the contract knows and this version does not do yet.

    Raises:
        Misuse: STUDY_UNSUPPORTED.
    """
    if not table.get(value, True):
        able = ", ".join(name for name, can in table.items() if can)
        raise Misuse(
            "STUDY_UNSUPPORTED", f"{where}: '{value}' is not yet supported", hint=f"this version supports: {able}"
        )


def bin_labels(edges: Sequence[float]) -> tuple[str, ...]:
    """Labels of bins, the numbers as short as they can be.

    >>> bin_labels([17, 25.5, 30])
    ('[17,25.5)', '[25.5,30)')
    """
    return tuple(f"[{_shortest(low)},{_shortest(high)})" for low, high in itertools.pairwise(edges))


def _shortest(number: float) -> str:
    return str(int(number)) if float(number).is_integer() and abs(number) < 1e15 else repr(number)


def is_party_name(text: str) -> bool:
    """Whether `text` may name a party: what a certificate's URI can carry."""
    return _PARTY.fullmatch(text) is not None


def edges_from(table: Table, key: str) -> tuple[tuple[str, str], ...]:
    """The list of edges ["parent", "child"] at `key`; an absent key is no edge.

    Raises:
        Misuse: the table's code.
    """
    edges: list[tuple[str, str]] = []
    for row in table.rows(key, []):
        match row:
            case (str(parent), str(child)):
                edges.append((parent, child))
            case _:
                table.fail(key, 'expected edges, each ["parent", "child"]')
    return tuple(edges)


def breach_from(table: Table, key: str) -> Breach | None:
    """The rule at `key`, as in ``breach = {prior = 0.1, posterior = 0.5}``; an absent key is no rule.

    Raises:
        Misuse: the table's code.
    """
    if not table.has(key):
        return None
    rule = table.table(key)
    rule.only("prior", "posterior")
    prior, posterior = rule.value(float, "prior"), rule.value(float, "posterior")
    try:
        return Breach(prior=prior, posterior=posterior)
    except ValueError as error:
        return table.fail(key, str(error))


def edge_text(edge: tuple[str, str]) -> str:
    """An edge for messages."""
    return f"'{edge[0]}' -> '{edge[1]}'"


def make_variable(
    *,
    name: str,
    owner: str,
    labels: tuple[str, ...],
    bins: tuple[float, ...] | None,
    integer: bool,
    outside: Literal["error", "clamp"],
    other: str | None,
    missing: Missing | None,
    where: str,
) -> Variable:
    """A `Variable`, after checking what it needs: distinct categories of readable text and usable bin edges.

    Raises:
        Misuse: STUDY_INVALID; the message starts with `where`.
    """
    if bins is not None:
        _check_bins(bins, integer=integer, where=where)
    twice = [label for label, count in Counter(labels).items() if count > 1]
    if twice:
        _fail(where, f"category '{twice[0][:MAX_TEXT]}' is declared twice")
    if not 2 <= len(labels) <= MAX_STATES:
        _fail(where, f"{len(labels)} categories, expected 2 to {MAX_STATES}")
    _check_text(where, name)
    _check_text(f"{where}: its party", owner)
    for number, label in enumerate(labels, 1):
        _check_text(f"{where}: category {number}", label)
    return Variable(
        name=name,
        owner=owner,
        labels=labels,
        bins=bins,
        integer=integer,
        outside=outside,
        other=other,
        missing=missing,
    )


def _check_bins(bins: tuple[float, ...], *, integer: bool, where: str) -> None:
    if len(bins) < 2:
        _fail(where, f"{len(bins)} bin edges, expected at least 2")
    if not all(math.isfinite(edge) for edge in bins):
        _fail(where, "a bin edge is not finite", hint='what lies beyond the edges is outside = "error" or "clamp"')
    for number, (low, high) in enumerate(itertools.pairwise(bins), 1):
        if not low < high:
            _fail(where, f"bin edges {number} and {number + 1} are {low:g} and {high:g}, expected increasing edges")
        if high - low < _NARROWEST:
            _fail(
                where,
                f"bin {number} is {high - low:g} wide, expected at least {_NARROWEST:g}",
                hint="use a larger unit",
            )
    if max(map(abs, bins)) > _FARTHEST:
        _fail(where, f"a bin edge is beyond {_FARTHEST:g}", hint='use a smaller unit, or outside = "clamp"')
    if integer and not all(edge.is_integer() for edge in bins):
        _fail(where, "a bin edge is not a whole number, expected whole edges with integer = true")


def _check_text(where: str, text: str, *, limit: int = MAX_TEXT, lines: bool = False) -> None:
    """Names and labels are shown to the person who approves: nothing invisible, nothing that reorders text."""
    if not text or text != text.strip():
        _fail(where, f"got '{text[:MAX_TEXT]}', expected a text without blanks at its ends")
    if len(text) > limit:
        _fail(where, f"{len(text)} letters, expected at most {limit}")
    _check_letters(where, text, also="\n\t" if lines else "")


def _check_letters(where: str, text: str, *, also: str = "") -> None:
    for position, letter in enumerate(text, 1):
        if letter in also:
            continue
        if (
            unicodedata.category(letter) in {"Cc", "Cs", "Zl", "Zp"}
            or unicodedata.bidirectional(letter) in _BIDI_CONTROLS
            or letter in _INVISIBLE
        ):
            _fail(where, f"letter {position} is U+{ord(letter):04X}, expected printed text without control characters")


def _fail(where: str, problem: str, *, hint: str = "") -> NoReturn:
    raise Misuse("STUDY_INVALID", f"{where}: {problem}", hint=hint)


class _Rules:
    """The checks, part by part; `source` starts every message."""

    def __init__(self, source: str) -> None:
        self.source = source

    def fail(self, where: str, problem: str, *, hint: str = "") -> NoReturn:
        _fail(f"{self.source}: {where}", problem, hint=hint)

    def distinct(self, where: str, names: Iterable[str]) -> None:
        for name, count in Counter(names).items():
            if count > 1:
                self.fail(where, f"'{name}' stands there {count} times, expected once")

    def within(self, where: str, number: float, low: float, high: float) -> None:
        if not low <= number <= high:  # also for NaN
            self.fail(where, f"got {number:.17g}, expected {low:g} to {high:.17g}")

    def head(self, study: Study) -> None:
        if not _STUDY_ID.fullmatch(study.id):
            self.fail("id", f"got '{study.id[:MAX_TEXT]}', expected 1 to 63 of a-z 0-9 -, not starting with -")
        _check_text(f"{self.source}: title", study.title)
        _check_text(f"{self.source}: purpose", study.purpose, limit=MAX_PURPOSE, lines=True)
        check_supported(MODELS, study.model, where=f"{self.source}: model")
        if not study.parties:
            self.fail("party", "there is no [[party]], expected at least one")
        for party in study.parties:
            if not is_party_name(party):
                self.fail(
                    "party",
                    f"got the name '{party[:MAX_TEXT]}', expected 1 to 63 of A-Z a-z 0-9 _ -, a letter or digit first",
                )
        self.distinct("party", study.parties)
        if not 1 <= len(study.schema) <= MAX_VARIABLES:
            self.fail("variable", f"{len(study.schema)} variables, expected 1 to {MAX_VARIABLES}")

    def linkage(self, study: Study) -> None:
        check_supported(LINKAGE_MODES, study.linkage.mode, where=f"{self.source}: linkage.mode")
        self.distinct("linkage.normalise", study.linkage.normalise)
        for step in study.linkage.normalise:
            if step not in NORMALISE_STEPS:
                self.fail(
                    "linkage.normalise", f"got '{step[:MAX_TEXT]}', expected some of {', '.join(NORMALISE_STEPS)}"
                )
        self.within("linkage.minimum_common_records", study.linkage.minimum_common_records, 1, MAX_SAFE)

    def owners(self, study: Study) -> None:
        for party in study.parties:
            if not study.schema.owned_by(party):
                self.fail(
                    "party", f"'{party}' owns no variable", hint="remove the party, or add a [[variable]] that it holds"
                )

    def variable(self, variable: Variable, parties: Sequence[str]) -> None:
        where = f"variable '{variable.name}'"
        if variable.owner not in parties:
            self.fail(
                where,
                f"its party '{variable.owner[:MAX_TEXT]}' is not a [[party]] of the study, expected one of {', '.join(parties)}",
                hint="mend the name, or add a [[party]] with it",
            )
        extra = [variable.other] if variable.other is not None else []
        if variable.missing is not None:
            extra.append(variable.missing.category)
        for category in extra:
            if category not in variable.labels:
                self.fail(where, f"'{category[:MAX_TEXT]}' of other or missing is not a declared category")
        if variable.bins is None:
            if variable.integer or variable.outside != "error":
                self.fail(where, "integer and outside go with bins, expected neither beside categories")
        elif variable.labels != bin_labels(variable.bins) + tuple(dict.fromkeys(extra)):
            self.fail(where, "the categories are not those of its bins, then other, then missing")
        if variable.missing is not None:
            self.spellings(where, variable.labels, variable.missing)

    def spellings(self, where: str, labels: Sequence[str], missing: Missing) -> None:
        if not 1 <= len(missing.spellings) <= 1000 or max(map(len, missing.spellings)) > MAX_TEXT:
            self.fail(f"{where}: missing.spellings", f"expected 1 to 1000 texts of at most {MAX_TEXT} letters")
        self.distinct(f"{where}: missing.spellings", missing.spellings)
        for spelling in missing.spellings:
            _check_letters(f"{self.source}: {where}: missing.spellings", spelling, also="\t")
            if spelling in labels and spelling != missing.category:
                self.fail(f"{where}: missing.spellings", f"'{spelling}' is a category of its own")

    def units(self, study: Study) -> None:
        expected = study.schema.names
        got = tuple(name for unit in study.units for name in unit.variables)
        if got != expected or any(len(unit.variables) != 1 for unit in study.units):
            self.fail("randomization", "the units are not one for each variable, in the order of the variables")
        if (cells := sum(unit.transition.n_states**2 for unit in study.units)) > MAX_CELLS:
            self.fail("randomization", f"the matrices have {cells} cells, expected at most {MAX_CELLS} in all")
        for unit, variable in zip(study.units, study.schema.variables, strict=True):
            self.unit(unit, variable)

    def unit(self, unit: Unit, variable: Variable) -> None:
        where = f"column '{variable.name}'"
        check_supported(SCHEMES, unit.scheme, where=f"{self.source}: {where}: scheme")
        if unit.scheme not in SCHEMES:
            self.fail(
                where,
                f"got the scheme '{unit.scheme[:MAX_TEXT]}', expected one of {', '.join(k for k, can in SCHEMES.items() if can)}",
            )
        if unit.owner != variable.owner:
            self.fail(where, f"is randomized by '{unit.owner[:MAX_TEXT]}', expected its party '{variable.owner}'")
        n_states = unit.transition.n_states
        if n_states != variable.n_states:
            self.fail(
                where, f"the matrix is {n_states} x {n_states}, expected {variable.n_states} x {variable.n_states}"
            )
        if (unit.scheme == "two-level") != (unit.two_level is not None):
            self.fail(where, f"'two_level' goes with the scheme 'two-level' and with no other, got '{unit.scheme}'")
        if not _is_of_scheme(unit, where=f"{self.source}: {where}"):
            self.fail(where, f"the matrix is not one of the scheme '{unit.scheme}'")
        validate_matrix(unit.transition.probabilities, where=f"{self.source}: {where}")

    def breach(self, study: Study) -> None:
        rule = study.breach
        if rule is None:
            return
        found: list[str] = []
        for unit in study.units:
            ratio = gamma(unit.transition)
            if rule.possible(ratio):
                level = "infinite" if ratio is None else f"{float(ratio):.6g}"
                found.append(f"column '{', '.join(unit.variables)}' has gamma {level}")
        if found:
            more = f" and {len(found) - _LISTED} more" if len(found) > _LISTED else ""
            self.fail(
                "breach",
                f"{', '.join(found[:_LISTED])}{more}; expected gamma below {rule.gamma_limit:.6g}, "
                f"so that no belief of {rule.prior:g} becomes {rule.posterior:g}",
                hint=f"randomize more strongly (epsilon below {math.log(rule.gamma_limit):.4g}), or change the rule",
            )

    def structure(self, study: Study) -> None:
        rule = study.structure
        check_supported(METHODS, rule.method, where=f"{self.source}: structure.method")
        for what, value, known in (("method", rule.method, METHODS), ("score", rule.score, SCORES)):
            if value not in known:
                self.fail(f"structure.{what}", f"got '{value[:MAX_TEXT]}', expected one of {', '.join(known)}")
        self.within("structure.max_parents", rule.max_parents, 0, 20)
        self.within("structure.max_family_cells", rule.max_family_cells, 2, 100_000_000)
        widest = max(study.schema.variables, key=lambda variable: variable.n_states)
        if widest.n_states > rule.max_family_cells:
            self.fail(
                "structure.max_family_cells",
                f"got {rule.max_family_cells}, expected at least the {widest.n_states} categories of '{widest.name}'",
            )
        self.within("structure.seed", rule.seed, 0, MAX_SAFE)
        genetic = rule.genetic
        self.within("structure.genetic.population", genetic.population, 2, 10_000)
        self.within("structure.genetic.selected", genetic.selected, 1, genetic.population)
        self.within("structure.genetic.generations", genetic.generations, 1, 1_000_000)
        if genetic.mutation_rate is not None:
            self.within("structure.genetic.mutation_rate", genetic.mutation_rate, 0, 1)
        if rule.required:
            raise Misuse(
                "STUDY_UNSUPPORTED",
                f"{self.source}: structure.required: required edges are not yet supported",
                hint="remove them; forbidden edges are supported",
            )
        for edge in rule.forbidden:
            for name in edge:
                if name not in study.schema:
                    self.fail("structure.forbidden", f"'{name[:MAX_TEXT]}' is not a variable of the study")
            if edge[0] == edge[1]:
                self.fail("structure.forbidden", f"{edge_text(edge)} joins a variable to itself")
        self.distinct("structure.forbidden", (edge_text(edge) for edge in rule.forbidden))

    def numbers(self, study: Study) -> None:
        parameters = study.parameters
        if parameters.estimator not in ESTIMATORS:
            self.fail(
                "parameters.estimator",
                f"got '{parameters.estimator[:MAX_TEXT]}', expected one of {', '.join(ESTIMATORS)}",
            )
        if parameters.estimator == "inverse":
            self.fail(
                "parameters.estimator",
                "got 'inverse', whose counts can be negative: no records can be drawn from such a model; "
                "expected em, clip or simplex",
                hint="keep em; the inverse's estimate of every parameter is published beside it, with its interval",
            )
        self.within("parameters.prior_count", parameters.prior_count, 1e-6, 1e6)
        self.within("parameters.interval_level", parameters.interval_level, 0.5, 0.9999)
        if study.release.synthetic_records is not None:
            self.within("release.synthetic_records", study.release.synthetic_records, 1, 100_000_000)
        self.within("release.seed", study.release.seed, 0, MAX_SAFE)


def _is_of_scheme(unit: Unit, *, where: str) -> bool:
    """Whether the matrix is what the scheme's name tells the person who approves. One unit of 2^64 is quantization."""
    weights = unit.transition.weights
    if unit.scheme == "none":
        return unit.transition.is_identity
    if unit.scheme == "binary":
        return len(weights) == 2
    if unit.scheme == "symmetric":
        diagonal = [row[i] for i, row in enumerate(weights)]
        others = [weight for i, row in enumerate(weights) for j, weight in enumerate(row) if i != j]
        # The quantizer gives whole missing units to the first of equal remainders, so equal cells differ by one at most;
        # the diagonal of a large matrix takes up what the rounding of the others leaves.
        return max(others) - min(others) <= 1 and max(diagonal) - min(diagonal) <= len(weights)
    if (levels := unit.two_level) is not None:
        declared = two_level(
            levels.groups,
            len(weights),
            epsilon_group=levels.epsilon_group,
            epsilon_within=levels.epsilon_within,
            where=where,
        )
        # Another machine's exp may differ in the last digit; quantization moves a cell by a few units of 2^-64.
        # A cell of zero would release something exactly, which the scheme promises not to do.
        difference = np.abs(unit.transition.probabilities - declared)
        return bool((difference <= 1e-9 * declared + len(weights) / SCALE).all()) and all(map(all, weights))
    return True
