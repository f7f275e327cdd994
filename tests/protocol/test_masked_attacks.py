"""Nodes that deviate in a round of masked tables: what a reader of the program found, and how the round ends.

Each is a node whose own program was changed; all others are as they are.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from support.masked_nodes import MINER, Keys, Nodes, plan_for, random_tables
from verticil.shared.core.errors import PeerFault, Refusal
from verticil.shared.documents import record
from verticil.shared.federation.identity.authority import issue
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.masked.arithmetic.check import RUNS
from verticil.shared.masked.round.documents import Hello, Statement
from verticil.shared.masked.round.opening import ShareMaker, noise_of
from verticil.shared.masked.round.pair_products import PairWork
from verticil.shared.masked.round.schedule import Kind, Message, checks_of, pairs_of
from verticil.shared.masked.round.secrets import draw
from verticil.wire.v1 import common_pb2

SIZES = {"north": (2, 3), "south": (4,), "east": (5, 2)}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"), tuple(SIZES))


@pytest.fixture
def made(tmp_path: Path, keys: Keys) -> Nodes:
    (tmp_path / "round").mkdir()
    return Nodes(tmp_path / "round", keys, plan_for(SIZES, 40), random_tables(SIZES, 40))


def with_hello(made: Nodes, name: str, change: Callable[[Hello], Mapping[str, Any]]) -> None:
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


@pytest.mark.parametrize(("name", "found"), [("zz", "list of pinned keys"), ("north", "pinned sealing key of 'north'")])
def test_a_hello_with_another_pin_ends_the_round_and_hangs_nobody(made, name, found):
    with_hello(made, "east", lambda hello: {"pins": {**hello.pins, name: bytes(32)}})
    with pytest.raises(PeerFault, match=found):
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

    mail.seal = seal
    with pytest.raises(PeerFault, match="another key than its hello says"):
        made.run()


@pytest.mark.whole
def test_a_done_that_a_dealer_never_gets_does_not_keep_its_secrets(made):
    pair = pairs_of(made.plan)[0]
    withheld = (Kind.DONE, pair.number, pair.first, pair.dealer)
    made.change = lambda message, path: (
        None if (message.kind, message.pair, message.sender, message.recipient) == withheld else path
    )
    made.run()
    dealer = made.rounds[pair.dealer]
    assert dealer.is_finished
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


def test_progress_counts_the_bytes_that_are_there(made):
    """Also when some were deleted after it was asked."""
    for until in (lambda: made.rounds["north"]._all_sent(Kind.MASKED), None):
        made.run(until=until)
        for node in made.rounds.values():
            files = [path for name in ("sent", "got") for path in (node._folder.path / name).iterdir()]
            there = [path for path in files if path.name.isdecimal()]
            assert node.progress.size == sum(path.stat().st_size for path in there)


def test_progress_does_not_say_what_may_not_leave_yet(tmp_path, keys):
    made = Nodes(tmp_path, keys, plan_for(SIZES, 40, slot_milliseconds=3_600_000), random_tables(SIZES, 40))
    made.run()
    for name in made.plan.parties:
        node = made.rounds[name]
        hidden = [index for index in node._sent if not node._may_leave(node._messages[index])]
        assert hidden
        assert node.progress.done == len(node._sent) + len(node._got) - len(hidden)
    assert made.rounds[MINER].read_tables() is None


class _SignsAnother:
    """Signs a statement about another message."""

    def __init__(self, key: SigningKey) -> None:
        self._key, self.certificate = key, key.certificate

    def sign(self, body: bytes) -> common_pb2.Signed:
        return self._key.sign(body[:-1] + bytes([body[-1] ^ 1]))


def test_a_box_that_is_signed_as_another_one_is_refused(made):
    """Whoever is shown the signature later must see by it what was said."""
    mail = made.rounds["east"]._s.mail
    mail._credentials = dataclasses.replace(mail._credentials, signing=_SignsAnother(mail._credentials.signing))
    with pytest.raises(PeerFault, match="signed as another message"):
        made.run()


@pytest.mark.parametrize(
    ("key", "found"), [(bytes(32), "small order"), (b"\x01" + bytes(31), "small order"), (None, "'s, too")]
)
def test_a_key_that_keeps_nothing_secret_is_refused(made, key, found):
    """A point of small order, and another one's key."""
    made.rounds["north"].begin()
    north = record.decode(Hello, made.rounds["north"]._s.own_hello, source="hello")
    with_hello(made, "east", lambda _: {"sealing": key or north.sealing})
    with pytest.raises(PeerFault, match=found):
        made.run()
    assert not made.rounds["north"]._has("t0")


