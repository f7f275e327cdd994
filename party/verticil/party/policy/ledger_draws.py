"""What was drawn before, under which name of the people's account, and what keeps people from having two accounts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.people.guard import PeopleGuard
from verticil.party.policy.ledger_sums import OF_ACCOUNT, LedgerSums

_SAME_VALUES: Final = "sources = ? AND codebook_digest = ? AND transition_digest = ? AND secret_id = ?"


class LedgerDraws(LedgerSums):
    """What the ledger in a party's database knows of draws; arguments as for `LedgerSums`."""

    @property
    def people(self) -> PeopleGuard:
        """What keeps people from having two accounts."""
        return PeopleGuard(self._database, self._same)

    def drawn_before(self, column_draw: ColumnDraw) -> bool:
        """Return whether the same draw (data set, source columns, codebook, matrix, secret) was sent before, of whatever
        data.

        The fingerprint of the data is not looked at, so the answer says nothing of what they are now.
        """
        query = f"SELECT 1 FROM ledger WHERE {OF_ACCOUNT} AND {_SAME_VALUES} LIMIT 1"  # noqa: S608 (constant text)
        return self._database.has(query, (self._names(column_draw.dataset), *column_draw.draw[1:]))

    def as_drawn(self, column_draw: ColumnDraw) -> ColumnDraw:
        """Return a draw under the name by which its account drew the same before: of the same data, else the last one."""
        names = self._same.names(column_draw.dataset)
        if len(names) == 1:
            return column_draw
        query = (
            f"SELECT dataset FROM ledger WHERE {OF_ACCOUNT} AND {_SAME_VALUES}"  # noqa: S608 (constant text)
            " ORDER BY fingerprint = ? AND source_fingerprint = ? DESC, number DESC LIMIT 1"
        )
        parameters = (json.dumps(names), *column_draw.draw[1:], column_draw.fingerprint, column_draw.source_fingerprint)
        return replace(column_draw, dataset=self._database.first(str, query, parameters) or names[0])

    def name_of_draws(self, dataset: str, sources: Sequence[str], codebook_digest: bytes) -> str:
        """Return the name of the account by which columns were drawn last with a codebook; else that of the account."""
        names = self._same.names(dataset)
        if len(names) == 1:
            return names[0]
        query = (
            f"SELECT dataset FROM ledger WHERE {OF_ACCOUNT} AND sources = ? AND codebook_digest = ?"  # noqa: S608 (constant text)
            " ORDER BY number DESC LIMIT 1"
        )
        parameters = (json.dumps(names), json.dumps(sources), codebook_digest)
        return self._database.first(str, query, parameters) or names[0]
