"""What a party shares besides columns, by the account that it is charged to."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from verticil.party.dataset.column_draws import ColumnDraw
from verticil.shared.privacy.events import PrivacyEvent, plan_events
from verticil.shared.study.document import Study


def accounts_of(column_draws: Mapping[int, ColumnDraw], account: Callable[[str], str]) -> dict[str, str]:
    """Return the account of each variable that is released.

    Args:
        column_draws: by unit.
        account: of a data set; see `SamePeople.account`.
    """
    return {
        name: account(column_draw.dataset) for column_draw in column_draws.values() for name in column_draw.variables
    }


def statistics_of(study: Study, party: str, datasets: Mapping[str, str]) -> dict[str, list[PrivacyEvent]]:
    """Return the events of what a party shares besides columns, by account that they count in; nothing where there is none.

    Args:
        study: the study.
        party: this party.
        datasets: variable -> account.
    """
    events_by_account: dict[str, list[PrivacyEvent]] = {}
    for item in plan_events(study, party):
        if item.unit is None:
            for dataset in dict.fromkeys(datasets[name] for name in item.variables if name in datasets):
                events_by_account.setdefault(dataset, []).append(item.event)
    return events_by_account
