"""What may happen to a study at the miner: the rules, without messages and without event loop.

Order rules. A study is submitted; each of its parties approves or denies; with the last approval the effective study is fixed;
each party sends its pseudonym list (or what its mode of linkage has in its place, see `linking`); with the last list the common
people are found; each party confirms the common list; with the last confirmation each party sends its own units; with the last
unit (of masked tables: with the opening of the round, `rounds`) the study is learned and, where the study asks for it once
enough parties have countersigned the release, published. A call that comes too early is NOT_READY, one that comes after the end
says how the study ended, one that repeats what is done already succeeds. A party's failure, a denial, a revocation, the
analyst's withdrawal, the miner's operator (`submission`) or the last valid day ends a study that is not published. A declared
quorum goes on without parties that are missing at the deadline (`quorum`).

Every rule reads durable facts and adds at most one fact per transaction, so a restart needs no recovery: the same rules
applied to the same facts go on where they stopped. All functions block.

`countersign` and `awaited_parties` are the publication gate: who has to countersign a release, and what a countersignature
must be.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from typing import Final

from cryptography import x509

from verticil.miner.rules import blocking_parties
from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.intake import Intake
from verticil.miner.storage.linkage import linked_parties
from verticil.miner.storage.records import Failure, StoredSignature, StudyRecord
from verticil.miner.storage.store import Store
from verticil.shared.core.errors import CODES, Misuse, PeerFault, Refusal, from_code
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.signing import verify_signed
from verticil.shared.federation.transport.authorization import EMPTY_DENY_LIST, Revocations
from verticil.shared.federation.transport.errors_on_wire import shorten
from verticil.shared.release.signatures import read_countersignature
from verticil.shared.study import approval, canonical
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import opens_tables
from verticil.shared.study.states import Facts, State, derive, is_final
from verticil.wire.v1 import common_pb2

MAX_EFFECTIVE_BYTES: Final = 2_097_152
"""Proposal and effective study of one task must fit into one message of 4 MiB."""
_MAX_REASON: Final = 500

_log = logging.getLogger(__name__)


def timestamp(moment: dt.datetime) -> str:
    """Write a time in UTC, ISO 8601, seconds."""
    return moment.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@functools.lru_cache(maxsize=1024)
def _serial(certificate: bytes) -> int:
    return x509.load_der_x509_certificate(certificate).serial_number


def withdrawn_text(record: StudyRecord) -> str:
    """Say who withdrew a study, and why."""
    revocations = "; ".join(
        f"revoked by party '{name}': {item.reason}" for name, item in sorted(record.revocations.items())
    )
    if record.closure is not None:
        return f"closed by the miner's operator: {record.closure.reason}"
    return revocations or "withdrawn by the analyst"


class Session:
    """The rules over one state directory.

    Args:
        store: files and quotas.
        catalogue: facts.
        identity: the miner's.
        authority: certificate of the federation's authority, PEM; approvals are checked by it.
        sign: signs receipts.
        clock: UTC now.
        revocations: the deny-list; what was signed with a certificate on it is not accepted.
    """

    def __init__(
        self,
        *,
        store: Store,
        catalogue: Catalogue,
        identity: Identity,
        authority: bytes,
        sign: Callable[[bytes], common_pb2.Signed],
        clock: Callable[[], dt.datetime],
        revocations: Revocations = EMPTY_DENY_LIST,
    ) -> None:
        self.store = store
        self.catalogue = catalogue
        self.identity = identity
        self.intake = Intake(store, catalogue)
        self.clock = clock
        self.authority = authority
        self.revocations = revocations
        self.waited_for: Callable[[bytes], Collection[str]] = lambda _digest: ()
        """Those whose messages the round of a masked study waits for (`rounds`)."""
        self._sign = sign
        self._studies = DecodedStudies()
        self._parties: dict[bytes, frozenset[str]] = {}
        self._deciding = threading.Lock()  # for rules that look at one fact before they add another

    # -- reading -------------------------------------------------------------------------------------------------------------

    def sign(self, body: bytes) -> StoredSignature:
        """Sign a statement of the miner."""
        return StoredSignature.of(self._sign(body))

    def record(self, digest: bytes) -> StudyRecord:
        """Return the facts of a study.

        Raises:
            Misuse: STUDY_UNKNOWN.
        """
        record = self.catalogue.study(digest) if len(digest) == 32 else None
        if record is None:
            raise Misuse(
                "STUDY_UNKNOWN", f"study with digest {digest[:32].hex() or '(empty)'}: not known at this miner"
            )
        return record

    def latest(self, record: StudyRecord) -> StudyRecord:
        """Return a study's facts as they are now; they are read again only where its version is another.

        Raises:
            Misuse: STUDY_UNKNOWN.
        """
        return record if self.catalogue.version(record.digest) == record.version else self.record(record.digest)

    def concerns(self, digest: bytes, party: str) -> bool:
        """Return whether the party is in the study. Asked at every poll for every study, so it is answered from memory."""
        if digest not in self._parties:
            self._parties[digest] = frozenset(self.proposal(self.record(digest)).parties)
        return party in self._parties[digest]

    def proposal(self, record: StudyRecord) -> Study:
        """Return the study as it was submitted."""
        return self._studies.decode(record.digest, record.proposal)

    def effective(self, record: StudyRecord) -> Study:
        """Return the study with every party's declaration.

        Raises:
            PeerFault: NOT_READY, before all have approved.
        """
        if not record.effective_digest:
            raise PeerFault("NOT_READY", f"study '{record.study_id}': not approved by all parties yet")
        return self._studies.decode(record.effective_digest, record.effective)

    def current(self, record: StudyRecord) -> Study:
        """Return the study as it is carried out: the effective one once it is fixed, before that the proposal."""
        return self.effective(record) if record.effective_digest else self.proposal(record)

    def state(self, record: StudyRecord) -> State:
        """Return the state that follows from the facts and, for a study that is still open, from today's date."""
        return derive(self._facts(record))

    def stage(self, record: StudyRecord) -> State:
        """Return the stage that a study is in, or that it had reached when it ended."""
        facts = self._facts(record)
        return derive(dataclasses.replace(facts, denials=frozenset(), failure=None, withdrawn=False, expired=False))

    def _facts(self, record: StudyRecord) -> Facts:
        study = self.current(record)
        parties = frozenset(study.parties)
        return Facts(
            parties=parties,
            approvals=parties & record.approvals.keys() if record.effective_digest else frozenset(),
            denials=parties & record.denials.keys(),
            pseudonyms=linked_parties(record, study),
            aligned=record.n_common is not None,
            confirmed=record.confirmed,
            units_expected=len(study.parties) if opens_tables(study) else len(study.units),
            units_received=len(self.arrivals(record)),
            uploading=record.uploading,
            estimating=record.learning is not None,
            learning=record.learning == "learning",
            review=bool(record.review_manifest),
            published=record.published_at is not None,
            failure=record.failure.code if record.failure else None,
            withdrawn=record.withdrawn,
            expired=record.expired or self.overdue(record),
        )

    def arrivals(self, record: StudyRecord) -> Collection[int | str]:
        """Return what has come of what the study is learned from: units; of masked tables, once they are opened, the parties."""
        study = self.current(record)
        if not opens_tables(study):
            return record.columns.keys()
        return () if record.learning is None else study.parties

    def overdue(self, record: StudyRecord) -> bool:
        """Return whether the study's last valid day, or that of an approval, has passed."""
        last = [
            self.proposal(record).expires,
            *(statement.expires for statement in self._approvals(record)),
        ]
        return self.clock().astimezone(dt.UTC).date() > min(last)

    def missing(self, record: StudyRecord) -> Mapping[str, str]:
        """Return what the study waits for, or waited for when it ended, at which party; see `standing.missing`."""
        return blocking_parties.missing(
            self.current(record), record, self.stage(record), self.waited_for(record.digest)
        )

    def _approvals(self, record: StudyRecord) -> list[approval.Approval]:
        """Return the approvals of the parties that the study is carried out with."""
        absent = {item.party for item in blocking_parties.left_out(record)}
        return [
            approval.held_approval(signed.body) for party, signed in record.approvals.items() if party not in absent
        ]

    def minimum(self, record: StudyRecord) -> int:
        """Return the smallest common count that the study and every approval accept."""
        minimums = [self.proposal(record).linkage.minimum_common_records]
        minimums += [statement.minimum_common_records for statement in self._approvals(record)]
        return max(minimums)

    # -- who may do what -----------------------------------------------------------------------------------------------------

    def position(self, record: StudyRecord, party: str) -> int:
        """Return the party's position in the study.

        Raises:
            PeerFault: PARTY_UNKNOWN, it is not in the study.
            Refusal: PARTY_LEFT_OUT, the study went on without it.
        """
        parties = self.proposal(record).parties
        if party not in parties:
            raise PeerFault(
                "PARTY_UNKNOWN",
                f"study '{record.study_id}': party '{party}' is not in it",
                hint="the certificate's name must be the party's name in the study",
            )
        if (refusal := blocking_parties.refuse_left_out(record, party)) is not None:
            raise refusal
        return parties.index(party)

    def _is_left_out(self, record: StudyRecord, party: str) -> bool:
        """Return whether what a party says of a study is no news to it any more; raises as `position`, but for such a party."""
        if blocking_parties.refuse_left_out(record, party) is not None:
            return True
        self.position(record, party)
        return False

    def require(self, record: StudyRecord, *states: State) -> State:
        """Check that the study is in one of the states.

        Raises:
            VerticilError: how it ended, if it did (STUDY_DENIED, STUDY_EXPIRED, STUDY_WITHDRAWN, or the failure's code); else
                NOT_READY.
        """
        state = self.state(record)
        if state in states:
            return state
        where = f"study '{record.study_id}'"
        if state is State.DENIED:
            raise Refusal("STUDY_DENIED", f"{where}: denied by {', '.join(sorted(record.denials))}")
        if state is State.EXPIRED:
            raise Refusal(
                "STUDY_EXPIRED", f"{where}: its last valid day was {self.proposal(record).expires.isoformat()}"
            )
        if state is State.WITHDRAWN:
            raise Refusal("STUDY_WITHDRAWN", f"{where}: {withdrawn_text(record)}")
        if state is State.FAILED and record.failure is not None:
            raise from_code(record.failure.code, f"{where} failed: {record.failure.message}", hint=record.failure.hint)
        names = " or ".join(item.name for item in states)
        raise PeerFault(
            "NOT_READY",
            f"{where}: is {state.name}, expected {names}",
            hint="poll for the state and go on from there",
        )

    def require_aligned(self, record: StudyRecord, *states: State) -> None:
        """Check as `require`, and that the common people are known.

        Raises:
            VerticilError: as `require`.
        """
        self.require(record, *states)
        if record.n_common is None:
            raise PeerFault(
                "NOT_READY",
                f"study '{record.study_id}': the common records are not known yet",
                hint="poll until they are",
            )

    # -- the analyst ---------------------------------------------------------------------------------------------------------

    def cancel(self, analyst: str, digest: bytes) -> None:
        """Withdraw a study that is not published; one that has ended stays as it is.

        Raises:
            PeerFault: IDENTITY_REFUSED, another analyst submitted it.
        """
        record = self.record(digest)
        if record.submitter != analyst:
            raise PeerFault(
                "IDENTITY_REFUSED", f"study '{record.study_id}': only the analyst who submitted it can cancel it"
            )
        if not is_final(self.state(record)):
            self.catalogue.withdraw(digest)

    # -- a party -------------------------------------------------------------------------------------------------------------

    def approve(self, digest: bytes, party: str, signed: common_pb2.Signed) -> None:
        """Record a party's approval, and with the last one the effective study.

        Raises:
            PeerFault: IDENTITY_REFUSED, CERTIFICATE_INVALID or MESSAGE_INVALID, the party did not sign it; STUDY_MISMATCH, it
                is of another study or of other units, or differs from the one that is recorded.
            Refusal: DECLARATION_WEAKER; STUDY_EXPIRED and others, the study has ended.
        """
        record = self.record(digest)
        self.position(record, party)
        former_approval = record.approvals.get(party)
        if former_approval is not None and former_approval.body == signed.body:
            self.fix_effective(self.record(digest))
            return
        self.require(record, State.AWAITING_APPROVAL)
        if party in record.declined:
            raise Refusal("STUDY_DENIED", f"study '{record.study_id}': denied by {party}")
        revocations = self.revocations.since()
        verify_signed(signed, self.authority, role=Role.PARTY, name=party, at=self.clock(), deny_list=revocations)
        statement = approval.parse_approval(signed.body)  # not kept in memory before it counts
        approval.check_approval(statement, self.proposal(record), party)
        if self.clock().astimezone(dt.UTC).date() > statement.expires:
            raise Refusal(
                "STUDY_EXPIRED",
                f"study '{record.study_id}': the approval was valid until {statement.expires.isoformat()}",
            )
        with self._deciding:
            self._check_size(self.record(digest), statement)
            is_new = self.catalogue.add_approval(
                digest,
                party,
                StoredSignature.of(signed),
            )
        if not is_new and self.record(digest).approvals[party].body != signed.body:
            raise PeerFault(
                "STUDY_MISMATCH",
                f"study '{record.study_id}': another approval of party '{party}' is recorded already",
                hint="to change a declaration, deny the study and have it submitted anew",
            )
        self.fix_effective(self.record(digest))

    def _check_size(self, record: StudyRecord, statement: approval.Approval) -> None:
        """Refuse a declaration that would make the effective study too large to be sent to the parties."""
        units = dict(statement.declarations())
        for signed in record.approvals.values():
            units.update(approval.held_approval(signed.body).declarations())
        size = len(canonical.to_bytes(self.proposal(record).with_declaration(units)))
        if size > MAX_EFFECTIVE_BYTES:
            raise PeerFault(
                "MESSAGE_INVALID",  # not to be tried again
                f"study '{record.study_id}': {size} bytes with the declared matrices, expected at most {MAX_EFFECTIVE_BYTES}",
                hint="declare matrices for fewer categories, or as the study proposes them",
            )

    def fix_effective(self, record: StudyRecord) -> None:
        """Record the effective study when all parties have approved, none of them denies, and it is not recorded yet.

        An approval that a certificate signed which has been revoked since does not count (`_drop_revoked`).
        """
        record = self._drop_revoked(record)
        study = self.proposal(record)
        approvers = record.approvals.keys() - record.declined.keys()
        if record.effective_digest or not approvers >= set(study.parties):
            return
        effective = approval.effective_study(
            study, [approval.held_approval(record.approvals[party].body) for party in study.parties]
        )
        self.catalogue.set_effective(record.digest, canonical.to_bytes(effective), canonical.digest(effective))

    def _drop_revoked(self, record: StudyRecord) -> StudyRecord:
        """Drop approvals of a study that is not effective yet if their certificates are on the deny-list now. Blocks.

        Returns:
            The facts after it.
        """
        revocations = self.revocations.since()
        if not revocations or not record.approvals or self.state(record) is not State.AWAITING_APPROVAL:
            return record
        has_dropped = False
        for party, signed in record.approvals.items():
            since = revocations.get(_serial(signed.certificate))
            if since is not None and self.catalogue.certificates.void_approval(
                record.digest, party, signed.certificate, revoked_at=timestamp(since)
            ):
                has_dropped = True
                _log.warning(
                    "study '%s': the approval of '%s' is void: its certificate was revoked", record.study_id, party
                )
        return self.record(record.digest) if has_dropped else record

    def deny(self, digest: bytes, party: str, reason: str) -> None:
        """Record a party's denial; it ends a study that has not ended, unless a quorum bears it (`quorum.bears`)."""
        if self._is_left_out(self.record(digest), party):
            return
        with self._deciding:
            record = self.record(digest)
            if is_final(self.state(record)):
                return
            if blocking_parties.bears(self.proposal(record), record, party):
                self.catalogue.absences.decline(digest, party, shorten(reason, _MAX_REASON))
            else:
                self.catalogue.add_denial(digest, party, shorten(reason, _MAX_REASON))

    def revoke(self, digest: bytes, party: str, reason: str) -> None:
        """Record that a party takes its approval back. It ends a study that has not ended; one that is published is flagged.

        One that was left out has nothing in the study that it could take back: nothing is recorded.
        """
        if self._is_left_out(self.record(digest), party):
            return
        with self._deciding:
            ends = not is_final(self.state(self.record(digest)))
            at = timestamp(self.clock())
            self.catalogue.deletions.revoke(digest, party, shorten(reason, _MAX_REASON), at, ends=ends)

    def confirm(self, digest: bytes, party: str, common_sha256: bytes) -> None:
        """Record that a party accepts the common list.

        Raises:
            PeerFault: ALIGNMENT_MISMATCH, it computed another common list; NOT_READY.
        """
        record = self.record(digest)
        self.position(record, party)
        if record.n_common is not None and record.common_sha256 != common_sha256:
            raise PeerFault(
                "ALIGNMENT_MISMATCH",
                f"study '{record.study_id}': party '{party}' found another common list than the miner",
            )
        if party in record.confirmed:
            return
        if self.proposal(record).linkage.mode == "dh-psi":
            raise PeerFault(
                "MESSAGE_INVALID", f"study '{record.study_id}': linkage 'dh-psi' is confirmed by a statement"
            )
        self.require_aligned(record, State.ALIGNING)
        self.catalogue.confirm(digest, party)

    def report_failure(self, digest: bytes, party: str, failure: Failure) -> None:
        """Record that a party cannot go on: the study failed.

        Raises:
            PeerFault: MESSAGE_INVALID, a code that this version does not know.
        """
        record = self.record(digest)
        if self._is_left_out(record, party):
            return
        if failure.code not in CODES:
            raise PeerFault("MESSAGE_INVALID", "failure: got an unknown code, expected one of the documented codes")
        message = blocking_parties.report_text(party, shorten(failure.message, _MAX_REASON))
        if not is_final(self.state(record)):
            self.catalogue.fail(
                digest, Failure(code=failure.code, message=message, hint=shorten(failure.hint, _MAX_REASON))
            )

    def of_effective(self, effective_digest: bytes, party: str) -> StudyRecord:
        """Return the study that became this effective study, which the party is in; of several, one that has not ended.

        Raises:
            Misuse: STUDY_UNKNOWN.
            PeerFault: PARTY_UNKNOWN.
        """
        digests = self.catalogue.with_effective(effective_digest) if len(effective_digest) == 32 else ()
        candidates = [self.record(digest) for digest in digests]
        if not candidates:
            raise Misuse(
                "STUDY_UNKNOWN",
                f"effective study with digest {effective_digest[:32].hex() or '(empty)'}: not known at this miner",
            )
        record = next((item for item in candidates if not is_final(self.state(item))), candidates[0])
        self.position(record, party)
        return record

    def own_unit(self, effective_digest: bytes, unit: int, party: str) -> StudyRecord:
        """Return the study in which this party may upload this unit.

        Raises:
            Misuse: STUDY_UNKNOWN.
            PeerFault: PARTY_UNKNOWN; NOT_OWNER; MESSAGE_INVALID, there is no such unit.
        """
        record = self.of_effective(effective_digest, party)
        units = self.effective(record).units
        if unit >= len(units):
            raise PeerFault("MESSAGE_INVALID", f"unit {unit}: the study has units 0 to {len(units) - 1}")
        if units[unit].owner != party:
            raise PeerFault(
                "NOT_OWNER",
                f"unit {unit} ({', '.join(units[unit].variables)}): belongs to another party than '{party}'",
                hint="a party uploads its own columns only",
            )
        return record


