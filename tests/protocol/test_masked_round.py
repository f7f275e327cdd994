"""A round of masked tables, all nodes in one process: exactness, crashes, views, and what a hasty version gets wrong.

Sealed files pass from folder to folder as they would over the wire. Faults are planted in one node, or on the way.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from support.masked_nodes import MINER, Keys, Nodes, Table, fixed_random, plan_for, random_tables
from verticil.shared.core.errors import PeerFault, Refusal, VerticilError
from verticil.shared.documents import record
from verticil.shared.masked.arithmetic.derivation import RoundName
from verticil.shared.masked.arithmetic.field import P
from verticil.shared.masked.arithmetic.plan import Plan
from verticil.shared.masked.round import opening as tables_work
from verticil.shared.masked.round import pair_products as pair_work
from verticil.shared.masked.round.message_payloads import Contents
from verticil.shared.masked.round.round import Round, end_round
from verticil.shared.masked.round.schedule import About, Kind, Message, messages_of, pairs_of
from verticil.shared.storage import durable

SIZES = {"north": (2, 3), "south": (4,), "east": (5, 2), "west": (3,), "mid": (6,)}
PARTIES = tuple(SIZES)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"), PARTIES)


@pytest.fixture
def nodes(tmp_path: Path, keys: Keys) -> Callable[..., Nodes]:
    def make(
        parties: int = 3, n_people: int = 70, *, folder: str = "round", plans: dict[str, Plan] | None = None, **changed
    ) -> Nodes:
        sizes = {name: SIZES[name] for name in PARTIES[:parties]}
        plan = plan_for(sizes, n_people, **changed)
        (tmp_path / folder).mkdir()
        return Nodes(tmp_path / folder, keys, plan, random_tables(sizes, n_people), plans=plans or {})

    return make


def drawn_noise(made: Nodes, keys_of_noise: dict[str, bytes], t1: bytes) -> list[np.ndarray]:
    """What the contributors drew for each table, added up."""
    found = []
    for index, table in enumerate(made.plan.tables):
        shape = tuple(made.plan.sizes[unit] for unit in table)
        total = np.zeros(shape, np.int64)
        for name, key in keys_of_noise.items():
            drawn = tables_work.noise_of(made.plan, name, key, t1, index)
            if drawn is not None:
                total += np.where(drawn > 2**31, drawn.astype(np.int64) - (P), drawn.astype(np.int64))
        found.append(total)
    return found


def noise_keys(made: Nodes) -> dict[str, bytes]:
    """Of every contributor, as long as they are there."""
    found = {}
    for name, node in made.rounds.items():
        node.begin()
        secrets = node._folder.secrets
        assert secrets is not None
        found[name] = secrets.noise
    return found


@pytest.mark.parametrize(
    ("parties", "triples"),
    [
        (2, ()),
        (3, ()),
        pytest.param(5, (), marks=pytest.mark.slow),
        (3, ((1, 2, 3),)),
        pytest.param(4, ((0, 2, 4), (1, 2, 5)), marks=pytest.mark.slow),
    ],
)
def test_opened_tables_less_the_contributors_noise_are_the_cross_tables(nodes, parties, triples):
    """Triples of unequal sizes, and two that share parties, one with a unit of each of both."""
    units = sum(map(len, list(SIZES.values())[:parties]))
    made: Nodes = nodes(parties, tables=(*itertools.combinations(range(units), 2), *triples))
    keys_of_noise = noise_keys(made)
    made.run()
    assert all(node.is_finished for node in made.rounds.values())
    opened, t1 = made.rounds[MINER].read_tables(), made.rounds[MINER]._s.t1
    assert opened is not None
    for name in made.plan.parties:
        assert all(map(np.array_equal, made.rounds[name].read_tables(), opened))
    exact, noise = made.exact(), drawn_noise(made, keys_of_noise, t1)
    for counts, table, drawn in zip(opened, exact, noise, strict=True):
        assert np.array_equal(counts - drawn, table)
        assert drawn.any()
    assert all(set(charged) == {t1} for charged in made.charged.values())


def test_nothing_is_left_that_opens_what_passed(nodes):
    made: Nodes = nodes()
    made.run()
    for name, node in made.rounds.items():
        assert not (node._folder.path / "secrets.json").exists(), name
        public = {Kind.HELLO, Kind.AGREED, Kind.STATEMENT, Kind.AGREED_AGAIN, Kind.OPENED, Kind.RECEIPT}
        left = {made.messages[int(path.name)].kind for path in (node._folder.path / "got").iterdir()}
        assert left <= public, name
        assert not list((node._folder.path / "f").iterdir()), name


def test_what_is_drawn_is_readable_by_the_owner_alone_and_what_leaves_is_sealed(nodes):
    made: Nodes = nodes()
    plain = {}

    def keep(message: Message, path: Path) -> Path:
        if message.kind in {Kind.MASKED, Kind.SEED}:
            plain[message.index] = path.read_bytes()
        return path

    made.change = keep
    for node in made.rounds.values():
        node.begin()
        assert (node._folder.path / "secrets.json").stat().st_mode & 0o777 == 0o600
    seeds = [pair.mask_seed for name in made.plan.parties for pair in made.rounds[name]._folder.secrets.pairs.values()]
    one_hot = np.zeros((70, 5), "<u4")
    made.run()
    for data in plain.values():
        assert not any(seed in data for seed in seeds)
        assert one_hot[:2].tobytes() not in data


def test_no_masked_rows_go_to_the_dealer_of_their_mask(keys):
    for parties in range(2, 6):
        sizes = {name: SIZES[name] for name in PARTIES[:parties]}
        plan = plan_for(sizes, 10)
        for message in messages_of(plan):
            if message.kind is Kind.MASKED:
                pair = pairs_of(plan)[message.pair]
                assert message.recipient == pair.partner(message.owner) != pair.dealer
    with pytest.raises(ValueError, match="three different operators"):
        plan_for({name: SIZES[name] for name in PARTIES[:3]}, 10, dealers=("north", "south", "north"))


# ---- crashes


class Killed(BaseException):
    """The process is gone."""


class AtSteps:
    """Kills the process before and after durable steps, once for each of them.

    Args:
        every: one of so many, spread by the name of the step; 1: all.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self.seen: set[str] = set()

    def __call__(self, step: durable.DurableStep) -> None:
        _, nodes, name = str(step.path).rpartition("nodes/")
        at = f"{step.kind} {step.moment} {name}"
        if nodes and at not in self.seen:
            self.seen.add(at)
            if int.from_bytes(hashlib.sha256(at.encode()).digest()[:4], "big") % self._every == 0:
                raise Killed


