"""What the ledger's rows and reservations come to, on each reader's account (`verticil.shared.privacy.accounts`).

An account belongs to people: the rows of every data set of the same people count in it (`SamePeople`), whatever name they were
written under, and whenever.

A row is charged what its event costs alone. An account counts what the rows of one study cost together, as the accountant
composes them, and adds the studies; room that is kept for a study under way is what its reserved events would add to that.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Sequence
from typing import Final, cast

from verticil.party.dataset.column_draws import Drawn
from verticil.party.limits.same_people import NOTHING_SAID, SamePeople
from verticil.party.storage.database import Database
from verticil.party.storage.studies import UNDER_WAY
from verticil.shared.core.errors import DataFault, Refusal
from verticil.shared.privacy import events
from verticil.shared.privacy.accountant import cost_of, finite, together
from verticil.shared.privacy.accounts import COLUMNS, KNOWN, NOTHING, Cost, Reader
from verticil.shared.privacy.events import PrivacyEvent, kind_of
from verticil.shared.privacy.figures import total_epsilon
from verticil.shared.storage.row_values import Cell
from verticil.shared.study.states import State

NAMES_OF_VALUES: Final = (
    "p.dataset, p.sources, p.codebook_digest, p.transition_digest, p.secret_id, p.fingerprint, p.source_fingerprint,"
    " p.version_tag"
)
_SAME_DATA: Final = (
    "l.dataset = p.dataset AND l.sources = p.sources"
    " AND l.codebook_digest = p.codebook_digest AND l.transition_digest = p.transition_digest"
    " AND l.secret_id = p.secret_id AND l.fingerprint = p.fingerprint AND l.source_fingerprint = p.source_fingerprint"
)
CHARGED_BEFORE: Final = (
    f"EXISTS (SELECT 1 FROM ledger l WHERE {_SAME_DATA}"  # noqa: S608 (constant text)
    " AND l.version_tag = p.version_tag"
    f" AND l.reader IN ('{COLUMNS.name}', coalesce(json_extract(p.event, '$.reader'), '{COLUMNS.name}')))"
)
"""The values that a reservation `p` is of, for the same reader or for whoever reads columns and everybody."""
_KEPT_COLUMNS: Final = (
    f"SELECT {NAMES_OF_VALUES}, p.epsilon, p.delta, p.event, p.study_digest FROM reserved p"  # noqa: S608 (constant text)
    " JOIN study s ON s.digest = p.study_digest"
    f" WHERE p.unit IS NOT NULL AND p.study_digest <> ?2 AND {UNDER_WAY}"
    f" AND NOT {CHARGED_BEFORE}"
)
_KEPT_STATISTICS: Final = (
    f"SELECT {NAMES_OF_VALUES}, p.epsilon, p.delta, p.event, p.study_digest FROM reserved p"  # noqa: S608 (constant text)
    " JOIN study s ON s.digest = p.study_digest"
    f" WHERE p.unit IS NULL AND (p.epsilon > 0 OR p.delta > 0) AND p.study_digest <> ?2 AND {UNDER_WAY}"
    " AND NOT EXISTS (SELECT 1 FROM ledger l WHERE l.study_digest = p.study_digest AND l.kind = p.kind AND l.dataset = p.dataset)"
)
OF_ACCOUNT: Final = "dataset IN (SELECT value FROM json_each(?))"
_COUNTED: Final = "reader NOT IN (SELECT value FROM json_each(?))"


def _not_counted(reader: Reader) -> str:
    """Return the readers that `_COUNTED` leaves out: what is drawn for a reader of a newer version counts in every
    account.
    """
    return json.dumps(sorted(name for name in KNOWN if not reader.sees(name)))


def _reader_of(event: Cell) -> str:
    """Return whom an event is drawn for, of its text in a reservation."""
    return str(json.loads(cast("str", event)).get("reader", COLUMNS.name))


class LedgerSums:
    """The sums of the ledger in a party's database; nothing is written.

    Args:
        database: of the party.
        same_people: which data sets are the same people.
    """

    def __init__(self, database: Database, same_people: SamePeople = NOTHING_SAID) -> None:
        self._database = database
        self._same = same_people

    def account(self, dataset: str) -> str:
        """Return the name of the account of a data set."""
        return self._same.account(dataset)

    def _names(self, dataset: str) -> str:
        """Return every name of the account of a data set, for `OF_ACCOUNT`."""
        return json.dumps(self._same.names(dataset))

    def sum_charges(self, dataset: str, reader: Reader = COLUMNS) -> Cost:
        """Sum what was charged to a data set in its lifetime on the account of `reader`, without what has no bound."""
        statement = f"SELECT charged AS epsilon, charged_delta AS delta FROM ledger WHERE {OF_ACCOUNT} AND"  # noqa: S608 (constant text)
        parameters = (self._names(dataset), _not_counted(reader))
        total = finite(self._database.read(Cost, f"{statement} {_COUNTED}", parameters))
        for events_of_one, plain in self._charged_with_noise(dataset, reader):
            total -= plain - together(events_of_one)
        return total

    def told_of(self, dataset: str, sources: Collection[str], reader: Reader = COLUMNS) -> float:
        """Epsilon of what was charged of these local columns on the account of `reader`; infinite: something without a bound."""
        query = (
            f"SELECT charged FROM ledger WHERE {OF_ACCOUNT} AND unit IS NOT NULL AND {_COUNTED} AND EXISTS"  # noqa: S608 (constant text)
            " (SELECT 1 FROM json_each(ledger.sources) s WHERE s.value IN (SELECT value FROM json_each(?)))"
        )
        parameters = (self._names(dataset), _not_counted(reader), json.dumps(sorted(sources)))
        return total_epsilon(self._database.read(float, query, parameters))

    def events(self, dataset: str, reader: Reader) -> tuple[PrivacyEvent, ...] | None:
        """Return the events that were charged to a data set on an account, in order; None: one of them is of a kind not
        known here.
        """
        statement = f"SELECT event FROM ledger WHERE {OF_ACCOUNT} AND {_COUNTED}"  # noqa: S608 (constant text)
        query = f"{statement} AND (charged > 0 OR charged_delta > 0) ORDER BY number"
        parameters = (self._names(dataset), _not_counted(reader))
        try:
            return tuple(map(events.from_json, self._database.read(str, query, parameters)))
        except (Refusal, ValueError):
            return None

    def check_rows(self) -> None:
        """Check that every row was charged what its event costs, or nothing.

        Raises:
            DataFault: STATE_CORRUPT, naming the row.
        """
        query = "SELECT MIN(number), event, epsilon, delta, MAX(charged NOT IN (0, epsilon) OR charged_delta NOT IN (0, delta))"
        for number, text, epsilon, delta, differs in self._database.rows(
            f"{query} FROM ledger GROUP BY event, epsilon, delta"
        ):
            try:
                cost = cost_of(events.from_json(cast("str", text)))
            except Refusal:  # of a version, or an extension, that is not here: its charge counts as it stands
                continue
            except ValueError as error:
                problem = str(error)
            else:
                charge = Cost(epsilon=cast("float", epsilon), delta=cast("float", delta))
                if not differs and cost.beyond(charge) is None:
                    continue
                problem = f"its sums are not those of its event, which costs epsilon {cost.epsilon:.6g}, delta {cost.delta:.4g}"
            raise DataFault(
                "STATE_CORRUPT",
                f"row {cast('int', number)} of the ledger: {problem}",
                hint="restore your backup of the state directory",
            )

    def sum_reserved(
        self, study_digest: bytes = b"", own: Collection[Drawn] = (), reader: Reader = COLUMNS
    ) -> dict[str, Cost]:
        """Sum what is reserved for other studies under way and not yet charged, by account.

        Args:
            study_digest: of the study that asks; empty: of all.
            own: the values that it would send, and for whom: the study that sends them first is charged for them.
            reader: of the account.
        """
        parameters: tuple[Cell, ...] = (int(State.PUBLISHED), study_digest)
        reservations: dict[tuple[bytes, str], list[tuple[Cost, str]]] = {}
        columns = {
            (*row[:8], _reader_of(row[10])): row for row in reversed(self._database.rows(_KEPT_COLUMNS, parameters))
        }  # the same values once
        for *values, epsilon, delta, event, other in (
            *columns.values(),
            *self._database.rows(_KEPT_STATISTICS, parameters),
        ):
            drawn_for = _reader_of(event)
            if (*values, drawn_for) not in own and reader.sees(drawn_for):
                cost = Cost(epsilon=cast("float", epsilon), delta=cast("float", delta))
                place = (cast("bytes", other), self.account(cast("str", values[0])))
                reservations.setdefault(place, []).append((cost, cast("str", event)))
        sums: dict[str, Cost] = {}
        for (other, dataset), items in reservations.items():
            sums[dataset] = sums.get(dataset, NOTHING) + self._still_to_charge(other, dataset, reader, items)
        return sums

    def _still_to_charge(
        self, study_digest: bytes, dataset: str, reader: Reader, items: Sequence[tuple[Cost, str]]
    ) -> Cost:
        """Return what the reserved events of one study add to those charged; where one is not known here, their sum."""
        if any(cost.delta > 0 for cost, _ in items):
            with contextlib.suppress(Refusal):
                return self.adds(study_digest, dataset, reader, [events.from_json(event) for _, event in items])
        return finite(cost for cost, _ in items)

    def adds(self, study_digest: bytes, dataset: str, reader: Reader, new: Sequence[PrivacyEvent]) -> Cost:
        """Return what further events of a study cost on top of what it was charged for.

        Only noise on tables is composed with what was charged of it; what else was charged adds to anything.
        """
        charged_events = self._charged_with_noise(dataset, reader, study_digest)
        before = [
            event for study_events, _ in charged_events for event in study_events if kind_of(event).losses is not None
        ]
        return together([*before, *new]) - together(before)

    def _charged_with_noise(
        self, dataset: str, reader: Reader, study_digest: bytes | None = None
    ) -> list[tuple[list[PrivacyEvent], Cost]]:
        """Return, for each study that was charged a delta, the charged events of finite epsilon, and their sum.

        A study with an event of a kind that is not known here is left out: its sum stands.
        """
        query = (
            f"SELECT study_digest, event, charged, charged_delta FROM ledger WHERE {OF_ACCOUNT} AND {_COUNTED}"  # noqa: S608 (constant text)
            " AND charged < 9e999 AND charged_delta > 0 AND (? IS NULL OR study_digest = ?) ORDER BY number"
        )
        events_by_study: dict[bytes, list[tuple[str, Cost]]] = {}
        for digest, text, epsilon, delta in self._database.rows(
            query, (self._names(dataset), _not_counted(reader), study_digest, study_digest)
        ):
            cost = Cost(epsilon=cast("float", epsilon), delta=cast("float", delta))
            events_by_study.setdefault(cast("bytes", digest), []).append((cast("str", text), cost))
        read: list[tuple[list[PrivacyEvent], Cost]] = []
        for rows in events_by_study.values():
            try:
                study_events = [events.from_json(text) for text, _ in rows]
            except (Refusal, ValueError):
                continue
            read.append((study_events, finite(cost for _, cost in rows)))
        return read
