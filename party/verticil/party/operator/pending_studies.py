"""What is asked of this party, and what each study means in words: ``verticil party inbox`` and ``verticil party show``.

Reads no table: the words follow from the study, party.toml and the ledger. What a study would be charged is therefore an upper
bound (`cost`): values that were sent before with the same noise cost nothing again, and whether these are the same values only
``party approve`` and ``party preview`` look up.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from verticil.party.config import PartyConfig
from verticil.party.limits.limits import find_objections
from verticil.party.local_dataset import columns_of, origins
from verticil.party.operator.plain_language import PRIOR, belief_words, column_words, total_words
from verticil.party.operator.quorum_words import quorum_words
from verticil.party.operator.view_model import (
    COUNTS_TELL,
    ColumnInWords,
    CostView,
    EventView,
    PlacesView,
    Questions,
    ShareView,
    StudyName,
    columns,
    cost,
    figure_words,
    further_events,
    name_keys,
    places_of,
    questions,
    share,
    widen,
)
from verticil.party.policy import approval_checks
from verticil.party.policy.comparison import labels_of
from verticil.party.policy.rule_approval import ruling
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.view_models import inlined, left_out
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.numerics.knowledge.words import describe_knowledge
from verticil.shared.privacy.events import plan_events
from verticil.shared.privacy.figures import gamma_of_epsilon, sent_epsilons, share_cost, total_epsilon
from verticil.shared.study.document import Study
from verticil.shared.study.draft_review import origin_words
from verticil.shared.study.protocols import disclosure, opens_tables, protocol_of, sent_units
from verticil.shared.study.states import State, is_final

_UNDECIDED = (State.SUBMITTED, State.AWAITING_APPROVAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a study that waits asks for, and what it would cost at most; `four_figures` of a masked one, in words.

    Attributes:
        cost: empty where the release waits: everything was charged before it left.
    """

    title: str
    purpose: str
    parties: tuple[str, ...]
    expires: str
    columns: tuple[str, ...]
    recipients: tuple[str, ...]
    cost: tuple[CostView, ...]
    four_figures: tuple[str, ...] | None = left_out()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingStudy(StudyName):
    """A study that waits for somebody here.

    Attributes:
        waits_for: ``approval`` or ``countersignature``.
        terms: None: they cannot be read with this table or declaration, as `objections` says.
        changed: since the last study of this id; None: not known.
    """

    waits_for: str
    seen_at: str
    approvals: int
    approvers_needed: int
    terms: Terms | None = inlined()
    objections: tuple[str, ...]
    changed: tuple[str, ...] | None = left_out()


