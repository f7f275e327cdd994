"""The party's daemon against the real miner in memory: a whole study, what it refuses, and what survives being killed.

Between the two stands `Wire`, which keeps every message that a party sends (what could be captured) and can break, delay or
falsify calls. Waiting is on conditions, never for a time.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import hashlib
import hmac
import json
import logging
import re
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from support import PATIENCE_SECONDS, party_session
from support.party_session import (
    CHANGED,
    LINKAGE_KEY,
    N_COMMON,
    NOT_BEFORE_APPROVAL,
    SECRETS,
    STUDY,
    Federation,
    Wire,
    another_effective,
    audited,
    change_table,
    finished,
    ids,
    later_expiry,
    lies,
    make_pki,
    order_of,
    smaller_minimum,
    table,
    values,
    weaker_own,
)
from verticil.party import daemon
from verticil.party.dataset.perturb import codebook_digest, perturb_numpy, record_tags, unit_key
from verticil.party.operator import commands
from verticil.party.operator.approvers import add_approver
from verticil.party.operator.check import check
from verticil.party.operator.pending_studies import inbox
from verticil.party.operator.view_model import Spent
from verticil.party.protocol.context import PartyContext
from verticil.party.protocol.node.service import PeerService
from verticil.party.protocol.randomization import Spool
from verticil.party.protocol.retry import Backoff
from verticil.party.protocol.with_peers.artifact_store import ArtifactStore
from verticil.party.site import Site
from verticil.party.storage.secret import SiteSecret
from verticil.pki.register import revoke, sign_request
from verticil.pki.request import create_request
from verticil.shared.core.errors import DataFault, PeerFault, Refusal, VerticilError, from_code
from verticil.shared.documents.view_models import document
from verticil.shared.federation.identity.authority import create_authority, open_authority
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.membership.installation import install
from verticil.shared.federation.membership.revocation import make_list, number_of, parse_list
from verticil.shared.federation.transport.chunks import plain_data
from verticil.shared.federation.transport.interface import Coordinator
from verticil.shared.pages.study_status import why
from verticil.shared.study.peer import readers
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State
from verticil.wire.v1 import common_pb2, control_pb2, peer_pb2

federation, manual, pki = party_session.federation, party_session.manual, party_session.pki


async def test_a_study_from_submission_to_the_last_unit(federation):
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.ESTIMATING)
    assert summary.n_common == N_COMMON
    await finished(federation, digest)
    for name in ("north", "south"):
        assert [row.charged for row in federation.ledger(name)] == pytest.approx([2.0, 2.0])
        with Site.open(federation.config(name)) as site:
            (study,) = site.state.studies()
            assert study.n_common == N_COMMON
            for item in site.state.artifacts(digest, study.task.effective_digest).values():
                assert json.loads(item.receipt)["artifact_sha256"] == item.sha256.hex()


async def test_what_arrives_is_the_sticky_noise_of_contract_section_2(federation):
    """Recomputed here: pseudonyms with the standard library, noise with the plain numpy path."""
    digest = await federation.submit()
    federation.start()
    await finished(federation, digest)
    study = read_study(federation.root / "study.toml")

    def pseudonym(person: str) -> bytes:
        return hmac.digest(LINKAGE_KEY, b"verticil/linkage/v1" + digest + person.encode(), "sha256")[:16]

    common = sorted((person for person in ids("north") if person in ids("south")), key=pseudonym)
    for index, unit in enumerate(study.units):
        variable = study.schema[index]
        secret = SECRETS[variable.owner]
        column = dict(zip(ids(variable.owner), values(variable.owner)[variable.name], strict=True))
        if variable.bins:
            true = [int(column[person]) // 10 for person in common]
        else:
            true = [variable.labels.index(column[person] or "unknown") for person in common]
        key = unit_key(
            secret,
            dataset="people",
            source_columns=[variable.name],
            codebook_digest=codebook_digest(variable, {}),
            transition_digest=unit.transition.digest(),
        )
        tags = record_tags(SiteSecret(value=secret).tag_key, common)
        expected = perturb_numpy(key, tags, np.array(true, dtype=np.uint8), unit.transition)
        assert federation.released(digest, index).tolist() == expected.tolist()
        assert (expected != true).any()


async def test_no_value_id_or_key_is_ever_sent(federation):
    digest = await federation.submit()
    federation.start()
    await finished(federation, digest)
    for name in ("north", "south"):
        sent = federation.sent(name)
        for forbidden in (b"person-", name.encode() + b"-1", SECRETS[name], LINKAGE_KEY, SECRETS[name].hex().encode()):
            assert forbidden not in sent
        person = ids(name)[0].encode()
        for plain in (hashlib.sha256(person).digest(), hmac.digest(SECRETS[name], person, "sha256")[:14]):
            assert plain not in sent


@pytest.mark.whole
async def test_row_order_file_format_of_names_and_study_names_do_not_matter(tmp_path, pki):
    """Same secrets, linkage key and study: the same artifacts whatever the order of rows; a renamed variable, the same values."""
    seen = []
    for order in (0, 1):
        federation = Federation(tmp_path / str(order), pki)
        for name in ("north", "south"):
            (federation.root / name / "people.csv").write_text(table(name, order=order))
        await federation.start_miner()
        digest = await federation.submit()
        federation.start()
        seen.append(await finished(federation, digest))
        if order == 1:
            federation.set_up("north", columns='[dataset.people.columns.gender]\nsource = "sex"')
            renamed = STUDY.replace('"sex"', '"gender"').replace('"trial"', '"renamed"', 1)
            again = await federation.submit(renamed)
            federation.start()
            await finished(federation, again)
            first = dict(zip(order_of(digest), federation.released(digest, 0).tolist(), strict=True))
            second = dict(zip(order_of(again), federation.released(again, 0).tolist(), strict=True))
            assert first == second
            assert [row.charged for row in federation.ledger("north")] == pytest.approx([2.0, 2.0, 0.0, 0.0])
        await federation.stop_miner()
    assert seen[0] == seen[1]


# ---- approval


async def test_feature_3_nothing_leaves_before_approval_and_approving_is_noticed(manual):
    digest = await manual.submit()
    manual.start()
    for name in ("north", "south"):
        await manual.until_stage(name, "waiting for approval")
        assert set(manual.wires[name][0].reported) <= {"progress"}  # what the policy says, before anybody looks
        assert {"hello", "poll"} <= set(manual.calls(name)) <= {"hello", "poll", "report"}
    facts = await asyncio.to_thread(commands.approve, manual.config("north"), "trial", "officer")
    assert facts.approved
    assert facts.records == N_COMMON + 17
    assert facts.epsilon_charged_now == pytest.approx(4.0)
    await manual.until_stage("north", "waiting for the other parties' approval")
    assert not NOT_BEFORE_APPROVAL & set(manual.calls("north") + manual.calls("south"))
    await asyncio.to_thread(commands.approve, manual.config("south"), digest.hex()[:10], "officer")
    await finished(manual, digest)


async def test_a_party_tells_its_log_the_steps_of_a_study_and_no_value(manual, steps_of):
    digest = await manual.submit()
    manual.start()
    for name in ("north", "south"):
        await manual.until_stage(name, "waiting for approval")
    for name in ("north", "south"):
        await asyncio.to_thread(commands.approve, manual.config(name), "trial", "officer")
    await finished(manual, digest)
    told = steps_of("north")
    expected = [
        "waiting for approval", "sending the approval", "linking", "alignment: ", "randomizing", "randomized: ", "uploading",
        "send: ", "receipt: ",
    ]  # fmt: skip
    remaining = iter(told)
    assert all(any(line.startswith(word) for line in remaining) for word in expected), told
    sent = {line.split(";")[0] for line in told if line.startswith("send: ")}
    assert sent == {f"send: {', '.join(row.variables)}" for row in manual.ledger("north")}
    assert all("; to miner; " in line and line.endswith(" bytes") for line in told if line.startswith("send: "))
    assert len(told) < 40  # a step is told once, not at each look
    people = (manual.root / "north" / "people.csv").read_text().splitlines()
    ids_there = {line.split(";")[0] for line in people[1:]}
    assert not ids_there & set(re.findall(r"\w+", "\n".join(told)))


async def test_a_denial_reaches_the_analyst_and_is_for_good(manual):
    digest = await manual.submit()
    manual.start()
    await manual.until_stage("north", "waiting for approval")
    await manual.until_stage("south", "waiting for approval")
    await asyncio.to_thread(commands.approve, manual.config("south"), "trial", "officer")
    await asyncio.to_thread(commands.deny, manual.config("north"), "trial", "officer", "the noise is too weak")
    await manual.until(digest, State.DENIED)
    with pytest.raises(Refusal) as caught:
        await asyncio.to_thread(commands.approve, manual.config("north"), "trial", "officer")
    assert (caught.value.code, caught.value.exit_code) == ("STUDY_DENIED", 4)
    assert not NOT_BEFORE_APPROVAL & set(manual.calls("north") + manual.calls("south"))
    assert b"the noise is too weak" in manual.sent("north")


async def test_several_approvers_must_agree_in_the_same_content(manual):
    for name in ("north", "south"):
        manual.set_up(name, approval="manual", policy="approvers_needed = 2")
        for approver in ("a", "b"):
            add_approver(manual.root / name / "party.toml", approver)
    digest = await manual.submit()
    manual.start("north")
    await manual.until_stage("north", "waiting for approval")
    config = manual.config("north")
    with pytest.raises(Refusal, match=r"'c' is not one of policy\.approvers") as caught:
        await asyncio.to_thread(commands.approve, config, "trial", "c")
    assert caught.value.exit_code == 3
    assert not (await asyncio.to_thread(commands.approve, config, "trial", "a")).approved
    assert not (await asyncio.to_thread(commands.approve, config, "trial", "a")).approved
    await manual.until_stage("north", "waiting for approval (1 so far)")
    request = control_pb2.GetStudyRequest(study_digest=digest)
    async with asyncio.timeout(PATIENCE_SECONDS):  # the others are told how many there are, and not who
        while (north := (await manual.control().get_study(request)).study.parties[0]).approvers != 1:
            await asyncio.sleep(0.01)
    assert (north.waiting_for, north.approvers_needed, north.stage) == ("approval", 2, "approving")
    # The data change: the first vote was for something else.
    path = manual.root / "north" / "people.csv"
    path.write_text(path.read_text().replace(",yes", ",no", 1))
    facts = await asyncio.to_thread(commands.approve, config, "trial", "b")
    assert (facts.approved, facts.approvers) == (False, ("b",))
    facts = await asyncio.to_thread(commands.approve, config, "trial", "a")
    assert (facts.approved, facts.approvers) == (True, ("b", "a"))
    await manual.until_stage("north", "waiting for the other parties' approval")


async def until_void(federation: Federation) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "approval-void" not in audited(federation, "north"):
            await asyncio.sleep(0.01)


async def test_a_table_that_changes_after_approval_waits_for_a_new_approval_and_the_study_goes_on(manual):
    digest = await manual.submit()
    manual.start()
    for name in ("north", "south"):
        await manual.until_stage(name, "waiting for approval")
    await asyncio.to_thread(commands.approve, manual.config("north"), "trial", "officer")
    await manual.until_stage("north", "waiting for the other parties' approval")
    before = manual.node.session.record(digest).approvals["north"]
    change_table(manual)
    n_sent = len(manual.wires["north"][-1].sent)
    await asyncio.to_thread(commands.approve, manual.config("south"), "trial", "officer")
    await manual.until_stage("north", CHANGED)
    await manual.kill("north")
    manual.start("north")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(manual.wires["north"]) < 2 or "progress" not in manual.wires["north"][1].reported:
            await asyncio.sleep(0.01)
        request = control_pb2.GetStudyRequest(study_digest=digest)  # others see who is waited for, also after a restart
        while (study := (await manual.control().get_study(request)).study).parties[0].stage != "approving":
            await asyncio.sleep(0.01)
    assert (study.state, study.parties[0].waiting_for) == (State.ALIGNING, "linkage")
    assert why(study.parties[0]).startswith("waiting for its new approval")  # and not why
    told = b"".join(manual.wires["north"][0].sent[n_sent:] + manual.wires["north"][1].sent)
    assert b"smoker" not in told  # which column's data changed is for the party's own people
    assert not NOT_BEFORE_APPROVAL & set(manual.calls("north"))
    config = manual.config("north")
    (shown,) = (await asyncio.to_thread(commands.status, config)).studies
    assert (shown.stage, shown.approved, shown.failure) == (CHANGED, False, None)
    assert [line.waits_for for line in (await asyncio.to_thread(inbox, config)).waiting] == ["approval"]
    await asyncio.to_thread(commands.approve, config, "trial", "officer")
    await finished(manual, digest)
    assert manual.node.session.record(digest).approvals["north"] == before  # of the declarations, which are the same
    assert [row.charged for row in manual.ledger("north")] == pytest.approx([2.0, 2.0])
    assert [audited(manual, "north").count(event) for event in ("approval", "approval-void")] == [2, 1]


@pytest.mark.parametrize("removed", [False, True], ids=["the same people", "a person less"])
async def test_a_table_that_changes_after_its_list_was_sent_is_no_mixture_of_two(manual, removed):
    going = asyncio.Event()

    async def hold(call: str) -> None:
        if call == "put_pseudonyms":
            await going.wait()

    def interfere(name: str, wire: Wire) -> None:
        if name == "south":
            wire.before = hold

    manual.interfere = interfere
    digest = await manual.submit()
    manual.start()
    for name in ("north", "south"):
        await manual.until_stage(name, "waiting for approval")
        await asyncio.to_thread(commands.approve, manual.config(name), "trial", "officer")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while "get_alignment" not in manual.calls("north"):  # its list is at the miner
            await asyncio.sleep(0.01)
    await manual.stop("north")
    change_table(manual)
    if removed:
        change_table(manual, "person-0000,", "nobody-0000,")
    manual.start("north")
    await until_void(manual)
    await asyncio.to_thread(commands.approve, manual.config("north"), "trial", "officer")
    going.set()
    summary = await manual.until(digest, State.ESTIMATING, State.FAILED)
    assert (summary.state, summary.failure.code) == (
        (State.FAILED, "ALIGNMENT_MISMATCH") if removed else (State.ESTIMATING, "")
    )
    assert len(manual.ledger("north")) == (0 if removed else 2)


async def test_a_table_that_changes_after_randomization_ends_a_study_whose_columns_are_lost(manual):
    """Noise was drawn for the former data: a further approval would make one study about two versions."""

    async def hold(call: str) -> None:
        if call == "begin_upload":
            await asyncio.Event().wait()

    manual.interfere = lambda name, wire: setattr(wire, "before", hold)
    digest = await manual.submit()
    manual.start()
    for name in ("north", "south"):
        await manual.until_stage(name, "waiting for approval")
        await asyncio.to_thread(commands.approve, manual.config(name), "trial", "officer")
    await manual.until_stage("north", "uploading")
    await manual.kill("north")
    for path in (manual.root / "north" / "state" / "spool").iterdir():
        path.unlink()
    change_table(manual)
    with pytest.raises(Refusal, match="under way with what was approved before: column 'smoker'") as caught:
        await asyncio.to_thread(commands.approve, manual.config("north"), "trial", "officer")
    assert caught.value.code == "APPROVAL_VOID"
    manual.start("north")
    summary = await manual.until(digest, State.FAILED)
    assert summary.failure.code == "APPROVAL_VOID"
    assert "smoker" not in summary.failure.message


async def test_a_changed_declaration_voids_the_approval(manual):
    digest = await manual.submit()
    manual.start()
    for name in ("north", "south"):
        await manual.until_stage(name, "waiting for approval")
        await asyncio.to_thread(commands.approve, manual.config(name), "trial", "officer") if name == "north" else None
    await manual.until_stage(
        "north", "waiting for the other parties' approval"
    )  # before it is told, people are asked again
    await manual.stop("north")
    path = manual.root / "north" / "party.toml"
    path.write_text(path.read_text() + '[[randomization]]\nvariables = ["sex"]\nscheme = "symmetric"\nepsilon = 1.0\n')
    manual.start("north")
    await asyncio.to_thread(commands.approve, manual.config("south"), "trial", "officer")
    summary = await manual.until(digest, State.FAILED)
    assert summary.failure.code == "APPROVAL_VOID"
    assert not NOT_BEFORE_APPROVAL & set(manual.calls("north"))


async def test_a_party_may_declare_stronger_noise(federation):
    path = federation.root / "north" / "party.toml"
    path.write_text(path.read_text() + '[[randomization]]\nvariables = ["sex"]\nscheme = "symmetric"\nepsilon = 1.0\n')
    digest = await federation.submit()
    federation.start()
    await finished(federation, digest)
    assert [row.epsilon for row in federation.ledger("north")] == pytest.approx([1.0, 2.0])


# ---- what cannot be served


@pytest.mark.parametrize(
    ("policy", "code"),
    [
        ("max_categories = 2", "POLICY_REFUSED"),
        ('deny_columns = ["smoker"]', "POLICY_REFUSED"),
        ("minimum_parties = 3", "POLICY_REFUSED"),
        ("max_epsilon_per_column = 1.9", "BUDGET_EXCEEDED"),
        ("max_epsilon_per_study = 3.9", "BUDGET_EXCEEDED"),
        ("max_epsilon_lifetime = 3.9", "BUDGET_EXCEEDED"),
        ('recipients = ["other"]', "POLICY_REFUSED"),
    ],
)
async def test_what_the_policy_refuses_is_reported_and_nothing_leaves(federation, policy, code):
    key = policy.split()[0]
    path = federation.root / "north" / "party.toml"
    kept = [line for line in path.read_text().splitlines() if not line.startswith(f"{key} =")]
    path.write_text("\n".join(kept) + f"\n{policy}\n")
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.FAILED)
    assert summary.failure.code == code
    assert summary.failure.hint
    assert not NOT_BEFORE_APPROVAL & set(federation.calls("north") + federation.calls("south"))
    assert federation.ledger("north") == ()


async def test_how_many_are_too_few_shows_after_the_approval(federation):
    """No count has a part in it; then not even the list leaves, in which too few can be common."""
    path = federation.root / "north" / "party.toml"
    path.write_text(path.read_text().replace("minimum_common_records = 100", "minimum_common_records = 10000"))
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.FAILED)
    assert summary.failure.code == "LINKAGE_TOO_SMALL"
    assert federation.wires["north"][0].reported[:1] == ["approval"]
    assert not NOT_BEFORE_APPROVAL & set(federation.calls("north"))


async def test_a_data_fault_ends_one_study_and_the_daemon_serves_the_next(federation):
    path = federation.root / "north" / "people.csv"
    whole = path.read_text()
    path.write_text(whole.replace("smoker", "CANARY-NAME", 1))
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.FAILED)
    assert summary.failure.code == "DATA_COLUMN_MISSING"
    assert "CANARY" not in str(summary)
    assert b"CANARY" not in federation.sent("north")
    path.write_text(whole)
    again = await federation.submit(STUDY.replace('"trial"', '"second"', 1))
    await finished(federation, again)


# ---- whatever is in the table: the answer is the same


ASKED = """[[randomization]]
jointly = ["sex", "smoker"]
scheme = "symmetric"
epsilon = 2.0
impossible = [["m", "unknown"]]
"""
"""One draw for north's columns, with a combination that the analyst asks about."""
VALUES: dict[str, tuple[str, Callable[[str], str]]] = {
    "an undeclared category": ("north", lambda text: text.replace(",yes", ",CANARY", 1)),
    "every category undeclared": ("north", lambda text: text.replace(",yes", ",CANARY")),
    "a number outside the bins": ("south", lambda text: re.sub(r",([0-9]+),a", ",-1000000,a", text, count=1)),
    "a text among numbers": ("south", lambda text: re.sub(r",([0-9]+),a", ",CANARY,a", text, count=1)),
    "an impossible combination": ("north", lambda text: re.sub("m,(no|yes)", "m,", text, count=1)),
    "a record without an id": ("north", lambda text: f"{text}  ,f,no\n"),
    "an id that two records have": ("north", lambda text: f"{text} north-3 ,f,no\n"),
    "a record with a field too many": ("south", lambda text: f"{text}south-99,12,a,b\n"),
    "bytes that are no text": ("north", lambda text: text.replace(",yes", ",\udcff", 1)),
}  # fmt: skip


