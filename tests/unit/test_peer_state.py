"""What a party keeps of a study between peers: store, lists, rows, the ledger of what is shared; whom it waits for."""

from __future__ import annotations

import datetime as dt
import hashlib
import math

import numpy as np
import pytest

from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.limits.limits import Policy
from verticil.party.policy.ledger import Ledger
from verticil.party.protocol.planning import LostError, PeerFailedError, WaitedForError
from verticil.party.protocol.retry import FIRST_WAIT_SECONDS, LONGEST_WAIT_SECONDS, WAIT_GROWTH, Backoff
from verticil.party.protocol.with_peers import pseudonym_lists as lists
from verticil.party.protocol.with_peers.artifact_store import ArtifactStore, Item, Kind
from verticil.party.protocol.with_peers.network import Peers, all_of
from verticil.party.storage.database import Database
from verticil.party.storage.studies import PartyState, Task, stamp
from verticil.shared.core.errors import DataFault, PeerFault, Refusal
from verticil.shared.privacy.events import ExactStatistics, GaussianCounts
from verticil.shared.study.states import State
from verticil.wire.v1 import common_pb2

DIGEST = hashlib.sha256(b"study").digest()
AT = dt.datetime(2026, 11, 21, 10, 2, tzinfo=dt.UTC)


@pytest.fixture
def database(tmp_path):
    with Database(tmp_path, create=True) as opened:
        yield opened


def test_state_moves_and_the_effective_study_is_found_by_its_digest(database):
    state = PartyState(database)
    task = Task(
        digest=DIGEST,
        version=0,
        state=State.AWAITING_APPROVAL,
        proposal=b"{}",
        effective=b"",
        effective_digest=b"",
        approved=False,
        pseudonyms_complete=False,
        alignment_confirmed=False,
        units_received=(),
        failure="",
    )
    state.remember(task, "peers", AT)
    assert state.find_effective(b"") is None  # a study without an effective one is under no digest
    state.agree(DIGEST, b"effective", b"e" * 32)
    state.move(DIGEST, State.FAILED, "ARTIFACT_INVALID")
    record = state.find_effective(b"e" * 32)
    assert record is not None
    assert (record.digest, record.task.state, record.task.failure) == (DIGEST, State.FAILED, "ARTIFACT_INVALID")


# ---- the store


def test_the_shelf_gives_back_what_was_put_and_forgets_what_was_harmed(database, tmp_path):
    store = ArtifactStore(tmp_path / "peer", database)
    store.put(DIGEST, Kind.STATEMENT, b"signed", "north")
    store.put(DIGEST, Kind.COMMON, b"list")
    assert store.read(DIGEST, Kind.STATEMENT, "north") == b"signed"
    assert set(store.items(DIGEST)) == {(Kind.STATEMENT, "north"), (Kind.COMMON, "")}
    path, item = store.find_intact(DIGEST, Kind.COMMON)
    assert (path.read_bytes(), item) == (b"list", Item(sha256=hashlib.sha256(b"list").digest(), size=4))
    path.write_bytes(b"harm")
    with pytest.raises(LostError):
        store.find_intact(DIGEST, Kind.COMMON)
    store.target(DIGEST, Kind.STATEMENT, "north").unlink()
    with pytest.raises(LostError):
        store.read(DIGEST, Kind.STATEMENT, "north")
    assert store.items(DIGEST) == {}


def test_a_file_without_a_row_does_not_count(database, tmp_path):
    store = ArtifactStore(tmp_path / "peer", database)
    store.target(DIGEST, Kind.COLUMN, "3").write_bytes(b"half")
    with pytest.raises(LostError):
        store.read(DIGEST, Kind.COLUMN, "3")


