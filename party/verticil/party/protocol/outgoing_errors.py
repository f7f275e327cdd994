"""What the other side may read of a failure here.

No value of a table makes a failure before data are sent. But a failure's message is written for the site's own people: it names
columns that no study asks for ("did you mean 'salary'?"), files and places in party.toml. So of faults of the local table,
machine and configuration only the code leaves; `verticil party status` and the log have the rest. Refusals name limits, columns
of the study and epsilons, never counts of people, and leave as they are; but which column's data changed since an approval stays
here, and so does whether two of this site's tables are about the same people: others read that its policy refuses the study, as
of any other reason.
"""

from __future__ import annotations

import datetime as dt
from typing import Final

from verticil.party.policy.rule_approval import find_rule_objections
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import DataFault, VerticilError, from_code
from verticil.shared.federation.transport.errors_on_wire import shorten, to_detail
from verticil.wire.v1 import common_pb2

_FAMILIES: Final = {
    "DataFault": "its table, or its machine, does not serve this study",
    "Misuse": "its configuration does not serve this study",
}
_CODES: Final = {
    "LINKAGE_TOO_SMALL": "it has fewer people in common with the others than it accepts",
    "COMMON_SET_TOO_SIMILAR": "its people in this study are too nearly those of an earlier one",
    "COMMON_SETS_FULL": "it has no place to remember further sets of people",
    "APPROVAL_VOID": "its approval does not hold any more: the study, its declaration, its data or its approvers changed",
}
_OF_THE_SITE_ALONE: Final = {"SAME_PEOPLE": ("POLICY_REFUSED", "its policy does not permit this study")}
"""Codes that tell others what only the site may know -> what they read in place of it."""
_HINT: Final = "the party's own people see the details: verticil party status"


def redact_error(error: VerticilError) -> VerticilError:
    """Return the error as it may leave the site.

    >>> from verticil.shared.core.errors import DataFault
    >>> redact_error(DataFault("DATA_COLUMN_MISSING", "people.csv: no column 'pay' (hint: 'salary' for 'pay'?)")).message
    'its table, or its machine, does not serve this study'
    """
    if error.code in _OF_THE_SITE_ALONE:
        return from_code(*_OF_THE_SITE_ALONE[error.code], hint=_HINT)
    message = _CODES.get(error.code) or _FAMILIES.get(error.family)
    return error if message is None else from_code(error.code, message, hint=_HINT)


_MOST_TOLD: Final = 20


def told_objections(site: Site, record: StudyRecord, at: dt.datetime) -> common_pb2.Objections | None:
    """Return the policy's objections to a study that nobody has decided, as others may read them; blocks.

    Args:
        site: this party.
        record: the study.
        at: now, UTC.

    Returns:
        None: it cannot be said without the table, or its machine; then nothing is sent.
    """
    try:
        policy_objections = find_rule_objections(site.voting, record, at)
    except DataFault:
        return None
    except VerticilError as error:
        return common_pb2.Objections(items=[to_detail(redact_error(error))])
    items = [
        common_pb2.ErrorDetail(code=item.code, message=item.told or item.message)
        for item in policy_objections[:_MOST_TOLD]
    ]
    if len(policy_objections) > _MOST_TOLD:
        more = f"and {len(policy_objections) - _MOST_TOLD} more"
        items.append(common_pb2.ErrorDetail(code=policy_objections[_MOST_TOLD].code, message=more))
    return common_pb2.Objections(items=items)


def words_of(message: common_pb2.Objections) -> str:
    """Return another party's objections, for people here; empty: nothing against the study."""
    return "; ".join(shorten(f"{item.code}: {item.message}", 200) for item in message.items[: _MOST_TOLD + 1])