@pytest.mark.whole
async def test_whatever_is_in_a_table_a_study_is_answered_alike(tmp_path, pki):
    """The same kinds of calls and reports in the same order, but for the progress, up to the last unit; the same charge."""

    async def answered(name: str, text: str) -> dict[str, list[str]]:
        federation = Federation(tmp_path / name.replace(" ", "-"), pki)
        party, change = VALUES.get(name, ("north", lambda whole: whole))
        path = federation.root / party / "people.csv"
        path.write_text(change(path.read_text()), errors="surrogateescape")
        await federation.start_miner()
        digest = await federation.submit(text)
        federation.start()
        await finished(federation, digest)
        charged = {name: [row.charged for row in federation.ledger(name)] for name in federation.wires}
        assert charged == {"north": pytest.approx([2.0]), "south": pytest.approx([2.0, 2.0])}
        assert all(b"CANARY" not in federation.sent(name) for name in federation.wires)
        await federation.stop_miner()
        return {
            name: [*dict.fromkeys(wire.calls), *dict.fromkeys(what for what in wire.reported if what != "progress")]
            for name, (wire,) in federation.wires.items()
        }

    text = STUDY.replace("[structure]", ASKED + "[structure]")
    plain = text.replace(", impossible", "").replace('impossible = [["m", "unknown"]]\n', "")
    expected = await answered("nothing", plain)
    assert "put_pseudonyms" in expected["north"]
    for name in VALUES:
        assert await answered(name, text) == expected, name


