"""A three-way table of three parties in a round (model-three.md, section 8): what is dealt is checked before a row leaves.

Faults are planted in one node, or on the way; exactness and crashes are in test_masked_round.py.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.masked_nodes import MINER, Keys, Nodes, plan_for, random_tables
from verticil.shared.core.errors import PeerFault
from verticil.shared.masked.arithmetic.check import RUNS
from verticil.shared.masked.arithmetic.field import P
from verticil.shared.masked.arithmetic.plan import Plan
from verticil.shared.masked.round import triple_products as triple_work
from verticil.shared.masked.round.schedule import SACRIFICE, Kind, Message, messages_of, triples_of
from verticil.shared.masked.round.secrets import SETS, CheckSecrets
from verticil.shared.masked.round.triple_products import TripleWork

SIZES = {"north": (2,), "south": (4,), "east": (3,)}
TABLE = 3  # behind the three pairs
FOUR = ("'north'", "'south'", "'east'", "'miner'")


def plan(**changed: Any) -> Plan:
    return plan_for(SIZES, 40, tables=((0, 1), (0, 2), (1, 2), (0, 1, 2)), **changed)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"), tuple(SIZES))


@pytest.fixture
def made(tmp_path: Path, keys: Keys) -> Nodes:
    return Nodes(tmp_path, keys, plan(), random_tables(SIZES, 40))


def refused(made: Nodes) -> PeerFault:
    """The error that ends the round; nothing is opened."""
    with pytest.raises(PeerFault) as found:
        made.run()
    assert made.rounds[MINER].read_tables() is None
    return found.value


def sent(made: Nodes) -> set[Kind]:
    """Kinds of the messages of the triple that any node has made."""
    return {
        message.kind
        for message in messages_of(made.plan)
        if message.table >= 0 and message.index in made.rounds[message.sender]._sent
    }


def nothing_left(made: Nodes) -> bool:
    return not sent(made) & {Kind.PASSED, Kind.MASKED, Kind.PACKET}


def reseal(made: Nodes, message: Message, path: Path, frames: list[bytes]) -> Path:
    standing = made.rounds[message.sender]._s
    standing.mail.seal(
        path, message, frames, count=len(frames), transcript=standing.transcript(message.kind), hellos=standing.hellos
    )
    return path


# ---- the dealer, and parties, that do not follow the page


@pytest.mark.parametrize("number", [0, SETS - 1])
def test_a_wrong_product_of_one_record_is_caught_and_all_four_are_named(made, monkeypatch, number):
    """In the set that is used, E = 2^20, or in one that is sacrificed."""
    honest = TripleWork.dealt

    def wrong(self: TripleWork, seeds: Any) -> Iterator[bytes]:
        for place, frame in enumerate(honest(self, seeds)):
            words = np.frombuffer(frame, "<u4").copy()
            if place == number * len(self.blocks):
                words[7] = (int(words[7]) + 2**20) % P
            yield words.tobytes()

    monkeypatch.setattr(TripleWork, "dealt", wrong)
    found = refused(made)
    assert "what was dealt is not right" in found.message
    assert all(name in found.message for name in FOUR)
    assert nothing_left(made)


@pytest.mark.whole
@pytest.mark.parametrize(("who", "mended"), [("north", False), ("south", True), ("east", True)])
def test_a_false_alpha_is_caught_though_its_teller_mends_its_own_sums(made, monkeypatch, who, mended):
    """It is committed to its sums before it hears the others': it can only guess."""
    honest, sums = TripleWork.alpha, TripleWork.sums

    def false(self: TripleWork, owner: str, *rest: object) -> Iterator[np.ndarray]:
        for words in honest(self, owner, *rest):
            words[1, 1] = (int(words[1, 1]) + int(owner == who)) % P
            yield words

    def guessed(self: TripleWork, owner: str, run: int, **rest: Any) -> np.ndarray:
        found = sums(self, owner, run, **rest)
        found[:] = (found.astype(np.uint64) + 5 * (owner == who)) % P
        return found

    monkeypatch.setattr(TripleWork, "alpha", false)
    if mended:
        monkeypatch.setattr(TripleWork, "sums", guessed)
    found = refused(made)
    assert "was not told rightly" in found.message
    assert all(name in found.message for name in FOUR)
    assert nothing_left(made)


