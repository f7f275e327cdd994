"""Nodes that deviate in a round of masked tables: what a reader of the program found, and how the round ends.

Each is a node whose own program was changed; all others are as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from support.masked_nodes import MINER, Keys, Nodes, plan_for, random_tables
from verticil.shared import record
from verticil.shared.errors import PeerFault, Refusal
from verticil.shared.identity.authority import issue
from verticil.shared.identity.identity import Role
from verticil.shared.identity.signing import SigningKey
from verticil.shared.masked_round.documents import Hello, Statement
from verticil.shared.masked_round.messages import Kind, pairs_of
from verticil.wire.v1 import common_pb2

SIZES = {"north": (2, 3), "south": (4,), "east": (5, 2)}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"), tuple(SIZES))


@pytest.fixture
def made(tmp_path: Path, keys: Keys) -> Nodes:
    (tmp_path / "round").mkdir()
    return Nodes(tmp_path / "round", keys, plan_for(SIZES, 40), random_tables(SIZES, 40))


def with_hello(made: Nodes, name: str, change: Callable[[Hello], Mapping[str, object]]) -> None:
    """A node that says another hello."""
    contents = made.rounds[name]._contents
    honest = contents.hello

    def hello() -> bytes:
        said = record.decode(Hello, honest(), source="hello")
        return record.encode(dataclasses.replace(said, **change(said)))

    contents.hello = hello  # type: ignore[method-assign]


def with_frames(made: Nodes, name: str, kind: Kind, change: Callable[[list[bytes]], list[bytes]]) -> None:
    """A node that seals other frames of a kind of messages."""
    mail = made.rounds[name]._s.mail
    honest = mail.seal

    def seal(target, message, frames, *, count, **rest):
        if message.kind is kind:
            frames = change(list(frames))
            count = len(frames)
        honest(target, message, frames, count=count, **rest)

    mail.seal = seal  # type: ignore[method-assign]


def test_a_hello_with_one_pin_more_ends_the_round_and_hangs_nobody(made):
    with_hello(made, "east", lambda hello: {"pins": {**hello.pins, "zz": bytes(32)}})
    with pytest.raises(PeerFault, match="list of pinned keys"):
        made.run()


def test_a_name_that_is_no_text_ends_the_round(made):
    with_frames(made, "east", Kind.HELLO, lambda _: [_signed(made, b'{"\\ud800":1}')])
    with pytest.raises(PeerFault) as found:
        made.run()
    assert found.value.code == "MESSAGE_INVALID"


def _signed(made: Nodes, body: bytes) -> bytes:
    return made.rounds["east"]._s.credentials.signing.sign(body).SerializeToString()


def test_a_second_frame_does_not_replace_the_body_that_was_signed(made):
    """Protobuf merges what is parsed together: of a hello in two frames one would be verified, and another one count."""

    def two(frames: list[bytes]) -> list[bytes]:
        signed = common_pb2.Signed.FromString(frames[0])
        said = record.decode(Hello, signed.body, source="hello")
        other = record.encode(dataclasses.replace(said, data=b"x" * 32))
        return [*frames, common_pb2.Signed(body=other).SerializeToString()]

    with_frames(made, "east", Kind.HELLO, two)
    with pytest.raises(PeerFault, match="frame 1"):
        made.run()
    assert not any(node._has("t0") for name, node in made.rounds.items() if name != "east")


def test_a_statement_in_two_frames_is_refused_before_anybody_is_charged(made):
    def two(frames: list[bytes]) -> list[bytes]:
        signed = common_pb2.Signed.FromString(frames[0])
        said = record.decode(Statement, signed.body, source="statement")
        other = record.encode(dataclasses.replace(said, packets={}))
        return [*frames, common_pb2.Signed(body=other).SerializeToString()]

    with_frames(made, "east", Kind.STATEMENT, two)
    with pytest.raises(PeerFault, match="frame 1"):
        made.run()
    assert not made.charged["north"]


@pytest.mark.parametrize("kind", [Kind.PRODUCT, Kind.AGREED, Kind.SEED])
def test_a_frame_too_many_is_refused(made, kind):
    for name in made.rounds:
        with_frames(made, name, kind, lambda frames: [*frames, b""])
    with pytest.raises(PeerFault):
        made.run()


@pytest.mark.parametrize(("kind", "size", "most"), [(Kind.AGREED, 33, 32), (Kind.HELLO, (1 << 20) + 1, 1 << 20)])
def test_a_frame_larger_than_the_plan_lets_it_be_is_refused(made, kind, size, most):
    with_frames(made, "east", kind, lambda _: [bytes(size)])
    with pytest.raises(PeerFault, match=f"frame 0 has {size} bytes, expected {most} at most"):
        made.run()


@pytest.mark.parametrize("kind", [Kind.HELLO, Kind.STATEMENT])
def test_a_document_that_is_none_names_its_sender(made, kind):
    with_frames(made, "east", kind, lambda _: [b"\xff\xff\xff"])
    with pytest.raises(PeerFault, match="from 'east'"):
        made.run()


def test_the_same_key_in_other_bytes_is_refused(made):
    """X25519 ignores the highest bit, so one point has two encodings."""
    made.rounds["north"].begin()
    north = record.decode(Hello, made.rounds["north"]._s.own_hello, source="hello")
    twin = north.padding[:31] + bytes([north.padding[31] | 0x80])
    with_hello(made, "east", lambda _: {"padding": twin})
    with pytest.raises(PeerFault, match="not canonical"):
        made.run()
    assert not made.rounds["north"]._has("t0")


def test_who_agrees_signs_with_the_key_of_its_hello(tmp_path):
    made = Nodes(tmp_path, Keys(tmp_path, tuple(SIZES)), plan_for(SIZES, 40), random_tables(SIZES, 40))
    files = issue(tmp_path / "ca", "east", Role.PARTY, tmp_path / "second", days=1)
    other = SigningKey.load(files.signing_key, files.certificate)
    mail = made.rounds["east"]._s.mail
    honest = mail.seal

    def seal(target, message, frames, **rest):
        own = mail._credentials
        if message.kind is Kind.AGREED:
            mail._credentials = dataclasses.replace(own, signing=other)
        try:
            honest(target, message, frames, **rest)
        finally:
            mail._credentials = own

    mail.seal = seal  # type: ignore[method-assign]
    with pytest.raises(PeerFault, match="another key than its hello says"):
        made.run()


def test_a_done_that_a_dealer_never_gets_does_not_keep_its_secrets(made):
    pair = pairs_of(made.plan)[0]
    withheld = (Kind.DONE, pair.number, pair.first, pair.dealer)
    made.change = lambda message, path: (
        None if (message.kind, message.pair, message.sender, message.recipient) == withheld else path
    )
    made.run()
    dealer = made.rounds[pair.dealer]
    assert dealer.finished
    assert not (dealer._folder.path / "secrets.json").exists()
    assert pair.first not in dealer.progress.waiting_for


def test_an_ended_round_draws_and_makes_nothing(made):
    made.run(until=lambda: made.rounds["north"]._all_got(Kind.AGREED))
    north = made.rounds["north"]
    north.end()
    for work in (north.begin, north.step):
        with pytest.raises(Refusal, match="has ended"):
            work()
    assert [path.name for path in north._folder.path.iterdir()] == ["ended"]


def test_progress_does_not_say_what_may_not_leave_yet(tmp_path, keys):
    made = Nodes(tmp_path, keys, plan_for(SIZES, 40, slot_milliseconds=3_600_000), random_tables(SIZES, 40))
    made.run()
    for name in made.plan.parties:
        node = made.rounds[name]
        hidden = [index for index in node._sent if not node._may_leave(node._messages[index])]
        assert hidden
        assert node.progress.done == len(node._sent) + len(node._got) - len(hidden)
    assert made.rounds[MINER].opened() is None