async def test_infinite_epsilon_needs_a_permit(federation):
    text = STUDY + '[[randomization]]\nvariables = ["sex"]\nscheme = "none"\n'
    digest = await federation.submit(text)
    federation.start()
    assert (await federation.until(digest, State.FAILED)).failure.code == "EPSILON_INFINITE"
    await federation.stop()
    federation.set_up("north", policy='allow_infinite = ["sex"]')
    again = await federation.submit(text.replace('"trial"', '"second"', 1))
    federation.start()
    await finished(federation, again)
    assert [row.epsilon for row in federation.ledger("north")] == pytest.approx([float("inf"), 2.0])


@pytest.mark.whole
async def test_the_lifetime_budget_outlives_studies_and_changed_data_are_refused(federation):
    digest = await federation.submit()
    federation.start()
    await finished(federation, digest)
    # The same matrices again: the same values, no charge.
    again = await federation.submit(STUDY.replace('"trial"', '"again"', 1))
    federation.start()
    await finished(federation, again)
    assert [row.charged for row in federation.ledger("north")] == pytest.approx([2, 2, 0, 0])
    # Other matrices: 2 * 1.9 more, 7.8 of 8 in all; after these, nothing else fits.
    third = await federation.submit(STUDY.replace('"trial"', '"third"', 1).replace("epsilon = 2.0", "epsilon = 1.9"))
    federation.start()
    await finished(federation, third)
    fourth = await federation.submit(STUDY.replace('"trial"', '"fourth"', 1).replace("epsilon = 2.0", "epsilon = 0.5"))
    federation.start()
    summary = await federation.until(fourth, State.FAILED)
    assert summary.failure.code == "BUDGET_EXCEEDED"
    assert "on top of what was charged before" in summary.failure.message
    await federation.stop()
    # Changed data under the first matrices.
    path = federation.root / "north" / "people.csv"
    path.write_text(path.read_text().replace(",yes", ",no", 1))
    fifth = await federation.submit(STUDY.replace('"trial"', '"fifth"', 1))
    federation.start()
    assert (await federation.until(fifth, State.FAILED)).failure.code == "DATA_CHANGED"
    assert len(federation.ledger("north")) == 6