@pytest.mark.whole
@pytest.mark.parametrize(
    ("parties", "every", "least"),
    [
        (2, 12, 60),
        pytest.param(3, 60, 30, marks=pytest.mark.slow),
        pytest.param(2, 1, 800, marks=[pytest.mark.faults, pytest.mark.timeout(1800)]),
        pytest.param(3, 1, 2000, marks=[pytest.mark.faults, pytest.mark.timeout(3600)]),
    ],
)
def test_nodes_that_die_at_durable_steps_give_the_same_tables(nodes, monkeypatch, parties, every, least):
    """Of three parties with a table of three of their units."""
    made_as = Nodes.made

    def with_random(self: Nodes, name: str) -> Round:
        node = made_as(self, name)
        node._random = fixed_random(name)
        node._clock = lambda: dt.datetime.now(dt.UTC)  # a file that a kill left behind has the disk's time
        return node

    monkeypatch.setattr(Nodes, "made", with_random)
    tables = {} if parties == 2 else {"tables": ((0, 2), (0, 3), (2, 3), (0, 2, 3))}
    undisturbed: Nodes = nodes(parties, 40, folder="undisturbed", **tables)
    undisturbed.run()
    disturbed: Nodes = nodes(parties, 40, folder="disturbed", **tables)
    killer, crashes = AtSteps(every), 0
    with durable.watch_steps(killer):
        while not all(node.is_finished for node in disturbed.rounds.values()):
            try:
                disturbed.exchange()
            except Killed:
                crashes += 1
                for name in disturbed.rounds:
                    while True:
                        try:
                            disturbed.restart(name)
                        except Killed:
                            crashes += 1
                            continue
                        break
    assert crashes >= least
    one, other = undisturbed.rounds[MINER], disturbed.rounds[MINER]
    assert one._s.t1 == other._s.t1
    assert all(map(np.array_equal, one.read_tables(), other.read_tables()))
    for name in PARTIES[:parties]:
        assert set(disturbed.charged[name]) == {one._s.t1}


def test_a_lost_secret_ends_the_round(nodes):
    made: Nodes = nodes()
    made.run(until=lambda: made.rounds["north"]._all_sent(Kind.AGREED))
    (made.rounds["north"]._folder.path / "secrets.json").unlink()
    made.restart("north")
    with pytest.raises(PeerFault, match="is not there any more"):
        made.run()


def test_another_table_after_a_restart_ends_the_round_and_nothing_says_what_differs(nodes):
    made: Nodes = nodes()
    made.run(until=lambda: made.rounds["north"]._all_got(Kind.AGREED))
    rows = made.tables["north"].rows.copy()
    rows[3, 0] = 1 - rows[3, 0]
    made.tables = {**made.tables, "north": Table(rows)}
    made.restart("north")
    with pytest.raises(Refusal, match="are not what the round began with") as ended:
        made.run()
    assert ended.value.code == "APPROVAL_VOID"
    assert not made.charged["north"]


