"""Whether a study may be acted on: its author has reviewed what a draft proposed.

A draft proposes categories and bins that it saw in a table, and no noise covers them. Its file says so in ``[draft]``, which is
no part of the canonical study, and in ``from`` of each column, which is. Whatever submits, loads, approves, simulates or
synthesizes a study asks `require_reviewed`; `check` says the same as findings.

A study that arrives as canonical bytes was asked where it was a file. Its texts can be asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.document import Study
from verticil.shared.study.protocol import Finding
from verticil.shared.study.vocabulary import PLACEHOLDERS, PUBLIC, TABLE

_HINT: Final = (
    "replace what was seen in the table by public knowledge, say so in each column (from = 'public'), then set "
    "reviewed = true under [draft]"
)


def review_findings(study: Study) -> Iterator[Finding]:
    """Yield what the author of a draft still has to do: an error for the review, and one for each text of the draft."""
    if not study.reviewed:
        names = columns_from(study, TABLE)
        message = (
            f"not reviewed: the categories of {_join_names(names)} are those of a draft from a table"
            if names
            else "not reviewed: the study is a draft"
        )
        yield Finding(severity="error", code="unreviewed", where="draft.reviewed", message=message, hint=_HINT)
    for key, text in PLACEHOLDERS.items():
        if getattr(study, key) == text:
            yield Finding(
                severity="error",
                code="unreviewed",
                where=key,
                message=f"still reads '{text}', as a draft has it",
                hint=f"write the study's {key}, for the people who decide about it",
            )


def require_reviewed(study: Study) -> None:
    """Refuse a draft that its author has not reviewed, or whose texts are still those of the draft.

    Raises:
        Misuse: UNREVIEWED, with everything that is left to do.
    """
    findings = list(review_findings(study))
    if findings:
        text = "; ".join(f"{finding.where}: {finding.message}" for finding in findings)
        raise Misuse("UNREVIEWED", f"study '{study.id}': {text}", hint=findings[0].hint)


def columns_from(study: Study, origin: str | None) -> tuple[str, ...]:
    """Return the columns whose categories come from there, in the study's order; None: the study does not say."""
    return tuple(variable.name for variable in _all_columns(study) if variable.origin == origin)


def origin_words(study: Study) -> tuple[str, ...]:
    """Return where the categories of the columns come from, a sentence each; none where the study says it of no column.

    Bins that are measured come from no table: their bounds do, or public knowledge, and what the noisy counts said. Endings are
    never measured.
    """
    measured = tuple(variable.name for variable in study.schema.variables if variable.bounds is not None)
    of_measured = (
        f"The bins of {_join_names(measured)} are measured with noise, within the epsilon of the tables; each column's "
        "key 'from' says where its bounds come from.",
    ) * bool(measured)
    if len(columns_from(study, None)) == len(tuple(_all_columns(study))):
        return of_measured
    sentences = {
        TABLE: "were taken from the data themselves: no noise covers them",
        PUBLIC: "are public knowledge, as the study's author states",
        None: "come from a source that the study does not state",
    }
    subjects: dict[str, Callable[[Variable], bool]] = {
        "categories": lambda variable: variable.bounds is None,
        "endings of numbers": lambda variable: bool(variable.endings),
        "means inside bins": lambda variable: bool(variable.means or variable.representatives),
    }
    return (
        *(
            f"The {subject} of {_join_names(names)} {words}."
            for subject, has_it in subjects.items()
            for origin, words in sentences.items()
            if (
                names := _names_in_file(
                    study, (each for each in _all_columns(study) if each.origin == origin and has_it(each))
                )
            )
        ),
        *of_measured,
    )


def _all_columns(study: Study) -> Iterable[Variable]:
    """Return every column of the study's file: those that are sent, and those that follow from others."""
    functions = () if study.knowledge is None else study.knowledge.functions
    return (*study.schema.variables, *(item.variable for item in functions))


def _names_in_file(study: Study, variables: Iterable[Variable]) -> tuple[str, ...]:
    """Return the names of some columns, each column of a related table once for all slots."""
    in_file = {
        name: f"{table.name}.{column}{'.gap' if name.endswith('.gap') and column == table.order else ''}"
        for table in study.related
        for column in table.columns
        for name in table.slots_of(column)
    }
    return tuple(dict.fromkeys(in_file.get(variable.name, variable.name) for variable in variables))


def _join_names(names: tuple[str, ...]) -> str:
    return f"{len(names)} column{'' if len(names) == 1 else 's'} ({', '.join(names)})"
