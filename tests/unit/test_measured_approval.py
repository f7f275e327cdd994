"""An approval with the profiles of a party's numbers: what it binds to, what is charged before it leaves, and what is refused."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.set_back import SetBack
from verticil.party.audit.log import AuditLog, Event
from verticil.party.config import load_party
from verticil.party.policy.approval_checks import AUTOMATIC, content_of
from verticil.party.protocol.central.study import CentralStudy
from verticil.party.protocol.context import PartyContext
from verticil.party.protocol.randomization import Spool
from verticil.party.protocol.statistics import charge_profiles
from verticil.party.protocol.with_miner.plan import Step
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord, Task
from verticil.shared.core.errors import Misuse, PeerFault, Refusal
from verticil.shared.documents.record import encode
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.transport.in_memory import InMemoryControl, InMemoryCoordinator
from verticil.shared.mechanisms import privacy
from verticil.shared.privacy.accounts import COLUMNS, PUBLIC
from verticil.shared.study import canonical, rules
from verticil.shared.study.approval import (
    Approval,
    DeclaredProfile,
    DeclaredUnit,
    check_approval,
    check_own_part,
    effective_study,
    parse_approval,
)
from verticil.shared.study.document import QuorumRule, Study
from verticil.shared.study.profiles import grid_of_variable, with_profiles
from verticil.shared.study.states import State
from verticil.simulation.in_memory_peers import serving_miner
from verticil.wire.v1 import control_pb2, coordinator_pb2

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
TABLES = "[tables]\nepsilon = 3.0\ndelta = 1e-6\n"


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> SetBack:
    return SetBack(tmp_path_factory.mktemp("federation"), "central", TABLES, numbers=True)


@pytest.fixture
def study(federation: SetBack) -> Study:
    return federation.study()


@pytest.fixture
def site(federation: SetBack) -> Iterator[Site]:
    federation.lose("database and log")
    with Site.open(load_party(federation.clinic / "party.toml")) as opened:
        yield opened


def record_of(site: Site, study: Study) -> StudyRecord:
    proposal, digest = canonical.to_bytes(study), canonical.digest(study)
    task = Task(
        digest=digest, version=1, state=int(State.AWAITING_APPROVAL), proposal=proposal, effective=b"",
        effective_digest=b"", approved=False, pseudonyms_complete=False, alignment_confirmed=False,
        units_received=(), failure="",
    )  # fmt: skip
    site.state.remember(task, study.id, NOW)
    return site.state.study(digest)


def approved(site: Site, study: Study) -> Approval:
    record = record_of(site, study)
    if record.approval is None:
        assert site.voting.approve(record, AUTOMATIC, NOW).complete
    return parse_approval(site.state.study(record.digest).approval or b"")


@pytest.mark.parametrize("lines", [1, 2])
def test_a_site_that_is_killed_while_profiles_are_charged_opens_again_and_has_the_charge(
    tmp_path: Path, lines: int
) -> None:
    """In a masked study both readers' lines are one transaction: in the log, and not in the database of who dies then."""
    federation = SetBack(tmp_path, "masked", TABLES, numbers=True)
    study, config = federation.study(), load_party(federation.clinic / "party.toml")
    with Site.open(config) as site:
        record, own = record_of(site, study), approved(site, study).declared_in(study)
    if (child := os.fork()) == 0:
        with Site.open(config) as site, pytest.MonkeyPatch.context() as patched:
            tell, told = AuditLog.record, list[object]()

            def killed(log: AuditLog, event: Event, at: dt.datetime) -> None:
                tell(log, event, at)
                told.append(event)
                if len(told) == lines:
                    os._exit(9)

            patched.setattr(AuditLog, "record", killed)
            charge_profiles(site, record, own, NOW)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with Site.open(config) as site:  # not LEDGER_OLDER: nothing had left
        assert len(site.ledger.rows()) == lines
        charge_profiles(site, record, own, NOW)
        assert len(site.ledger.rows()) == 2
        site.ledger.check_rows()