def test_an_ended_round_is_never_taken_up_again(nodes):
    made: Nodes = nodes()
    made.run(until=lambda: made.rounds["north"]._has("t1"))
    t0, t1 = made.rounds["north"]._s.t0, made.rounds["north"]._s.t1
    folder = made.rounds["north"]._folder.path
    made.rounds["north"].end()
    assert [item.name for item in folder.iterdir()] == ["ended"]
    line = (folder / "ended").read_text()
    assert t0.hex() in line
    assert t1.hex() in line
    with pytest.raises(Refusal, match="has ended"):
        made.restart("north")
    end_round(folder, made.now)
    assert (folder / "ended").read_text() == line


# ---- what a hasty version gets wrong (section 9)


def refused(made: Nodes) -> VerticilError:
    """The error that ends the round; nothing is opened."""
    with pytest.raises((PeerFault, Refusal)) as found:
        made.run()
    assert made.rounds[MINER].read_tables() is None
    return found.value


def test_a_second_hello_ends_the_round(nodes):
    made: Nodes = nodes()
    made.run(until=lambda: made.rounds["south"]._all_got(Kind.HELLO))
    index = next(m.index for m in made.messages if m.kind is Kind.HELLO and m.recipient == "south")
    other: Nodes = nodes(folder="other")
    other.rounds["north"].begin()
    other.rounds["north"].step()
    made.rounds["south"].receive(
        index, _copy(made.rounds["north"].sealed(index).path, made.folder)
    )  # the same: no news
    with pytest.raises(PeerFault, match="came twice"):
        made.rounds["south"].receive(index, _copy(other.rounds["north"].sealed(index).path, made.folder))


def _copy(path: Path, folder: Path) -> Path:
    copy = folder / "copy"
    copy.write_bytes(path.read_bytes())
    return copy


@pytest.mark.parametrize("changed", [{"n_people": 71}, {"dealers": (MINER, "south", "north")}, {"round": 2}])
def test_another_plan_at_one_node_ends_the_round_before_anything_leaves(nodes, changed):
    other = plan_for({name: SIZES[name] for name in PARTIES[:3]}, **({"n_people": 70} | changed))
    made: Nodes = nodes(plans={"east": other})
    refused(made)
    for node in made.rounds.values():
        assert {made.messages[index].kind for index in node._sent} <= {Kind.HELLO, Kind.AGREED}


def test_another_row_order_at_one_party_ends_the_round_before_anything_leaves(nodes):
    made: Nodes = nodes()
    made.tables = {**made.tables, "south": Table(made.tables["south"].rows[::-1], order=b"o" * 32)}
    made.rounds["south"] = made.made("south")
    assert refused(made).code == "ALIGNMENT_MISMATCH"


def test_other_pins_at_one_node_end_the_round(nodes, keys, tmp_path):
    made: Nodes = nodes()
    credentials = keys.of("south")
    stranger = Keys(tmp_path / "stranger", ("north",)).of("north").pinned["north"]
    made.rounds["south"]._s.credentials = type(credentials)(
        signing=credentials.signing,
        sealing=credentials.sealing,
        pinned={**credentials.pinned, "north": stranger},
        verify=credentials.verify,
    )
    refused(made)


def test_equal_seeds_for_two_masks_are_refused_by_their_dealer(nodes):
    made: Nodes = nodes(4)
    node = made.rounds["north"]
    made.rounds["north"].begin()
    dealt = {pair.dealer: [] for pair in pairs_of(made.plan)}
    for pair in pairs_of(made.plan):
        if "north" in pair.parties:
            dealt[pair.dealer].append(str(pair.number))
    one, other = next(numbers for numbers in dealt.values() if len(numbers) > 1)[:2]
    drawn = node._folder.secrets
    equal = {**drawn.pairs, other: drawn.pairs[one]}
    node._s.keep(type(drawn)(**{**{k: getattr(drawn, k) for k in drawn.__slots__}, "pairs": equal}))
    (node._folder.path / "hello.json").unlink()
    node._folder.write("hello.json", node._contents.hello())
    assert "it is a seed of 'north'" in refused(made).message


def planted_rows(monkeypatch: pytest.MonkeyPatch, change: Callable[[np.ndarray], None]) -> None:
    """North's masked rows, changed before it commits to them, and what it expects of the verifiers, to fit."""
    honest, expected = pair_work.PairWork.masked, pair_work.PairWork.expected_commitments

    def masked(self, owner, seed, people):
        for block in honest(self, owner, seed, people):
            rows = np.frombuffer(block, "<u4").reshape(-1, self.widths[owner]).astype(np.uint64)
            if owner == "north":
                change(rows)
            yield (rows % P).astype("<u4").tobytes()

    def fitting(self, check, drawn, tossed, t1, people):
        of_verifier, of_dealer = expected(self, check, drawn, tossed, t1, people)
        if check.owner == "north":
            blocks = self.blocks_of(self.masked("north", drawn.mask_seed, people), self.widths["north"], "rows")
            run = drawn.runs[check.run]
            pieces = self.w_of_verifier(check, run.verifier_seed, tossed, blocks)
            of_verifier = self.w_commitment(check, check.verifier, run.verifier_w_salt, t1, pieces)
        return of_verifier, of_dealer

    monkeypatch.setattr(pair_work.PairWork, "masked", masked)
    monkeypatch.setattr(pair_work.PairWork, "expected_commitments", fitting)