@dataclass(frozen=True, slots=True, kw_only=True)
class Inbox:
    """What waits at a party."""

    party: str
    common_sets: PlacesView
    waiting: tuple[PendingStudy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleWords:
    """Whether a rule covers a study, and why none does."""

    rule: str | None
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What changed since an earlier study of the same id; None: there is none."""

    compared_with: str | None
    compared_with_approved: bool
    changes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyInWords(StudyName):
    """A study in words: what happens to each column, what can be learned from it, who gets it, what it costs.

    Attributes:
        alignment: what finding the common people shows, to whom.
        stated: what the study states of all records, which is not learned, a sentence each; None: nothing.
        origins: where the categories of columns come from, a sentence each; None: the study does not say.
        four_figures, membership_words: of a masked study, in words, and what none of them covers; None: it is none.
        prior: the belief that the words start from.
        further_events: what is drawn besides columns and the noise on what is shared; None: nothing.
        by_rule: None: rules have no say.
        cost_is_ahead: whether it goes on here and nothing of it has been charged yet, so `cost` lies ahead.
        comparison: None: it was not asked for.
    """

    title: str
    purpose: str
    model: str
    parties: tuple[str, ...]
    expires: str
    alignment: Mapping[str, str]
    minimum_common_records: int
    stated: tuple[str, ...] | None = left_out()
    origins: tuple[str, ...] | None = left_out()
    four_figures: tuple[str, ...] | None = left_out()
    membership_words: str | None = left_out()
    questions: Questions | None = inlined()
    columns: tuple[ColumnInWords, ...]
    prior: float
    total_words: str
    share_words: str | None
    quorum_words: tuple[str, ...]
    further_events: tuple[EventView, ...] | None = left_out()
    share: ShareView | None = left_out()
    cost: tuple[CostView, ...]
    cost_is_ahead: bool
    objections: tuple[str, ...]
    waits_for: str
    by_rule: RuleWords | None
    counts_tell: str
    stage: str
    comparison: Comparison | None = inlined()


def inbox(config: PartyConfig, *, at: dt.datetime | None = None) -> Inbox:
    """List the studies that wait for somebody here: for an approval, or for a countersignature.

    Raises:
        DataFault: SECRET_MISSING, STATE_CORRUPT.
        Misuse: CONFIG_INVALID.
    """
    now = at if at is not None else utc_now()
    with Site.open(config) as site:
        return Inbox(party=config.name, common_sets=places_of(site), waiting=waiting(site, now))


def show(config: PartyConfig, study: str, *, diff: bool = False, at: dt.datetime | None = None) -> StudyInWords:
    """Return a study in words: every matrix, what all columns of a person reveal together, what it costs, who gets what.

    Args:
        config: party.toml.
        study: id or digest.
        diff: say what changed since the study of this id that was approved here last, or else was offered here before.
        at: now.

    Raises:
        Misuse: STUDY_UNKNOWN, CONFIG_INVALID.
        Refusal: DECLARATION_WEAKER.
        DataFault: SECRET_MISSING, STATE_CORRUPT, a table's header cannot be read.
    """
    now = at if at is not None else utc_now()
    with Site.open(config) as site:
        record = site.state.find(study)
        report = in_words(site, record, now)
        if not diff:
            return report
        earlier, differences = site.voting.changes(record)
    comparison = Comparison(
        compared_with=None if earlier is None else earlier.digest.hex(),
        compared_with_approved=earlier is not None and earlier.approval is not None,
        changes=tuple(differences),
    )
    return replace(report, comparison=comparison)


def waiting(site: Site, now: dt.datetime) -> tuple[PendingStudy, ...]:
    """Return what `inbox` lists; raises nothing of a single study."""
    return tuple(pending(site, record, now) for record in site.state.studies() if waits_for(site, record))


def waits_for(site: Site, record: StudyRecord) -> str:
    """Return what a study waits for here: ``approval`` or ``countersignature``; empty: nothing."""
    if _has_ended(record):
        return ""
    state = State(record.task.state)
    if record.approval is None and (state in _UNDECIDED or record.task.approved):
        return "approval"
    review = site.decisions.review(record.digest)
    waits = state is State.REVIEW and review is not None and review.countersignature is None
    return "countersignature" if waits else ""


def _has_ended(record: StudyRecord) -> bool:
    refused = record.failure is not None or record.denial_sent is not None
    return refused or is_final(State(record.task.state)) or record.forgotten == "study"


def _cost_is_ahead(site: Site, record: StudyRecord) -> bool:
    is_over = _has_ended(record) or record.revocation_sent is not None
    return not is_over and not site.ledger.has_charged(record.digest)


def pending(site: Site, record: StudyRecord, now: dt.datetime) -> PendingStudy:
    """Return a study that waits as `inbox` lists it; raises nothing."""
    config, waits = site.config, waits_for(site, record)
    terms: Terms | None = None
    differences: tuple[str, ...] | None = None
    try:
        study = approval_checks.with_own_randomization(config, record.task.proposal_study)
        terms = Terms(
            title=study.title,
            purpose=study.purpose,
            parties=tuple(study.parties),
            expires=study.expires.isoformat(),
            columns=tuple(
                ", ".join(study.units[index].variables)
                for index in study.units_of(config.name)
                if index in protocol_of(study).readable(study)
            ),
            recipients=_recipients(config, study),
            cost=cost(config, site, study) if waits == "approval" else (),
            four_figures=figure_words(site, study),
        )
        objections = _objections(config, study, now)
        differences = tuple(site.voting.changes(record)[1])
    except VerticilError as error:  # one study's declaration must not hide the others
        objections = (f"{error.code}: {error.message}",)
    return PendingStudy(
        **name_keys(record),
        waits_for=waits,
        seen_at=record.seen_at,
        approvals=record.n_votes,
        approvers_needed=config.policy.approvers_needed,
        terms=terms,
        objections=objections,
        changed=differences,
    )


def in_words(site: Site, record: StudyRecord, now: dt.datetime) -> StudyInWords:
    """Return what `show` says of a study; raises as it does, but for STUDY_UNKNOWN."""
    config = site.config
    study = approval_checks.with_own_randomization(config, record.task.proposal_study)
    sent_indices, readable = sent_units(study), protocol_of(study).readable(study)
    own, readers = study.units_of(config.name), {item.unit: item.readers for item in plan_events(study, config.name)}
    rows = tuple(
        widen(
            row,
            ColumnInWords,
            leaves=index in sent_indices,
            recipients=readers.get(index, ()),
            words=tuple(column_words(labels_of(study, index), study.units[index].transition))
            if index in readable
            else (),
        )
        for row, index in zip(columns(config, study, {}), own, strict=True)
    )
    epsilons = sent_epsilons(study, config.name)
    total = total_words(total_epsilon(epsilons), len(epsilons)) if epsilons else "no column leaves this party"
    if opens_tables(study):
        total = f"for a dealer of masks that works with its partner, and for nobody else, {total}"
    return StudyInWords(
        **name_keys(record),
        title=study.title,
        purpose=study.purpose,
        model=study.model,
        parties=tuple(study.parties),
        expires=study.expires.isoformat(),
        alignment=disclosure(study).document(),
        minimum_common_records=max(study.linkage.minimum_common_records, config.policy.minimum_common_records),
        stated=describe_knowledge(study.knowledge, study.schema) or None,
        origins=origin_words(study) or None,
        four_figures=figure_words(site, study),
        membership_words=_membership_words(config, study) if opens_tables(study) else None,
        questions=questions(config, study),
        columns=rows,
        prior=float(PRIOR),
        total_words=total,
        share_words=_share_words(study),
        quorum_words=tuple(quorum_words(study, config.name, minimum_parties=config.policy.minimum_parties)),
        further_events=further_events(study, config.name) or None,
        share=share(study),
        cost=cost(config, site, study),
        cost_is_ahead=_cost_is_ahead(site, record),
        objections=_objections(config, study, now),
        waits_for=waits_for(site, record),
        by_rule=_by_rule(site, record, now),
        counts_tell=COUNTS_TELL,
        stage=record.stage,
    )


def _by_rule(site: Site, record: StudyRecord, now: dt.datetime) -> RuleWords | None:
    """Return whether a rule approves it, and why none does; None: rules have no say."""
    if site.config.policy.approval != "rules" or waits_for(site, record) != "approval":
        return None
    result = ruling(site.voting, record, now)
    return RuleWords(rule=None if result.rule is None else result.rule.name, why=tuple(result.why))


def _recipients(config: PartyConfig, study: Study) -> tuple[str, ...]:
    getting = (name for item in plan_events(study, config.name) if item.unit is not None for name in item.readers)
    return tuple(dict.fromkeys(getting))


def _objections(config: PartyConfig, study: Study, now: dt.datetime) -> tuple[str, ...]:
    objections = find_objections(config.policy, study, config.name, columns_of(config, study), today=now.date())
    over = [f"it expired: its last day was {study.expires.isoformat()}"] if study.is_expired(now.date()) else []
    return (*over, *(item.message for item in objections))


def _membership_words(config: PartyConfig, study: Study) -> str:
    """Describe what no figure of a masked study covers, and what the person who approves has to know of the population."""
    datasets = dict.fromkeys(place.dataset for place in origins(config, study).values())
    by = ", ".join(f"'{config.datasets[name].id}' of data set '{name}'" for name in datasets)
    return (
        "not covered: who is among the common people, which the parties learn, and how many they are, which everybody learns; "
        f"people are linked by {by}. Approve only if that a person is in this population tells nothing that is to be protected, "
        "such as a diagnosis"
    )


def _share_words(study: Study) -> str | None:
    """Describe what a party sends its peers besides columns."""
    rule, cost = study.share, share_cost(study)
    if rule is None or cost is None:
        return None
    if math.isinf(cost.epsilon):
        return (
            "the parameters of this party's columns are exact functions of its table, and go to all parties:"
            f" {belief_words(None, what='anything about a person')}"
        )
    noisy = belief_words(gamma_of_epsilon(cost.epsilon), what="anything about them")
    return (
        f"the parameters of this party's columns rest on counts with {rule.noise_words} of epsilon {cost.epsilon:g}:"
        f" by what is shared of one person, but for a chance of {cost.delta:g}, {noisy}"
    )