# ---- a miner that tells something else


def _clear_one_bit(part) -> None:
    if part.chunk.data:
        data = bytearray(plain_data(part.chunk))
        position = next(i for i, byte in enumerate(data) if byte)
        data[position] &= data[position] - 1
        fresh = next(iter(make_chunk(bytes(data), part.chunk.offset)))
        part.chunk.CopyFrom(fresh)


def _shift(part) -> None:
    if part.chunk.data:
        data = plain_data(part.chunk)
        part.chunk.CopyFrom(next(iter(make_chunk(data[1:] + data[:1], part.chunk.offset))))


def make_chunk(data: bytes, offset: int):
    from verticil.shared.federation.transport.chunks import make_chunks

    for chunk in make_chunks(data):
        chunk.offset = offset
        yield chunk


def _other_digest(part) -> None:
    part.common_sha256 = b"x" * 32


def _other_count(part) -> None:
    part.n_common -= 1


@pytest.mark.parametrize("change", [_clear_one_bit, _shift, _other_digest, _other_count])
async def test_a_false_alignment_is_noticed_before_anything_is_randomized(federation, change):
    federation.interfere = lies("get_alignment", change)
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.FAILED)
    assert summary.failure.code == "ALIGNMENT_MISMATCH"
    assert federation.ledger("north") == ()
    assert list((federation.root / "north" / "state" / "spool").iterdir()) == []
    assert "confirmed_common_sha256" not in federation.wires["north"][0].reported