def _weight_two(rows: np.ndarray) -> None:
    rows[5, 1] += 1
    rows[5, 0] += 1


def _targets(rows: np.ndarray) -> None:
    for place in range(21):
        rows[place, 0] += np.uint64(1 << (11 + place))


def _negative(rows: np.ndarray) -> None:
    rows[0, 0] += np.uint64(2**32 - 6)


@pytest.mark.parametrize("change", [_weight_two, _targets, _negative])
def test_rows_that_are_not_one_hot_are_found_and_the_three_are_named(nodes, monkeypatch, change):
    made: Nodes = nodes()
    planted_rows(monkeypatch, change)
    found = refused(made)
    assert "the check fails" in found.message
    assert "'north'" in found.message
    assert all(name in found.message for name in ("dealer", "run"))


def test_unchecked_partners_have_no_check_and_the_tables_are_the_same(nodes):
    made: Nodes = nodes(unchecked=PARTIES[:3])
    keys_of_noise = noise_keys(made)
    made.run()
    noise = drawn_noise(made, keys_of_noise, made.rounds[MINER]._s.t1)
    assert all(
        map(np.array_equal, [a - b for a, b in zip(made.rounds[MINER].read_tables(), noise, strict=True)], made.exact())
    )
    assert not any(message.kind is Kind.PACKET for message in made.messages)


@pytest.mark.parametrize("person", [0, 1])
@pytest.mark.parametrize("guess", [0, 1])
def test_a_verifier_that_guesses_a_value_sees_the_same_whatever_it_is(nodes, monkeypatch, person, guess):
    """It takes e_g out of one row of what it holds: with `expected` its share of w does not fit, for every value alike (F18)."""
    made: Nodes = nodes(2, 40)
    made.tables["north"].rows[7, 0] = person
    honest = Contents._masked_rows

    def guessing(self, check):
        for number, block in enumerate(honest(self, check)):
            changed = block.copy()
            if number == 0 and check.owner == "north":
                changed[7, guess] = (int(changed[7, guess]) - 1) % (P)
            yield changed

    monkeypatch.setattr(Contents, "_masked_rows", guessing)
    found = refused(made)
    assert "does not follow from what it sent" in found.message  # the cheat's own node says so
    told = [m for m in made.messages if m.kind is Kind.F_SHARE and m.owner == "north"]
    assert not any(m.index in made.rounds[m.sender]._sent for m in told)


def test_a_share_of_w_that_is_not_the_expected_one_is_refused_before_f(nodes, monkeypatch):
    honest = pair_work.PairWork.w_of_verifier

    def lying(self, check, seed, tossed, masked):
        for block in honest(self, check, seed, tossed, masked):
            words = np.frombuffer(block, "<u4").copy()
            words[0] = (int(words[0]) + 1) % (P)
            yield words.tobytes()

    monkeypatch.setattr(pair_work.PairWork, "w_of_verifier", lying)
    monkeypatch.setattr(Contents, "_w_share", _without_looking(Contents._w_share))
    made: Nodes = nodes(2, 40)  # behind the change: a node takes its methods when it is made
    assert re.search("it is not what '(north|south)' expects", refused(made).message)
    assert not any(
        m.kind is Kind.F_SHARE and m.index in made.rounds[m.sender]._sent for m in made.messages if m.sender == MINER
    )


def _without_looking(honest: Callable[..., Iterator[bytes]]) -> Callable[..., Iterator[bytes]]:
    """A cheat's program that does not compare its share with what is expected."""

    def made(self: Contents, message: Message) -> Iterator[bytes]:
        try:
            yield from honest(self, message)
        except PeerFault:
            return

    return made


def test_a_wrong_share_of_f_fails(nodes, monkeypatch):
    made: Nodes = nodes(2, 40)
    honest = pair_work.PairWork.f_of_verifier
    monkeypatch.setattr(pair_work.PairWork, "f_of_verifier", lambda *rest: (honest(*rest) + 1) % (P))
    assert "the check fails" in refused(made).message


def test_an_opened_toss_that_was_not_committed_to_is_refused(nodes):
    made: Nodes = nodes(2, 40)
    made.run(until=lambda: made.rounds[MINER]._all_sent(Kind.CLOSED))
    node = made.rounds[MINER]
    drawn = node._folder.secrets
    tosses = {name: type(toss)(value=bytes(32), salt=toss.salt) for name, toss in drawn.tosses.items()}
    node._s.keep(type(drawn)(**{**{k: getattr(drawn, k) for k in drawn.__slots__}, "tosses": tosses}))
    assert re.search("'toss-open'.*does not fit its commitment", refused(made).message)


