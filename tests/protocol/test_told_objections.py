"""Why a party does not approve is told at once, from its policy alone: codes and limits, never its table or its people."""

from __future__ import annotations

import asyncio

import pytest

from support import PATIENCE_SECONDS
from support import party_session as session
from verticil.party.operator import commands
from verticil.shared.pages.study_status import changes, summary_payload, why
from verticil.shared.study.states import State
from verticil.wire.v1 import control_pb2

pki, manual = session.pki, session.manual
STRICT = 'max_categories = 2\ndeny_columns = ["smokes_local"]'
RENAMED = '[dataset.people.columns.smoker]\nsource = "smokes_local"'


async def told(federation, digest: bytes, *names: str) -> control_pb2.StudySummary:
    """The study's status once these parties' policies have spoken."""
    request = control_pb2.GetStudyRequest(study_digest=digest)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            study = (await federation.control().get_study(request)).study
            if {party.party for party in study.parties if party.HasField("objections")} >= set(names):
                return study


def codes(study: control_pb2.StudySummary, name: str) -> list[str]:
    return [item.code for party in study.parties if party.party == name for item in party.objections.items]


async def test_the_analyst_is_told_at_once_which_limits_a_study_breaks_and_what_a_policy_permits(manual):
    manual.set_up("north", approval="manual", policy=STRICT, columns=RENAMED)
    path = manual.root / "north" / "party.toml"
    path.write_text(path.read_text().replace("max_epsilon_per_column = 3.0", "max_epsilon_per_column = 1.9"))
    digest = await manual.submit()
    manual.start()
    study = await told(manual, digest, "north", "south")
    assert codes(study, "north") == ["POLICY_REFUSED", "POLICY_REFUSED", "BUDGET_EXCEEDED", "BUDGET_EXCEEDED"]
    north, south = study.parties
    messages = [item.message for item in north.objections.items]
    assert messages[1:3] == [
        "variable 'smoker': 3 categories, expected at most 2",
        "column 'sex': epsilon 2, expected at most 1.9",
    ]
    assert (
        why(north) == f"waiting for approval; its policy does not permit it: POLICY_REFUSED: {messages[0]} (and 3 more)"
    )
    assert why(south) == "waiting for approval, which its policy permits"
    (payload, other) = summary_payload(study)["parties"]
    assert [item["code"] for item in payload["objections"]] == codes(study, "north")
    assert other["objections"] == []
    lines = list(changes(study, {}))
    assert f"north: BUDGET_EXCEEDED: {messages[2]}" in lines
    assert b"smokes_local" not in manual.sent("north")  # what only the site knows
    assert set(manual.wires["north"][0].reported) == {"progress"}
    # Nobody has looked. What they do then is told as ever, and the policy's word is gone with the question.
    await asyncio.to_thread(commands.deny, manual.config("north"), "trial", "officer", "no")
    assert codes(await manual.until(digest, State.DENIED), "north") == []


@pytest.mark.parametrize("table", ["another", "none"])
async def test_what_is_told_rests_on_no_table(manual, table):
    manual.set_up("north", approval="manual", policy=STRICT.replace("smokes_local", "sex"))
    manual.set_up("south", approval="manual", policy="max_categories = 3")
    (manual.root / "north" / "people.csv").write_text("id,sex,smoker\n1,\xff,,,\n")
    if table == "none":
        (manual.root / "south" / "people.csv").unlink()
    digest = await manual.submit()
    manual.start()
    study = await told(manual, digest, "north", "south")
    assert (codes(study, "north"), codes(study, "south")) == (["POLICY_REFUSED"] * 2, ["POLICY_REFUSED"])


@pytest.mark.parametrize(("on_change", "expected"), [("refuse", ["BUDGET_EXCEEDED"]), ("sticky", [])])
async def test_a_spent_budget_is_told_without_sums_and_only_where_it_tells_no_change_of_the_table(
    manual, on_change, expected
):
    manual.set_up("north", approval="manual", policy=f'on_data_change = "{on_change}"')
    path = manual.root / "north" / "party.toml"
    path.write_text(path.read_text().replace("max_epsilon_lifetime = 8.0", "max_epsilon_lifetime = 3.5"))
    digest = await manual.submit()
    manual.start("north")
    study = await told(manual, digest, "north")
    assert codes(study, "north") == expected
    assert not any(digit in item.message for item in study.parties[0].objections.items for digit in "0123456789")


async def test_codebooks_that_no_rule_has_are_told_where_rules_approve(manual):
    rules = '[[policy.rule]]\nname = "small"\ncolumns = ["sex", "smoker"]\nmax_epsilon = 4.0\n'
    codebook = '[codebook]\n[[codebook.column]]\nsource = "sex"\ncategories = ["f", "m"]\n'
    manual.set_up("north", approval="rules", policy=rules + codebook)
    digest = await manual.submit()
    manual.start("north")
    study = await told(manual, digest, "north")
    assert codes(study, "north") == ["NOT_APPROVED"]
    assert why(study.parties[0]).startswith("waiting for approval; its people decide: NOT_APPROVED: column 'smoker': ")


async def test_a_policy_that_was_relaxed_takes_its_word_back(manual):
    manual.set_up("north", approval="manual", policy=STRICT)
    digest = await manual.submit()
    manual.start("north")
    assert codes(await told(manual, digest, "north"), "north") == ["POLICY_REFUSED"]
    await manual.stop("north")
    manual.set_up("north", approval="manual")
    manual.start("north")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while codes(study := await told(manual, digest, "north"), "north"):
            pass
    assert why(study.parties[0]) == "waiting for approval, which its policy permits"