async def test_too_few_common_people_end_the_study_before_anything_is_randomized(federation):
    path = federation.root / "south" / "people.csv"
    header, *rows = path.read_text().splitlines()
    kept = [row if row < "person-0150" else f"x{row}" for row in rows]
    path.write_text("\n".join([header, *kept]) + "\n")
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.FAILED)
    assert summary.failure.code == "LINKAGE_TOO_SMALL"
    assert federation.ledger("north") == federation.ledger("south") == ()


@pytest.mark.parametrize("change", [weaker_own, later_expiry, smaller_minimum])
async def test_another_effective_study_than_the_approved_one_is_refused(federation, change):
    federation.interfere = lies("poll", another_effective(change))
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.FAILED)
    assert summary.failure.code == "STUDY_MISMATCH"
    assert not NOT_BEFORE_APPROVAL & set(federation.calls("north"))


async def test_a_receipt_that_the_miner_did_not_sign_is_refused(federation):
    federation.interfere = lies("finish_upload", lambda reply: setattr(reply.receipt, "signature", b"\0" * 64))
    digest = await federation.submit()
    federation.start()
    summary = await federation.until(digest, State.FAILED)
    assert summary.failure.code == "STUDY_MISMATCH"
    assert "receipt" in summary.failure.message


@pytest.mark.parametrize("code", ["CONFIG_INVALID", "STATE_CORRUPT", "SECRET_MISSING"])
async def test_feature_20_what_only_a_person_here_can_mend_ends_the_daemon_and_says_so(federation, code, caplog):
    def interfere(name: str, wire: Wire) -> None:
        async def broken(call: str) -> None:
            raise from_code(code, "of this machine")

        wire.before = broken

    federation.interfere = interfere
    with pytest.raises(VerticilError) as caught:
        await daemon.run_party(federation.config("north"), lambda: federation.wire("north"), stop=asyncio.Event())
    assert caught.value.code == code
    assert len(federation.wires["north"]) == 1
    assert "cannot go on: " + code in caplog.text
    assert commands.status(federation.config("north")).daemon.problem == code


