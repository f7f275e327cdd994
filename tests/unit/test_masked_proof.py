"""What proves a round of masked tables: this party's own signature under a message of just this round, and nothing else."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from support.set_back import SetBack, rows
from verticil.party.config import load_party
from verticil.party.protocol.masked.reconciler import RECONCILER
from verticil.party.protocol.masked.round_charge import PARTIES, ROWS
from verticil.party.protocol.reconciliation.forgotten import Forgotten, reconcile, settle
from verticil.party.protocol.reconciliation.reconciler import Verifier
from verticil.party.protocol.statistics import DEALER_TABLES as TABLES
from verticil.party.site import Site
from verticil.shared.core.errors import PeerFault, Refusal
from verticil.shared.documents.record import encode
from verticil.shared.federation.alignment.statements import common_body
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.masked.arithmetic.derivation import PURPOSE
from verticil.shared.masked.arithmetic.streams import decode_fields, encode_fields
from verticil.shared.masked.round.proof import BEHIND_CHARGE, is_missing_in, read_signed_message
from verticil.shared.masked.round.schedule import CHARGED, Kind
from verticil.shared.release.formats.deletion import PeerHolding
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.document import Study
from verticil.shared.study.masked import plan_of
from verticil.wire.v1 import common_pb2, coordinator_pb2, peer_pb2

N = 60
T1 = bytes(range(32))


def body(study: bytes, plan: bytes, kind: Kind, *, sender: str = "clinic", transcript: bytes = T1) -> bytes:
    """What is signed under a message, as the page on Model III says."""
    what = encode_fields(PURPOSE, "message", study, 1, plan, 7, str(kind), sender, "insurer", transcript)
    return encode_fields(what, 1, bytes(32))


class Trial:
    """The clinic before a masked study, the keys of all, and what others may show it."""

    def __init__(self, root: Path) -> None:
        self.made = SetBack(root, "masked", "[tables]\nepsilon = 3.0\ndelta = 1e-6\n")
        self.study: Study = self.made.study()
        self.proposal = to_bytes(self.study)
        self.digest = hashlib.sha256(self.proposal).digest()
        self.plan = plan_of(self.study, N, proposal=self.digest).digest
        self.keys: dict[str, SigningKey] = {}
        for name, folder in self.made.made.parties.items():
            config = load_party(folder / "party.toml")
            self.keys[name] = SigningKey.load(config.signing_key, config.certificate)
        self.config = load_party(self.made.clinic / "party.toml")
        self.authority = self.config.federation.ca_certificate.read_bytes()

    def signed(self, kind: Kind, *, by: str = "clinic", **other: object) -> common_pb2.Signed:
        """A signature under a message; `other` as of `body`."""
        told = {"study": self.digest, "plan": self.plan, **other}
        return self.keys[by].sign(body(kind=kind, **told))  # type: ignore[arg-type]

    def held(
        self, *messages: common_pb2.Signed, linked: bool = False, n: int = N, by: str = "insurer"
    ) -> peer_pb2.Held:
        """What the insurer shows."""
        holding = PeerHolding(
            study_digest=self.digest, party="clinic", columns={}, parameters=None, peer="insurer", linked=linked
        )
        return peer_pb2.Held(
            statement=self.keys[by].sign(encode(holding)),
            proposal=self.proposal,
            effective=self.proposal,
            n_common=n,
            messages=messages,
        )

    def from_peer(
        self, *messages: common_pb2.Signed, linked: bool = False, n: int = N, by: str = "insurer"
    ) -> Sequence[Forgotten]:
        """What the clinic reads of what the insurer shows."""
        held = self.held(*messages, linked=linked, n=n, by=by)
        with Site.open(self.config) as site:
            return RECONCILER.from_peer(self.verifier(site), "insurer", held)

    def from_miner(self, *messages: common_pb2.Signed, by: str = "clinic", n: int = N) -> Sequence[Forgotten]:
        """The same of what the miner shows."""
        common = common_body(
            mode=self.study.linkage.mode, study=self.digest, party="clinic", n_common=n, common_sha256=bytes(32)
        )
        told = coordinator_pb2.StudyTask(
            study_digest=self.digest,
            version=1,
            state=common_pb2.STUDY_STATE_UPLOADING,
            proposal=self.proposal,
            round_messages=messages,
            commitment=self.keys[by].sign(common),
        )
        with Site.open(self.config) as site:
            return RECONCILER.from_miner(self.verifier(site), told)

    def verifier(self, site: Site) -> Verifier:
        """Of the clinic."""
        return Verifier(site=site, authority=self.authority, revoked={})


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> Trial:
    return Trial(tmp_path_factory.mktemp("proof"))


@pytest.fixture
def state(trial: Trial) -> Iterator[None]:
    """The clinic's state, as it was afterwards."""
    yield
    trial.made.lose("database and log")


def words(shown: Sequence[Forgotten]) -> list[str]:
    """What is proved, for people; "ends" where a study ends."""
    return ["ends" if item.ends_study else item.what for item in shown]


LINKAGE = "a linkage of this party's people"
ROUND = "a message that this party signed in a round of masked tables"


def test_a_hello_proves_the_linkage_and_a_message_behind_the_charge_the_round(trial: Trial) -> None:
    hello = trial.signed(Kind.HELLO, transcript=b"")
    assert words(trial.from_peer(hello)) == [LINKAGE, "ends"]
    for kind in BEHIND_CHARGE:
        assert words(trial.from_peer(hello, trial.signed(kind))) == [LINKAGE, ROUND, "ends"]
        assert words(trial.from_miner(trial.signed(kind))) == [LINKAGE, ROUND, "ends"]
    assert words(trial.from_miner()) == [LINKAGE], "its statement of the common people"
    assert words(trial.from_peer(trial.signed(Kind.AGREED_AGAIN))) == [LINKAGE, "ends"], "it leaves before the charge"
    both = trial.from_peer(trial.signed(Kind.MASKED), trial.signed(Kind.SHARE, transcript=bytes(32)))
    assert words(both) == [LINKAGE, ROUND, ROUND, "ends"], "each transcript is a round of its own"