_DECODED_BYTES: Final = 8 << 20
"""Canonical bytes of the decoded studies that stay in memory: hundreds of studies, which every look at open studies asks for."""


class DecodedStudies:
    """The studies that were decoded last, by their digests; from any thread. Every poll of every party asks for them."""

    def __init__(self) -> None:
        self._studies: OrderedDict[bytes, tuple[Study, int]] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()

    def decode(self, digest: bytes, content: bytes) -> Study:
        """Return the study with that digest."""
        with self._lock:
            if digest in self._studies:
                self._studies.move_to_end(digest)
                return self._studies[digest][0]
        study = canonical.from_bytes(content)
        with self._lock:
            if digest not in self._studies:
                self._studies[digest] = study, len(content)
                self._size += len(content)
            while self._size > _DECODED_BYTES and len(self._studies) > 1:
                self._size -= self._studies.popitem(last=False)[1][1]
        return study


def countersign(session: Session, digest: bytes, party: str, signed: common_pb2.Signed) -> None:
    """Record that a party has looked at the release and has nothing against it.

    Raises:
        PeerFault: IDENTITY_REFUSED, CERTIFICATE_INVALID or MESSAGE_INVALID, the party did not sign it; STUDY_MISMATCH, it is
            of another release; NOT_READY, none waits.
    """
    record = session.record(digest)
    session.position(record, party)
    statement = read_countersignature(signed.body)
    if record.published_at is not None and party in record.countersignatures:
        return
    session.require(record, State.REVIEW)
    for at in (session.clock(), statement.signed_at):  # now, and as everybody who verifies the release will check it
        verify_signed(
            signed, session.authority, role=Role.PARTY, name=party, at=at, deny_list=session.revocations.since()
        )
    content = (statement.study_digest, statement.manifest_sha256, statement.party)
    if content != (record.digest, record.review_manifest, party):
        raise PeerFault(
            "STUDY_MISMATCH",
            f"study '{record.study_id}': the countersignature of '{party}' is of another release than the one that waits",
            hint="fetch the release that waits and look at it",
        )
    session.catalogue.reviews.add(
        digest,
        party,
        record.review_manifest,
        StoredSignature.of(signed),
    )


def awaited_parties(session: Session, record: StudyRecord) -> tuple[str, ...]:
    """Return the parties that may still countersign a release that waits; none, when there are enough or none is asked for."""
    study = session.current(record)
    if len(record.countersignatures) >= study.countersignatures_needed:
        return ()
    return tuple(party for party in study.parties if party not in record.countersignatures)
