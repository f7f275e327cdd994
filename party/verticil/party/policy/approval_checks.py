"""What a site's approval means here: what is looked at before it is given, and what must still hold when it is used.

`review` does everything that speaks against a study before anybody says yes: the policy, the data, the budget; and says what an
approval binds to, which is what is then signed. Later, before anything leaves, `check_binding` and `check_data` compare the
study, the site's own declaration and the data with that body; any change voids the approval (contract.md section 5). When in
doubt, no.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from types import MappingProxyType
from typing import Final

from verticil.party.config import PartyConfig
from verticil.party.dataset.column_draws import ColumnDraw, Origins, origins_of, seals
from verticil.party.limits.limits import Policy, find_objections, refuse
from verticil.party.limits.rules import RULE_PREFIX, approver_name
from verticil.party.local_dataset import LocalDataset, column_draws_of, columns_of, read_holding
from verticil.party.people.reading import sketch
from verticil.party.people.sketches import Sketches
from verticil.party.policy.comparison import data_changes, labels_of, unit_changes
from verticil.party.policy.decision_store import Approvers
from verticil.party.policy.ledger import Assessment, Ledger
from verticil.party.policy.planned_statistics import accounts_of, statistics_of
from verticil.party.storage.secret import SiteSecret
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import Misuse, PeerFault, Refusal
from verticil.shared.documents.record import encode
from verticil.shared.privacy.events import Linkage, PrivacyEvent
from verticil.shared.study.approval import (
    Approval,
    DeclaredProfile,
    check_own_part,
    declared_units,
    parse_approval,
)
from verticil.shared.study.canonical import parse_canonical
from verticil.shared.study.document import Study
from verticil.shared.study.profiles import with_profiles
from verticil.shared.study.protocols import opens_tables, protocol_of
from verticil.shared.study.reading import read_declarations
from verticil.shared.study.states import State, is_final

AUTOMATIC: Final = "automatic approval (demonstration)"
"""The approver that the daemon names under a marked authority."""
_NEW_ID: Final = "the study must be submitted, or loaded, again under a new id"
_NOBODY: Final = "-"
_NEVER: Final = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A study that nothing speaks against.

    Attributes:
        study: with this party's own declaration.
        holding: the data, as read.
        column_draws: what randomizing each of the party's units means, by unit.
        assessments: what sending would cost now, by unit; without the units that nobody can come to read.
        bound: everything that an approval of it binds to; who gives it, and when, is open.
        content: SHA-256 of that, as `content_of` finds it in an approval that was given.
        shared: the events of what the study shares besides columns, by data set.
        linkages: of a masked study, by data set.
        origins: where the data of each unit come from, to say later what changed.
    """

    study: Study
    holding: LocalDataset
    column_draws: Mapping[int, ColumnDraw]
    assessments: Mapping[int, Assessment]
    bound: Approval
    content: bytes
    shared: Mapping[str, Sequence[PrivacyEvent]]
    linkages: Mapping[str, Linkage]
    origins: Mapping[int, Origins]

    @property
    def draws_to_send(self) -> dict[int, ColumnDraw]:
        """The draws of the units that somebody can come to read."""
        return {index: self.column_draws[index] for index in self.assessments}


def with_own_randomization(
    config: PartyConfig, study: Study, profiles: Mapping[str, Sequence[int]] = MappingProxyType({})
) -> Study:
    """Return the study with this party's ``[[randomization]]`` tables in it.

    Args:
        config: of this party.
        study: the proposal.
        profiles: noisy counts of its columns whose bins are measured, once they are (`verticil.shared.study.profiled_columns`).

    Raises:
        Refusal: DECLARATION_WEAKER.
        Misuse: CONFIG_INVALID, MATRIX_INVALID, MATRIX_SINGULAR, STUDY_UNSUPPORTED.
    """
    study = with_profiles(study, profiles)
    return study.with_declaration(read_declarations(config.declarations, study, config.name))


