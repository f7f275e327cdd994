"""What holds for every resolved study, whether it was read from TOML or came as bytes from another node.

`check` looks at the value alone: names, ranges, sizes, ownership, and what this version does not support yet (refused by
name). It does not judge whether the study is wise; that is `lint`. Units and structure have modules of their own; what a study
may name is in `vocabulary` and can be had from here too.
"""

from __future__ import annotations

import itertools
import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NoReturn

from verticil.shared.channels.privacy import Breach
from verticil.shared.config import Table
from verticil.shared.estimation.estimators import ESTIMATORS
from verticil.shared.model.schema import MAX_STATES, Missing, Variable
from verticil.shared.study.document import Study
from verticil.shared.study.prior import check_prior
from verticil.shared.study.protocols import protocol_of
from verticil.shared.study.publication import check_publish
from verticil.shared.study.quorum import check_quorum
from verticil.shared.study.structure_rules import check_structure, near_hint
from verticil.shared.study.unit_rules import check_breach, check_units
from verticil.shared.study.vocabulary import (
    MAX_PURPOSE,
    MAX_SAFE,
    MAX_TEXT,
    MAX_VARIABLES,
    NORMALISE_STEPS,
    SAMPLING,
    fail,
)

_FARTHEST: Final = 1e15
_NARROWEST: Final = 1e-15
"""Bins must be such that numbers inside can be written."""
_STUDY_ID: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_PARTY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")  # what a certificate can carry, see shared.identity
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
    check_units(study, source=source)
    check_structure(study, source=source)
    check_breach(study, source=source)
    check_publish(study, source=source)
    rules.numbers(study)
    check_quorum(study, source=source)
    protocol_of(study).check(study, source=source)


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


def edges_from(table: Table, key: str, *, each: str = '["parent", "child"]') -> tuple[tuple[str, str], ...]:
    """The list of edges, or other pairs of names, at `key`; an absent key is none. `each` is one of them, for a message.

    Raises:
        Misuse: the table's code.
    """
    edges: list[tuple[str, str]] = []
    for row in table.rows(key, []):
        match row:
            case (str(parent), str(child)):
                edges.append((parent, child))
            case _:
                table.fail(
                    key,
                    f"expected edges, each {each}" if each.startswith('["parent') else f"expected pairs, each {each}",
                )
    return tuple(edges)


def tiers_from(table: Table, key: str) -> tuple[tuple[str, ...], ...]:
    """The lists of names at `key`, one for each tier; an absent key is no tier.

    Raises:
        Misuse: the table's code.
    """
    tiers: list[tuple[str, ...]] = []
    for row in table.rows(key, []):
        if not all(isinstance(name, str) for name in row):
            table.fail(key, 'expected lists of names, one for each tier: [["first", ..], ["later", ..]]')
        tiers.append(tuple(str(name) for name in row))
    return tuple(tiers)


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


def outside_from(table: Table, key: str) -> Literal["clamp"]:
    """What a number outside the bins is in a new study, at `key`; an absent key is the same.

    Raises:
        Misuse: the table's code, for what older studies could say.
    """
    if table.choice(key, ("error", "clamp"), "clamp") == "error":
        problem = "got 'error': a study that fails for one value would tell that somebody has it"
        table.fail(key, problem, hint="leave the key out: a number outside the bins goes into the nearest one")
    return "clamp"


def simulation_seed_from(table: Table, key: str) -> int | None:
    """The seed of simulations of a study, as in ``simulation = {seed = 7}``; None: none is named.

    It belongs to the file and not to the study: it enters no digest, and no node of a federation ever sees it.

    Raises:
        Misuse: the table's code.
    """
    rule = table.table(key, optional=True)
    rule.only("seed")
    if not rule.has("seed"):
        return None
    seed = rule.value(int, "seed")
    return seed if seed >= 0 else rule.fail("seed", f"got {seed}, expected at least 0")


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
    representatives: tuple[float, ...] | None = None,
    means: tuple[float, ...] | None = None,
    where: str,
) -> Variable:
    """A `Variable`, after checking what it needs: distinct categories of readable text and usable bin edges.

    Raises:
        Misuse: STUDY_INVALID; the message starts with `where`.
    """
    if bins is not None:
        _check_bins(bins, integer=integer, where=where)
    if representatives is not None:
        _check_inside(representatives, bins or (), where=f"{where}: representatives")
        if integer and (broken := [value for value in representatives if not value.is_integer()]):
            problem = f"number {representatives.index(broken[0]) + 1} is {broken[0]:g}"
            fail(f"{where}: representatives", f"{problem}, expected a whole number with integer = true")
    if means is not None:
        if representatives is not None:
            fail(f"{where}: means", "stands beside 'representatives', expected one of the two")
        _check_inside(means, bins or (), last=1.0 if integer else 0.0, where=f"{where}: means")
    twice = [label for label, count in Counter(labels).items() if count > 1]
    if twice:
        fail(where, f"category '{twice[0][:MAX_TEXT]}' is declared twice")
    if not 2 <= len(labels) <= MAX_STATES:
        fail(where, f"{len(labels)} categories, expected 2 to {MAX_STATES}")
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
        representatives=representatives,
        means=means,
        outside=outside,
        other=other,
        missing=missing,
    )


