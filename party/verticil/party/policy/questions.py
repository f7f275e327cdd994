"""What a study asks of a table, in words: categories or bins, what becomes of everything else, impossible combinations, ids.

Promise: nothing that decides which category a record gets is left out, however long it becomes; a person who approves has seen
every bin edge and every impossible combination. Only the study is read, never the table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from verticil.shared.model.schema import Variable
from verticil.shared.study.document import Study

_DRAWN: Final = "drawn here with a key that only this site has"
_STEPS: Final = {
    "nfkc": "nfkc (wide and compatibility letters as plain ones)",
    "trim": "trim (blanks at both ends removed)",
    "casefold": "casefold (letter case ignored)",
    "digits-only": "digits-only (everything but digits removed)",
}


def variable_words(variable: Variable) -> tuple[str, ...]:
    """How one column is encoded.

    >>> pain = Variable(name="pain", owner="clinic", labels=("[0,5)", "[5,11)"), bins=(0.0, 5.0, 11.0))
    >>> print(*variable_words(pain), sep=chr(10))
    bins [0,5), [5,11); a number outside goes to the nearest bin
    anything else, also an empty field, becomes one of these, drawn here with a key that only this site has
    """
    bins = variable.labels[: variable.n_bins]
    found = [f"bins {', '.join(bins)}; a number outside goes to the nearest bin"] if bins else []
    for numbers, what in (
        (variable.representatives, "a synthetic number is its bin's declared one"),
        (variable.means, "synthetic numbers have their bin's declared mean"),
    ):
        if numbers is not None:
            found.append(f"{what}: {', '.join(f'{number:.15g}' for number in numbers)}")
    if categories := variable.labels[variable.n_bins :]:
        found.append(f"categories {_quoted(categories)}")
    empty_is_else = True
    if (missing := variable.missing) is not None:
        spelled = [f"'{text}'" if text else "an empty field" for text in missing.spellings]
        empty_is_else = variable.other is not None and "" not in missing.spellings
        if not empty_is_else and "" not in missing.spellings:
            spelled.append("an empty field")
        found.append(f"missing, written as {', '.join(spelled)}: becomes '{missing.category}'")
    becomes = f"'{variable.other}'" if variable.other is not None else f"one of these, {_DRAWN}"
    return (*found, f"anything else{', also an empty field,' if empty_is_else else ''} becomes {becomes}")


def impossible_words(study: Study, index: int) -> tuple[str, ...]:
    """Every combination of categories that a compound leaves out; nothing for other units."""
    unit = study.units[index]
    if not unit.impossible:
        return ()
    listed = "; ".join(combination_text(study, unit.variables, codes) for codes in unit.impossible)
    return (
        f"impossible, and never sent: {listed}",
        f"a record that has one of them is sent as a possible combination, {_DRAWN}",
    )


def combination_text(study: Study, variables: Sequence[str], codes: Sequence[int]) -> str:
    """One combination, as in ``sex 'F' with age '[0,18)'``."""
    named = zip(variables, codes, strict=True)
    return " with ".join(f"{name} '{study.schema[study.schema.index(name)].labels[code]}'" for name, code in named)


def normalise_words(steps: Sequence[str]) -> str:
    """What is done to ids before they are compared.

    >>> print(normalise_words(("trim",)))
    ids are compared after trim (blanks at both ends removed); people whose id is then empty or equal to another's are left out
    """
    said = ", then ".join(_STEPS[step] for step in steps)
    return (
        f"ids are compared {f'after {said}' if said else 'as they are written'};"
        " people whose id is then empty or equal to another's are left out"
    )


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