def test_sums_that_are_mended_behind_their_commitment_are_refused(made):
    def mend(message: Message, path: Path) -> Path:
        if message.kind is Kind.SUMS_OPEN and message.sender == "south":
            (frame,) = made.rounds["south"]._contents.make_frames(message)
            first = (int.from_bytes(frame[:4], "little") + 1) % P
            return reseal(made, message, path, [first.to_bytes(4, "little") + frame[4:]])
        return path

    made.change = mend
    assert "the sums do not fit their commitment" in refused(made).message
    assert nothing_left(made)


@pytest.mark.parametrize(("closed", "opened"), [(Kind.E_CLOSED, Kind.E_OPEN), (Kind.C_CLOSED, Kind.C_OPEN)])
def test_a_second_toss_is_refused(made, closed, opened):
    """Other bytes than those that were committed to; another commitment; and one that is a copy of another's."""
    index = next(
        m.index for m in messages_of(made.plan) if m.kind is closed and m.sender == "north" and m.recipient == "south"
    )
    made.run(until=lambda: index in made.rounds["south"]._got)
    message = messages_of(made.plan)[index]
    again = made.folder / "again"
    with pytest.raises(PeerFault, match="came twice"):
        made.rounds["south"].receive(index, reseal(made, message, again, [bytes(32)]))

    def toss(message: Message, path: Path) -> Path:
        return (
            reseal(made, message, path, [bytes(64)]) if message.kind is opened and message.sender == "north" else path
        )

    made.change = toss
    assert "the toss does not fit its commitment" in refused(made).message
    assert nothing_left(made)


@pytest.mark.parametrize("kind", [Kind.E_CLOSED, Kind.SUMS_CLOSED])
def test_a_copied_commitment_is_refused(made, kind):
    seen: dict[tuple[int, str], list[bytes]] = {}

    def copy(message: Message, path: Path) -> Path:
        if message.kind is kind and message.recipient == "east":
            frames = seen.setdefault(
                (message.run, message.recipient), list(made.rounds[message.sender]._contents.make_frames(message))
            )
            return reseal(made, message, path, frames)
        return path

    made.change = copy
    assert "it is the commitment of another one, too" in refused(made).message
    assert nothing_left(made)


@pytest.mark.whole
def test_other_rows_for_one_of_the_two_readers_do_not_fit_the_one_commitment(made, monkeypatch):
    def other(message: Message, path: Path) -> Path:
        if (
            message.kind is Kind.MASKED
            and message.table == TABLE
            and (message.owner, message.recipient) == ("north", "east")
        ):
            head, rows = list(made.rounds["north"]._contents.make_frames(message))
            return reseal(made, message, path, [head, bytes(4) + rows[4:]])
        return path

    made.change = other
    assert "it does not fit what was committed to" in refused(made).message


@pytest.mark.whole
def test_rows_that_are_not_one_hot_are_found_by_both_others_with_the_miner(made, monkeypatch):
    rows_of = triple_work._Rows
    honest, expected = rows_of.masked, rows_of.expected_commitments

    def masked(self, owner, seed, people):
        for block in honest(self, owner, seed, people):
            words = np.frombuffer(block, "<u4").copy()
            if owner == "north":
                words[0] = (int(words[0]) + 2**11) % P
            yield words.tobytes()

    def fitting(self, check, drawn, tossed, t1, people):
        of_verifier, of_dealer = expected(self, check, drawn, tossed, t1, people)
        if check.owner == "north":
            blocks = self.blocks_of(self.masked("north", drawn.mask_seed, people), self.widths["north"], "rows")
            run = drawn.runs[check.run]
            pieces = self.w_of_verifier(check, run.verifier_seed, tossed, blocks)
            of_verifier = self.w_commitment(check, check.verifier, run.verifier_w_salt, t1, pieces)
        return of_verifier, of_dealer

    monkeypatch.setattr(rows_of, "masked", masked)
    monkeypatch.setattr(rows_of, "expected_commitments", fitting)
    found = refused(made)
    assert "the check fails" in found.message
    assert "the rows of 'north'" in found.message
    assert f"dealer '{MINER}'" in found.message


