"""What the other side may read of a failure here.

No value of a table makes a failure before data are sent. But a failure's message is written for the site's own people: it names
columns that nobody asked about ("did you mean 'salary'?"), files and places in party.toml. So of faults of the local table,
machine and configuration only the code leaves; `verticil party status` and the log have the rest. Refusals name limits, columns
of the study and epsilons, never counts of people, and leave as they are; but which column's data changed since an approval stays
here.
"""

from __future__ import annotations

from typing import Final

from verticil.shared.errors import VerticilError, from_code

__all__ = ["outward"]

_FAMILIES: Final = {
    "DataFault": "its table, or its machine, does not serve this study",
    "Misuse": "its configuration does not serve this study",
}
_CODES: Final = {
    "LINKAGE_TOO_SMALL": "it has fewer people in common with the others than it accepts",
    "COMMON_SET_TOO_SIMILAR": "its people in this study are too nearly those of an earlier one",
    "APPROVAL_VOID": "its approval does not hold any more: the study, its declaration, its data or its approvers changed",
}
_HINT: Final = "the party's own people see the details: verticil party status"


def outward(error: VerticilError) -> VerticilError:
    """The error as it may leave the site.

    >>> from verticil.shared.errors import DataFault
    >>> outward(DataFault("DATA_COLUMN_MISSING", "people.csv: no column 'pay' (hint: 'salary' for 'pay'?)")).message
    'its table, or its machine, does not serve this study'
    """
    message = _CODES.get(error.code) or _FAMILIES.get(error.family)
    return error if message is None else from_code(error.code, message, hint=_HINT)