def test_clearing_keeps_what_peers_may_still_ask_for(database, tmp_path):
    store = ArtifactStore(tmp_path / "peer", database)
    for kind, name in ((Kind.COLUMN, "1"), (Kind.SIGNATURE, "north"), (Kind.COMMON, "")):
        store.put(DIGEST, kind, b"x", name)
    store.target(DIGEST, Kind.COLUMN, "2").write_bytes(b"half")
    store.clear(DIGEST, keep=frozenset({Kind.SIGNATURE}))
    assert [path.name for path in (tmp_path / "peer" / DIGEST.hex()).iterdir()] == ["signature.north"]
    store.clear(DIGEST)
    assert list((tmp_path / "peer").iterdir()) == []


# ---- lists


def listed(*numbers: int) -> bytes:
    """Pseudonyms that differ in the last bytes and, above 1000, in the first ones."""
    values = sorted((number // 1000).to_bytes(8, "big") + (number % 1000).to_bytes(8, "big") for number in numbers)
    return b"".join(values)


def array(data: bytes) -> np.ndarray:
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, 16)


@pytest.mark.parametrize("block", [1 << 16, 7, 1])
def test_lists_against_sets_of_python(block, monkeypatch):
    monkeypatch.setattr(lists, "_BLOCK", block)
    generator = np.random.default_rng(5)
    for size in (0, 1, 2, 7, 40, 200):
        ours, theirs = (set(generator.integers(0, 3 * size + 1, size).tolist()) for _ in range(2))
        ours |= {number + 5000 for number in ours}
        found = lists.in_common(array(listed(*ours)), listed(*theirs), teller="x", minimum=0)
        assert found == listed(*(ours & theirs))
        rows = lists.accepted_rows(array(listed(*ours)), found, teller="x", running=listed(*ours), minimum=0)
        assert rows.tolist() == [sorted(ours).index(number) for number in sorted(ours & theirs)]


@pytest.mark.parametrize(
    ("told", "problem"),
    [
        (listed(1, 2) + b"x", "33 bytes, expected 16 for each record"),
        (listed(2) + listed(1), "not in ascending order"),
        (listed(1) + listed(1), "not in ascending order"),
        (listed(1, 2, 9), "not a part of this party's list"),
        (listed(1, 2, 4), "not a part of the list that this party passed on"),
    ],
)
@pytest.mark.parametrize("block", [1 << 16, 1])
def test_a_list_that_cannot_be_is_refused(told, problem, block, monkeypatch):
    monkeypatch.setattr(lists, "_BLOCK", block)
    own = array(listed(1, 2, 3, 4))
    with pytest.raises(PeerFault, match=problem) as caught:
        lists.accepted_rows(own, told, teller="x", running=listed(1, 2, 3), minimum=1)
    assert caught.value.code == "ALIGNMENT_MISMATCH"


def test_too_few_in_common():
    own = array(listed(1, 2, 3))
    with pytest.raises(Refusal, match="2 records in common, expected at least 3"):
        lists.in_common(own, listed(1, 2, 9), teller="x", minimum=3)
    with pytest.raises(Refusal, match="expected at least 2"):
        lists.accepted_rows(own, listed(1), teller="x", running=None, minimum=2)


# ---- the ledger of shared statistics


def policy(**changed) -> Policy:
    limits = {
        "approval": "manual",
        "approvers": (),
        "approvers_needed": 1,
        "max_epsilon_per_column": 1.0,
        "max_epsilon_per_study": 1.0,
        "max_epsilon_lifetime": 3.0,
        "allow_infinite": (),
        "minimum_common_records": 1,
        "minimum_parties": 2,
        "max_categories": 50,
        "deny_columns": (),
        "recipients": (),
        "on_data_change": "refuse",
    }
    return Policy(**{**limits, **changed})


def shared(epsilon: float, study: bytes = b"one") -> ColumnDraw:
    return ColumnDraw(
        variables=("age", "sex"),
        dataset="people",
        sources=("age", "sex"),
        codebook_digest=hashlib.sha256(study).digest(),
        transition_digest=hashlib.sha256(b"noise").digest(),
        secret_id=b"s" * 16,
        fingerprint=b"f" * 32,
        event=ExactStatistics() if math.isinf(epsilon) else GaussianCounts(epsilon=epsilon, delta=1e-6),
    )


def record(
    ledger: Ledger,
    release: ColumnDraw,
    limits: Policy,
    recipient: str = "everyone",
    *,
    study: bytes = DIGEST,
    along_with: bytes | None = None,
) -> float:
    return ledger.record_shared(
        release,
        policy=limits,
        study_digest=study,
        study_id="peers",
        along_with=along_with,
        recipient=recipient,
        artifact_sha256=b"a" * 32,
        size=10,
        at=AT,
    ).epsilon


def test_what_one_study_shares_is_charged_once(database):
    ledger = Ledger(database)
    limits = policy(max_share_epsilon=2.0)
    assert record(ledger, shared(2.0), limits, "miner") == 2.0
    assert record(ledger, shared(2.0), limits) == 0.0
    with pytest.raises(Refusal, match="epsilon 2 on top of what was charged before, expected at most 3"):
        record(ledger, shared(2.0, b"two"), limits, study=hashlib.sha256(b"two").digest())
    assert [(row.recipient, row.epsilon, row.charged) for row in ledger.rows()] == [
        ("miner", 2.0, 2.0),
        ("everyone", 2.0, 0.0),
    ]
    assert database.rows("SELECT DISTINCT unit FROM ledger") == [(None,)]


def test_scores_and_parameters_are_charged_together_and_there_are_no_second_ones(database):
    """Parameters computed anew from another column of a peer, or under another structure, are another answer: refused."""
    ledger = Ledger(database)
    limits = policy(max_share_epsilon=2.0, max_epsilon_lifetime=10.0)
    scores = shared(2.0, b"scores")

    def parameters(columns: bytes, study: bytes = DIGEST) -> float:
        return record(ledger, shared(2.0, columns), limits, study=study, along_with=scores.codebook_digest)

    assert parameters(b"first") == 2.0  # nothing was charged before
    other = hashlib.sha256(b"another study").digest()
    assert record(ledger, scores, limits, "miner", study=other) == 2.0
    assert parameters(b"its columns", other) == 0.0
    assert parameters(b"its columns", other) == 0.0
    with pytest.raises(Refusal, match="computed before") as caught:
        parameters(b"other ones", other)
    assert caught.value.code == "APPROVAL_VOID"
    assert ledger.sum_charges("people").epsilon == 4.0


def test_limits_of_what_is_shared(database):
    ledger = Ledger(database)
    with pytest.raises(Refusal, match="max_share_epsilon") as caught:
        record(ledger, shared(2.0), policy(max_share_epsilon=1.9))
    assert caught.value.code == "BUDGET_EXCEEDED"
    with pytest.raises(Refusal, match="exact functions") as caught:
        record(ledger, shared(math.inf), policy())
    assert caught.value.code == "EPSILON_INFINITE"
    assert ledger.rows() == ()
    assert record(ledger, shared(math.inf), policy(allow_exact_parameters=True)) == math.inf
    assert ledger.sum_charges("people").epsilon == 0.0  # infinite: recorded as such, and in no finite sum


# ---- asking peers


class Nobody:
    """A peer whose every answer is an error."""

    def __init__(self, code: str) -> None:
        self.code = code

    async def hello(self, request):
        del request
        return common_pb2.HelloReply(protocol_version=2, federation="trial")

    async def get_signature(self, request):
        del request
        raise (DataFault if self.code == "STATE_CORRUPT" else PeerFault)(self.code, "what it says")

    async def close(self):
        pass


class Network:
    def __init__(self, peer: Nobody) -> None:
        self.peer = peer

    def dial(self, name):
        del name
        return self.peer


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("NOT_READY", "waiting for the common list from 'tax_office'"),
        ("UNREACHABLE", r"cannot reach 'tax_office' since 10:02 UTC, waiting for the common list \(what it says\)"),
        (
            "TLS_REFUSED",
            r"cannot work with 'tax_office' since 10:02 UTC, waiting for the common list \(TLS_REFUSED: what it says\)",
        ),
    ],
)
async def test_who_is_waited_for(code, text):
    peers = Peers(Network(Nobody(code)), "trial", lambda: AT)
    with pytest.raises(WaitedForError, match=f"^{text}$"):
        await peers.ask("tax_office", lambda peer: peer.get_signature(None), what="the common list")


