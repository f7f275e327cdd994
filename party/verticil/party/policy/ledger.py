"""The privacy ledger: what was ever sent, what it cost, and what may still be spent.

Promises
- One row for each unit, recipient and artifact, on the disk (WAL, synchronous FULL) before the first byte leaves, with the budget
  checked again in the same transaction. Rows are never changed or deleted (triggers in the database see to it). The same bytes to
  the same recipient again are counted beside their row: asking again and again does not fill the ledger.
- Values that were charged once cost nothing again: same data set, source columns, codebook, matrix, site secret and version of
  the data. Sticky noise makes a second sending of them the very same values. Anything else is charged its full epsilon.
- The lifetime sum is per data set name. A new fingerprint of the data, a new codebook, matrix or secret never resets it.
- A changed version of data that was released before is refused unless the policy says otherwise (contract.md section 2): with
  ``sticky`` it is released with the same noise, which shows which values changed; with ``fresh`` a version tag draws new noise.
  Either is charged; and where either is accepted there must be room for it in the budget also when the data are the same, so that
  the budget's answer does not tell whether they are.
- Model I: a party's parameters and scores come from its raw data, so there is a row for them, too, before they leave: the epsilon
  of the noise on them, or infinite. Scores and parameters of a study are charged once, together, and there are no second ones:
  an approval is for one answer. With the epsilon goes the delta of the noise (`verticil.party.policy.budget`).
- The lifetime limits are held against everything that a study will be charged, in all its data sets, before its first column is
  drawn (`Ledger.reserve`); studies under way do not take that room from each other.

Infinite epsilon (permitted by `allow_infinite`, or by `allow_exact_parameters`, only) is recorded as such and left out of the
finite sum. The ledger sums epsilons and deltas (basic composition); it does not know which people were in a release and counts
each release for every person.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import cast

from verticil.party.policy.budget import NOTHING, SHARED, Budget, Charge, Values
from verticil.party.policy.policy import Policy, check_shared, finite_total
from verticil.party.policy.releases import Assessment, LedgerRow, Release
from verticil.party.storage.database import Database
from verticil.party.storage.secret import secret_id
from verticil.shared.channels.privacy import EPSILON_TOLERANCE
from verticil.shared.errors import DataFault, Refusal

_SAME_DRAW = "dataset = ? AND sources = ? AND codebook_digest = ? AND transition_digest = ? AND secret_id = ?"


def _charged_once(releases: Sequence[Release], found: Sequence[Assessment]) -> tuple[Assessment, ...]:
    """The same values under two names in one study are one release: the second costs nothing, as it will when it is sent."""
    seen: set[Values] = set()
    charged: list[Assessment] = []
    for release, assessment in zip(releases, found, strict=True):
        values = release.values(assessment.version_tag)
        charged.append(replace(assessment, charge=0.0, at_most=0.0) if values in seen else assessment)
        seen.add(values)
    return tuple(charged)


class Ledger:
    """The ledger in a party's database.

    Attributes:
        budget: deltas, and what studies under way are yet to be charged.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.budget = Budget(database)

    def spent(self, dataset: str) -> float:
        """The finite epsilon charged to a data set in its lifetime."""
        rows = self._database.rows("SELECT charged FROM ledger WHERE dataset = ?", (dataset,))
        return finite_total([cast("float", charged) for (charged,) in rows])

    def datasets(self) -> tuple[str, ...]:
        """Names of the data sets that something was charged to."""
        return tuple(
            cast("str", name) for (name,) in self._database.rows("SELECT DISTINCT dataset FROM ledger ORDER BY dataset")
        )

    def check_secret(self, site_secret: bytes) -> None:
        """Check that a site secret is the one that the last row was made with.

        Raises:
            DataFault: SECRET_MISSING, it is another.
        """
        last = self._database.rows("SELECT secret_id FROM ledger WHERE secret_id <> x'' ORDER BY number DESC LIMIT 1")
        if last and last[0][0] != secret_id(site_secret):
            raise DataFault(
                "SECRET_MISSING",
                "the site secret is not the one that the ledger's last row was made with",
                hint="restore it from your backup: with this one all noise is drawn anew, and charged again",
            )

    def rows(self) -> tuple[LedgerRow, ...]:
        """The whole ledger in order."""
        columns = (
            "number, at, study_id, variables, dataset, epsilon, charged, recipient, artifact_sha256, size, study_digest"
        )
        return tuple(
            LedgerRow(
                number=cast("int", row[0]),
                at=cast("str", row[1]),
                study_id=cast("str", row[2]),
                variables=tuple(json.loads(cast("str", row[3]))),
                dataset=cast("str", row[4]),
                epsilon=cast("float", row[5]),
                charged=cast("float", row[6]),
                recipient=cast("str", row[7]),
                artifact_sha256=cast("bytes", row[8]).hex(),
                size=cast("int", row[9]),
                study_digest=cast("bytes", row[10]).hex(),
            )
            for row in self._database.rows(f"SELECT {columns} FROM ledger ORDER BY number")  # noqa: S608 (constant text)
        )

    def attempts(self) -> int:
        """How many sends were attempted, those of the same bytes to the same recipient among them."""
        counted = "SELECT (SELECT COUNT(*) FROM ledger) + (SELECT COALESCE(SUM(times), 0) FROM repeated_send)"
        return cast("int", self._database.rows(counted)[0][0])

    def sent(self, study_digest: bytes, unit: int, recipient: str, artifact_sha256: bytes) -> bool:
        """Whether there is a row for this send."""
        return bool(
            self._database.rows(
                "SELECT 1 FROM ledger WHERE study_digest = ? AND unit = ? AND recipient = ? AND artifact_sha256 = ? LIMIT 1",
                (study_digest, unit, recipient, artifact_sha256),
            )
        )

    def columns_sent(self, study_digest: bytes) -> frozenset[tuple[str, ...]]:
        """The variables of each unit of a study that there are rows for."""
        rows = self._database.rows(
            "SELECT DISTINCT variables FROM ledger WHERE study_digest = ? AND unit <> ?", (study_digest, SHARED)
        )
        return frozenset(tuple(json.loads(cast("str", variables))) for (variables,) in rows)

    def has_shared(self, study_digest: bytes) -> bool:
        """Whether there is a row of shared statistics of a study."""
        query = "SELECT 1 FROM ledger WHERE study_digest = ? AND unit = ? LIMIT 1"
        return bool(self._database.rows(query, (study_digest, SHARED)))

    def has_drawn(self, study_digest: bytes) -> bool:
        """Whether noise was drawn for a study: room is kept for it, it is in the spool, was sent, or is in what is shared."""
        query = (
            "SELECT 1 FROM reserved WHERE study_digest = ?1 UNION SELECT 1 FROM ledger WHERE study_digest = ?1"
            " UNION SELECT 1 FROM artifact WHERE digest = ?1 LIMIT 1"
        )
        return bool(self._database.rows(query, (study_digest,)))

    def drawn_before(self, release: Release) -> bool:
        """Whether the same draw (data set, source columns, codebook, matrix, secret) was sent before, of whatever data.

        The fingerprint of the data is not looked at, so the answer says nothing of what they are now.
        """
        query = f"SELECT 1 FROM ledger WHERE {_SAME_DRAW} LIMIT 1"  # noqa: S608 (constant text)
        return bool(self._database.rows(query, release.draw))

    def assess(
        self,
        releases: Sequence[Release],
        policy: Policy,
        *,
        study_digest: bytes = b"",
        shared: Mapping[str, Charge] = MappingProxyType({}),
    ) -> tuple[Assessment, ...]:
        """What sending `releases` would mean, without sending or writing anything.

        Args:
            releases: what would be sent.
            policy: the limits.
            study_digest: of the study that they are for: what is reserved for others has no room for it, and for what was charged
                to this very study there need be no room again.
            shared: of the noise on what it shares besides, by data set.

        Raises:
            Refusal: DATA_CHANGED, EPSILON_INFINITE, BUDGET_EXCEEDED (column or lifetime).
        """
        with self._database.transaction():
            found = _charged_once(releases, [self._assess_one(release, policy, study_digest) for release in releases])
            pairs = list(zip(releases, found, strict=True))
            held = self.budget.held(study_digest, {item.values(assessed.version_tag) for item, assessed in pairs})
            for dataset in dict.fromkeys([*(release.dataset for release in releases), *shared]):
                epsilon = finite_total([assessed.at_most for item, assessed in pairs if item.dataset == dataset])
                charge = Charge(epsilon=epsilon) + shared.get(dataset, NOTHING)
                self.budget.check_room(
                    dataset, charge, policy, spent=self.spent(dataset), held=held.get(dataset, NOTHING)
                )
        return found

    def reserve(
        self, study_digest: bytes, releases: Mapping[int, Release], policy: Policy, *, shared: Mapping[str, Charge]
    ) -> None:
        """Check that there is room for everything that a study will be charged, and keep it; once, before its first byte.

        Args:
            study_digest: of the proposal.
            releases: of all units that it sends.
            policy: the limits.
            shared: as for `assess`.

        Raises:
            Refusal: as `assess`; nothing is reserved.
        """
        with self._database.transaction():
            if self.budget.is_reserved(study_digest):
                return
            found = self.assess(list(releases.values()), policy, study_digest=study_digest, shared=shared)
            self.budget.reserve(
                study_digest,
                [
                    (index, release.values(item.version_tag), item.charge)
                    for (index, release), item in zip(releases.items(), found, strict=True)
                    if item.charge > 0 and math.isfinite(item.charge)
                ],
                shared,
            )

    def _assess_one(self, release: Release, policy: Policy, study_digest: bytes) -> Assessment:
        name = ", ".join(release.variables)
        permitted = all(variable in policy.allow_infinite for variable in release.variables)
        if math.isinf(release.epsilon) and not permitted:
            message = f"column '{name}': infinite epsilon and not in policy.allow_infinite"
            raise Refusal("EPSILON_INFINITE", message, hint="declare a scheme without zero cells")
        if math.isfinite(release.epsilon) and release.epsilon > policy.max_epsilon_per_column + EPSILON_TOLERANCE:
            message = (
                f"column '{name}': epsilon {release.epsilon:.4g}, expected at most {policy.max_epsilon_per_column:g}"
            )
            raise Refusal("BUDGET_EXCEEDED", message, hint="the limit is policy.max_epsilon_per_column")
        earlier = self._database.rows(
            f"SELECT fingerprint, version_tag, MAX(study_digest = ?) FROM ledger WHERE {_SAME_DRAW}"  # noqa: S608 (constant text)
            " GROUP BY fingerprint, version_tag ORDER BY MIN(number)",
            (study_digest, *release.draw),
        )
        for fingerprint, version_tag, for_this in earlier:
            if fingerprint == release.fingerprint:
                certain = for_this or policy.on_data_change == "refuse"
                return Assessment(
                    version_tag=cast("bytes", version_tag), charge=0.0, at_most=0.0 if certain else release.epsilon
                )
        if not earlier:
            return Assessment(version_tag=b"", charge=release.epsilon, at_most=release.epsilon)
        if policy.on_data_change == "refuse":
            raise Refusal(
                "DATA_CHANGED",
                f"column '{name}' of data set '{release.dataset}': the data changed since they were released with this matrix",
                hint="a second release shows which values changed; see policy.on_data_change in party.toml",
            )
        return Assessment(
            version_tag=release.fingerprint if policy.on_data_change == "fresh" else b"",
            charge=release.epsilon,
            at_most=release.epsilon,
        )

    def record(
        self,
        release: Release,
        *,
        version_tag: bytes,
        policy: Policy,
        study_digest: bytes,
        study_id: str,
        unit: int,
        recipient: str,
        artifact_sha256: bytes,
        size: int,
        at: datetime,
    ) -> float:
        """Write the row of one attempted send, or count another one of the same; then the unit may leave: it is on the disk.

        Args:
            release: what is sent.
            version_tag: that the artifact was made with.
            policy: the limits, checked again here.
            study_digest: of the proposal.
            study_id: for people.
            unit: index in the study.
            recipient: who gets it.
            artifact_sha256: of the artifact.
            size: bytes of the artifact.
            at: now.

        Returns:
            The epsilon that was charged.

        Raises:
            Refusal: as `assess`; DATA_CHANGED also when the artifact's noise is no longer the one that this version has.
            DataFault: DISK_FULL, STATE_CORRUPT; nothing was written and nothing may leave.
        """
        with self._database.transaction():
            (assessment,) = self.assess([release], policy, study_digest=study_digest)
            if assessment.version_tag != version_tag:
                message = f"column '{', '.join(release.variables)}': its noise is not the one that the ledger has for these data"
                raise Refusal(
                    "DATA_CHANGED", message, hint="policy.on_data_change changed while the study ran; submit it again"
                )
            if not assessment.charge and self._count_again(study_digest, unit, recipient, artifact_sha256, at):
                return 0.0
            self.put_back(
                release,
                version_tag=version_tag,
                charged=assessment.charge,
                study_digest=study_digest,
                study_id=study_id,
                unit=unit,
                recipient=recipient,
                artifact_sha256=artifact_sha256,
                size=size,
                at=at,
            )
        return assessment.charge

    def _count_again(
        self, study_digest: bytes, unit: int, recipient: str, artifact_sha256: bytes, at: datetime
    ) -> bool:
        """Count another send beside its row; False: there is no row of it yet."""
        statement = (
            "INSERT INTO repeated_send SELECT number, 1, ? FROM ledger"
            " WHERE study_digest = ? AND unit = ? AND recipient = ? AND artifact_sha256 = ? ORDER BY number LIMIT 1"
            " ON CONFLICT (number) DO UPDATE SET times = times + 1, last_at = excluded.last_at"
        )
        when = f"{at:%Y-%m-%dT%H:%M:%SZ}"
        return bool(self._database.write(statement, (when, study_digest, unit, recipient, artifact_sha256)))

    def record_shared(
        self,
        shared: Release,
        *,
        delta: float,
        policy: Policy,
        study_digest: bytes,
        study_id: str,
        recipient: str,
        artifact_sha256: bytes,
        size: int,
        at: datetime,
        along_with: bytes | None = None,
    ) -> float:
        """Write the row of statistics that a party computed from its raw data and shares (Model I); then they may leave.

        What one study shares is charged once, however often and in how many parts: its noise is calibrated for all of it. A
        second computation from anything else, be it another column of a peer or another structure, is another answer with other
        noise, which nobody has approved; without noise the two would tell the difference exactly. It is refused.

        Args:
            shared: whose `variables` and `sources` they come from; `codebook_digest` names study, common list, structure
                and the peers' columns, `transition_digest` the noise; `epsilon` is infinite without noise.
            delta: of the noise; 0 without.
            policy, study_digest, study_id, recipient, artifact_sha256, size, at: as for `record`.
            along_with: `codebook_digest` of an earlier part of the same study; if that was charged, this part costs nothing.

        Returns:
            The epsilon that was charged.

        Raises:
            Refusal: EPSILON_INFINITE without noise and without `allow_exact_parameters`; BUDGET_EXCEEDED; APPROVAL_VOID, the
                recipient was told other statistics of this study.
            DataFault: DISK_FULL, STATE_CORRUPT; nothing was written and nothing may leave.
        """
        with self._database.transaction():
            check_shared(policy, shared.epsilon)
            self._check_first(shared, study_digest, study_id, recipient)
            earlier = (shared,) if along_with is None else (shared, replace(shared, codebook_digest=along_with))
            charge = 0.0 if any(map(self._has, earlier)) else shared.epsilon
            new = Charge(epsilon=charge, delta=delta) if 0 < charge < math.inf else NOTHING
            held = self.budget.held(study_digest)
            dataset = shared.dataset
            self.budget.check_room(dataset, new, policy, spent=self.spent(dataset), held=held.get(dataset, NOTHING))
            self.put_back(
                shared,
                version_tag=b"",
                charged=charge,
                delta=new.delta,
                study_digest=study_digest,
                study_id=study_id,
                unit=SHARED,
                recipient=recipient,
                artifact_sha256=artifact_sha256,
                size=size,
                at=at,
            )
        return charge

    def _check_first(self, shared: Release, study_digest: bytes, study_id: str, recipient: str) -> None:
        told = "study_digest = ? AND unit = ? AND recipient = ? AND dataset = ?"
        other = f"SELECT 1 FROM ledger WHERE {told} AND NOT ({_SAME_DRAW} AND fingerprint = ?) LIMIT 1"  # noqa: S608 (constant text)
        named = (study_digest, SHARED, recipient, shared.dataset)
        if self._database.rows(other, (*named, *shared.draw, shared.fingerprint)):
            raise Refusal(
                "APPROVAL_VOID",
                f"study '{study_id}': what this party shares was computed before, from other columns of peers or under another"
                " structure",
                hint="an approval is for one answer; load the study again under a new id and approve it anew",
            )

    def _has(self, release: Release) -> bool:
        query = f"SELECT 1 FROM ledger WHERE {_SAME_DRAW} AND fingerprint = ? LIMIT 1"  # noqa: S608 (constant text)
        return bool(self._database.rows(query, (*release.draw, release.fingerprint)))

    def put_back(
        self,
        release: Release,
        *,
        version_tag: bytes,
        charged: float,
        study_digest: bytes,
        study_id: str,
        unit: int,
        recipient: str,
        artifact_sha256: bytes,
        size: int,
        at: datetime,
        delta: float = 0.0,
    ) -> None:
        """Write a row as it had been written, or as it must have been, without asking any limit.

        Args, and those of `record`:
            delta: of noise that is charged with it.
        """
        dataset, sources, codebook, transition, secret = release.draw
        with self._database.transaction():
            if delta > 0:
                self.budget.charge_delta(study_digest, study_id, dataset, draw=codebook, delta=delta, at=at)
            self._database.write(
                "INSERT INTO ledger (at, study_digest, study_id, unit, variables, dataset, sources, codebook_digest,"
                " transition_digest, secret_id, fingerprint, version_tag, epsilon, charged, recipient, artifact_sha256, size)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    f"{at:%Y-%m-%dT%H:%M:%SZ}",
                    study_digest,
                    study_id,
                    unit,
                    json.dumps(release.variables),
                    dataset,
                    sources,
                    codebook,
                    transition,
                    secret,
                    release.fingerprint,
                    version_tag,
                    release.epsilon,
                    charged,
                    recipient,
                    artifact_sha256,
                    size,
                ),
            )