def review(
    config: PartyConfig,
    ledger: Ledger,
    sketches: Sketches,
    proposal: bytes,
    *,
    site_secret: SiteSecret,
    linkage_key: bytes,
    today: date,
    holding: LocalDataset | None = None,
) -> Review:
    """Look at a study: expiry, policy, data, people, budget, in this order.

    No value of the table has a part in the answer, but for two things that `Ledger.assess` says: whether data that were released
    before are the same still, where the policy refuses others; and whether the table's people have an account under another name,
    which no study chooses, and of which others learn no more than that nobody has approved. How many people there are is not
    looked at: that too few are common shows when the parties find the common ones.

    Args:
        config: this party.
        ledger: what was released before.
        sketches: which people the data sets are about.
        proposal: canonical bytes.
        site_secret: of this site.
        linkage_key: shared by the parties.
        today: UTC.
        holding: the data, when they have been read already.

    Raises:
        Refusal: STUDY_EXPIRED, POLICY_REFUSED, BUDGET_EXCEEDED, EPSILON_INFINITE, DATA_CHANGED, DECLARATION_WEAKER, SAME_PEOPLE.
        DataFault, Misuse: a table that is no readable file or lacks a column; whatever is wrong with party.toml.
    """
    proposed = parse_canonical(proposal)
    study = with_own_randomization(config, proposed)
    digest = hashlib.sha256(proposal).digest()
    check_expiry(study, today)
    refuse(find_objections(config.policy, study, config.name, columns_of(config, study), today=today), study.id)
    if holding is None:
        holding = read_holding(
            config,
            proposed,
            proposal_digest=digest,
            site_secret=site_secret,
            linkage_key=linkage_key,
            name_of_draws=ledger.name_of_draws,
        )
    if holding.profiles:
        study = with_own_randomization(config, proposed, holding.profiles)
    sketches.take(holding.tables)
    sketch_unread(config, ledger, sketches, site_secret)
    column_draws = as_drawn(column_draws_of(config, study, holding, site_secret=site_secret.value), ledger)
    check_rows(config.policy, study.id, holding.n_rows)
    minimum = max(study.linkage.minimum_common_records, config.policy.minimum_common_records)
    origins = origins_of(column_draws, holding.n_records)

    def bound_to(column_draws: Mapping[int, ColumnDraw]) -> Approval:
        sealed = seals(column_draws, digest, site_secret=site_secret.value)
        return Approval(
            proposal_digest=digest,
            party=config.name,
            units=declared_units(
                {index: study.units[index] for index in column_draws},
                {index: seal.hex() for index, seal in sealed.items()},
            ),
            minimum_common_records=minimum,
            approver=_NOBODY,
            approved_at=_NEVER,
            expires=study.expires,
            people_counted_apart=bool(config.policy.same_people.apart),
            profiles=tuple(DeclaredProfile(variable=name, counts=counts) for name, counts in holding.profiles.items()),
        )

    draw_ids = bound_to(column_draws)
    readable_units = [index for index in column_draws if index in protocol_of(study).readable(study)]
    accounts = (
        dict.fromkeys(ledger.account(column_draw.dataset) for column_draw in column_draws.values())
        if opens_tables(study)
        else ()
    )
    for dataset in accounts:
        ledger.check_linkages(dataset, config.policy, study_digest=digest)
    shared = statistics_of(study, config.name, accounts_of(column_draws, ledger.account))
    assessments = ledger.assess(
        [column_draws[index] for index in readable_units], config.policy, study_digest=digest, shared=shared
    )
    return Review(
        study=study,
        holding=holding,
        column_draws=column_draws,
        assessments=dict(zip(readable_units, assessments, strict=True)),
        bound=draw_ids,
        content=hashlib.sha256(encode(draw_ids)).digest(),
        shared=shared,
        linkages={dataset: Linkage(mode=study.linkage.mode) for dataset in accounts},
        origins=origins,
    )


def sketch_unread(config: PartyConfig, ledger: Ledger, sketches: Sketches, site_secret: SiteSecret) -> None:
    """Read who is in the tables that something was charged to, and that were not read since sketches are made; often none.

    Raises:
        DataFault, Misuse: as `verticil.party.people.reading.sketch`.
    """
    charges = ledger.people.list_charged()
    unread = {name: rule for name, rule in config.datasets.items() if name in charges and not sketches.is_stored(name)}
    sketch(sketches, unread, site_secret=site_secret.value, folder=config.state_directory)


def as_drawn(column_draws: Mapping[int, ColumnDraw], ledger: Ledger) -> dict[int, ColumnDraw]:
    """Return each draw under the name by which the same was drawn before; see `Ledger.as_drawn`."""
    return {index: ledger.as_drawn(column_draw) for index, column_draw in column_draws.items()}