async def test_an_outage_is_dated_by_its_beginning():
    peer, now = Nobody("UNREACHABLE"), [AT]
    peers = Peers(Network(peer), "trial", lambda: now[0])

    async def ask() -> str:
        with pytest.raises(WaitedForError) as caught:
            await peers.ask("x", lambda peer: peer.get_signature(None), what="to load the study")
        return str(caught.value)

    assert await ask() == "cannot reach 'x' since 10:02 UTC (what it says)"
    now[0] = AT + dt.timedelta(minutes=30)
    assert await ask() == "cannot reach 'x' since 10:02 UTC (what it says)"
    now[0] = AT + dt.timedelta(hours=13)
    assert await ask() == "cannot reach 'x' since 2026-11-21 10:02 UTC (what it says)"
    peer.code = "NOT_READY"
    assert await ask() == "waiting for 'x' to load the study"
    peer.code = "UNREACHABLE"
    assert await ask() == "cannot reach 'x' since 23:02 UTC (what it says)"


def test_a_peer_is_asked_soon_and_ever_more_rarely():
    """No wait exceeds 0.1 s and three tenths of the time that was waited before, nor five seconds."""
    backoff = Backoff(
        lambda: 1.0, first_seconds=FIRST_WAIT_SECONDS, growth=WAIT_GROWTH, longest_seconds=LONGEST_WAIT_SECONDS
    )
    waits = [backoff.next_seconds() for _ in range(100)]
    assert all(wait <= 0.1 + 0.3 * sum(waits[:number]) + 1e-9 for number, wait in enumerate(waits))
    assert waits[0] == 0.1
    assert set(waits[16:]) == {5.0}
    backoff.reset()
    assert backoff.next_seconds() == 0.1


