"""The site's limits against a study, and the planner of a party's next step."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math

import pytest

from verticil.party.dataset.column_draws import Column
from verticil.party.limits.limits import Policy, check_shared, find_objections, refuse
from verticil.party.protocol.central.plan import Step, plan
from verticil.party.protocol.with_miner.plan import Step as Told
from verticil.party.storage.studies import StudyRecord, Task
from verticil.shared.core.errors import InternalFault, Refusal
from verticil.shared.study.document import ShareRule
from verticil.shared.study.states import State

OPEN = Policy(
    approval="manual",
    approvers=(),
    approvers_needed=1,
    max_epsilon_per_column=math.inf,
    max_epsilon_per_study=math.inf,
    max_epsilon_lifetime=math.inf,
    allow_infinite=("region",),
    minimum_common_records=1,
    minimum_parties=2,
    max_categories=50,
    deny_columns=(),
    recipients=("miner",),
    on_data_change="refuse",
)
CLINIC = {"age": Column(dataset="people", source="AGE_AT_VISIT"), "smoker": Column(dataset="people", source="smoker")}
REGISTRY = {
    variable: Column(dataset="people", source=source)
    for variable, source in {"income": "income", "weight": "kg", "region": "region"}.items()
}


def found(study, party="clinic", columns=CLINIC, **change):
    return [(o.code, o.message) for o in find_objections(dataclasses.replace(OPEN, **change), study, party, columns)]


def test_an_open_policy_permits(release_study):
    assert found(release_study) == []
    assert found(release_study, "registry", REGISTRY) == []


# Epsilons of the study's clinic: age 2 (symmetric), smoker ln 7.5 = 2.0149 (p1 = .1, p2 = .25); randomization.md 1.1.
@pytest.mark.parametrize(
    ("change", "code", "part"),
    [
        ({"recipients": ()}, "POLICY_REFUSED", "policy.recipients"),
        ({"minimum_parties": 3}, "POLICY_REFUSED", "2 parties, expected at least 3"),
        ({"max_categories": 2}, "POLICY_REFUSED", "variable 'age': 3 categories, expected at most 2"),
        ({"deny_columns": ("AGE_AT_VISIT",)}, "POLICY_REFUSED", "column 'AGE_AT_VISIT' is in policy.deny_columns"),
        ({"deny_columns": ("age",)}, "POLICY_REFUSED", "column 'age' is in policy.deny_columns"),
        ({"max_epsilon_per_column": 2.01}, "BUDGET_EXCEEDED", "column 'smoker': epsilon 2.015, expected at most 2.01"),
        ({"max_epsilon_per_study": 4.0}, "BUDGET_EXCEEDED", "sums to 4.015, expected at most 4"),
    ],
)
def test_each_limit_is_kept(release_study, change, code, part):
    ((got, message),) = found(release_study, **change)
    assert got == code
    assert part in message


def test_a_limit_that_is_just_met_permits(release_study):
    assert found(release_study, max_epsilon_per_column=math.log(7.5), max_epsilon_per_study=2 + math.log(7.5)) == []


def test_infinite_epsilon_needs_the_variable_in_allow_infinite_and_is_not_summed(release_study):
    ((code, message),) = found(release_study, "registry", REGISTRY, allow_infinite=("income",))
    assert code == "EPSILON_INFINITE"
    assert "column 'region'" in message
    # income ln 9 and weight 1; region is permitted and left out of the sum
    assert found(release_study, "registry", REGISTRY, max_epsilon_per_study=math.log(9) + 1) == []


def test_other_peers_columns_are_none_of_our_business(release_study):
    assert found(release_study, max_categories=3, deny_columns=("income",)) == []


def test_a_refusal_names_everything_at_once(release_study):
    policy = dataclasses.replace(OPEN, minimum_parties=3, max_epsilon_per_column=1.0)
    with pytest.raises(Refusal) as caught:
        refuse(find_objections(policy, release_study, "clinic", CLINIC), release_study.id)
    assert caught.value.exit_code == 3
    for part in ("2 parties", "column 'age'", "column 'smoker'"):
        assert part in caught.value.message


# ---- the planner


def record(
    state=State.AWAITING_APPROVAL,
    *,
    approval=None,
    denial_sent=None,
    failure=None,
    failure_sent=False,
    n_common=None,
    **task,
):
    facts = {
        "digest": b"d" * 32,
        "version": 1,
        "state": int(state),
        "proposal": b"",
        "effective": b"",
        "effective_digest": b"",
        "approved": False,
        "pseudonyms_complete": False,
        "alignment_confirmed": False,
        "units_received": (),
        "failure": "",
    }
    return StudyRecord(
        study_id="trial",
        seen_at="",
        task=Task(**(facts | task)),
        stage="",
        percent=0,
        stage_at="",
        n_common=n_common,
        common_sha256=None,
        approval=approval,
        n_votes=0,
        denial_sent=denial_sent,
        failure=failure,
        failure_sent=failure_sent,
    )


BROKEN = InternalFault("INTERNAL", "broken")
APPROVED = {"approval": b"{}", "approved": True, "effective": b"{}"}
LINKED = {**APPROVED, "pseudonyms_complete": True, "alignment_confirmed": True, "n_common": 7}


@pytest.mark.parametrize(
    ("study", "step"),
    [
        (record(), Step.REST),
        (record(approval=b"{}"), Told.TELL_APPROVAL),
        (record(approval=b"{}", approved=True), Step.REST),
        (record(State.ALIGNING, **APPROVED), Step.LINK),
        (record(State.ALIGNING, effective=b"{}", approved=True), Step.REST),  # the miner's word is no approval of ours
        (record(State.ALIGNING, **APPROVED, pseudonyms_complete=True), Step.CONFIRM),
        (record(State.ALIGNING, **APPROVED, pseudonyms_complete=True, alignment_confirmed=True), Step.CONFIRM),
        (record(State.ALIGNING, **LINKED), Step.REST),
        (record(State.PREPARING, **LINKED), Step.RANDOMIZE),
        (record(State.UPLOADING, **LINKED), Step.RANDOMIZE),
        (record(State.UPLOADING, **LINKED, units_received=(0, 1)), Step.REST),
        (record(State.LEARNING, **LINKED), Step.REST),
        (record(State.UPLOADING, **LINKED, denial_sent=False), Told.TELL_DENIAL),
        (record(State.UPLOADING, **LINKED, denial_sent=True), Step.REST),
        (record(State.UPLOADING, **LINKED, failure=BROKEN), Told.TELL_FAILURE),
        (record(State.UPLOADING, **LINKED, failure=BROKEN, failure_sent=True), Step.REST),
        (record(State.FAILED, failure=BROKEN), Step.REST),
        (record(State.WITHDRAWN, **LINKED), Step.REST),
    ],
)
def test_the_next_step(study, step):
    assert plan(study, automatic=False, own_units={0, 1}, spooled_units=set(), receipted_units=set()).step == step


def test_units_go_when_all_are_in_the_spool_and_not_again_once_receipted():
    study = record(State.UPLOADING, **LINKED)
    assert (
        plan(study, automatic=False, own_units={0, 1}, spooled_units={0}, receipted_units=set()).step is Step.RANDOMIZE
    )
    assert plan(study, automatic=False, own_units={0, 1}, spooled_units={0, 1}, receipted_units={0}).step is Step.SEND
    assert (
        plan(study, automatic=False, own_units={0, 1}, spooled_units={0, 1}, receipted_units={0, 1}).step == Step.REST
    )


@pytest.mark.parametrize("state", [state for state in State if state >= State.PUBLISHED])
def test_an_ended_study_asks_for_nothing_but_room(state):
    study = record(state, **LINKED)
    assert plan(study, automatic=True, own_units={0}, spooled_units={0}, receipted_units={0}).step is Told.CLEAR
    assert (
        plan(record(state), automatic=True, own_units={0}, spooled_units=set(), receipted_units=set()).step == Step.REST
    )


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("automatic", [False, True])
def test_without_an_approval_nothing_is_ever_sent(state, automatic):
    told = record(state, approved=True, effective=b"{}", pseudonyms_complete=True, alignment_confirmed=True, n_common=9)
    for spooled in (set(), {0}):
        step = plan(told, automatic=automatic, own_units={0}, spooled_units=spooled, receipted_units=set()).step
        assert step in {Step.REST, Told.CLEAR, Told.APPROVE}
        assert automatic or step is not Told.APPROVE


def test_the_last_day_that_is_allowed_is_allowed(release_study):
    today = release_study.expires - dt.timedelta(days=30)
    for most, says in ((30, []), (29, ["valid for 30 more days, expected at most 29"])):
        policy = dataclasses.replace(OPEN, max_days=most)
        assert [o.message for o in find_objections(policy, release_study, "clinic", CLINIC, today=today)] == says


@pytest.mark.parametrize(("delta", "permitted"), [(1e-6, True), (1.5e-6, False)])
def test_the_delta_of_shared_noise_has_a_limit(peer_study, delta, permitted):
    study = peer_study(share=ShareRule(epsilon=1.0, delta=delta, noise="discrete-gaussian"))
    said = found(study, recipients=("miner", "registry", "insurer"), max_share_delta=1e-6)
    assert [code for code, _ in said] == ([] if permitted else ["BUDGET_EXCEEDED"])
    assert all("delta 1.5e-06 of the noise on shared parameters" in message for _, message in said)


def test_exact_statistics_leave_only_where_the_policy_permits_them():
    with pytest.raises(Refusal, match="EPSILON_INFINITE"):
        check_shared(OPEN, math.inf)
    check_shared(dataclasses.replace(OPEN, allow_exact_parameters=True), math.inf)
    check_shared(OPEN, 2.0)