def check_rows(limits: Policy, study_id: str, n_rows: int) -> None:
    """Check that a table has as many rows as the site asks of itself.

    Raises:
        Refusal: POLICY_REFUSED; the message leaves the site, and does not say how many there are.
    """
    if n_rows < limits.minimum_rows:
        raise Refusal(
            "POLICY_REFUSED",
            f"study '{study_id}': this party's table has fewer than the {limits.minimum_rows} rows that it asks of itself",
            hint="is the table whole? The limit is policy.minimum_rows in party.toml",
        )


def check_open(record: StudyRecord, *, denied_is_fine: bool = False) -> None:
    """Check that people may still decide about a study.

    Args:
        record: the study.
        denied_is_fine: also where somebody has denied it.

    Raises:
        Refusal: STUDY_WITHDRAWN, STUDY_DENIED, STUDY_EXPIRED, it has ended; APPROVAL_VOID, it failed here.
    """
    name = f"study '{record.study_id}'"
    if record.revocation_sent is not None:
        raise Refusal("STUDY_WITHDRAWN", f"{name}: it was revoked here", hint="a revocation is for good")
    if record.denial_sent is not None and not denied_is_fine:
        raise Refusal("STUDY_DENIED", f"{name}: it was denied here", hint="a denial is for good")
    if record.failure is not None:
        raise Refusal("APPROVAL_VOID", f"{name}: it failed here with {record.failure.code}")
    state = State(record.task.state)
    if is_final(state):
        code = {State.DENIED: "STUDY_DENIED", State.EXPIRED: "STUDY_EXPIRED"}.get(state, "STUDY_WITHDRAWN")
        message = f"{name}: it ended, {state.name.lower()}"
        if state is State.EXPIRED:
            message += f"; its last day was {record.task.proposal_study.expires.isoformat()}"
        raise Refusal(code, message, hint="nothing can be decided any more")


def check_expiry(study: Study, today: date) -> None:
    """Refuse a study whose last day has passed.

    Raises:
        Refusal: STUDY_EXPIRED.
    """
    if study.is_expired(today):
        hint = "nothing is sent after that day; submit a new study"
        raise Refusal(
            "STUDY_EXPIRED", f"study '{study.id}': its last day was {study.expires}, today is {today}", hint=hint
        )


@functools.lru_cache(maxsize=16)
def content_of(body: bytes) -> bytes:
    """SHA-256 of everything that an approval binds to, whoever gives it and whenever: what approvers must agree in."""
    approval = parse_approval(body)
    return hashlib.sha256(encode(replace(approval, approver=_NOBODY, approved_at=_NEVER))).digest()


def check_binding(
    config: PartyConfig, proposal: Study, approval: Approval, proposal_digest: bytes, today: date
) -> Study:
    """Check that an approval still means this study and this site's declaration and policy.

    Args:
        config: this party, as configured now.
        proposal: the study as submitted.
        approval: this party's approval.
        proposal_digest: of the proposal.
        today: UTC.

    Returns:
        What was approved: the proposal with the approved units of this party.

    Raises:
        Refusal: APPROVAL_VOID, STUDY_EXPIRED, POLICY_REFUSED and the other objections of the present policy.
    """
    check_expiry(proposal, today)
    if approval.proposal_digest != proposal_digest or approval.party != config.name:
        raise void(proposal, "it is for another study or party")
    if today > approval.expires:
        raise void(proposal, f"it held until {approval.expires}")
    try:
        approved_study = approval.declared_in(proposal)
    except ValueError as error:
        raise void(proposal, str(error)) from None
    try:
        now = with_own_randomization(
            config, proposal, {profile.variable: profile.counts for profile in approval.profiles}
        )
    except Misuse as error:
        raise void(proposal, f"the declaration in {config.path.name} changed ({error.code})") from None
    own = proposal.units_of(config.name)
    differing = [i for i in own if approved_study.units[i] != now.units[i]]
    if tuple(sorted(approval.declarations())) != own or differing:
        differences = [
            text for i in differing for text in unit_changes(approved_study.units[i], now.units[i], labels_of(now, i))
        ]
        raise void(proposal, "; ".join([f"the declaration in {config.path.name} changed", *differences]))
    if approval.people_counted_apart != bool(config.policy.same_people.apart):
        raise void(proposal, f"what {config.path.name} counts apart changed (policy.same_people)")
    columns = columns_of(config, proposal)
    refuse(find_objections(config.policy, approved_study, config.name, columns, today=today), proposal.id)
    return approved_study