def _check_inside(numbers: tuple[float, ...], bins: tuple[float, ...], *, last: float = 0.0, where: str) -> None:
    """One number for each bin, inside it; `last`: how far below its upper edge the bin's largest value lies."""
    n_bins = max(len(bins) - 1, 0)
    if len(numbers) != n_bins:
        fail(where, f"{len(numbers)} numbers, expected one for each of the {n_bins} bins")
    for number, (value, (low, high)) in enumerate(zip(numbers, itertools.pairwise(bins), strict=True), 1):
        if not low <= value < high:
            fail(where, f"number {number} is {value:g}, expected one from {low:g} to below {high:g}, its bin")
        if value > high - last:
            fail(
                where, f"number {number} is {value:g}, expected at most {high - last:g}, the bin's largest whole number"
            )


def _check_bins(bins: tuple[float, ...], *, integer: bool, where: str) -> None:
    if len(bins) < 2:
        fail(where, f"{len(bins)} bin edges, expected at least 2")
    if not all(math.isfinite(edge) for edge in bins):
        fail(where, "a bin edge is not finite", hint="what lies beyond the edges goes into the nearest bin")
    for number, (low, high) in enumerate(itertools.pairwise(bins), 1):
        if not low < high:
            fail(where, f"bin edges {number} and {number + 1} are {low:g} and {high:g}, expected increasing edges")
        if high - low < _NARROWEST:
            fail(
                where,
                f"bin {number} is {high - low:g} wide, expected at least {_NARROWEST:g}",
                hint="use a larger unit",
            )
    if max(map(abs, bins)) > _FARTHEST:
        fail(where, f"a bin edge is beyond {_FARTHEST:g}", hint="use a smaller unit, or fewer bins")
    if integer and not all(edge.is_integer() for edge in bins):
        fail(where, "a bin edge is not a whole number, expected whole edges with integer = true")


def _check_text(where: str, text: str, *, limit: int = MAX_TEXT, lines: bool = False) -> None:
    """Names and labels are shown to the person who approves: nothing invisible, nothing that reorders text."""
    if not text or text != text.strip():
        fail(where, f"got '{text[:MAX_TEXT]}', expected a text without blanks at its ends")
    if len(text) > limit:
        fail(where, f"{len(text)} letters, expected at most {limit}")
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
            fail(where, f"letter {position} is U+{ord(letter):04X}, expected printed text without control characters")


class _Rules:
    """The checks, part by part; `source` starts every message."""

    def __init__(self, source: str) -> None:
        self.source = source

    def fail(self, where: str, problem: str, *, hint: str = "") -> NoReturn:
        fail(f"{self.source}: {where}", problem, hint=hint)

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
        protocol_of(study)
        if not study.parties:
            self.fail("party", "there is no [[party]], expected at least one")
        for party in (*study.parties, *(item.party for item in study.left_out)):
            if not is_party_name(party):
                self.fail(
                    "party",
                    f"got the name '{party[:MAX_TEXT]}', expected 1 to 63 of A-Z a-z 0-9 _ -, a letter or digit first",
                )
        self.distinct("party", study.parties)
        if not 1 <= len(study.schema) <= MAX_VARIABLES:
            self.fail("variable", f"{len(study.schema)} variables, expected 1 to {MAX_VARIABLES}")

    def linkage(self, study: Study) -> None:
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

    def numbers(self, study: Study) -> None:
        parameters = study.parameters
        if parameters.estimator not in ESTIMATORS:
            self.fail(
                "parameters.estimator",
                f"got '{parameters.estimator[:MAX_TEXT]}', expected one of {', '.join(ESTIMATORS)}",
            )
        check_prior(study, self.fail)
        if parameters.prior_count is not None:
            self.within("parameters.prior_count", parameters.prior_count, 1e-6, 1e6)
        self.within("parameters.interval_level", parameters.interval_level, 0.5, 0.9999)
        if study.release.synthetic_records is not None:
            self.within("release.synthetic_records", study.release.synthetic_records, 1, 100_000_000)
        if study.release.sampling not in SAMPLING:
            self.fail(
                "release.sampling", f"got '{study.release.sampling[:MAX_TEXT]}', expected one of {', '.join(SAMPLING)}"
            )
        self.within("release.seed", study.release.seed, 0, MAX_SAFE)
        self.pairs(study)

    def pairs(self, study: Study) -> None:
        pairs = study.release.pairs
        if len(pairs) > MAX_VARIABLES:
            self.fail("release.pairs", f"{len(pairs)} pairs, expected at most {MAX_VARIABLES}")
        for name in dict.fromkeys(name for pair in pairs for name in pair):
            if name not in study.schema:
                self.fail(
                    "release.pairs",
                    f"'{name[:MAX_TEXT]}' is not a variable of the study",
                    hint=near_hint(name, study.schema.names),
                )
        if len({frozenset(pair) for pair in pairs if pair[0] != pair[1]}) < len(pairs):
            self.fail("release.pairs", "a pair stands there twice, or is one variable, expected different pairs")
