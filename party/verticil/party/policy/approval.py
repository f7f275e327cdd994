"""What a site's approval means here: what is looked at before it is given, and what must still hold when it is used.

`review` does everything that speaks against a study before anybody says yes: the policy, the data, the budget.
`body_of` is what is then signed. Later, before anything leaves, `check_binding` and `check_data` compare the study, the
site's own declaration and the data with that body; any change voids the approval (contract.md section 5). When in
doubt, no.

The body leaves the site, so it does not hold the fingerprints themselves: two that are equal, in two studies or under two
codebooks, would tell exactly that no value changed, or that nobody lies between two bins. It holds seals (`seals`), which only
this site can compare, and which differ between any two studies and units whatever the data are.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from verticil.party.config import PartyConfig
from verticil.party.dataset.releases import Release
from verticil.party.limits import policy
from verticil.party.local_dataset import (
    LocalDataset,
    columns_of,
    datasets_of,
    read_holding,
    releases_of,
    statistics_of,
)
from verticil.party.policy.comparison import Origins, data_changes, labels_of, unit_changes
from verticil.party.policy.ledger import Assessment, Ledger
from verticil.party.storage.secret import SiteSecret
from verticil.shared.errors import Misuse, PeerFault, Refusal
from verticil.shared.record import encode
from verticil.shared.study.approval import Approval, check_own_part, declared_units, parse_approval
from verticil.shared.study.canonical import from_bytes
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import sent_units
from verticil.shared.study.reading import read_declarations

_NOBODY: Final = "-"
_NEVER: Final = datetime(2000, 1, 1, tzinfo=UTC)
_SEAL: Final = b"verticil/approval/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A study that nothing speaks against.

    Attributes:
        study: with this party's own declaration.
        proposal_digest: of the proposal.
        holding: the data, as read.
        minimum_common_records: the larger of the study's and the policy's.
        releases: what randomizing each of the party's units means, by unit.
        assessments: what sending would cost now, by unit; without the units that the study sends to nobody.
        seals: what stands for the data in the approval, by unit.
    """

    study: Study
    proposal_digest: bytes
    holding: LocalDataset
    minimum_common_records: int
    releases: Mapping[int, Release]
    assessments: Mapping[int, Assessment]
    seals: Mapping[int, bytes]


@functools.lru_cache(maxsize=16)
def parsed(study: bytes) -> Study:
    """A study from its canonical bytes; the last few are kept, because each step of a study's way looks at them again.

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    return from_bytes(study)


def declared(config: PartyConfig, study: Study) -> Study:
    """The study with this party's ``[[randomization]]`` tables in it.

    Raises:
        Refusal: DECLARATION_WEAKER.
        Misuse: CONFIG_INVALID, MATRIX_INVALID, MATRIX_SINGULAR, STUDY_UNSUPPORTED.
    """
    return study.with_declaration(read_declarations(config.declarations, study, config.name))


def review(
    config: PartyConfig,
    ledger: Ledger,
    proposal: bytes,
    *,
    site_secret: SiteSecret,
    linkage_key: bytes,
    today: date,
    holding: LocalDataset | None = None,
) -> Review:
    """Look at a study: expiry, policy, data, budget, in this order.

    No value of the table has a part in the answer, but for one thing that `Ledger.assess` says: whether data that were released
    before are the same still, where the policy refuses others. How many people there are is not looked at: that too few are
    common shows when the parties find the common ones.

    Args:
        config: this party.
        ledger: what was released before.
        proposal: canonical bytes.
        site_secret: of this site.
        linkage_key: shared by the parties.
        today: UTC.
        holding: the data, when they have been read already.

    Raises:
        Refusal: STUDY_EXPIRED, POLICY_REFUSED, BUDGET_EXCEEDED, EPSILON_INFINITE, DATA_CHANGED, DECLARATION_WEAKER.
        DataFault, Misuse: a table that is no readable file or lacks a column; whatever is wrong with party.toml.
    """
    study = declared(config, parsed(proposal))
    digest = hashlib.sha256(proposal).digest()
    check_expiry(study, today)
    policy.refuse(
        policy.objections(config.policy, study, config.name, columns_of(config, study), today=today), study.id
    )
    if holding is None:
        holding = read_holding(config, study, proposal_digest=digest, site_secret=site_secret, linkage_key=linkage_key)
    releases = releases_of(config, study, holding, site_secret=site_secret.value)
    shared = statistics_of(study, config.name, datasets_of(releases))
    policy.require_rows(config.policy, holding.n_rows, study.id)
    minimum = max(study.linkage.minimum_common_records, config.policy.minimum_common_records)
    sent = [index for index in releases if index in sent_units(study)]
    assessments = ledger.assess([releases[index] for index in sent], config.policy, study_digest=digest, shared=shared)
    return Review(
        study=study,
        proposal_digest=digest,
        holding=holding,
        minimum_common_records=minimum,
        releases=releases,
        assessments=dict(zip(sent, assessments, strict=True)),
        seals=seals(releases, digest, site_secret=site_secret.value),
    )


def seals(releases: Mapping[int, Release], proposal_digest: bytes, *, site_secret: bytes) -> dict[int, bytes]:
    """What an approval says of the data of each unit: 32 bytes that change with the data and with where they come from.

        seal = HMAC-SHA-256(HKDF-SHA-256(site secret, info = "verticil/approval/v1" ‖ proposal digest), unit ‖ draw ‖ fingerprint)

    where the draw names data set, source columns, codebook (with the recode), matrix and secret. Nothing can be learned from it
    without the site secret, not even whether two studies saw the same data.

    Args:
        releases: by unit.
        proposal_digest: of the proposal.
        site_secret: of this site.
    """
    key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=_SEAL + proposal_digest).derive(site_secret)

    def seal(index: int, release: Release) -> bytes:
        draw = [part if isinstance(part, str) else part.hex() for part in release.draw]
        return hmac.digest(key, json.dumps([index, *draw, release.fingerprint.hex()]).encode("ascii"), "sha256")

    return {index: seal(index, release) for index, release in releases.items()}


def check_expiry(study: Study, today: date) -> None:
    """Refuse a study whose last day has passed.

    Raises:
        Refusal: STUDY_EXPIRED.
    """
    if study.expired(today):
        hint = "nothing is sent after that day; submit a new study"
        raise Refusal(
            "STUDY_EXPIRED", f"study '{study.id}': its last day was {study.expires}, today is {today}", hint=hint
        )


def body_of(found: Review, party: str, approver: str, at: datetime) -> bytes:
    """The approval's body: canonical JSON, ready to be signed."""
    return encode(
        Approval(
            proposal_digest=found.proposal_digest,
            party=party,
            units=declared_units(
                {index: found.study.units[index] for index in found.releases},
                {index: seal.hex() for index, seal in found.seals.items()},
            ),
            minimum_common_records=found.minimum_common_records,
            approver=approver,
            approved_at=at,
            expires=found.study.expires,
        )
    )