async def test_feature_29_a_party_keeps_the_deny_list_that_the_miner_tells(federation, tmp_path, caplog):
    """Told in Hello and in each poll; one that the authority did not sign changes nothing, and the daemon goes on."""
    now = utc_now()
    create_authority(tmp_path / "twin", "trial")
    forged, genuine = (
        make_list(open_authority(folder), {number: now}, number=number, at=now).public_bytes(Encoding.DER)
        for folder, number in ((tmp_path / "twin", 9), (federation.pki / "ca", 4))
    )

    def interfere(name: str, wire: Wire) -> None:
        def falsify(call: str, reply: Any) -> Any:
            if call in {"hello", "poll"}:
                reply.deny_list = forged if call == "hello" else genuine
            return reply

        wire.falsify = falsify

    federation.interfere = interfere
    digest = await federation.submit()
    federation.start()
    await finished(federation, digest)
    kept = federation.root / "north" / "state" / "revoked.crl"
    authority = x509.load_pem_x509_certificate((federation.pki / "ca" / "ca.crt").read_bytes())
    assert number_of(parse_list(kept.read_bytes(), authority, what="kept")) == 4
    assert "not signed by the federation's authority" in caplog.text


@pytest.mark.parametrize("holds", [True, False], ids=["the approval holds", "the declaration changed since"])
async def test_an_approval_is_void_when_its_key_is_revoked_before_the_last_approval(tmp_path, holds):
    """It is asked for again: the node signs it with its new key if it holds at the site, and asks its people if it does not."""
    (tmp_path / "pki").mkdir()
    manual = Federation(tmp_path, make_pki(tmp_path / "pki"), approval="manual")
    await manual.start_miner()
    authority, identity = open_authority(manual.pki / "ca"), Identity(federation="trial", role=Role.PARTY, name="north")
    try:
        digest = await manual.submit()
        manual.start()
        for name in ("north", "south"):
            await manual.until_stage(name, "waiting for approval")
        await asyncio.to_thread(commands.approve, manual.config("north"), "trial", "officer")
        await manual.until_stage("north", "waiting for the other parties' approval")
        before = manual.node.session.record(digest).approvals["north"]
        await manual.stop("north")
        revoke(authority, "north")
        await asyncio.to_thread(commands.approve, manual.config("south"), "trial", "officer")  # the last one
        manual.node.certificates.see(identity, x509.load_der_x509_certificate(before.certificate))
        await manual.until_stage("south", "waiting for the other parties' approval")
        await manual.node.scheduler.advance(digest)
        status = (await manual.control().get_study(control_pb2.GetStudyRequest(study_digest=digest))).study
        north, south = status.parties
        assert (status.state, north.approved, south.approved) == (State.AWAITING_APPROVAL, False, True)
        assert (north.standing, bool(north.approval_void), north.online) == ("revoked", True, False)

        folder, toml = manual.root / "north" / "pki", manual.root / "north" / "party.toml"
        _, asked = create_request(folder, identity, new_keys=True)
        sign_request(authority, asked, manual.root / "answer", days=1)
        federation = manual.config("north").federation
        install(manual.root / "answer", folder, fingerprint=federation.ca_sha256, federation=federation)
        if not holds:
            more = '[[randomization]]\nvariables = ["sex"]\nscheme = "symmetric"\nepsilon = 1.0\n'
            toml.write_text(toml.read_text() + more)
        manual.start("north")
        if not holds:
            await until_void(manual)
            await asyncio.to_thread(commands.approve, manual.config("north"), "trial", "officer")
        await manual.until(digest, State.ESTIMATING)
        after = manual.node.session.record(digest).approvals["north"]
        assert ((after.body == before.body), after.certificate != before.certificate) == (holds, True)
        events = [
            json.loads(line)["event"] for line in (manual.root / "north/state/audit.jsonl").read_text().splitlines()
        ]
        assert events.count("approval") == (1 if holds else 2)
        assert ("approval-void" in events) is not holds

        now = SigningKey.load(folder / "north.sign", folder / "north.crt")
        revoke(authority, "north")  # what had become effective stays
        await manual.node.scheduler.advance(digest)
        assert manual.node.session.record(digest).approvals["north"].certificate == now.certificate
        assert manual.node.session.state(manual.node.session.record(digest)) is State.ESTIMATING
    finally:
        await manual.stop()
        await manual.stop_miner()