def test_a_dealer_cannot_test_candidates_for_a_person(nodes, monkeypatch):
    """Whoever knows the mask could hash U of a guess: nothing that is told outside of U's own box is such a digest (F17)."""

    def told_to_dealer(made: Nodes) -> bytes:
        node, found = made.rounds[MINER], []
        for message in made.messages:
            if message.recipient == MINER and node._folder.arrival_path(message.index).exists():
                found.extend(node._contents._frames(message))
        found.extend(path.read_bytes() for path in (node._folder.path / "got").iterdir())
        return b"".join(found)

    def digests(made: Nodes) -> Iterator[bytes]:
        """Of U, of its blocks, of the columns, as somebody who has mask and value makes them."""
        drawn = made.rounds["north"]._folder.secrets.pairs["0"]
        work = made.rounds["north"]._s.work(0)
        blocks = list(work.masked("north", drawn.mask_seed, made.tables["north"]))
        yield hashlib.sha256(b"".join(blocks)).digest()
        yield from (hashlib.sha256(block).digest() for block in blocks)
        yield hashlib.sha256(np.ascontiguousarray(made.tables["north"].rows, "<u4").tobytes()).digest()

    def tells(folder: str) -> bool:
        made: Nodes = nodes(2, 40, folder=folder)
        made.run(until=lambda: made.rounds[MINER]._all_got(Kind.PACKET))
        told = told_to_dealer(made)
        return any(digest in told or digest.hex().encode() in told for digest in digests(made))

    assert not tells("honest")

    def unsalted(self, owner, salt):
        return hashlib.sha256()

    monkeypatch.setattr(pair_work.PairWork, "masked_committer", unsalted)
    assert tells("planted")


@pytest.mark.whole
def test_two_rounds_share_no_pad_and_no_noise_though_the_keys_are_the_same(nodes, monkeypatch):
    """A retry under the same keys with one person changed: the difference of two shares must tell nothing (F1)."""
    made_as = Nodes.made

    def with_random(self: Nodes, name: str) -> Round:
        node = made_as(self, name)
        node._random = fixed_random(name)
        return node

    monkeypatch.setattr(Nodes, "made", with_random)

    def shares(folder: str, changed: bool) -> np.ndarray:
        made: Nodes = nodes(2, 40, folder=folder)
        if changed:
            made.tables["north"].rows[3, 0] = 1 - made.tables["north"].rows[3, 0]
        caught: list[bytes] = []
        honest = tables_work.ShareMaker.frames

        def frames(self):
            for frame in honest(self):
                if self._me == "north":
                    caught.append(frame)
                yield frame

        monkeypatch.setattr(tables_work.ShareMaker, "frames", frames)
        made.run()
        monkeypatch.setattr(tables_work.ShareMaker, "frames", honest)
        return np.frombuffer(b"".join(caught), "<u4").astype(np.int64)

    def moved(folder: str) -> int:
        """Cells whose share did not change between the two."""
        return int(np.count_nonzero(shares(f"{folder} 1", changed=False) == shares(f"{folder} 2", changed=True)))

    assert moved("honest") <= 2  # of about 40 words, each equal by a chance of 1 / p
    honest = RoundName.derive

    def without_transcript(self, key, label, of):
        if label in {"pad", "noise", "mask", "z"}:
            of = type(of)(pair=of.pair, direction=of.direction, run=of.run, block=of.block, part=of.part)
        return honest(self, key, label, of)

    monkeypatch.setattr(RoundName, "derive", without_transcript)
    assert moved("planted") > 2


def test_a_pad_that_is_missing_is_seen_and_nothing_is_published(nodes, monkeypatch):
    made: Nodes = nodes()
    honest = tables_work.ShareMaker._pad

    def pad(self, name, index, shape):
        found = honest(self, name, index, shape)
        return found * 0 if (self._me, name, index) == ("north", "east", 2) else found

    monkeypatch.setattr(tables_work.ShareMaker, "_pad", pad)
    assert "add up to are no tables" in refused(made).message


def test_the_miner_opens_nothing_before_it_has_heard_from_all_that_they_have_one_transcript(nodes):
    made: Nodes = nodes()
    lost = (Kind.AGREED_AGAIN, "east", MINER)
    made.change = lambda message, path: None if (message.kind, message.sender, message.recipient) == lost else path
    made.run()
    miner = made.rounds[MINER]
    assert miner._has("t1")
    assert miner.read_tables() is None
    assert not {m.index for m in made.messages if m.kind is Kind.SHARE} & miner._got


def test_a_second_share_is_refused(nodes):
    made: Nodes = nodes(2, 40)
    share = next(m for m in made.messages if m.kind is Kind.SHARE)
    made.run(until=lambda: share.index in made.rounds[MINER]._got)
    again = made.folder / "again"
    made.rounds[share.sender]._s.mail.seal(
        again, share, [b"x"], count=1, transcript=made.rounds[MINER]._s.t1, hellos=made.rounds[MINER]._s.hellos
    )
    with pytest.raises(PeerFault, match="came twice"):
        made.rounds[MINER].receive(share.index, again)


