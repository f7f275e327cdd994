"""The privacy ledger: what was ever sent, what it cost, what may still be spent, and what studies under way will be charged.

Promises
- One row for each event, recipient and artifact, on the disk (WAL, synchronous FULL) before the first byte leaves; the budget is
  checked again in the same transaction. A row keeps what happened (`verticil.shared.privacy.events`) and what was charged for it
  then, epsilon and delta. Rows are never changed or deleted (triggers in the database see to it). The same bytes to
  the same recipient again are counted beside their row: asking again and again does not fill the ledger.
- Values that were charged once cost nothing again: same data set, source columns, codebook, matrix, site secret and version
  of the data. A version is told by ids and texts, not by codes: whether it is another one says nothing of categories or bins that
  somebody chose. Sticky noise makes a second sending of them the very same values. Anything else is charged in full.
- The lifetime sum is that of the people, under whatever names their data sets were charged (`SamePeople`). A new fingerprint of
  the data, a new codebook, matrix or secret never resets it. Before anything is charged the tables' people are compared with
  those of all other accounts (`verticil.party.people.guard`), and a charge that would give people a second account is refused.
- What was drawn under one name of an account is used again under every other one (`Ledger.as_drawn`), and never drawn anew.
- A changed version of data that was released before is refused unless the policy says otherwise (contract.md section 2): with
  ``sticky`` it is released with the same noise, which shows which values changed; with ``fresh`` a version tag draws new noise.
  Either is charged; and where either is accepted there must be room for it in the budget also when the data are the same, so that
  the budget's answer does not tell whether they are.
- Statistics of a party's raw data (Model I: its parameters and scores) have a row, too, before they leave: the event of the noise
  on them, or that there is none. Those of one kind in one study are charged once, together, and there are no second ones: an
  approval is for one answer. A delta is charged with the epsilon of the same noise, once for each study, data set and draw.
- The lifetime limits are held against everything that a study will be charged, in all its data sets, when it is approved, before
  its first column is drawn (`Ledger.reserve`), and again before its first row: all of it is reserved together, or nothing leaves.
  Until it is charged or the study has ended here, no other study can be given that room. What another study sends of the same
  values is not counted twice.
- There is an account for each reader (`verticil.shared.privacy.accounts`): a row counts in those that can come to know of it.
  What is charged to a row is what its event costs alone; an account counts what the rows of a study cost together, as the
  accountant composes them, and adds the studies.
- A row whose sums are not what its event costs is found before anything is charged (`Ledger.check_rows`).

Infinite epsilon (permitted by `allow_infinite`, or by `allow_exact_parameters`, only) is recorded as such and left out of the
finite sum. The accountant (`verticil.shared.privacy.accountant`) says what events cost and whether there is room; the ledger does
not know which people were in a release and counts each release for every person.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Unpack, cast

from verticil.party.dataset.column_draws import ColumnDraw, Drawn, Values
from verticil.party.limits.limits import Policy, check_shared, no_limit
from verticil.party.policy.ledger_draws import LedgerDraws
from verticil.party.policy.ledger_rows import LedgerRow, Send
from verticil.party.policy.ledger_sums import CHARGED_BEFORE, NAMES_OF_VALUES, OF_ACCOUNT
from verticil.party.storage.secret import secret_id
from verticil.party.storage.studies import UNDER_WAY, stamp
from verticil.shared.core.errors import DataFault, Refusal
from verticil.shared.privacy import events
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.accounts import (
    COLUMNS,
    NOTHING,
    READERS,
    Account,
    Cost,
    Reader,
    Shortage,
    left_for,
)
from verticil.shared.privacy.events import Linkage, PrivacyEvent, RandomizedColumn, kind_of
from verticil.shared.privacy.figures import epsilon_exceeds
from verticil.shared.study.states import State

_SAME_DRAW = "dataset = ? AND sources = ? AND codebook_digest = ? AND transition_digest = ? AND secret_id = ?"
_STILL_TO_SEND: Final = (
    f"SELECT {NAMES_OF_VALUES}, p.event FROM reserved p WHERE p.study_digest = ?"  # noqa: S608 (constant text)
    f" AND (p.epsilon > 0 OR p.delta > 0) AND (p.unit IS NULL OR NOT {CHARGED_BEFORE})"
)
_LINKAGE: Final = events.name_of(Linkage)


def _no_room(dataset: str, reader: Reader, short: Shortage) -> Refusal:
    under_way = " and is kept for studies under way" if short.kept else ""
    free = "what is kept is free again when those have ended" if short.kept else "the same matrices again cost nothing"
    whose = "" if reader is COLUMNS else f", account of {reader.words}"
    key = reader.keys[2 if short.what == "epsilon" else 3]
    return Refusal(
        "BUDGET_EXCEEDED",
        f"data set '{dataset}'{whose}: {short.what} {short.asked:.4g} on top of what was charged before{under_way},"
        f" expected at most {short.limit:g} in all",
        hint=f"the limit is policy.{key}, and verticil party ledger has the sums; {free}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What releasing a unit means now.

    Attributes:
        event: what would be charged: that of the draw, or what is left of it where the same values were charged in part.
        version_tag: enters the noise key; empty but for fresh noise on a changed version.
        charge: of the event, or nothing when the same values were charged before.
        at_most: what there must be room for: the charge, or the whole cost where the policy would accept changed data and these
            might be.
    """

    event: PrivacyEvent
    version_tag: bytes
    charge: Cost
    at_most: Cost