def test_the_commitment_to_a_toss_is_no_copy_of_ones_own(made):
    def copied(message: Message, path: Path) -> Path:
        if message.kind is Kind.CLOSED and message.recipient == "south":
            south = made.rounds["south"]
            own = south._contents._own_toss_commitment(south._s.checks[message.about])
            return reseal(made, message, path, [own])
        return path

    made.change = copied
    with pytest.raises(PeerFault, match="this node's own commitment"):
        made.run()


def test_one_toss_is_told_by_both(made):
    """The dealer tells another one of its own, with a commitment that fits."""

    def told(message: Message, path: Path) -> Path:
        standing = made.rounds[message.sender]._s
        check = standing.checks.get(message.about)
        if message.kind is Kind.TOLD and check is not None and message.sender == check.dealer:
            said = made.rounds[message.sender]._contents._both_openings(check)
            value, salt = b"v" * 32, b"s" * 32
            fits = standing.rows_work(check).toss_commitment(check, message.sender, value, salt, standing.t1)
            return reseal(made, message, path, [b"".join([*said[:3], value, salt, fits])])
        return path

    made.change = told
    with pytest.raises(PeerFault, match="sends another toss"):
        made.run()


def test_what_is_expected_waits_for_both_tellers_of_a_toss(made):
    made.change = lambda message, path: (
        None if message.kind is Kind.TOLD and message.sender == pairs_of(made.plan)[message.pair].dealer else path
    )
    made.run()
    kinds = {made.rounds["north"]._messages[index].kind for node in made.rounds.values() for index in node._sent}
    assert Kind.TOLD in kinds
    assert Kind.EXPECTED not in kinds


def reseal(made: Nodes, message: Message, path: Path, frames: list[bytes]) -> Path:
    standing = made.rounds[message.sender]._s
    transcript = standing.transcript(message.kind)
    standing.mail.seal(path, message, frames, count=len(frames), transcript=transcript, hellos=standing.hellos)
    return path


# ---- no two uses of one stream


def test_everything_that_is_drawn_is_drawn_by_itself():
    plan = plan_for(SIZES, 40, tables=((0, 2), (0, 3), (2, 3), (0, 2, 3)))
    drawn = [draw(plan, name, secrets.token_bytes) for name in (*plan.parties, MINER)]
    found = re.findall(rb'"([0-9a-f]{64})"', b"".join(map(record.encode, drawn)))
    assert len(found) > 100
    assert len(set(found)) == len(found)


def test_all_streams_of_pairs_differ_though_the_seeds_are_one():
    """By pair, direction, block, run and part; noise and pads by table, who draws, and transcript."""
    plan, same = plan_for({"north": (3, 3), "south": (3, 3), "east": (3, 3)}, 90_000), bytes(32)
    found: list[bytes] = []
    for pair in pairs_of(plan):
        work = PairWork(plan, pair, same)
        blocks = range(len(work.blocks))
        assert len(blocks) == 3
        for owner, block in itertools.product(pair.parties, blocks):
            found.append(work.mask(owner, same, block)[:1].tobytes())
            parts = itertools.product(range(RUNS), ("a", "b"))
            found += [work.a_share(owner, same, run, block, part)[:1].tobytes() for run, part in parts]
        found.append(work.own_product(same).tobytes())
    for check in checks_of(plan):
        work = PairWork(plan, pairs_of(plan)[check.pair], same)
        tossed = work.toss(check, same, same, same)
        found += [tossed.columns.tobytes(), *(rho[:1].tobytes() for rho in work.row_coefficients(check, tossed, same))]
    for table, t1 in itertools.product((1, 2), (same, b"1" * 32)):
        people = random_tables({"north": (3, 3)}, 5)["north"]
        maker = ShareMaker(
            plan, "north", t1, noise=same, padding=same, paddings=_paddings(), products={}, people=people
        )
        found += [maker._pad(name, table, (3, 3)).tobytes() for name in ("south", "east")]
        of = [noise_of(plan, name, same, t1, table) for name in plan.counted]
        found += [drawn.tobytes() for drawn in of if drawn is not None]
    assert len({data[:8] for data in found}) == len(found)


def _paddings() -> dict[str, bytes]:
    """One key for all."""
    public = X25519PrivateKey.from_private_bytes(bytes(32)).public_key().public_bytes_raw()
    return dict.fromkeys(("north", "south", "east"), public)