def test_nothing_that_another_made_is_a_proof(trial: Trial) -> None:
    masked = trial.signed(Kind.MASKED)
    lies = [
        trial.signed(Kind.MASKED, by="insurer"),
        trial.signed(Kind.MASKED, study=bytes(32)),
        trial.signed(Kind.MASKED, plan=bytes(32)),
        trial.signed(Kind.MASKED, sender="insurer"),
        common_pb2.Signed(body=masked.body, certificate=masked.certificate, signature=bytes(64)),
        trial.keys["clinic"].sign(b"not a list"),
        trial.keys["clinic"].sign(encode_fields(b"x", 1, b"y")),
        trial.keys["clinic"].sign(masked.body + b"\0"),
    ]
    for number, lie in enumerate(lies):
        assert trial.from_peer(lie) == (), number
        assert words(trial.from_miner(lie)) == [LINKAGE], number
    assert trial.from_peer(masked, n=N + 1) == (), "another number of people is another plan"
    assert words(trial.from_miner(masked, n=N + 1)) == [LINKAGE]
    assert trial.from_miner(masked, by="insurer") == ()
    assert words(trial.from_peer(trial.signed(Kind.MASKED, transcript=b"short"))) == [LINKAGE, "ends"]
    with pytest.raises(PeerFault):
        trial.from_peer(masked, by="bank")


def test_a_peers_word_that_people_were_linked_needs_this_partys_approval(trial: Trial) -> None:
    (claimed,) = trial.from_peer(linked=True)
    assert (claimed.what, claimed.needs_approval) == (LINKAGE, True)
    assert not any(
        item.needs_approval for item in trial.from_peer(trial.signed(Kind.HELLO, transcript=b""), linked=True)
    )
    assert trial.from_peer() == ()


@pytest.mark.usefixtures("state")
def test_what_is_proved_is_refused_or_written_back_once_with_a_line_each(trial: Trial) -> None:
    shown = trial.from_peer(trial.signed(Kind.HELLO, transcript=b""), trial.signed(Kind.PACKET))
    with Site.open(trial.config) as site:
        for item in shown[:2]:
            with pytest.raises(Refusal, match="LEDGER_OLDER"):
                settle(site, item, accept_older=False, at=utc_now())
        assert site.ledger.rows() == ()
        for item in shown:
            settle(site, item, accept_older=True, at=utc_now())
        written = site.ledger.rows()
        lines = [line for line in site.audit.entries() if line["event"] == "ledger-mended"]
    assert [row.recipient for row in written] == [PARTIES, "everyone", TABLES, ROWS, ROWS]
    assert {row.artifact_sha256 for row in written} == {"", T1.hex()}
    assert [line["ledger"].get("round") for line in lines] == [None, *[T1.hex()] * 4]
    assert {line["detail"] for line in lines} == {"shown by 'insurer'"}
    assert words(trial.from_peer(trial.signed(Kind.HELLO, transcript=b""), trial.signed(Kind.SHARE))) == ["ends"]
    assert rows(trial.made.clinic) == written


@pytest.mark.usefixtures("state")
def test_what_two_nodes_prove_at_once_is_charged_once(trial: Trial) -> None:
    begun, beside = threading.Event(), threading.Event()
    told = trial.held(trial.signed(Kind.HELLO, transcript=b""), trial.signed(Kind.MASKED))
    with Site.open(trial.config) as site, ThreadPoolExecutor(2) as pool:

        def prove(meanwhile: Callable[[], object]) -> Sequence[Forgotten]:
            shown = RECONCILER.from_peer(trial.verifier(site), "insurer", told)
            meanwhile()
            return shown

        def first() -> None:
            begun.set()
            beside.wait(0.3)  # in vain, where the other one has to wait

        pool.submit(reconcile, site, lambda: prove(first), accept_older=True, at=utc_now())
        begun.wait()
        pool.submit(reconcile, site, lambda: prove(beside.set), accept_older=True, at=utc_now()).result()
        pool.shutdown()
        assert [row.recipient for row in site.ledger.rows()] == [PARTIES, "everyone", TABLES, ROWS, ROWS]


def test_a_node_keeps_one_signature_of_each_sort(trial: Trial) -> None:
    hello, masked = trial.signed(Kind.HELLO), trial.signed(Kind.MASKED)
    assert BEHIND_CHARGE > CHARGED
    assert is_missing_in([], Kind.HELLO)
    assert is_missing_in([hello], Kind.SHARE)
    assert not is_missing_in([hello, masked], Kind.SHARE)
    assert not is_missing_in([hello], Kind.HELLO)
    assert not is_missing_in([], Kind.STATEMENT)
    message = read_signed_message(masked.body)
    assert (message.study, message.sender, message.transcript) == (trial.digest, "clinic", T1)
    assert replace(message, kind=Kind.STATEMENT).is_behind_charge is False


@pytest.mark.parametrize("data", [b"x", b"\0" * 7, b"\0" * 7 + b"\2a", b"\xff" * 8])
def test_what_is_no_list_of_fields_is_refused(data: bytes) -> None:
    assert decode_fields(encode_fields("ab", 3, b"")) == (b"ab", b"3", b"")
    with pytest.raises(ValueError, match="not a list"):
        decode_fields(data)