def _charged_once(column_draws: Sequence[ColumnDraw], assessments: Sequence[Assessment]) -> tuple[Assessment, ...]:
    """Charge the same values once where one study names them twice: the second costs nothing, as it will when it is sent."""
    charged_values: set[Values] = set()
    result: list[Assessment] = []
    for column_draw, assessment in zip(column_draws, assessments, strict=True):
        values = column_draw.values(assessment.version_tag)
        result.append(replace(assessment, charge=NOTHING, at_most=NOTHING) if values in charged_values else assessment)
        charged_values.add(values)
    return tuple(result)


def _check_one_version(column_draws: Sequence[ColumnDraw], policy: Policy) -> None:
    """Refuse one draw of several versions of the data in one study, as of two tables of the same people.

    Raises:
        Refusal: DATA_CHANGED.
    """
    versions: dict[tuple[object, ...], tuple[bytes, bytes]] = {}
    for column_draw in column_draws:
        version = (column_draw.fingerprint, column_draw.source_fingerprint)
        if versions.setdefault(column_draw.draw, version) != version and policy.on_data_change == "refuse":
            raise _make_changed_refusal(column_draw)


def _make_changed_refusal(column_draw: ColumnDraw) -> Refusal:
    return Refusal(
        "DATA_CHANGED",
        f"column '{', '.join(column_draw.variables)}' of data set '{column_draw.dataset}': the data changed since they were"
        " released with this matrix",
        hint="a second release shows which values changed; see policy.on_data_change in party.toml",
    )


def _left_of(event: PrivacyEvent, charged_readers: Collection[str]) -> PrivacyEvent | None:
    """Return what of a draw is to be charged where the same values were charged for these readers; None: nothing."""
    remaining_event = left_for(event.reader, charged_readers)
    return None if remaining_event is None else replace(event, reader=remaining_event)