def of_insurer(study: Study) -> Approval:
    """The other party's approval, with counts that are all 30."""
    name = "insurer_x"
    counts = (30,) * grid_of_variable(study.schema[study.schema.index(name)]).size
    own = with_profiles(study, {name: counts})
    return Approval(
        proposal_digest=canonical.digest(study),
        party="insurer",
        units=tuple(
            DeclaredUnit(index=index, unit=own.units[index], fingerprint="0" * 64) for index in own.units_of("insurer")
        ),
        minimum_common_records=10,
        approver="somebody",
        approved_at=NOW,
        expires=study.expires,
        profiles=(DeclaredProfile(variable=name, counts=counts),),
    )


def test_an_approval_has_the_counts_and_the_units_of_the_bins_and_is_the_same_again(site: Site, study: Study) -> None:
    approval = approved(site, study)
    assert [profile.variable for profile in approval.profiles] == ["clinic_x"]
    own = approval.declared_in(study)
    variable = own.schema[own.schema.index("clinic_x")]
    assert own.units[0].transition.n_states == variable.n_states
    before, after = (privacy.gamma(each.units[0].transition) for each in (study, own))
    assert before is not None
    assert after is not None
    assert after <= before < after * (1 + 1e-12)
    check_approval(approval, study, "clinic")
    review = site.review(site.state.find(study.id), NOW)
    assert review.content == content_of(encode(approval))
    assert review.study == own
    assert review.bound.profiles == approval.profiles


def test_another_study_of_the_same_data_has_other_noise(site: Site, study: Study) -> None:
    other = dataclasses.replace(study, id="other")
    one, two = approved(site, study).profiles[0].counts, approved(site, other).profiles[0].counts
    assert sum(a == b for a, b in zip(one, two, strict=True)) < len(one) / 2


def test_the_tables_are_charged_to_every_reader_before_the_approval_leaves_and_once(site: Site, study: Study) -> None:
    approval, record = approved(site, study), site.state.find(study.id)
    own = approval.declared_in(study)
    assert site.ledger.rows() == ()
    assert site.ledger.sum_reserved(reader=PUBLIC)["people"].epsilon == pytest.approx(3.0)
    for _ in range(2):
        charge_profiles(site, record, own, NOW)
        (row,) = site.ledger.rows()
        assert (row.kind, row.charged, row.recipient) == ("layered-counts", 3.0, "everyone")
        for reader in (COLUMNS, PUBLIC):
            assert site.ledger.sum_charges("people", reader).epsilon == pytest.approx(3.0)
    assert site.ledger.sum_reserved(reader=PUBLIC).get("people") is None
    other = with_profiles(study, {"clinic_x": [count + 1 for count in approval.profiles[0].counts]})
    with pytest.raises(Refusal, match="was computed before") as caught:
        charge_profiles(site, record, other, NOW)
    assert caught.value.code == "APPROVAL_VOID"
    assert len(site.ledger.rows()) == 1


def test_the_miner_puts_the_bins_of_all_into_the_study_and_each_party_finds_its_own(site: Site, study: Study) -> None:
    mine, theirs = approved(site, study), of_insurer(study)
    effective = effective_study(study, [theirs, mine])
    assert effective == effective_study(study, [mine, theirs])
    assert canonical.from_bytes(canonical.to_bytes(effective)) == effective
    assert all(variable.profile for variable in effective.schema.variables if variable.bounds)
    own = mine.declared_in(study)
    check_own_part(own, effective, "clinic")
    counts = [count + 5 * (place == 3) for place, count in enumerate(mine.profiles[0].counts)]
    forged = dataclasses.replace(mine, profiles=(dataclasses.replace(mine.profiles[0], counts=tuple(counts)),))
    with pytest.raises(PeerFault) as caught:
        check_own_part(own, effective_study(study, [forged, theirs]), "clinic")
    assert caught.value.code == "STUDY_MISMATCH"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda profiles: (), "expected those of"),
        (lambda profiles: (dataclasses.replace(profiles[0], variable="clinic_y"),), "expected those of"),
        (lambda profiles: (*profiles, *profiles), "expected those of"),
        (lambda profiles: (dataclasses.replace(profiles[0], counts=profiles[0].counts[:-1]),), "counts of a grid"),
        (lambda profiles: (dataclasses.replace(profiles[0], counts=(*profiles[0].counts, 1)),), "counts of a grid"),
        (
            lambda profiles: (dataclasses.replace(profiles[0], counts=(10**5, *profiles[0].counts[1:])),),
            "matrix is 16 x 16",
        ),
    ],
)
def test_an_approval_whose_profiles_do_not_fit_is_refused(site: Site, study: Study, change: object, words: str) -> None:
    approval = approved(site, study)
    forged = dataclasses.replace(approval, profiles=change(approval.profiles))  # type: ignore[operator]
    with pytest.raises(PeerFault, match=words) as caught:
        check_approval(parse_approval(encode(forged)), study, "clinic")
    assert caught.value.code == "STUDY_MISMATCH"