async def test_two_daemons_on_one_state_are_refused(federation):
    await federation.submit()
    federation.start("north")
    await federation.until_stage("north", "waiting for the other parties' approval")
    with pytest.raises(DataFault) as caught:
        await daemon.run_party(federation.config("north"), lambda: federation.wire("north"), stop=asyncio.Event())
    assert caught.value.code == "STATE_LOCKED"


# ---- kills and broken connections


async def test_the_ledger_has_the_row_before_the_first_byte_of_a_unit(federation):
    seen: list[int] = []

    def interfere(name: str, wire: Wire) -> None:
        async def look(call: str) -> None:
            if call == "begin_upload":
                # From outside, through the file: what another process would see, and what a power cut would leave.
                with contextlib.closing(
                    sqlite3.connect(federation.root / name / "state" / "party.sqlite")
                ) as connection:
                    seen.append(connection.execute("SELECT COUNT(*) FROM ledger").fetchone()[0])

        if name == "north":
            wire.before = look

    federation.interfere = interfere
    digest = await federation.submit()
    federation.start()
    await finished(federation, digest)
    assert seen == [1, 2]


class _Killed(BaseException):
    """Stands for SIGKILL: nothing catches it, nothing is tidied up on the way."""


async def _undisturbed(tmp_path: Path, pki: Path) -> dict[str, list[str]]:
    federation = Federation(tmp_path / "undisturbed", pki)
    await federation.start_miner()
    digest = await federation.submit()
    federation.start()
    expected = await finished(federation, digest)
    await federation.stop_miner()
    return expected


