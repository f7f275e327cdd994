"""A round of masked tables: what no node may be able to put together, and second messages; each with the fault that it finds.

`test_masked_round.py` has the other faults of model-three.md, section 9.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from support.masked_nodes import MINER, Keys, Nodes, plan_for, random_tables
from verticil.shared.core.errors import PeerFault
from verticil.shared.masked.arithmetic.derivation import RoundName
from verticil.shared.masked.arithmetic.field import P
from verticil.shared.masked.round import secrets
from verticil.shared.masked.round.pair_products import PairWork
from verticil.shared.masked.round.schedule import Kind, Message, checks_of, messages_of, pairs_of

SIZES = {"north": (2, 3), "south": (4,), "east": (5, 2)}
N = 40


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"), tuple(SIZES))


@pytest.fixture
def nodes(tmp_path: Path, keys: Keys) -> Callable[..., Nodes]:
    def make(folder: str, parties: int = 3, **changed) -> Nodes:
        sizes = dict(list(SIZES.items())[:parties])
        (tmp_path / folder).mkdir()
        return Nodes(tmp_path / folder, keys, plan_for(sizes, N), random_tables(sizes, N), **changed)

    return make


def contents(made: Nodes) -> dict[int, list[bytes]]:
    """Run; what was in each message, by its index."""
    found: dict[int, list[bytes]] = {}

    def noting(honest: Callable[..., None]) -> Callable[..., None]:
        def seal(target, message: Message, frames, **rest):
            def noted() -> Iterator[bytes]:
                for frame in frames:
                    found.setdefault(message.index, []).append(frame)
                    yield frame

            honest(target, message, noted(), **rest)

        return seal

    for node in made.rounds.values():
        node._s.mail.seal = noting(node._s.mail.seal)  # type: ignore[method-assign]
    made.run()
    return found


def words(frames: list[bytes]) -> np.ndarray:
    """Of the frames after the head."""
    return np.frombuffer(b"".join(frames), "<u4").astype(np.int64)


# ---- one mask under two dealers


def unmasked(made: Nodes) -> set[tuple[str, str]]:
    """Who can read whose rows, with any seed that it was sent and any masked rows that it was sent."""
    found, told = set(), contents(made)
    t0 = made.rounds["north"]._s.t0
    of = {message.index: message for message in messages_of(made.plan)}
    for index, frames in told.items():
        if (message := of[index]).kind is not Kind.MASKED:
            continue
        owner, reader, width = message.owner, message.recipient, sum(SIZES[message.owner])
        rows = words(frames[1:]).reshape(N, width)
        seeds = [told[m.index][0][:32] for m in of.values() if m.kind is Kind.SEED and m.recipient == reader]
        for seed in seeds:
            for pair in pairs_of(made.plan):
                if owner in pair.parties:
                    mask = PairWork(made.plan, pair, t0).mask(owner, seed, 0).astype(np.int64)
                    if ((rows - mask) % P <= 1).all():
                        found.add((reader, owner))
    return found


@pytest.mark.whole
def test_nobody_has_a_mask_and_the_rows_under_it(nodes, monkeypatch):
    """Of three parties each deals for the two others, and gets rows of both: under masks that it did not deal (F3)."""
    assert unmasked(nodes("honest")) == set()
    of_pair = secrets._of_pair
    seeds = [
        bytes([place // 2 + 1]) * 32 for place in range(6)
    ]  # parties draw for their two partners, one after the other

    def same(random):
        """One seed for both partners: neither of those who deal can see that, for each gets one."""
        return dataclasses.replace(of_pair(random), mask_seed=seeds.pop(0))

    monkeypatch.setattr(secrets, "_of_pair", same)
    assert len(unmasked(nodes("planted"))) == 6


# ---- one `a` for two tosses


def read_from_two_runs(made: Nodes, monkeypatch: pytest.MonkeyPatch) -> float:
    """The share of north's rows and units whose value follows for the verifier from the difference of its two w."""
    tossed_columns: dict[int, np.ndarray] = {}
    honest = PairWork.toss

    def tossed(self, check, *rest):
        found = honest(self, check, *rest)
        if check.owner == "north":
            tossed_columns[check.run] = found.columns.astype(np.int64)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(PairWork, "toss", tossed)
        told = contents(made)
    w = {0: np.zeros(2 * N, np.int64), 1: np.zeros(2 * N, np.int64)}
    for message in messages_of(made.plan):
        if message.kind is Kind.W_SHARE and message.owner == "north":
            frames = told[message.index]
            w[message.run] += words(frames[1:])
    difference = ((w[0] - w[1]) % P).reshape(N, 2)
    r = (tossed_columns[0] - tossed_columns[1]) % P
    sizes = SIZES["north"]
    return float(
        np.mean([np.isin(difference[:, unit], part).mean() for unit, part in enumerate(np.split(r, sizes[:1]))])
    )