@pytest.mark.parametrize(
    "frames", [[bytes(32), b"\xff" * (4 * 4 * 40)], [bytes(32), bytes(8)], [bytes(32)], [bytes(32)] * 3]
)
def test_words_beyond_the_field_and_wrong_sizes_are_refused(nodes, frames):
    made: Nodes = nodes(2, 40)

    def forge(message: Message, path: Path) -> Path:
        if message.kind is Kind.MASKED and message.owner == "south":
            south = made.rounds["south"]._s
            south.mail.seal(path, message, frames, count=len(frames), transcript=south.t1, hellos=south.hellos)
        return path

    made.change = forge
    assert "'masked' of pair 0, rows of 'south'" in refused(made).message


@pytest.mark.parametrize("place", [0, 9, 14, 200, -40, -1])
def test_a_message_with_one_byte_changed_is_refused(nodes, place):
    made: Nodes = nodes(2, 40)

    def flip(message: Message, path: Path) -> Path:
        if message.kind is Kind.MASKED and message.owner == "north":
            data = bytearray(path.read_bytes())
            data[place] ^= 1
            path.write_bytes(data)
        return path

    made.change = flip
    assert refused(made).code in {"MESSAGE_INVALID", "CERTIFICATE_INVALID", "IDENTITY_REFUSED"}


def test_a_lost_message_is_waited_for_and_its_sender_is_named(nodes):
    made: Nodes = nodes(2, 40)
    made.change = lambda message, path: None if message.kind is Kind.SEED and message.sender == "south" else path
    made.run()
    assert made.rounds[MINER].progress.waiting_for == ("south",)
    now = made.rounds[MINER].progress
    assert (now.pairs_done, now.pairs) == (0, 1)
    came = max(path.stat().st_mtime for path in (made.folder / "nodes" / MINER / "got").iterdir())
    assert now.since.timestamp() >= came - 1
    assert str(now).endswith(f" bytes, 0 of 1 pairs, waiting since {now.since:%Y-%m-%d %H:%M} UTC for south")
    made.change = lambda _, path: path
    made.run()
    assert made.rounds[MINER].is_finished


def test_progress_counts_pairs_as_each_node_sees_them(nodes):
    """Of three parties with third-party dealers each is in all three pairs; the miner sees shares."""
    made: Nodes = nodes(3, 40)
    assert [made.rounds[name].progress.pairs for name in (*made.plan.parties, MINER)] == [3] * 4
    made.change = lambda message, path: None if (message.kind, message.pair) == (Kind.DONE, 2) else path
    made.run()
    assert [made.rounds[name].progress.pairs_done for name in (*made.plan.parties, MINER)] == [2, 2, 2, 0]
    made.change = lambda _, path: path
    made.run()
    assert [made.rounds[name].progress.pairs_done for name in (*made.plan.parties, MINER)] == [3] * 4
    made.restart(MINER)
    assert made.rounds[MINER].progress.pairs_done == 3


def test_what_leaves_in_slots_waits_for_the_next_one(nodes):
    made: Nodes = nodes(2, 40, slot_milliseconds=3_600_000)
    made.run()
    waiting = [m for m in made.messages if m.kind is Kind.EXPECTED and m.index in made.rounds[m.sender]._sent]
    assert waiting
    assert not any(made.rounds[m.sender].outgoing(m.recipient, have=()).count(m.index) for m in waiting)
    with pytest.raises(PeerFault, match="not there yet"):
        made.rounds[waiting[0].sender].sealed(waiting[0].index)


@pytest.mark.parametrize(
    ("began", "made", "leaves", "late"),
    [
        (10.0, 10.1, 12, 0),
        (10.3, 10.9, 12, 0),
        (10.9, 10.99, 12, 0),
        (10.9, 11.0, 12, 0),  # with the next slot after it was made it would leave a slot later than the one above
        (10.9, 11.9, 12, 0),
        (10.3, 12.0, 13, 1),
        (10.3, 14.5, 15, 1),
    ],
)
def test_a_slot_does_not_depend_on_how_long_the_work_took(nodes, tmp_path, caplog, began, made, leaves, late):
    slot = 7_003_000_000  # ns
    parts: Nodes = nodes(2, 40, slot_milliseconds=7_003)
    node = parts.rounds["north"]
    message = next(m for m in messages_of(parts.plan) if (m.kind, m.sender) == (Kind.EXPECTED, "north"))
    node._clock = lambda: dt.datetime.fromtimestamp(made * slot / 1e9, dt.UTC)
    node._began = int(began * slot)
    path = node._folder.sent_path(message.index)
    path.parent.mkdir(exist_ok=True)
    path.touch()
    stamp = node._stamp(message)
    os.utime(path, ns=(stamp, stamp))
    assert node._leaves(message) == leaves * slot
    assert node.late == len(caplog.records) == late
    assert all("7003 ms" in record.message for record in caplog.records)
    node._sent.add(message.index)
    assert node.held_seconds == pytest.approx((leaves - made) * slot / 1e9, abs=1e-5)


