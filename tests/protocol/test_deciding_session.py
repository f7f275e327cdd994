"""What people decide at a party, against the real miner in memory: preview, policy, rules, named approvers, countersignatures."""

from __future__ import annotations

import asyncio
import base64
import dataclasses
import datetime as dt
import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from support import PATIENCE_SECONDS
from support import party_session as session
from support.publishing import ALL, GIVEN, STUDY, Publishing
from verticil.cli.main import main
from verticil.party.operator import commands
from verticil.party.operator.approvers import add_approver
from verticil.party.operator.commands import countersign, look
from verticil.party.operator.pending_studies import inbox
from verticil.party.operator.preview import preview
from verticil.party.operator.view_model import COUNTS_TELL
from verticil.party.site import Site
from verticil.shared.core.errors import GateFailed, Misuse, PeerFault, Refusal
from verticil.shared.documents.record import encode
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.numerics.model.artifact import pack, unpack
from verticil.shared.release.download import fetch_release
from verticil.shared.release.signatures import Countersignature
from verticil.shared.release.verification import verify_release
from verticil.shared.study.approval import parse_approval
from verticil.shared.study.states import State
from verticil.shared.synthesis.marginals import model_shares
from verticil.wire.v1 import common_pb2, coordinator_pb2

pki, federation, manual = session.pki, session.federation, session.manual


# ---- preview


async def test_feature_17_the_upload_is_the_subsequence_of_the_preview_of_the_common_people(manual, tmp_path):
    digest = await manual.submit()
    manual.start()
    for name in ("north", "south"):
        await manual.until_stage(name, "waiting for approval")
    config, out = manual.config("north"), tmp_path / "out"
    facts = await asyncio.to_thread(preview, config, "trial", out)
    assert manual.ledger("north") == ()  # nothing left, nothing is charged
    assert (facts.charged, facts.left_the_site, facts.records) == (0.0, False, session.N_COMMON + 17)
    assert out.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o600}
    for name in ("north", "south"):
        await asyncio.to_thread(commands.approve, manual.config(name), "trial", "officer")
    await manual.until(digest, State.ESTIMATING)
    mine = {person for person in session.ids("north") if person in session.ids("south")}
    order = sorted(session.ids("north"), key=lambda person: _pseudonym(digest, person))
    common = np.array([person in mine for person in order])
    with Site.open(config) as site:
        effective = site.state.study(digest).task.effective_digest
        sent = site.state.artifacts(digest, effective)
    for column in facts.columns:
        index, states = column.unit, len(column.frequencies)
        codes = unpack((out / column.file).read_bytes(), states, len(order))
        assert pack(codes[common], states) == (config.state_directory / "spool" / sent[index].sha256.hex()).read_bytes()
        assert manual.released(digest, index).tolist() == codes[common].tolist()
        raw = session.values("north")[column.variables[0]]
        first = column.frequencies[0]
        assert first.raw_records == raw.count(first.category)
        assert [row.randomized_records for row in column.frequencies] == np.bincount(codes, minlength=states).tolist()
    again = await asyncio.to_thread(preview, config, "trial", tmp_path / "again")  # now the common people are known
    for column in again.columns:
        leaving = (tmp_path / "again" / column.leaving).read_bytes()
        assert leaving == (config.state_directory / "spool" / sent[column.unit].sha256.hex()).read_bytes()
        assert (tmp_path / "again" / column.file).read_bytes() == (out / column.file).read_bytes()


def _pseudonym(digest: bytes, person: str) -> bytes:
    import hmac

    return hmac.digest(session.LINKAGE_KEY, b"verticil/linkage/v1" + digest + person.encode(), "sha256")