def test_a_stage_is_dated_by_its_beginning(database):
    state = PartyState(database)
    state.remember(
        Task(
            digest=DIGEST,
            version=0,
            state=State.AWAITING_APPROVAL,
            proposal=b"{}",
            effective=b"",
            effective_digest=b"",
            approved=False,
            pseudonyms_complete=False,
            alignment_confirmed=False,
            units_received=(),
            failure="",
        ),
        "peers",
        AT,
    )
    assert state.study(DIGEST).stage_at == ""
    shown = []
    for minute, (stage, percent) in enumerate([("uploading", 10), ("uploading", 40), ("waiting", 0), ("waiting", 0)]):
        state.show(DIGEST, stage, percent, at=AT + dt.timedelta(minutes=minute))
        shown.append(state.study(DIGEST).stage_at)
    assert shown == [stamp(AT), stamp(AT), stamp(AT + dt.timedelta(minutes=2)), stamp(AT + dt.timedelta(minutes=2))]


@pytest.mark.parametrize("code", ["IDENTITY_REFUSED", "ARTIFACT_INVALID", "STATE_CORRUPT"])
async def test_what_a_peer_says_ends_the_study_and_never_the_daemon(code):
    peers = Peers(Network(Nobody(code)), "trial", lambda: AT)
    with pytest.raises(PeerFailedError) as caught:
        await peers.ask("x", lambda peer: peer.get_signature(None), what="the list")
    assert caught.value.error.code == code
    assert caught.value.error.message == "party 'x': what it says"


async def test_of_several_failures_the_first_counts_and_waits_are_told_once():
    async def wait(text: str) -> None:
        raise WaitedForError(text)

    async def fail(text: str) -> None:
        raise PeerFailedError(PeerFault("ARTIFACT_INVALID", text))

    async def do() -> None:
        pass

    assert await all_of([do(), do()]) is None
    assert await all_of([wait("for a"), do(), wait("for b"), wait("for a")]) == "for a; for b"
    with pytest.raises(PeerFailedError, match="one"):
        await all_of([wait("for a"), fail("one"), fail("two")])