def test_two_runs_of_a_check_do_not_tell_a_value(nodes, monkeypatch):
    """w - w' = <r - r', y> where both have one `a`: one of K values (section 9). By chance K / p, below 1e-7 for all."""
    assert len({check.run for check in checks_of(nodes("plan", 2).plan)}) == 2
    assert read_from_two_runs(nodes("honest", 2), monkeypatch) == 0
    runs = secrets._runs
    monkeypatch.setattr(secrets, "_runs", lambda random: (runs(random)[0],) * 2)
    assert read_from_two_runs(nodes("equal seeds", 2), monkeypatch) == 0  # the run is in what they derive
    derived = RoundName.derive

    def of_any_run(self, key, label, of):
        return derived(self, key, label, dataclasses.replace(of, run=0) if label == "check" else of)

    monkeypatch.setattr(RoundName, "derive", of_any_run)
    assert read_from_two_runs(nodes("planted", 2), monkeypatch) == 1


# ---- second messages


@pytest.mark.parametrize(
    ("kind", "parties"),
    [
        *((kind, 2) for kind in (Kind.SEED, Kind.PRODUCT, Kind.STATEMENT, Kind.MASKED, Kind.PACKET, Kind.CLOSED)),
        *((kind, 2) for kind in (Kind.EXPECTED, Kind.W_SHARE, Kind.F_SHARE)),
        (Kind.PRODUCT, 3),
    ],
)
def test_a_second_message_of_other_bytes_ends_the_round_and_names_its_sender(nodes, kind, parties):
    """Also of a miner that deals twice (of two parties), or of a party that does (of three)."""
    made: Nodes = nodes("second", parties)
    first = next(message for message in messages_of(made.plan) if message.kind is kind)
    made.run(until=lambda: first.index in made.rounds[first.recipient]._got)
    standing, again = made.rounds[first.sender]._s, made.folder / "again"
    standing.mail.seal(again, first, [b"x"], count=1, transcript=standing.transcript(kind), hellos=standing.hellos)
    with pytest.raises(PeerFault, match="came twice") as found:
        made.rounds[first.recipient].receive(first.index, again)
    assert repr(first.sender) in found.value.message


# ---- a miner with a plan of its own


@pytest.mark.parametrize(
    "changed", [{"tables": ((0, 1), (0, 2))}, {"tolerate": 2}, {"epsilon": 2.0}, {"counted": ("north", "south")}]
)
def test_a_miner_that_asks_for_what_the_plan_has_not_gets_hellos_and_nothing_else(nodes, changed):
    made: Nodes = nodes("asked", plans={MINER: plan_for(SIZES, N, **changed)})
    with pytest.raises(PeerFault) as found:
        made.run()
    assert repr(MINER) in found.value.message + (found.value.hint or "")
    for node in made.rounds.values():
        assert {messages_of(made.plan)[index].kind for index in node._sent} <= {Kind.HELLO, Kind.AGREED}
    assert not any(made.charged.values())