async def test_a_party_that_is_killed_at_every_call_finishes_with_the_same_digests(federation, tmp_path, pki):
    """North's daemon dies at its first call of each kind and in the middle of each stream, and is started again each time."""
    died: set[str] = set()
    dead = asyncio.Event()

    def interfere(name: str, wire: Wire) -> None:
        async def die(call: str) -> None:
            if name == "north" and call not in died:
                died.add(call)
                dead.set()
                await asyncio.Event().wait()  # it hangs here until it is cancelled: no reply ever comes

        wire.before = die

    federation.interfere = interfere
    digest = await federation.submit()
    federation.start()
    finish = asyncio.create_task(federation.until(digest, State.ESTIMATING))
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not finish.done():
            waiting = asyncio.create_task(dead.wait())
            await asyncio.wait({finish, waiting}, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if dead.is_set():
                dead.clear()
                await federation.kill("north")
                federation.start("north")
    assert {"hello", "poll", "report", "put_pseudonyms", "begin_upload", "put_chunks", "finish_upload"} <= died
    assert await finished(federation, digest) == await _undisturbed(tmp_path, pki)
    assert sum(row.charged for row in federation.ledger("north")) == pytest.approx(4.0)


async def test_uploads_resume_at_the_committed_offset(federation):
    """Of 16 * 817 = 13,072 bytes of pseudonyms in chunks of 1,024, the connection breaks after the tenth chunk, once.

    The miner commits eight chunks at a time.
    """
    count = 0

    def interfere(name: str, wire: Wire) -> None:
        async def cut(call: str) -> None:
            nonlocal count
            if name == "north" and call == "put_pseudonyms.message":
                count += 1
                if count == 13:  # the question, the head, ten chunks, and then
                    raise PeerFault("UNREACHABLE", "the connection broke")

        wire.before = cut

    federation.interfere = interfere
    digest = await federation.submit()
    federation.start()
    await finished(federation, digest)
    offsets = [offset for wire in federation.wires["north"] for offset in wire.offsets]
    assert offsets == [1024 * i for i in range(10)] + [1024 * i for i in range(8, 13)]


async def test_a_full_disk_at_the_party_is_waited_for(federation, monkeypatch):
    import errno
    import os

    replace, failed = os.replace, []

    def full_once(source, target, **rest):
        if "spool" in str(target) and not failed:
            failed.append(target)
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(source, target, **rest)

    monkeypatch.setattr(os, "replace", full_once)
    digest = await federation.submit()
    federation.start()
    await finished(federation, digest)
    assert failed
    assert [row.charged for row in federation.ledger("north")] == pytest.approx([2.0, 2.0])


def test_feature_20_a_party_is_back_within_half_a_minute():
    """Network back right after an attempt began: that one may take its ten seconds in vain, then the longest wait follows."""
    longest = Backoff(uniform=lambda: 1.0)
    waits = [longest.next_seconds() for _ in range(50)]
    assert Coordinator.hello.deadline(common_pb2.HelloRequest()) + max(waits) <= 30


@pytest.mark.parametrize(
    "code", ["UNREACHABLE", "SESSION_REPLACED", "TLS_REFUSED", "VERSION_UNSUPPORTED", "MESSAGE_INVALID"]
)
async def test_feature_20_a_miner_that_is_gone_or_another_is_dialled_again_and_the_log_says_so_once(
    federation, code, caplog
):
    caplog.set_level(logging.WARNING)
    digest = await federation.submit()
    refused: list[str] = []

    def interfere(name: str, wire: Wire) -> None:
        async def gone(call: str) -> None:
            if len(refused) < 3:
                refused.append(name)
                raise PeerFault(code, "not now")

        wire.before = gone

    federation.interfere = interfere
    federation.start()
    await finished(federation, digest)
    assert len(refused) == 3
    assert 1 <= sum("not now" in record.getMessage() for record in caplog.records) <= len(set(refused)) < 3


async def test_what_was_damaged_at_the_miner_is_sent_once_more(federation):
    """The miner forgets a whole whose SHA-256 is another than announced, and the party begins again by itself."""
    digest = await federation.submit()
    damaged: list[Path] = []

    def interfere(name: str, wire: Wire) -> None:
        async def damage(called: str) -> None:
            if called == "finish_upload" and not damaged:
                for path in (federation.root / "miner").rglob("staging/*.part"):
                    if not (whole := path.read_bytes()):
                        continue  # the other party's upload begins at this moment
                    path.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
                    damaged.append(path)

        wire.before = damage

    federation.interfere = interfere
    federation.start()
    await finished(federation, digest)
    assert damaged


async def test_status_and_check_say_what_there_is(manual):
    await manual.submit()
    config = manual.config("north")
    checked = await asyncio.to_thread(check, config, read_study(manual.root / "study.toml"))
    assert checked.ok
    assert checked.faults == ()
    assert checked.study is not None
    assert checked.study.epsilon == pytest.approx(4.0)
    assert checked.tables[0].counts.records == N_COMMON + 17
    manual.start("north")
    await manual.until_stage("north", "waiting for approval")
    facts = await asyncio.to_thread(commands.status, config)
    json.dumps(document(facts), allow_nan=False)
    (study,) = facts.studies
    assert (study.state, study.approved, study.proposal.epsilon) == ("awaiting_approval", False, pytest.approx(4.0))
    assert facts.daemon.running
    (people,) = facts.ledger
    assert dataclasses.replace(people, accounts=()) == Spent(
        dataset="people", epsilon_spent=0.0, epsilon_lifetime_limit=8.0
    )
    assert [(item.account, item.epsilon_spent, item.limits_stated) for item in people.accounts] == [
        ("columns", 0.0, True),
        ("public", 0.0, False),
    ]
    assert (facts.daemon.connected, facts.daemon.link) == (True, "connected to the miner")
    await manual.stop("north")
    assert not (await asyncio.to_thread(commands.status, config)).daemon.running
    (manual.root / "north" / "people.csv").write_text("id;sex;smoker\n1;f;no\n")
    checked = await asyncio.to_thread(check, config, read_study(manual.root / "study.toml"))
    assert not checked.ok
    assert checked.faults[0].exit_code == 1


async def test_what_is_randomized_for_the_miner_is_served_to_no_fellow_party(federation):
    """A daemon may serve its peers beside (Model I); a study that the miner tells answers none of them, whatever is spooled."""
    federation.start()
    digest = await federation.submit()
    await finished(federation, digest)
    await federation.stop()
    config, caller = federation.config("south"), Identity(federation="trial", role=Role.PARTY, name="north")
    with Site.open(config) as site:
        record, attempts = site.state.study(digest), site.ledger.attempts()
        effective = record.task.effective_study
        (unit, *_) = effective.units_of("south")
        assert readers(effective, unit, None) == ("north",)  # it would score their pair between peers
        node = PartyContext(
            site=site,
            spool=Spool(config.state_directory / "spool"),
            signing_key=SigningKey.load(config.signing_key, config.certificate),
            authority=config.federation.ca_certificate.read_bytes(),
            clock=utc_now,
        )
        assert node.spool.holds(site.state.artifacts(digest, record.task.effective_digest)[unit].sha256)
        service = PeerService(node, ArtifactStore(config.state_directory / "peer", site.database), software="")
        request = peer_pb2.GetColumnRequest(
            effective_digest=record.task.effective_digest, unit=unit, common_sha256=record.common_sha256 or b""
        )
        with pytest.raises(PeerFault, match="such a study") as refused:
            async for _ in service.GetColumn(caller, request):
                pass
        assert refused.value.code == "NOT_READY"
        assert site.ledger.attempts() == attempts


def test_backoff_is_quick_first_jittered_and_capped() -> None:
    longest = Backoff(uniform=lambda: 1.0)
    assert [longest.next_seconds() for _ in range(8)] == [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 20.0, 20.0]
    longest.reset()
    assert longest.next_seconds() == 0.5
    assert Backoff(uniform=lambda: 0.0).next_seconds() == 0.0