def check_giver(limits: Policy, study: Study, approval: Approval, voters: Sequence[str], approvers: Approvers) -> None:
    """Check that an approval was given by those who may give it now.

    Args:
        limits: the policy.
        study: for the message.
        approval: the approval.
        voters: who said yes to exactly this, as `DecisionStore.voters` counts them.
        approvers: who may approve now.

    Raises:
        Refusal: APPROVAL_VOID.
    """
    if approval.approver == AUTOMATIC:
        if limits.approval != "auto":
            raise void(study, "it was automatic, and the policy does not say so any more")
    elif approval.approver.startswith(RULE_PREFIX):
        if limits.approval != "rules" or approval.approver not in [
            approver_name(limits.rules, r) for r in limits.rules
        ]:
            raise void(study, f"it was given {approval.approver}, which is not a rule of the policy any more")
    elif approvers.names and len(voters) < approvers.needed:
        raise void(study, f"{len(voters)} of {approvers.needed} approvers have signed it with a present key")


def stands(
    config: PartyConfig,
    ledger: Ledger,
    record: StudyRecord,
    review: Review,
    *,
    voters: Sequence[str],
    approvers: Approvers,
    data_changes: Sequence[str],
) -> bool:
    """Return whether the approval that a study has is the one that would be given now, and still holds.

    Where others have an approval already, another one is refused that theirs has no room for: of another declaration, or of
    other data than those that noise was drawn for. Else the data may be others: only this site can compare their seals.

    Args:
        config: this party.
        ledger: knows whether noise was drawn.
        record: the study as it is now.
        review: what would be approved.
        voters: who said yes to that before.
        approvers: who may approve now.
        data_changes: of the data, since the last vote; for the message.

    Raises:
        Refusal: APPROVAL_VOID.
    """
    task, study = record.task, review.study
    approval = None if record.approval is None else parse_approval(record.approval)
    if approval is not None and record.approval is not None and content_of(record.approval) == review.content:
        with contextlib.suppress(Refusal):
            check_giver(config.policy, study, approval, voters, approvers)
            return True
    if not task.approved:
        return False
    same = approval is None or approval.declarations() == {i: study.units[i] for i in study.units_of(config.name)}
    if same and task.effective:
        try:
            check_effective(study, task.effective, task.effective_digest, config.name)
        except PeerFault:
            same = False
    if approval is not None and ledger.has_drawn(record.digest):
        what = "; ".join(data_changes) or "data, minimum or approvers changed since"
        message = f"study '{record.study_id}': it is under way with what was approved before: {what}"
        raise Refusal("APPROVAL_VOID", message, hint=_NEW_ID)
    if not same:
        raise Refusal(
            "APPROVAL_VOID",
            f"study '{record.study_id}': others have the approval, and the declaration in {config.path.name} is another",
            hint=f"declare again what was approved; else {_NEW_ID}",
        )
    return False


def check_data(
    study: Study,
    approval: Approval,
    seals_now: Mapping[int, bytes],
    *,
    then: Mapping[int, Origins] | None = None,
    now: Mapping[int, Origins] | None = None,
) -> None:
    """Check that the data are those that were approved.

    Args:
        study: what was approved, for messages.
        approval: this party's approval.
        seals_now: `seals` of the data as they are now, by unit.
        then, now: where they came from when they were approved, and come from now, to say what changed.

    Raises:
        Refusal: APPROVAL_VOID.
    """
    units = [unit for unit in approval.units if unit.fingerprint != seals_now.get(unit.index, b"").hex()]
    if not units:
        return
    differences = data_changes(then, now) if then is not None and now is not None else ()
    names = (f"column '{', '.join(unit.unit.variables)}'" for unit in units)
    raise void(
        study, "; ".join(differences or [f"the data of {name}, or where they come from, changed" for name in names])
    )


def check_effective(approved_study: Study, effective: bytes, effective_digest: bytes, party: str) -> Study:
    """Read the effective study that the miner tells and check it against what was approved.

    Raises:
        PeerFault: STUDY_MISMATCH, MESSAGE_INVALID.
    """
    if hashlib.sha256(effective).digest() != effective_digest:
        raise PeerFault(
            "STUDY_MISMATCH",
            f"study '{approved_study.id}': the effective study does not have the digest that was sent with it",
        )
    study = parse_canonical(effective)
    check_own_part(approved_study, study, party)
    return study


def void(study: Study, why: str) -> Refusal:
    """Return the error of an approval that does not hold any more."""
    hint = "an approval binds to the study, the declaration and the data; submit the study again and approve it anew"
    return Refusal("APPROVAL_VOID", f"study '{study.id}': the approval does not hold any more: {why}", hint=hint)
