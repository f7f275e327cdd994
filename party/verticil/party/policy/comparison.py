"""What changed between two studies, or between the data that were approved and those that are there now, in words.

`changes` names every difference of two resolved studies: a column, a category and its place, a cell of a matrix, who gets a
column, the way people are linked, the model, the last day, and every other field by its path. Equal studies give nothing, and
studies that differ give something (tested field by field). `data_changes` compares where the values of a unit come from and what
they are; it works on digests, so it names the column and never a value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final

from verticil.party.dataset.column_draws import Origins
from verticil.shared.documents.written_values.on_scale import value_text
from verticil.shared.documents.written_values.reading import MOMENTS
from verticil.shared.mechanisms.subset import Subset
from verticil.shared.mechanisms.transition import SCALE
from verticil.shared.numerics.knowledge.words import describe_knowledge
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import recipients_of
from verticil.shared.study.unit import Unit

_MOST_CELLS: Final = 12
"""Changed cells of one matrix that are said one by one; the rest is counted."""
_DRAWN: Final = "drawn here with a key that only this site has"
_STEPS: Final = {
    "nfkc": "nfkc (wide and compatibility letters as plain ones)",
    "trim": "trim (blanks at both ends removed)",
    "casefold": "casefold (letter case ignored)",
    "digits-only": "digits-only (everything but digits removed)",
}
_SAME: Final = Fraction(1, 10**9)


def labels_of(study: Study, index: int) -> tuple[str, ...]:
    """Return the names of a unit's categories: a compound's are combinations."""
    unit = study.units[index]
    labels = [study.schema[study.schema.index(name)].labels for name in unit.variables]
    return tuple(
        " & ".join(names[code] for names, code in zip(labels, combination, strict=True))
        for combination in study.domain_of(index)
    )


def changes(before: Study, after: Study) -> tuple[str, ...]:
    """List every difference of two studies, in the order in which a study is read."""
    return (
        *_compare_fields(before, after, ("id", "title", "purpose", "model", "expires", "parties"), ""),
        *_compare_nested(before.linkage, after.linkage, "linkage"),
        *_compare_variables(before, after),
        *_compare_knowledge(before, after),
        *_compare_units(before, after),
        *_compare_recipients(before, after),
        *_compare_nested(before.structure, after.structure, "structure"),
        *_compare_nested(before.parameters, after.parameters, "parameters"),
        *_compare_nested(before.release, after.release, "release"),
        *_compare_rest(before, after),
    )


def unit_changes(before: Unit, after: Unit, labels: Sequence[str]) -> tuple[str, ...]:
    """List the differences in how one column is randomized; the units hold the same variables.

    Args:
        before: as approved.
        after: as it is now.
        labels: of the unit's categories.
    """
    name = f"column '{', '.join(after.variables)}'"
    differences: list[str] = []
    if before.scheme != after.scheme:
        differences.append(f"{name}: scheme '{after.scheme}', was '{before.scheme}'")
    old, new = before.transition, after.transition
    if isinstance(old, Subset) or isinstance(new, Subset):
        if old != new:
            differences.append(f"{name}: {_channel(new)}, was {_channel(old)}")
    elif old.weights != new.weights and len(old.weights) == len(new.weights):
        cells = [
            f"{name}: a true '{labels[i]}' is reported as '{labels[j]}' {_describe_move(then, now)}"
            for i, (row, was) in enumerate(zip(new.weights, old.weights, strict=True))
            for j, (now, then) in enumerate(zip(row, was, strict=True))
            if now != then
        ]
        differences += cells[:_MOST_CELLS]
        if len(cells) > _MOST_CELLS:
            differences.append(f"{name}: and {len(cells) - _MOST_CELLS} more cells of its matrix")
    if not differences and dataclasses.replace(before, impossible=after.impossible) != after:
        differences.append(f"{name}: how its matrix was declared")
    return tuple(differences)


def data_changes(before: Mapping[int, Origins], after: Mapping[int, Origins]) -> tuple[str, ...]:
    """List what changed in the origin of the values, and in the values; by unit.

    >>> was = Origins(variables=("sex",), dataset="people", sources=("SEX",), codebook="a", transition="b", secret="c",
    ...     fingerprint="d", n_records=10)
    >>> data_changes({0: was}, {0: dataclasses.replace(was, sources=("GENDER",), fingerprint="e")})
    ("column 'sex': is read from the local column 'GENDER', was 'SEX'", "column 'sex': the data of data set 'people' changed")
    """
    differences: list[str] = []
    for index in sorted({*before, *after}):
        old, new = before.get(index), after.get(index)
        if old is None or new is None:
            there = new if new is not None else old
            names = ", ".join(there.variables) if there is not None else ""
            differences.append(f"column '{names}': {'was not approved' if old is None else 'is not there any more'}")
            continue
        name = f"column '{', '.join(new.variables)}'"
        if old.dataset != new.dataset:
            differences.append(f"{name}: is read from data set '{new.dataset}', was '{old.dataset}'")
        if old.sources != new.sources:
            differences.append(
                f"{name}: is read from the local column {_quote_all(new.sources)}, was {_quote_all(old.sources)}"
            )
        if old.codebook != new.codebook:
            differences.append(f"{name}: its recode changed")
        if old.transition != new.transition:
            differences.append(f"{name}: its matrix changed")
        if old.secret != new.secret:
            differences.append(f"{name}: the site secret is another one")
        if not new.has_data_of(old):
            counts = "" if old.n_records == new.n_records else f" ({new.n_records:,} records, were {old.n_records:,})"
            differences.append(f"{name}: the data of data set '{new.dataset}' changed{counts}")
    return tuple(differences)


def _compare_fields(before: object, after: object, names: Iterable[str], prefix: str) -> list[str]:
    return [
        f"{prefix}{name}: {_text(getattr(after, name))}, was {_text(getattr(before, name))}"
        for name in names
        if getattr(before, name) != getattr(after, name)
    ]


def _compare_nested(before: object, after: object, where: str) -> list[str]:
    """List the differences in the fields of two values of one dataclass."""
    if not dataclasses.is_dataclass(before) or type(before) is not type(after):
        return [] if before == after else [f"{where}: {_text(after)}, was {_text(before)}"]
    return _compare_fields(before, after, [field.name for field in dataclasses.fields(before)], f"{where}.")


def _compare_rest(before: Study, after: Study) -> list[str]:
    """Fields that later versions of this program add to a study are named, too."""
    other_fields = {"id", "title", "purpose", "model", "expires", "parties", "linkage", "schema", "units", "structure"}
    other_fields |= {"parameters", "release", "knowledge"}
    return [
        text
        for field in dataclasses.fields(Study)
        if field.name not in other_fields
        for text in _compare_nested(getattr(before, field.name), getattr(after, field.name), field.name)
    ]


def _compare_knowledge(before: Study, after: Study) -> list[str]:
    old, new = (describe_knowledge(study.knowledge, study.schema) for study in (before, after))
    sentences = [f"not stated any more: {sentence}" for sentence in old if sentence not in new]
    sentences += [f"stated: {sentence}" for sentence in new if sentence not in old]
    return sentences or (["what is stated changed"] if before.knowledge != after.knowledge else [])


def _compare_variables(before: Study, after: Study) -> list[str]:
    old = {variable.name: variable for variable in before.schema.variables}
    new = {variable.name: variable for variable in after.schema.variables}
    sentences = [f"column '{name}' of '{old[name].owner}': is gone" for name in old if name not in new]
    sentences += [f"column '{name}' of '{new[name].owner}': is new" for name in new if name not in old]
    for name, variable in new.items():
        if name in old and old[name] != variable:
            sentences += _compare_variable(old[name], variable)
    if [name for name in old if name in new] != [name for name in new if name in old]:
        sentences.append("the order of the columns changed")
    return sentences


def _compare_variable(old: Variable, new: Variable) -> list[str]:
    where = f"column '{new.name}'"
    missing_labels = [label for label in old.labels if label not in new.labels]
    new_labels = [label for label in new.labels if label not in old.labels]
    sentences: list[str] = []
    if missing_labels:
        sentences.append(f"{where}: without the categories {_quote_all(missing_labels)}")
    if new_labels:
        sentences.append(f"{where}: with the new categories {_quote_all(new_labels)}")
    if old.labels != new.labels and not missing_labels and not new_labels:
        sentences.append(
            f"{where}: its categories are in another order: {_quote_all(new.labels)}, was {_quote_all(old.labels)}"
        )
    if old.bins != new.bins or (old.bins is not None and old.kind != new.kind):
        sentences.append(f"{where}: bin edges {_edges(new)}, were {_edges(old)}")
    if old.missing != new.missing:
        sentences.append(f"{where}: {_missing(new)}, was {_missing(old)}")
    rest = [
        field.name
        for field in dataclasses.fields(Variable)
        if field.name not in {"name", "labels", "bins", "points", "missing"}
    ]
    return [*sentences, *_compare_fields(old, new, rest, f"{where}: ")]


def _edges(variable: Variable) -> str:
    if variable.bins is None:
        return "none"
    if variable.kind in MOMENTS:
        return ", ".join(value_text(variable.kind, edge) for edge in variable.bins)
    return ", ".join(f"{edge:.15g}" for edge in variable.bins)


def _missing(variable: Variable) -> str:
    if variable.missing is None:
        return "no missing values"
    return f"missing {_quote_all(variable.missing.spellings)} becomes '{variable.missing.category}'"


def _compare_units(before: Study, after: Study) -> list[str]:
    old = {frozenset(unit.variables): unit for unit in before.units}
    sentences: list[str] = []
    for index, unit in enumerate(after.units):
        mate = old.get(frozenset(unit.variables))
        sentences += _compare_impossible(before, mate, after, unit)
        if mate is None:
            if all(name in before.schema for name in unit.variables):
                together = "in one draw" if unit.is_compound else "by itself"
                sentences.append(f"column '{', '.join(unit.variables)}': is now randomized {together}")
        elif mate.variables != unit.variables:
            sentences.append(
                f"column '{', '.join(unit.variables)}': was declared in the order {', '.join(mate.variables)}"
            )
        elif len(labels := labels_of(after, index)) == mate.transition.n_states:
            sentences += unit_changes(mate, unit, labels)
        elif mate.scheme != unit.scheme:
            sentences.append(f"column '{', '.join(unit.variables)}': scheme '{unit.scheme}', was '{mate.scheme}'")
    return sentences


def _compare_impossible(before: Study, mate: Unit | None, after: Study, unit: Unit) -> list[str]:
    """Combinations that were possible, or are possible again; by what they are called, in the order of the newer study."""
    old = {frozenset(item): text for item, text in _impossible(before, mate)} if mate is not None else {}
    new = {frozenset(item): text for item, text in _impossible(after, unit)}
    name = f"column '{', '.join(unit.variables)}'"
    sentences = [f"{name}: {text} is impossible now" for item, text in new.items() if item not in old]
    return sentences + [f"{name}: {text} is not impossible any more" for item, text in old.items() if item not in new]


def _impossible(study: Study, unit: Unit) -> list[tuple[list[tuple[str, str]], str]]:
    labels = {name: study.schema[study.schema.index(name)].labels for name in unit.variables}
    return [
        (
            [(name, labels[name][code]) for name, code in zip(unit.variables, codes, strict=True)],
            combination_text(study, unit.variables, codes),
        )
        for codes in unit.impossible
    ]


def _compare_recipients(before: Study, after: Study) -> list[str]:
    old = {unit.variables: recipients_of(before, index) for index, unit in enumerate(before.units)}
    sentences: list[str] = []
    for index, unit in enumerate(after.units):
        was, now = old.get(unit.variables), recipients_of(after, index)
        if was is not None and was != now:
            who = ", ".join(now) or "nobody"
            sentences.append(
                f"column '{', '.join(unit.variables)}': goes to {who}, went to {', '.join(was) or 'nobody'}"
            )
    return sentences


def _describe_move(then: int, now: int) -> str:
    if _share(then) == _share(now):
        return f"{_share(now)} of the time, which changed by less than 0.01 %"
    return f"{_share(now)} of the time, was {_share(then)}"


def _share(weight: int) -> str:
    return percent(Fraction(weight, SCALE))


def _channel(channel: object) -> str:
    if isinstance(channel, Subset):
        return f"a set of {channel.size} holds the true one {_share(channel.weight)} of the time"
    return "a matrix"


def _quote_all(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


def _text(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, str):
        return f"'{value}'"
    if isinstance(value, tuple):
        items: tuple[object, ...] = value
        return f"({', '.join(_text(item) for item in items)})"
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return "(" + ", ".join(f"{field.name} {_text(getattr(value, field.name))}" for field in fields) + ")"
    return str(value)


# ---- what a study asks of a table


def variable_words(variable: Variable) -> tuple[str, ...]:
    """Describe how one column is encoded.

    >>> pain = Variable(name="pain", owner="clinic", labels=("[0,5)", "[5,11)"), bins=(0.0, 5.0, 11.0))
    >>> print(*variable_words(pain), sep=chr(10))
    bins [0,5), [5,11); a number outside goes to the nearest bin
    anything else, also an empty field, becomes one of these, drawn here with a key that only this site has
    """
    bins, points = variable.labels[: variable.n_bins], variable.labels[variable.n_bins : variable.n_valued]
    sentences = [f"bins {', '.join(bins)}; a number outside goes to the nearest bin"] if bins else []
    if points:
        sentences.append(f"the values {', '.join(points)}, each a category of its own")
    if variable.kind is not None:
        unit = f" in {variable.unit}" if variable.unit is not None else ""
        sentences.append(f"type {variable.kind}{unit}")
    for numbers, what in (
        (variable.representatives, "a synthetic number is its bin's declared one"),
        (variable.means, "synthetic numbers have their bin's declared mean"),
    ):
        if numbers is not None:
            sentences.append(f"{what}: {', '.join(f'{number:.15g}' for number in numbers)}")
    if categories := variable.labels[variable.n_valued :]:
        sentences.append(f"categories {_quote_all(categories)}")
    empty_is_else = True
    if (missing := variable.missing) is not None:
        spellings = [f"'{text}'" if text else "an empty field" for text in missing.spellings]
        empty_is_else = variable.other is not None and "" not in missing.spellings
        if not empty_is_else and "" not in missing.spellings:
            spellings.append("an empty field")
        sentences.append(f"missing, written as {', '.join(spellings)}: becomes '{missing.category}'")
    becomes = f"'{variable.other}'" if variable.other is not None else f"one of these, {_DRAWN}"
    return (*sentences, f"anything else{', also an empty field,' if empty_is_else else ''} becomes {becomes}")


def impossible_words(study: Study, index: int) -> tuple[str, ...]:
    """Describe every combination of categories that a compound leaves out; nothing for other units."""
    unit = study.units[index]
    if not unit.impossible:
        return ()
    combinations = "; ".join(combination_text(study, unit.variables, codes) for codes in unit.impossible)
    return (
        f"impossible, and never sent: {combinations}",
        f"a record that has one of them is sent as a possible combination, {_DRAWN}",
    )


def combination_text(study: Study, variables: Sequence[str], codes: Sequence[int]) -> str:
    """Describe one combination, as in ``sex 'F' with age '[0,18)'``."""
    names_and_codes = zip(variables, codes, strict=True)
    return " with ".join(
        f"{name} '{study.schema[study.schema.index(name)].labels[code]}'" for name, code in names_and_codes
    )


def normalise_words(steps: Sequence[str]) -> str:
    """Describe what is done to ids before they are compared.

    >>> print(normalise_words(("trim",)))
    ids are compared after trim (blanks at both ends removed); people whose id is then empty or equal to another's are left out
    """
    steps_text = ", then ".join(_STEPS[step] for step in steps)
    return (
        f"ids are compared {f'after {steps_text}' if steps_text else 'as they are written'};"
        " people whose id is then empty or equal to another's are left out"
    )


def percent(share: Fraction, *, up: bool = False) -> str:
    """Write a share as a percentage.

    Args:
        share: 0 to 1.
        up: round up, for a bound.

    >>> percent(Fraction(85, 100)), percent(Fraction(1, 3)), percent(Fraction(1, 3), up=True), percent(Fraction(1, 10**6))
    ('85 %', '33.33 %', '33.34 %', 'less than 0.01 %')
    """
    hundredths = share * 10_000
    nearest = round(hundredths)
    if abs(hundredths - nearest) > _SAME * 10_000 and up:
        nearest = math.ceil(hundredths)
    if nearest == 0 and share > 0:
        return "less than 0.01 %"
    if nearest == 10_000 and share < 1 - _SAME:
        return "more than 99.99 %"
    return f"{nearest / 100:.10g} %"