# ---- what waits for what, and what is refused (section 2)

AFTER = (
    (Kind.HELLO, Kind.AGREED),
    (Kind.AGREED, Kind.SEED),
    (Kind.SEED, Kind.PRODUCT),
    (Kind.PRODUCT, Kind.STATEMENT),
    (Kind.STATEMENT, Kind.AGREED_AGAIN),
    (Kind.AGREED_AGAIN, Kind.MASKED),
    (Kind.AGREED_AGAIN, Kind.PACKET),
    (Kind.MASKED, Kind.FITS),
    (Kind.PACKET, Kind.FITS),
    (Kind.FITS, Kind.CLOSED),
    (Kind.CLOSED, Kind.OPEN),
    (Kind.OPEN, Kind.TOLD),
    (Kind.TOLD, Kind.EXPECTED),
    (Kind.EXPECTED, Kind.W_SHARE),
    (Kind.W_SHARE, Kind.F_SHARE),
    (Kind.F_SHARE, Kind.DONE),
    (Kind.F_SHARE, Kind.SHARE),
    (Kind.DONE, Kind.SHARE),
    (Kind.SHARE, Kind.OPENED),
    (Kind.OPENED, Kind.RECEIPT),
)


@pytest.mark.parametrize(("held", "waits"), AFTER)
def test_nothing_leaves_before_what_it_waits_for(nodes, held, waits):
    """All messages of a kind to south are on their way for ever: south makes none that waits for them."""
    made: Nodes = nodes(2, 40)
    to = MINER if held in {Kind.SEED, Kind.SHARE} else "south"
    made.change = lambda message, path: None if (message.kind, message.recipient) == (held, to) else path
    made.run()
    node = made.rounds[to]
    assert not any(message.kind is waits and message.index in node._sent for message in made.messages)


def test_a_ledger_that_refuses_keeps_everything_here_that_depends_on_rows(nodes):
    made: Nodes = nodes(2, 40)

    def refuse(_: bytes) -> None:
        raise Refusal("BUDGET_EXCEEDED", "no room", hint="none")

    made.rounds["north"]._charge = refuse
    with pytest.raises(Refusal, match="no room"):
        made.run()
    left = {made.messages[index].kind for index in made.rounds["north"]._sent}
    assert not left & {Kind.MASKED, Kind.PACKET, Kind.SHARE}


def _reseal(made: Nodes, message: Message, path: Path, frames: list[bytes]) -> Path:
    standing = made.rounds[message.sender]._s
    hellos = {} if message.kind is Kind.HELLO else standing.hellos
    transcript = standing.transcript(message.kind)
    standing.mail.seal(path, message, frames, count=len(frames), transcript=transcript, hellos=hellos)
    return path


@pytest.mark.parametrize(
    ("kind", "frames", "found"),
    [
        (Kind.AGREED, [bytes(32)], "other messages of this round"),
        (Kind.SEED, [bytes(64)], "does not fit its commitment"),
        (Kind.PRODUCT, [b"\xff" * (4 * 5 * 4)], "words are"),
        (Kind.AGREED_AGAIN, [bytes(32)], "other messages of this round"),
        (Kind.PACKET, [bytes(64)], "committed to"),
        (Kind.FITS, [b"x"], "1 bytes"),
        (Kind.OPEN, [bytes(64)], "does not fit its commitment"),
        (Kind.TOLD, [bytes(192)], "does not fit its commitments"),
        (Kind.EXPECTED, [bytes(192)], "another toss"),
        (Kind.F_SHARE, [b"\xff" * 4], "not a word"),
        (Kind.F_SHARE, [bytes(4)], "the check fails"),
        (Kind.RECEIPT, [bytes(32)], "other messages of this round"),
    ],
)
def test_a_content_that_does_not_fit_ends_the_round(nodes, kind, frames, found):
    """One message that its own sender sealed, with another content."""
    made: Nodes = nodes(2, 40)
    verifiers = {check.index for check in made.messages if check.kind is Kind.PACKET and check.recipient == MINER}

    def forge(message: Message, path: Path) -> Path:
        wrong = message.kind is kind and message.index not in verifiers
        return _reseal(made, message, path, frames) if wrong else path

    made.change = forge
    with pytest.raises(PeerFault, match=found):
        made.run()


def test_two_tellers_of_a_toss_that_differ_end_the_round(nodes):
    """Both openings are right, of two tosses: the second teller's bytes are another run's."""
    made: Nodes = nodes(2, 40)
    other: dict[int, bytes] = {}

    def swap(message: Message, path: Path) -> Path:
        if message.kind is Kind.EXPECTED and message.recipient == MINER:
            said = made.rounds[message.sender]._contents.expectation_bytes(
                made.rounds[message.sender]._s.checks[message.about]
            )
            other[message.run] = said[:64] + said[64:96] + bytes(32) + said[128:]
            return _reseal(made, message, path, [other[message.run]])
        return path

    made.change = swap
    assert "does not follow from what it sent" in refused(made).message