def test_counts_that_are_no_numbers_of_people_are_refused(site: Site, study: Study) -> None:
    approval = approved(site, study)
    first = f'"counts":[{approval.profiles[0].counts[0]},'.encode()
    body = encode(approval)
    assert body.count(first) == 1
    for wrong in (b"1" + b"0" * 400, b"1.5", b"null", b'"7"', b"1e400"):
        with pytest.raises(PeerFault):
            check_approval(parse_approval(body.replace(first, b'"counts":[' + wrong + b",")), study, "clinic")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda study: dataclasses.replace(study, tables=None), "goes with noise on tables"),
        (lambda study: dataclasses.replace(study, quorum=QuorumRule(minimum=1, deadline_seconds=60)), "quorum"),
        (
            lambda study: dataclasses.replace(
                study, units=(dataclasses.replace(study.units[0], scheme="matrix"), *study.units[1:])
            ),
            "'symmetric' or 'none'",
        ),
    ],
)
def test_what_measured_bins_of_parties_do_not_go_with_is_named(study: Study, change: object, words: str) -> None:
    with pytest.raises(Misuse, match=words):
        rules.check(change(study), source="study")  # type: ignore[operator]


def test_changed_data_after_the_profile_has_left_end_the_study(federation: SetBack, site: Site, study: Study) -> None:
    approval, record = approved(site, study), site.state.find(study.id)
    charge_profiles(site, record, approval.declared_in(study), NOW)
    path = Path(federation.root / "tables" / "clinic.csv")
    text = path.read_text()
    try:
        path.write_text(text.replace("p0,0,", "p0,11,"))
        assert site.voting.approve(site.state.find(study.id), AUTOMATIC, NOW).complete
        other = parse_approval(site.state.find(study.id).approval or b"")
        assert other.profiles != approval.profiles
        with pytest.raises(Refusal, match="was computed before"):
            charge_profiles(site, site.state.find(study.id), other.declared_in(study), NOW)
    finally:
        path.write_text(text)


class Line(InMemoryCoordinator):
    """A line to the miner that notes how many rows the ledger has when the approval leaves."""

    site: Site
    rows_before: list[int]

    async def report(self, request: coordinator_pb2.ReportRequest) -> coordinator_pb2.ReportReply:
        if request.HasField("approval"):
            self.rows_before.append(len(self.site.ledger.rows()))
        return await super().report(request)


async def test_the_ledger_has_the_charge_when_the_approval_leaves(
    federation: SetBack, site: Site, study: Study
) -> None:
    config = site.config
    node = PartyContext(
        site=site,
        spool=Spool(config.state_directory / "spool"),
        signing_key=SigningKey.load(config.signing_key, config.certificate),
        authority=config.federation.ca_certificate.read_bytes(),
        clock=utc_now,
    )
    async with serving_miner(federation.made, utc_now, is_seeded=True) as miner:
        analyst = Identity(federation="trial", role=Role.ANALYST, name="analyst")
        proposal = control_pb2.SubmitStudyRequest(proposal=canonical.to_bytes(study))
        await InMemoryControl(miner.control, analyst).submit_study(proposal)
        approval = await asyncio.to_thread(approved, site, study)
        line = Line(miner.coordinator, Identity(federation="trial", role=Role.PARTY, name="clinic"))
        line.site, line.rows_before = site, []
        run = CentralStudy(node, approval.proposal_digest)
        run.coordinator = line
        await run.act(Step.TELL_APPROVAL, site.state.study(approval.proposal_digest))
        assert line.rows_before == [1]
        assert miner.session.record(approval.proposal_digest).approvals.keys() == {"clinic"}
        miner.changes.close()