def test_equal_seeds_of_two_sets_are_refused_by_the_dealer(made):
    """Else alpha = (e - 1) r tells the mask."""
    node = made.rounds["north"]
    node.begin()
    drawn = node._folder.secrets
    of = drawn.triples[str(TABLE)]
    values = {name: getattr(of, name) for name in of.__slots__}
    equal = type(of)(**{**values, "mask_seeds": (of.mask_seeds[0],) * SETS})
    node._s.keep(type(drawn)(**{**{k: getattr(drawn, k) for k in drawn.__slots__}, "triples": {str(TABLE): equal}}))
    (node._folder.path / "hello.json").unlink()
    node._folder.write("hello.json", node._contents.hello())
    assert "two of its seeds are equal" in refused(made).message


@pytest.mark.parametrize(
    ("kind", "frames", "found"),
    [
        (Kind.SEED, [bytes(64 * SETS)], "do not fit their commitments"),
        (Kind.PRODUCT, [b"\xff" * (4 * 26 * 40)] * SETS + [bytes(4 * 24)], "words are"),
        (Kind.ALPHA, [b"\xff" * (4 * 2 * 40)], "words are"),
        (Kind.PASSED, [b"x"], "1 bytes"),
    ],
)
def test_a_content_that_does_not_fit_ends_the_round(made, kind, frames, found):
    def forge(message: Message, path: Path) -> Path:
        wrong = message.kind is kind and message.table == TABLE and message.sender in {"north", MINER}
        return reseal(made, message, path, frames) if wrong else path

    made.change = forge
    assert found in refused(made).message


# ---- what waits for what


ORDER = (Kind.THERE, *SACRIFICE, Kind.PASSED)


def test_nothing_of_a_triple_leaves_before_what_it_waits_for(made):
    """Messages to the greatest name, whom what is dealt goes to, are held back from one kind on, each kind in turn: it makes none
    that waits for that kind."""
    node = made.rounds["south"]
    assert triples_of(made.plan)[0].parties[-1] == "south"
    kinds = (Kind.PRODUCT, *ORDER, Kind.MASKED)
    for place, (held, waits) in enumerate(zip(kinds, (Kind.STATEMENT, *kinds[2:]), strict=False)):
        made.change = lambda message, path, late=kinds[place:]: (
            None if message.kind in late and message.recipient == "south" and message.table == TABLE else path
        )
        made.run()
        table = -1 if waits is Kind.STATEMENT else TABLE
        late = {waits, Kind.PACKET} if waits is Kind.MASKED else {waits}
        waiting = [
            message.index
            for message in messages_of(made.plan)
            if message.sender == "south" and message.kind in late and message.table == table and message.run <= 0
        ]
        assert waiting
        assert not node._sent.intersection(waiting), (held, waits)


def test_the_dealer_hears_nothing_of_a_sacrifice(made):
    about = [message for message in messages_of(made.plan) if message.kind in ORDER]
    assert len(about) == 6 * (2 + RUNS * len(SACRIFICE))
    assert not any(MINER in {message.sender, message.recipient} for message in about)


# ---- derivations, and plans


def test_all_streams_of_a_triple_differ_and_those_of_another_table_too():
    found: list[bytes] = []
    both = plan_for({**SIZES, "east": (3, 3)}, 1200, tables=((0, 1, 2), (0, 1, 3)))
    for triple in triples_of(both):
        work = TripleWork(both, triple, bytes(32))
        for number, owner in itertools.product(range(SETS), triple.parties):
            found += [work.mask(owner, number, bytes(32), block)[:1].tobytes() for block in range(len(work.blocks))]
            found += [product[:1].tobytes() for part in work.shares(owner, number, bytes(32)) for product in part]
        found += [work.whole(owner, bytes(32)).tobytes() for owner in triple.parties]
        found += [
            next(work.rows(owner, reader).corrections(owner, _same(), 0))[:8]
            for owner, reader in itertools.permutations(triple.parties, 2)
        ]
    assert len({data[:8] for data in found}) == len(found)


def _same() -> CheckSecrets:
    return CheckSecrets(**dict.fromkeys(CheckSecrets.__slots__, bytes(32)))


def test_a_triple_is_of_three_parties_or_of_one_and_of_four_operators():
    inside = plan_for({"north": (2, 3, 2), "south": (4,)}, 10, tables=((0, 1), (0, 1, 2)))
    assert triples_of(inside) == ()
    with pytest.raises(ValueError, match="three units of two parties"):
        plan_for({"north": (2, 3), "south": (4,)}, 10, tables=((0, 1, 2),))
    with pytest.raises(ValueError, match="four different operators"):
        plan(operators={"north": "one", "south": "two", "east": "three", MINER: "one"})