class Ledger(LedgerDraws):
    """The ledger in a party's database; arguments as for `LedgerSums`."""

    def datasets(self) -> tuple[str, ...]:
        """Names of the data sets that something was charged to."""
        return tuple(self._database.read(str, "SELECT DISTINCT dataset FROM ledger ORDER BY dataset"))

    def check_secret(self, site_secret: bytes) -> None:
        """Check that a site secret is the one that the last row was made with.

        Raises:
            DataFault: SECRET_MISSING, it is another.
        """
        query = "SELECT secret_id FROM ledger WHERE secret_id <> x'' ORDER BY number DESC LIMIT 1"
        if self._database.first(bytes, query) not in {None, secret_id(site_secret)}:
            raise DataFault(
                "SECRET_MISSING",
                "the site secret is not the one that the ledger's last row was made with",
                hint="restore it from your backup: with this one all noise is drawn anew, and charged again",
            )

    def rows(self, study_digest: bytes | None = None) -> tuple[LedgerRow, ...]:
        """Return the rows of a study in order, or the whole ledger."""
        return tuple(
            self._database.read(
                LedgerRow,
                "SELECT number, at, lower(hex(study_digest)) AS study_digest, study_id, unit, variables, dataset, event AS drawn,"
                " epsilon, delta, charged, charged_delta, recipient, lower(hex(artifact_sha256)) AS artifact_sha256, size"
                " FROM ledger WHERE study_digest = COALESCE(?, study_digest) ORDER BY number",
                (study_digest,),
            )
        )

    def n_rows(self) -> int:
        """Count all rows of the ledger."""
        return self._database.only(int, "SELECT COUNT(*) FROM ledger")

    def last_event(self) -> PrivacyEvent:
        """Return the event of the last row; there is one."""
        return events.from_json(self._database.only(str, "SELECT event FROM ledger ORDER BY number DESC LIMIT 1"))

    def attempts(self) -> int:
        """Count the attempted sends, those of the same bytes to the same recipient among them."""
        statement = "SELECT (SELECT COUNT(*) FROM ledger) + (SELECT COALESCE(SUM(times), 0) FROM repeated_send)"
        return self._database.only(int, statement)

    def has_sent(self, study_digest: bytes, unit: int, recipient: str, artifact_sha256: bytes) -> bool:
        """Return whether there is a row for this send."""
        return self._database.has(
            "SELECT 1 FROM ledger WHERE study_digest = ? AND unit = ? AND recipient = ? AND artifact_sha256 = ? LIMIT 1",
            (study_digest, unit, recipient, artifact_sha256),
        )

    def columns_sent(self, study_digest: bytes) -> frozenset[tuple[str, ...]]:
        """Return the variables of each unit of a study that has rows."""
        query = "SELECT DISTINCT variables FROM ledger WHERE study_digest = ? AND (unit IS NOT NULL OR kind = ?)"
        return frozenset(self._database.read(tuple[str, ...], query, (study_digest, events.name_of(RandomizedColumn))))

    def has_statistics(self, study_digest: bytes, event: PrivacyEvent) -> bool:
        """Return whether there is a row of statistics of a study, of the same kind of event."""
        query = "SELECT 1 FROM ledger WHERE study_digest = ? AND unit IS NULL AND kind = ? LIMIT 1"
        return self._database.has(query, (study_digest, kind_of(event).name))

    def has_charged(self, study_digest: bytes) -> bool:
        """Return whether there is a row of a study."""
        return self._database.has("SELECT 1 FROM ledger WHERE study_digest = ? LIMIT 1", (study_digest,))

    def has_row(self, study_digest: bytes, variables: Sequence[str], recipient: str, artifact_sha256: bytes) -> bool:
        """Return whether there is a row of these variables, for this recipient and bytes, or round."""
        query = "SELECT 1 FROM ledger WHERE study_digest = ? AND variables = ? AND recipient = ? AND artifact_sha256 = ? LIMIT 1"
        return self._database.has(query, (study_digest, json.dumps(variables), recipient, artifact_sha256))

    def rounds(self, study_digest: bytes, *kinds: type[PrivacyEvent]) -> frozenset[bytes]:
        """Return the transcripts T1 of the rounds of a study that were charged, each with rows of these kinds of event."""
        query = "SELECT DISTINCT artifact_sha256 FROM ledger WHERE study_digest = ? AND kind = ?"
        names = map(events.name_of, kinds)
        charged = {t1 for name in names for t1 in self._database.read(bytes, query, (study_digest, name))}
        return frozenset(charged - {b""})  # without a transcript: charged with the approval

    def is_linked(self, study_digest: bytes) -> bool:
        """Return whether there is a row of the linkage of a study's people."""
        query = "SELECT 1 FROM ledger WHERE study_digest = ? AND kind = ? LIMIT 1"
        return self._database.has(query, (study_digest, events.name_of(Linkage)))

    def check_linkages(self, dataset: str, policy: Policy, *, study_digest: bytes) -> None:
        """Refuse to link the people of a data set once more than the policy permits.

        Raises:
            Refusal: BUDGET_EXCEEDED; SAME_PEOPLE.
        """
        self.people.check([dataset])
        names = OF_ACCOUNT.replace("?", "?2")
        query = (
            f"SELECT COUNT(*) FROM (SELECT study_digest FROM ledger WHERE {names} AND kind = ?3"  # noqa: S608 (constant text)
            " UNION SELECT p.study_digest FROM reserved p JOIN study s ON s.digest = p.study_digest"
            f" WHERE p.{names} AND p.kind = ?3 AND {UNDER_WAY}) WHERE study_digest <> ?4"
        )
        parameters = (int(State.PUBLISHED), self._names(dataset), _LINKAGE, study_digest)
        n_linkages = self._database.only(int, query, parameters)
        if n_linkages >= policy.masked.linkages:
            raise Refusal(
                "BUDGET_EXCEEDED",
                f"data set '{dataset}': its people would be linked in one more masked study, expected at most"
                f" {policy.masked.linkages}",
                hint="each tells others who is common; the limit is policy.max_linkages in party.toml",
            )

    def has_drawn(self, study_digest: bytes) -> bool:
        """Return whether noise was drawn for a study: it began to be, it is in the spool, was sent, or is in what is
        shared.
        """
        query = (
            "SELECT 1 FROM reserved WHERE study_digest = ?1 AND drawn"  # noqa: S608 (constant text)
            f" UNION SELECT 1 FROM ledger WHERE study_digest = ?1 AND kind <> '{_LINKAGE}'"
            " UNION SELECT 1 FROM artifact WHERE digest = ?1 LIMIT 1"
        )
        return self._database.has(query, (study_digest,))

    def is_kept(self, column_draw: ColumnDraw) -> bool:
        """Tell whether room is kept for the same draw in a study under way, of whatever data; see `drawn_before`."""
        query = (
            f"SELECT 1 FROM (SELECT * FROM reserved WHERE {_SAME_DRAW.replace('?', '?2', 1)}) p"  # noqa: S608 (constant text)
            f" JOIN study s ON s.digest = p.study_digest WHERE {UNDER_WAY} LIMIT 1"
        )
        return self._database.has(query, (int(State.PUBLISHED), *column_draw.draw))

    def assess(
        self,
        column_draws: Sequence[ColumnDraw],
        policy: Policy,
        *,
        study_digest: bytes = b"",
        shared: Mapping[str, Sequence[PrivacyEvent]] = MappingProxyType({}),
    ) -> tuple[Assessment, ...]:
        """Return what sending `column_draws` would mean: a dry run, which sends and writes nothing; `record` commits.

        Args:
            column_draws: what would be sent.
            policy: the limits.
            study_digest: of the study that they are for: what is reserved for others has no room for it, and for what was charged
                to this very study there need be no room again.
            shared: the events of what it shares besides, by data set.

        Raises:
            Refusal: DATA_CHANGED, EPSILON_INFINITE, BUDGET_EXCEEDED (column or lifetime), SAME_PEOPLE.
            Misuse: CONFIG_INVALID, as `PeopleGuard.check`.
        """
        with self._database.transaction():
            self.people.check([*(column_draw.dataset for column_draw in column_draws), *shared])
            _check_one_version(column_draws, policy)
            assessments = _charged_once(
                column_draws, [self._assess_one(column_draw, policy, study_digest) for column_draw in column_draws]
            )
            pairs = list(zip(column_draws, assessments, strict=True))
            own = {(*item.values(assessment.version_tag), assessment.event.reader) for item, assessment in pairs}
            events_by_dataset: dict[str, list[PrivacyEvent]] = {}
            for item, assessment in pairs:
                events_by_dataset.setdefault(self.account(item.dataset), []).extend(
                    [assessment.event] * bool(assessment.at_most)
                )
            for dataset, statistics in shared.items():
                events_by_dataset.setdefault(self.account(dataset), []).extend(statistics)
            for account, new in events_by_dataset.items():
                self.check_room(account, new, policy, study_digest=study_digest, own=own)
        return assessments

    def check_room(
        self,
        dataset: str,
        events: Sequence[PrivacyEvent],
        policy: Policy,
        *,
        study_digest: bytes = b"",
        own: Collection[Drawn] = (),
    ) -> None:
        """Refuse what the lifetime limits of a data set have no room for; the message, which leaves, tells no sums.

        Args:
            dataset: its name.
            events: what would be charged.
            policy: the limits.
            study_digest, own: of the study that asks, as for `reserved_cost`.

        Raises:
            Refusal: BUDGET_EXCEEDED.
        """
        for reader in READERS:
            new = [event for event in events if reader.sees(event.reader) and math.isfinite(cost_of(event).epsilon)]
            limits = policy.limits_of(reader)
            if limits is None and any(reader.needs_limits(event.reader) for event in new):
                missing = no_limit(reader)
                raise Refusal(missing.code, f"data set '{dataset}': {missing.message}", hint=missing.hint)
            if not new or limits is None:
                continue
            new_cost = self.adds(study_digest, dataset, reader, new)
            reserved_cost = self.sum_reserved(study_digest, own, reader).get(self.account(dataset), NOTHING)
            short = Account(spent=self.sum_charges(dataset, reader), kept=reserved_cost, limit=limits.lifetime).dry_run(
                new_cost
            )
            if short is not None:
                raise _no_room(dataset, reader, short)

    def reserve(
        self,
        study_digest: bytes,
        column_draws: Mapping[int, ColumnDraw],
        policy: Policy,
        *,
        shared: Mapping[str, Sequence[PrivacyEvent]],
        linkages: Mapping[str, Linkage] = MappingProxyType({}),
        begins_drawing: bool = True,
    ) -> None:
        """Check that there is room for everything that a study will be charged, and keep it; once, before its first byte.

        Args:
            study_digest: of the proposal.
            column_draws: of all units that it sends.
            policy: the limits.
            shared: as for `assess`.
            linkages: of a masked study, by data set; each has a place among `max_linkages`.
            begins_drawing: its noise is drawn next; False: it is approved, and what was kept for an earlier approval of it
                is free again.

        Raises:
            Refusal: as `assess`; nothing is reserved.
        """
        with self._database.transaction():
            self.check_rows()
            if self._database.has("SELECT 1 FROM reserved WHERE study_digest = ? AND drawn LIMIT 1", (study_digest,)):
                self.check_reserved(study_digest, policy)
                return
            self._database.write("DELETE FROM reserved WHERE study_digest = ?", (study_digest,))
            for dataset in linkages:
                self.check_linkages(dataset, policy, study_digest=study_digest)
            assessments = self.assess(list(column_draws.values()), policy, study_digest=study_digest, shared=shared)
            if begins_drawing or policy.on_data_change == "refuse":
                columns = [item.charge for item in assessments]
                value_names = [
                    item.values(assessment.version_tag)
                    for item, assessment in zip(column_draws.values(), assessments, strict=True)
                ]
            else:  # what is kept before anything left must not tell whether data changed: it names none, and is the most
                columns = [item.at_most for item in assessments]
                value_names = [(*item.draw, b"", study_digest, bytes([0])) for item in column_draws.values()]
            rows: list[tuple[PrivacyEvent, int | None, Values, Cost]] = [
                (assessment.event, index, values, cost)
                for index, assessment, values, cost in zip(column_draws, assessments, value_names, columns, strict=True)
            ]
            for dataset, statistics in shared.items():
                # Noise on them is drawn later, so that no digest names it yet.
                values = (dataset, "", study_digest, b"", b"", b"", b"", b"")
                rows += [(event, None, values, cost_of(event)) for event in statistics]
            reserved_rows = [row for row in rows if row[-1] and math.isfinite(row[-1].epsilon)]
            reserved_rows += [
                (linkage, None, (dataset, "", study_digest, b"", b"", b"", b"", b""), NOTHING)
                for dataset, linkage in linkages.items()
            ]
            for number, row in enumerate(reserved_rows):
                self._keep(study_digest, number, row, begins_drawing=begins_drawing)

    def _keep(
        self,
        study_digest: bytes,
        number: int,
        row: tuple[PrivacyEvent, int | None, Values, Cost],
        *,
        begins_drawing: bool,
    ) -> None:
        event, unit, values, cost = row
        dataset, sources, codebook, transition, secret, fingerprint, source_fingerprint, version_tag = values
        self._database.insert(
            "reserved",
            study_digest=study_digest,
            number=number,
            kind=kind_of(event).name,
            unit=unit,
            dataset=dataset,
            sources=sources,
            codebook_digest=codebook,
            transition_digest=transition,
            secret_id=secret,
            fingerprint=fingerprint,
            source_fingerprint=source_fingerprint,
            version_tag=version_tag,
            epsilon=cost.epsilon,
            delta=cost.delta,
            event=events.to_json(event),
            drawn=int(begins_drawing),
        )

    def _assess_one(self, column_draw: ColumnDraw, policy: Policy, study_digest: bytes) -> Assessment:
        name, cost = ", ".join(column_draw.variables), cost_of(column_draw.event)
        rule = policy.of_columns(column_draw.event.reader)
        may_be_infinite = all(variable in rule.infinite for variable in column_draw.variables)
        if math.isinf(cost.epsilon) and not may_be_infinite:
            message = f"column '{name}': infinite epsilon and not in policy.{rule.infinite_key}"
            raise Refusal("EPSILON_INFINITE", message, hint="declare a scheme without zero cells")
        if epsilon_exceeds(cost.epsilon, rule.limit):
            message = f"column '{name}': epsilon {cost.epsilon:.4g}, expected at most {rule.limit:g}"
            raise Refusal("BUDGET_EXCEEDED", message, hint=f"the limit is policy.{rule.key}")
        earlier = self._database.rows(
            "SELECT fingerprint, source_fingerprint, version_tag, MAX(study_digest = ?), json_group_array(DISTINCT reader)"  # noqa: S608 (constant text)
            f" FROM ledger WHERE {_SAME_DRAW} GROUP BY fingerprint, source_fingerprint, version_tag ORDER BY MIN(number)",
            (study_digest, *column_draw.draw),
        )
        same = [row for row in earlier if row[:2] == (column_draw.fingerprint, column_draw.source_fingerprint)]
        if same:
            version_tag = same[0][2]
            same = [row for row in same if row[2] == version_tag]
            certain = any(row[3] for row in same) or policy.on_data_change == "refuse"
            readers = {reader for row in same for reader in json.loads(cast("str", row[4]))}
            event = _left_of(column_draw.event, readers)
            return Assessment(
                event=event or column_draw.event,
                version_tag=cast("bytes", version_tag),
                charge=NOTHING if event is None else cost,
                at_most=NOTHING if certain and event is None else cost,
            )
        if not earlier:
            return Assessment(event=column_draw.event, version_tag=b"", charge=cost, at_most=cost)
        if policy.on_data_change == "refuse":
            raise _make_changed_refusal(column_draw)
        data = column_draw.source_fingerprint or column_draw.fingerprint
        return Assessment(
            event=column_draw.event,
            version_tag=data if policy.on_data_change == "fresh" else b"",
            charge=cost,
            at_most=cost,
        )

    def record(
        self,
        column_draw: ColumnDraw,
        *,
        version_tag: bytes,
        policy: Policy,
        unit: int,
        **send: Unpack[Send],
    ) -> Cost:
        """Write the row of one attempted send, or count another one of the same; then the unit may leave: it is on the disk.

        Args:
            column_draw: what is sent.
            version_tag: that the artifact was made with.
            policy: the limits, checked again here.
            unit: index in the study.
            send: see `Send`.

        Returns:
            What was charged.

        Raises:
            Refusal: as `assess`; DATA_CHANGED also when the artifact's noise is no longer the one that this version has.
            DataFault: DISK_FULL, STATE_CORRUPT; nothing was written and nothing may leave.
        """
        with self._database.transaction():
            self.check_reserved(send["study_digest"], policy)
            (assessment,) = self.assess([column_draw], policy, study_digest=send["study_digest"])
            if assessment.version_tag != version_tag:
                name = ", ".join(column_draw.variables)
                message = f"column '{name}': its noise is not the one that the ledger has for these data"
                raise Refusal(
                    "DATA_CHANGED", message, hint="policy.on_data_change changed while the study ran; submit it again"
                )
            if not assessment.charge and self._count_again(unit, send):
                return NOTHING
            numbered_draw = replace(column_draw, event=assessment.event)
            people = self.people.digest(column_draw.dataset)
            self.write_row(
                numbered_draw, version_tag=version_tag, charge=assessment.charge, unit=unit, people=people, **send
            )
        return assessment.charge

    def check_reserved(self, study_digest: bytes, policy: Policy) -> None:
        """Hold all that is kept for a study against the limits, which may be lower by now, until its first row is written.

        The row of a linkage, which costs nothing, is none.

        Raises:
            Refusal: BUDGET_EXCEEDED, or POLICY_REFUSED of an event that is not known here.
        """
        statement = "SELECT 1 FROM ledger WHERE study_digest = ? AND kind <> ? LIMIT 1"
        if self._database.has(statement, (study_digest, _LINKAGE)):
            return
        events_by_dataset: dict[str, list[PrivacyEvent]] = {}
        own: set[Drawn] = set()
        for *values, event in self._database.rows(_STILL_TO_SEND, (study_digest,)):
            item = events.from_json(cast("str", event))
            own.add((*cast("Values", tuple(values)), item.reader))
            events_by_dataset.setdefault(self.account(cast("str", values[0])), []).append(item)
        for dataset, items in events_by_dataset.items():
            self.check_room(dataset, items, policy, study_digest=study_digest, own=own)

    def _count_again(self, unit: int, send: Send) -> bool:
        """Count another send beside its row; False: there is no row of it yet."""
        statement = (
            "INSERT INTO repeated_send SELECT number, 1, ? FROM ledger"
            " WHERE study_digest = ? AND unit = ? AND recipient = ? AND artifact_sha256 = ? ORDER BY number LIMIT 1"
            " ON CONFLICT (number) DO UPDATE SET times = times + 1, last_at = excluded.last_at"
        )
        parameters = (send["study_digest"], unit, send["recipient"], send["artifact_sha256"])
        return bool(self._database.write(statement, (stamp(send["at"]), *parameters)))

    def record_shared(
        self,
        shared: ColumnDraw,
        *,
        policy: Policy,
        along_with: bytes | None = None,
        **send: Unpack[Send],
    ) -> Cost:
        """Write the row of statistics that a party computed from its raw data and shares (Model I); then they may leave.

        What one study shares is charged once, however often and in how many parts: its noise is calibrated for all of it. A
        second computation from anything else, be it another column of a peer or another structure, is another answer with other
        noise, which nobody has approved; without noise the two would tell the difference exactly. It is refused.

        Args:
            shared: whose `variables` and `sources` they come from; `codebook_digest` names study, common list, structure
                and the peers' columns, `transition_digest` the noise; `event` is the noise, or that there is none.
            policy, send: as for `record`.
            along_with: `codebook_digest` of an earlier part of the same study; if that was charged, this part costs nothing.

        Returns:
            What was charged.

        Raises:
            Refusal: EPSILON_INFINITE without noise and without `allow_exact_parameters`; BUDGET_EXCEEDED; SAME_PEOPLE;
                APPROVAL_VOID, other statistics of this study were sent to the recipient.
            DataFault: DISK_FULL, STATE_CORRUPT; nothing was written and nothing may leave.
        """
        with self._database.transaction():
            cost = cost_of(shared.event)
            check_shared(policy, cost.epsilon, shared.event.reader)
            self.people.check([shared.dataset])
            self.check_reserved(send["study_digest"], policy)
            self._check_first(shared, send)
            earlier = (shared,) if along_with is None else (shared, replace(shared, codebook_digest=along_with))
            charge = NOTHING if any(map(self.holds, earlier)) else cost
            events = [shared.event] if charge else []
            self.check_room(shared.dataset, events, policy, study_digest=send["study_digest"])
            people = self.people.digest(shared.dataset)
            self.write_row(shared, version_tag=b"", charge=charge, unit=None, people=people, **send)
        return charge

    def _check_first(self, shared: ColumnDraw, send: Send) -> None:
        condition = "study_digest = ? AND unit IS NULL AND kind = ? AND recipient = ? AND dataset = ?"
        other = f"SELECT 1 FROM ledger WHERE {condition} AND NOT ({_SAME_DRAW} AND fingerprint = ?) LIMIT 1"  # noqa: S608 (constant text)
        parameters = (send["study_digest"], kind_of(shared.event).name, send["recipient"], shared.dataset)
        if self._database.has(other, (*parameters, *shared.draw, shared.fingerprint)):
            raise Refusal(
                "APPROVAL_VOID",
                f"study '{send['study_id']}': what this party shares was computed before, from other columns of peers or under"
                " another structure",
                hint="an approval is for one answer; load the study again under a new id and approve it anew",
            )

    def holds(self, column_draw: ColumnDraw) -> bool:
        """Return whether there is a row of this very draw, of the same data."""
        query = f"SELECT 1 FROM ledger WHERE {_SAME_DRAW} AND fingerprint = ? LIMIT 1"  # noqa: S608 (constant text)
        return self._database.has(query, (*column_draw.draw, column_draw.fingerprint))

    def write_row(
        self,
        column_draw: ColumnDraw,
        *,
        version_tag: bytes,
        charge: Cost,
        unit: int | None,
        people: bytes | None = None,
        **send: Unpack[Send],
    ) -> None:
        """Write a row as it had been written, or as it must have been, without asking any limit. Arguments as for `record`.

        Args:
            people: names the sketch of the people (`PeopleGuard.digest`); None: whose table it was is not known.
        """
        dataset, sources, codebook, transition, secret = column_draw.draw
        cost = cost_of(column_draw.event)
        with self._database.transaction():
            self._database.insert(
                "ledger",
                at=stamp(send["at"]),
                study_digest=send["study_digest"],
                study_id=send["study_id"],
                unit=unit,
                variables=json.dumps(column_draw.variables),
                dataset=dataset,
                sources=sources,
                codebook_digest=codebook,
                transition_digest=transition,
                secret_id=secret,
                fingerprint=column_draw.fingerprint,
                source_fingerprint=column_draw.source_fingerprint,
                version_tag=version_tag,
                event=events.to_json(column_draw.event),
                epsilon=cost.epsilon,
                delta=cost.delta,
                charged=charge.epsilon,
                charged_delta=self._first_delta(charge.delta, send["study_digest"], dataset, codebook),
                recipient=send["recipient"],
                artifact_sha256=send["artifact_sha256"],
                size=send["size"],
                people=people,
            )

    def _first_delta(self, delta: float, study_digest: bytes, dataset: str, draw: bytes) -> float:
        """Return a delta, or 0 where that of the same study, data set and draw was charged before."""
        query = (
            "SELECT 1 FROM ledger WHERE study_digest = ? AND dataset = ? AND codebook_digest = ? AND charged_delta > 0"
        )
        return 0.0 if delta and self._database.has(query, (study_digest, dataset, draw)) else delta