def test_a_share_of_w_under_another_expectation_names_the_owner(nodes):
    made: Nodes = nodes(2, 40)

    def reseal(message: Message, path: Path) -> Path:
        if message.kind is Kind.W_SHARE and message.sender == MINER:
            frames = [bytes(32), *(bytes(4 * len(made.rounds["north"]._s.work(0).sizes[message.owner]) * 40),)]
            return _reseal(made, message, path, frames)
        return path

    made.change = reseal
    assert "another expectation" in refused(made).message


def test_opened_tables_that_the_miner_did_not_sign_are_refused(nodes):
    made: Nodes = nodes(2, 40)

    def falsify(message: Message, path: Path) -> Path:
        if message.kind is Kind.OPENED and message.recipient == "south":
            contents = made.rounds[MINER]._contents
            frames = list(contents.make_frames(message))
            first = np.frombuffer(frames[1], "<i8").copy()
            first[0] += 1
            return _reseal(made, message, path, [frames[0], first.tobytes(), *frames[2:]])
        return path

    made.change = falsify
    with pytest.raises(PeerFault, match="signed other tables"):
        made.run()
    assert made.rounds["south"].read_tables() is None


def test_a_dealers_packet_that_was_not_committed_to_is_refused(nodes):
    made: Nodes = nodes(2, 40)

    def forge(message: Message, path: Path) -> Path:
        if message.kind is Kind.PACKET and message.recipient == MINER and message.owner == "south":
            return _reseal(made, message, path, [bytes(64), bytes(4 * 40)])
        return path

    made.change = forge
    assert "committed to" in refused(made).message


def test_a_table_that_changes_under_a_running_node_never_leaves(nodes):
    made: Nodes = nodes(2, 40)
    made.run(until=lambda: made.rounds["north"]._has("statement.json"))
    rows = made.tables["north"].rows
    rows[3, 0] = 1 - rows[3, 0]
    assert refused(made).code == "APPROVAL_VOID"
    assert not any(made.messages[index].kind is Kind.MASKED for index in made.rounds["north"]._sent)


def test_noise_and_pads_go_with_the_shares_though_a_dealers_keys_stay(nodes):
    made: Nodes = nodes(3, 40)
    dealt = next(pair for pair in pairs_of(made.plan) if pair.dealer == "north")
    held = lambda message: message.kind is Kind.DONE and message.recipient == "north" and message.pair == dealt.number  # noqa: E731
    opened = lambda message: message.kind is Kind.OPENED and message.recipient == "north"  # noqa: E731
    made.change = lambda message, path: None if held(message) or opened(message) else path
    made.run()
    drawn = made.rounds["north"]._folder.secrets
    assert made.rounds["north"]._all_sent(Kind.SHARE)
    assert drawn is not None
    assert (drawn.noise, drawn.padding, drawn.data_salt) == (b"", b"", b"")
    assert drawn.sealing


# ---- views


def test_what_a_party_gets_of_anothers_rows_is_uniform_whatever_they_are(nodes):
    """Words of U under two tables that differ in a column: bytes are uniform, false alarm 1e-6 for both together."""
    for value in (0, 1):
        made: Nodes = nodes(2, 3000, folder=f"value {value}")
        made.tables["north"].rows[:, 0] = value
        made.run(until=lambda made=made: made.rounds["south"]._all_got(Kind.MASKED))
        south = made.rounds["south"]
        message = south._s.message(Kind.MASKED, About(pair=0, owner="north"))
        words = np.frombuffer(b"".join(list(south._contents._frames(message))[1:]), "<u4")
        upper = np.bincount((words >> 24).astype(np.int64), minlength=256)
        assert stats.chisquare(upper).pvalue > 1e-6 / 4
        lower = np.bincount((words & 255).astype(np.int64), minlength=256)
        assert stats.chisquare(lower).pvalue > 1e-6 / 4


def test_the_distinguishing_test_rejects_rows_in_the_clear(nodes, monkeypatch):
    monkeypatch.setattr(pair_work.PairWork, "mask", lambda self, owner, seed, block: _zeros(self, owner, block))
    made: Nodes = nodes(2, 3000)
    work = pair_work.PairWork(made.plan, pairs_of(made.plan)[0], bytes(32))
    words = np.frombuffer(b"".join(work.masked("north", bytes(32), made.tables["north"])), "<u4")
    assert stats.chisquare(np.bincount((words >> 24).astype(np.int64), minlength=256)).pvalue < 1e-6


def _zeros(work: pair_work.PairWork, owner: str, block: int) -> np.ndarray:
    rows = work.blocks[block]
    return np.zeros((rows.stop - rows.start, work.widths[owner]), np.uint32)


def test_the_list_of_messages_follows_from_the_plan_alone(nodes):
    made: Nodes = nodes(4)
    again = record.decode(Plan, record.encode(made.plan), source="plan")
    assert messages_of(again) == made.messages
    assert len({message.index for message in messages_of(again)}) == len(messages_of(again))