async def test_a_preview_leaves_no_half_folder_and_shows_nothing_that_would_be_refused(manual, tmp_path, monkeypatch):
    await manual.submit()
    manual.start("north")
    await manual.until_stage("north", "waiting for approval")
    config = manual.config("north")
    with pytest.raises(Misuse, match="exists already"):
        await asyncio.to_thread(preview, config, "trial", manual.root)
    manual.set_up("north", approval="manual", policy='deny_columns = ["sex"]')
    with pytest.raises(Refusal, match="is in policy"):
        await asyncio.to_thread(preview, manual.config("north"), "trial", tmp_path / "refused")

    def no_name(source: object, target: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("verticil.party.operator.preview.rename", no_name)
    with pytest.raises(Exception, match="no space left"):
        await asyncio.to_thread(preview, config, "trial", tmp_path / "full")
    assert [path.name for path in tmp_path.iterdir() if "full" in path.name or "refused" in path.name] == []


# ---- policy: a miner that offers what the site does not permit


BREAKING = {
    "max_epsilon_per_column": (STUDY.replace("epsilon = 2.0", "epsilon = 3.5"), "max_epsilon_per_column"),
    "max_epsilon_per_study": (STUDY.replace("epsilon = 2.0", "epsilon = 2.5"), "policy.max_epsilon_per_study"),
    "max_epsilon_lifetime": (STUDY.replace("epsilon = 2.0", "epsilon = 2.25"), "policy.max_epsilon_lifetime"),
    "max_categories": (
        STUDY.replace('["no", "yes", "unknown"]', '["no", "yes", "unknown", "w", "x", "y", "z"]'),
        "policy.max_categories",
    ),
    "breach": (STUDY.replace("epsilon = 2.0", "epsilon = 2.2"), "policy.breach"),
    "deny_columns": (STUDY, "policy.deny_columns"),
    "minimum_parties": (STUDY, "policy.minimum_parties"),
    "minimum_rows": (STUDY, "policy.minimum_rows"),
    "max_days": (STUDY, "policy.max_days"),
    "recipients": (STUDY, "policy.recipients"),
    "allow_infinite": (STUDY.replace('scheme = "symmetric"\nepsilon = 2.0', 'scheme = "none"'), "policy.allow_infinite"),
}  # fmt: skip
POLICY = {
    "max_epsilon_per_study": ("max_epsilon_per_study = 6.0", "max_epsilon_per_study = 4.9"),
    "max_epsilon_lifetime": ("max_epsilon_lifetime = 8.0", "max_epsilon_lifetime = 4.4"),
    "max_categories": ("{policy}", "max_categories = 6"),
    "breach": ("{policy}", "breach = { prior = 0.1, posterior = 0.5 }"),
    "deny_columns": ("{policy}", 'deny_columns = ["smoker"]'),
    "minimum_parties": ("{policy}", "minimum_parties = 3"),
    "minimum_rows": ("{policy}", "minimum_rows = 900"),
    "max_days": ("{policy}", "max_days = 365"),
    "recipients": ('recipients = ["miner"]', 'recipients = ["south"]'),
}


async def test_feature_18_no_limit_of_the_policy_is_passed_whatever_the_miner_offers(federation):
    """A study for each limit, to a party that approves whatever its policy permits: not one payload byte leaves."""
    path = federation.root / "north" / "party.toml"
    whole = session.PARTY.replace("{name}", "north").replace("{approval}", "auto").replace("{columns}", "")
    for number, (limit, (text, named)) in enumerate(BREAKING.items()):
        old, new = POLICY.get(limit, ("{policy}", ""))
        path.write_text(whole.replace(old, new, 1).replace("{policy}", ""))
        digest = await federation.submit(text.replace('"trial"', f'"trial-{number}"', 1))
        federation.start("north")
        failure = (await federation.until(digest, State.FAILED)).failure
        await federation.stop("north")
        assert failure.code in {"POLICY_REFUSED", "BUDGET_EXCEEDED", "EPSILON_INFINITE"}, limit
        assert named in f"{failure.message} {failure.hint}", (limit, failure)
    assert set(federation.calls("north")) == {"hello", "poll", "report"}
    assert federation.ledger("north") == ()


# ---- rules and named approvers

CODEBOOK = """
[codebook]
normalise = [["nfkc", "trim"]]
[[codebook.column]]
source = "sex"
categories = ["f", "m"]
[[codebook.column]]
source = "smoker"
categories = ["no", "yes", "unknown"]
missing = { category = "unknown", spellings = [""] }
"""


async def test_a_rule_approves_what_it_covers_and_people_the_rest(manual):
    rules = '[[policy.rule]]\nname = "small"\ncolumns = ["sex", "smoker"]\nmax_epsilon = 4.0\n'
    manual.set_up("north", approval="rules", policy=rules + CODEBOOK)
    covered = await manual.submit()
    other = await manual.submit(STUDY.replace('"trial"', '"larger"', 1).replace("epsilon = 2.0", "epsilon = 2.1"))
    manual.start()
    await manual.until_stage("north", "waiting for approval")  # the newest; the older one may come to its turn later
    await manual.until_stage("south", "waiting for approval")
    with Site.open(manual.config("north")) as site:
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (await asyncio.to_thread(site.state.study, covered)).approval:
                pass
        assert parse_approval(site.state.study(covered).approval).approver == "by rule 1 'small'"
        assert site.state.study(other).approval is None
    await asyncio.to_thread(commands.approve, manual.config("south"), "trial", "officer")
    await manual.until(covered, State.ESTIMATING)
    waiting = (await asyncio.to_thread(inbox, manual.config("north"))).waiting
    assert [(line.study, line.waits_for) for line in waiting] == [("larger", "approval")]


async def test_rules_are_asked_again_about_a_table_that_changed(manual):
    rules = '[[policy.rule]]\nname = "small"\ncolumns = ["sex", "smoker"]\nmax_epsilon = 4.0\n'
    manual.set_up("north", approval="rules", policy=rules + CODEBOOK)
    digest = await manual.submit()
    manual.start()
    await manual.until_stage("north", "waiting for the other parties' approval")
    await manual.until_stage("south", "waiting for approval")
    session.change_table(manual)
    await asyncio.to_thread(commands.approve, manual.config("south"), "trial", "officer")
    await session.finished(manual, digest)
    events = session.audited(manual, "north")
    assert [events.count(event) for event in ("approval", "approval-void", "rule-review")] == [2, 1, 2]


async def test_receipts_name_who_approved(manual):
    manual.set_up("north", approval="manual", policy="approvers_needed = 2")
    add_approver(manual.root / "north" / "party.toml", "dpo@north")
    digest = await manual.submit()
    manual.start()
    for name, approver in (("north", "dpo@north"), ("south", "officer"), ("north", "it@north")):
        await manual.until_stage(name, "waiting for approval", "waiting for approval (1 so far)")
        if approver == "it@north":
            # named while the daemon runs, which counts them without being started anew
            await asyncio.to_thread(add_approver, manual.root / "north" / "party.toml", approver)
            assert not session.NOT_BEFORE_APPROVAL & set(manual.calls("north") + manual.calls("south"))
        await asyncio.to_thread(commands.approve, manual.config(name), "trial", approver)
    await manual.until(digest, State.ESTIMATING)
    record = manual.node.catalogue.study(digest)
    named = {json.loads(column.receipt.body)["approved_by"] for column in record.columns.values()}
    assert named == {"dpo@north, it@north", "officer"}


# ---- countersignatures


@pytest.fixture
async def publishing(tmp_path, pki):
    made = Publishing(tmp_path, pki, approval="manual")
    await made.start_miner()
    yield made
    await made.stop()
    await made.stop_miner()


def statement(digest: bytes, manifest_sha256: bytes, party: str, *, early: bool = False) -> bytes:
    return encode(
        Countersignature(
            study_digest=digest,
            manifest_sha256=manifest_sha256,
            party=party,
            approver="x",
            signed_at=utc_now() - dt.timedelta(days=400 * early),
        )
    )


@pytest.mark.whole
async def test_feature_28_nobody_gets_the_release_before_all_parties_have_countersigned_it(publishing, tmp_path):
    """Through a killed miner and killed daemons; the countersignatures are in the release, and it does not hold without them."""
    digest = await publishing.to_review(ALL)
    authority = (publishing.pki / "ca" / "ca.crt").read_bytes()
    for review in (False, True):  # a consumer cannot ask for the review either
        with pytest.raises(PeerFault) as caught:
            await fetch_release(publishing.control(), digest, tmp_path / "early", review=review)
        assert caught.value.code == "NOT_READY"
    seen = await asyncio.to_thread(look, publishing.config("north"), "trial")
    assert Path(seen.report).read_text().startswith("<!DOCTYPE html>")
    with pytest.raises(GateFailed, match="countersigned by 0 parties, expected 2"):
        verify_release(Path(seen.release), ca_certificate=authority)
    (line,) = (await asyncio.to_thread(inbox, publishing.config("north"))).waiting
    assert line.waits_for == "countersignature"

    manifest = bytes.fromhex(seen.manifest_sha256)
    wire, south = (
        publishing.wires["north"][-1],
        SigningKey.load(publishing.pki / "south.sign", publishing.pki / "south.crt"),
    )
    north = SigningKey.load(publishing.pki / "north.sign", publishing.pki / "north.crt")
    for signed, code in (
        (south.sign(statement(digest, manifest, "south")), "IDENTITY_REFUSED"),
        (north.sign(statement(digest, b"x" * 32, "north")), "STUDY_MISMATCH"),
        (north.sign(statement(digest, manifest, "south")), "STUDY_MISMATCH"),
        (north.sign(b"{}"), "MESSAGE_INVALID"),
        (north.sign(statement(digest, manifest, "north", early=True)), "CERTIFICATE_INVALID"),
        (common_pb2.Signed(body=statement(digest, manifest, "north"), signature=b"x" * 64, certificate=north.certificate),
         "MESSAGE_INVALID"),
    ):  # fmt: skip
        with pytest.raises(PeerFault) as caught:
            await wire.report(coordinator_pb2.ReportRequest(study_digest=digest, countersign=signed))
        assert caught.value.code == code

    await publishing.kill("north")  # signed while its daemon is down
    await publishing.countersign("north")
    await publishing.stop_miner()
    await publishing.start_miner()
    publishing.start("north")
    await publishing.until_stage("north", "countersigned; waiting for the other parties")
    summary = await publishing.until(digest, State.REVIEW)
    assert {party.party: party.countersigned for party in summary.parties} == {"north": True, "south": False}
    assert summary.countersignatures_needed == 2
    await publishing.countersign("south")
    await publishing.until(digest, State.PUBLISHED)
    release = await fetch_release(publishing.control(), digest, tmp_path / "release")
    verified = verify_release(release, ca_certificate=authority)
    assert verified.countersigned_by == ("north", "south")
    assert (
        hashlib.sha256((release / "manifest.json").read_bytes()).digest() == manifest
    )  # what they saw is what is published
    for name in publishing.wires:
        await publishing.until_gone(name, digest)
    for change in (_drop_one, _repeat_one, _of_another_manifest(north.sign(statement(digest, b"x" * 32, "north")))):
        shutil.copytree(release, tmp_path / "changed")
        document = json.loads((release / "manifest.sig").read_text())
        change(document["countersignatures"])
        (tmp_path / "changed" / "manifest.sig").write_text(json.dumps(document))
        with pytest.raises(GateFailed) as failed:
            verify_release(tmp_path / "changed", ca_certificate=authority)
        assert failed.value.code == "RELEASE_INVALID"
        shutil.rmtree(tmp_path / "changed")


def _drop_one(entries: list[dict[str, str]]) -> None:
    entries.pop()


def _repeat_one(entries: list[dict[str, str]]) -> None:
    entries[1] = entries[0]


def _of_another_manifest(signed: common_pb2.Signed):
    def change(entries: list[dict[str, str]]) -> None:
        entries[0] = {
            "body": signed.body.decode(),
            "signature": base64.b64encode(signed.signature).decode(),
            "certificate": base64.b64encode(signed.certificate).decode(),
        }

    return change


@pytest.mark.whole
async def test_a_refusal_ends_the_study_and_names_the_party(publishing):
    digest = await publishing.to_review(ALL)
    await publishing.countersign("south")
    await asyncio.to_thread(
        commands.deny, publishing.config("north"), "trial", "officer@north", "two towns can be told apart"
    )
    failure = (await publishing.until(digest, State.DENIED)).failure
    assert failure.code == "STUDY_DENIED"
    assert "party 'north': two towns can be told apart" in failure.message
    with pytest.raises(Refusal, match="denied by north"):
        await fetch_release(publishing.control(), digest, publishing.root / "release")
    await publishing.until_gone("south", digest)
    with pytest.raises(Refusal):
        await publishing.countersign("south")


@pytest.mark.whole
async def test_a_quorum_is_enough_and_the_signers_key_is_asked_for(publishing):
    digest = await publishing.to_review('[publish]\ncountersign = "quorum"\nquorum = 1\n')
    add_approver(publishing.root / "north" / "party.toml", "dpo")
    config = publishing.config("north")
    with pytest.raises(Refusal, match="key"):
        await asyncio.to_thread(countersign, config, "trial", "dpo", key=_other_key(publishing.root))
    await asyncio.to_thread(countersign, config, "trial", "dpo")
    await publishing.until(digest, State.PUBLISHED)
    release = await fetch_release(publishing.control(), digest, publishing.root / "release")
    verified = verify_release(release, ca_certificate=(publishing.pki / "ca" / "ca.crt").read_bytes())
    assert verified.countersigned_by == ("north",)
    body = json.loads(json.loads((release / "manifest.sig").read_text())["countersignatures"][0]["body"])
    assert body["approver"] == "dpo"


def _other_key(root: Path) -> Path:
    from verticil.party.policy.decision_store import ApproverKey

    ApproverKey.create(root / "other.key")
    return root / "other.key"


async def test_automatic_parties_countersign_by_themselves(tmp_path, pki):
    """Under the demonstration's marked authority only, as they approve."""
    made = Publishing(tmp_path, pki)
    await made.start_miner()
    digest = await made.submit(GIVEN + ALL)
    made.start()
    await made.until(digest, State.PUBLISHED)
    await made.stop()
    await made.stop_miner()


async def test_a_changed_release_is_not_countersigned(publishing):
    await publishing.to_review(ALL)
    folder = Path((await asyncio.to_thread(look, publishing.config("north"), "trial")).release)
    (folder / "synthetic.csv").write_text("changed")
    with pytest.raises(GateFailed) as caught:
        await publishing.countersign("north")
    assert caught.value.code == "RELEASE_INVALID"
    with Site.open(publishing.config("north")) as site:
        (record,) = site.state.studies()
        assert site.decisions.review(record.digest).countersignature is None


async def test_a_release_with_reversed_probabilities_is_signed_by_no_rule_and_by_nobody(tmp_path, pki, monkeypatch):
    """The miner learns honestly and publishes each column of 'north' turned round, with everything that follows from it."""
    from verticil.miner.learning import learn as learning

    honest = learning.learn

    def lie(columns, study, **options):
        learned = honest(columns, study, **options)
        turned = [
            dataclasses.replace(family, probability=np.ascontiguousarray(family.probability[:, ::-1]))
            if study.schema[family.child].owner == "north"
            else family
            for family in learned.network.families
        ]
        network = dataclasses.replace(learned.network, families=tuple(turned))
        marginals = [
            dataclasses.replace(item, model=share)
            for item, share in zip(learned.marginals, model_shares(network)[0], strict=True)
        ]
        return dataclasses.replace(learned, network=network, marginals=tuple(marginals))

    monkeypatch.setattr(learning, "learn", lie)
    made = Publishing(tmp_path, pki, approval="manual")
    made.set_up("north")  # approves and countersigns by itself
    await made.start_miner()
    digest = await made.submit(GIVEN + ALL)
    made.start()
    await made.until_stage("south", "waiting for approval")
    await asyncio.to_thread(commands.approve, made.config("south"), "trial", "officer")
    failure = (await made.until(digest, State.FAILED)).failure
    assert failure.code == "RELEASE_INVALID"
    with Site.open(made.config("north")) as site:
        (record,) = site.state.studies()
        assert record.failure.code == "RELEASE_INVALID"
        assert "not those of what this party sent" in record.failure.message
        review = site.decisions.review(record.digest)
        assert review is None or review.countersignature is None
    await made.stop()
    await made.stop_miner()


@pytest.mark.whole
async def test_columns_that_the_disk_lost_are_made_again_to_compare_the_release_with(publishing):
    await publishing.to_review(ALL)
    with Site.open(publishing.config("north")) as site:
        (record,) = site.state.studies()
        sent = site.state.artifacts(record.digest, record.task.effective_digest)
    spool = publishing.root / "north" / "state" / "spool"
    lost = {path.name: path.read_bytes() for path in spool.iterdir()}
    assert set(lost) == {item.sha256.hex() for item in sent.values()}
    charged = publishing.ledger("north")
    for name in lost:
        (spool / name).unlink()
    with pytest.raises(PeerFault, match="no longer on this disk") as waits:
        await publishing.countersign("north")
    assert waits.value.code == "NOT_READY"
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await asyncio.to_thread(_is_here, publishing.config("north")):
            pass
    assert (await publishing.countersign("north")).countersigned
    assert {path.name: path.read_bytes() for path in spool.iterdir()} == lost
    assert publishing.ledger("north") == charged


def _is_here(config) -> bool:
    with Site.open(config) as site:
        (record,) = site.state.studies()
        return site.decisions.review(record.digest).fetched


# ---- what people see


async def test_feature_16_inbox_show_and_check_speak_and_tell_no_value(manual, capsys):
    """The commands as they are typed: exit codes of the contract, counts only, every sentence there."""
    await manual.submit()
    manual.start("north")
    await manual.until_stage("north", "waiting for approval")
    folder = manual.root / "north"
    config = ["--config", str(folder / "party.toml")]

    async def typed(*words: str) -> tuple[int, str]:
        code = await asyncio.to_thread(main, ["party", *words, *config])
        return code, capsys.readouterr().out

    code, text = await typed("inbox")
    assert code == 0
    assert "waits for your approval" in text
    assert "columns: sex, smoker   recipients: miner" in text
    assert "lifetime sum 0.00 now, at most 4.00 after it, of 8.00" in " ".join(text.split())
    code, text = await typed("show", "trial", "--diff", "last")
    assert code == 0
    assert (
        "a true 'f' is reported as 'f' 88.08 % of the time; someone who thought it 15 % likely" in text
    )  # e^2 / (e^2 + 1)
    assert "all 2 columns of one person together" in text
    assert "no earlier study of this id was seen here" in text
    code, text = await typed("check", "trial")
    assert (code, "ready" in text) == (0, True)
    rows = (folder / "people.csv").read_text().splitlines()
    (folder / "people.csv").write_text(
        "\n".join([f"{rows[0]},shoe", "x1,f,sometimes,44", *(f"{row},40" for row in rows[1:])])
    )
    code, text = await typed("check", "trial", "--format", "json")
    checked = json.loads(text)
    assert (code, checked["ok"], checked["faults"]) == (0, True, [])
    assert [warning["code"] for warning in checked["warnings"]] == ["DATA_CATEGORY_UNSEEN"]
    assert checked["warnings"][0]["hint"]
    assert checked["counts_tell"] == COUNTS_TELL
    (table,) = checked["tables"]
    assert (table["extra_columns"], table["missing_columns"]) == (1, [])
    by_name = {column["variable"]: column for column in table["columns"]}
    assert (by_name["smoker"]["unseen"], by_name["smoker"]["absent_categories"], by_name["sex"]["unseen"]) == (1, 0, 0)
    assert "sometimes" not in text
    code, text = await typed("check", "trial")
    words = " ".join(text.split())
    assert (code, words.index(COUNTS_TELL) < words.index("818 records")) == (0, True)
    code, text = await typed("check", "trial", "--no-counts")
    assert (code, "ready" in text) == (0, True)
    assert not any(word in text for word in ("818", "DATA_", "unseen", COUNTS_TELL[:20]))
    code, text = await typed("check", "trial", "--no-counts", "--format", "json")
    unread = json.loads(text)
    assert (unread["warnings"], "counts_tell" in unread) == ([], False)
    assert unread["tables"] == [{"dataset": "people", "used_columns": 2, "extra_columns": 1, "missing_columns": []}]
    (folder / "people.csv").write_text("id,sex\n1,f\n")
    code, text = await typed("check", "trial", "--format", "json")
    (table,) = json.loads(text)["tables"]
    assert (code, table["missing_columns"], table["columns"][0]["absent_categories"]) == (1, ["smoker"], 1)
    code, text = await typed("check", "trial", "--no-counts", "--format", "json")
    unread = json.loads(text)
    assert (code, unread["tables"][0]["missing_columns"]) == (1, ["smoker"])
    assert [fault["code"] for fault in unread["faults"]] == ["DATA_COLUMN_MISSING"]
    assert (await typed("check", "trial", "--study", "study.toml"))[0] == 2
    assert (await typed("show", "unknown"))[0] == 2
    told = [what for wire in manual.wires["north"] for what in wire.reported]
    assert told in ([], ["progress"])  # what the policy says, once, and nothing for what people look at