def origins_of(releases: Mapping[int, Release], n_records: int) -> dict[int, Origins]:
    """Where the data of each unit come from, and their fingerprint: kept here to say later what changed."""
    return {
        index: Origins(
            variables=release.variables,
            dataset=release.dataset,
            sources=release.sources,
            codebook=release.codebook_digest.hex(),
            transition=release.transition_digest.hex(),
            secret=release.secret_id.hex(),
            fingerprint=release.fingerprint.hex(),
            n_records=n_records,
        )
        for index, release in releases.items()
    }


@functools.lru_cache(maxsize=16)
def content_of(body: bytes) -> bytes:
    """SHA-256 of everything that an approval binds to, whoever gives it and whenever: what approvers must agree in."""
    given = parse_approval(body)
    return hashlib.sha256(encode(replace(given, approver=_NOBODY, approved_at=_NEVER))).digest()


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
    approved = proposal.with_declaration(approval.declarations())
    try:
        now = declared(config, proposal)
    except Misuse as error:
        raise void(proposal, f"the declaration in {config.path.name} changed ({error.code})") from None
    own = proposal.units_of(config.name)
    differing = [i for i in own if approved.units[i] != now.units[i]]
    if tuple(sorted(approval.declarations())) != own or differing:
        named = [text for i in differing for text in unit_changes(approved.units[i], now.units[i], labels_of(now, i))]
        raise void(proposal, "; ".join([f"the declaration in {config.path.name} changed", *named]))
    columns = columns_of(config, proposal)
    policy.refuse(policy.objections(config.policy, approved, config.name, columns, today=today), proposal.id)
    return approved


def check_data(
    study: Study,
    approval: Approval,
    found: Mapping[int, bytes],
    *,
    then: Mapping[int, Origins] | None = None,
    now: Mapping[int, Origins] | None = None,
) -> None:
    """Check that the data are those that were approved.

    Args:
        study: what was approved, for messages.
        approval: this party's approval.
        found: `seals` of the data as they are now.
        then, now: where they came from when they were approved, and come from now, to say what changed.

    Raises:
        Refusal: APPROVAL_VOID.
    """
    changed = [unit for unit in approval.units if found.get(unit.index, b"").hex() != unit.fingerprint]
    if not changed:
        return
    named = data_changes(then, now) if then is not None and now is not None else ()
    names = (f"column '{', '.join(unit.unit.variables)}'" for unit in changed)
    raise void(study, "; ".join(named or [f"the data of {name}, or where they come from, changed" for name in names]))


def check_effective(approved: Study, effective: bytes, effective_digest: bytes, party: str) -> Study:
    """Read the effective study that the miner tells and check it against what was approved.

    Raises:
        PeerFault: STUDY_MISMATCH, MESSAGE_INVALID.
    """
    if hashlib.sha256(effective).digest() != effective_digest:
        raise PeerFault(
            "STUDY_MISMATCH", f"study '{approved.id}': the effective study does not have the digest that is told"
        )
    study = parsed(effective)
    check_own_part(approved, study, party)
    return study


def void(study: Study, why: str) -> Refusal:
    """The error of an approval that does not hold any more."""
    hint = "an approval binds to the study, the declaration and the data; submit the study again and approve it anew"
    return Refusal("APPROVAL_VOID", f"study '{study.id}': the approval does not hold any more: {why}", hint=hint)
