"""The key of synthetic records, where a study has an ``[identifier]``: the number of each record, as the study writes it.

It is written in front of the columns and read back from there; no model has it, and it depends on no person.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from verticil.shared.study.document import IdentifierRule

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

_DIGITS: Final = 20


def key_texts(rule: IdentifierRule, first: int, n: int) -> list[str]:
    """Return the keys of `n` records, of which `first` stand in front.

    >>> key_texts(IdentifierRule(name="pid", format="P%03d"), 9, 2)
    ['P010', 'P011']
    """
    return [rule.format % number for number in range(first + 1, first + n + 1)]


def key_bytes(rule: IdentifierRule) -> int:
    """Return how many bytes a key has at most."""
    return len(rule.format.encode()) + _DIGITS


def add_identifier(
    frames: pd.DataFrame | Iterable[pd.DataFrame], rule: IdentifierRule | None
) -> Iterator[pd.DataFrame]:
    """Yield the pieces of a table with the key as their first column; None: as they are.

    Args:
        frames: the table, or its pieces one after the other.
        rule: of the study.
    """
    import pandas as pd

    n_before = 0
    for frame in [frames] if isinstance(frames, pd.DataFrame) else frames:
        if rule is None:
            yield frame
            continue
        keys = pd.Series(key_texts(rule, n_before, len(frame)), index=frame.index, name=rule.name, dtype="str")
        yield pd.concat([keys, frame], axis=1)
        n_before += len(frame)


def has_keys(rule: IdentifierRule, first: int, column: pa.Array) -> bool:
    """Return whether a column that was read holds the keys of the records from `first` on."""
    import pyarrow as pa

    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        return False
    return bool(column.cast(pa.string()).equals(pa.array(key_texts(rule, first, len(column)), type=pa.string())))
