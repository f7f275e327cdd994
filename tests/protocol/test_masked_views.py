"""What every node of a round of masked tables is told, kind by kind: uniform words, or exactly what the page permits.

A round runs twice, with tables that differ in one person at every party, and with the same random bytes: nothing but that person
and the transcripts differ. Every message is opened as its recipient opens it (model-three.md, sections 2, 5 and 8). Where it has
words of the field, they, what follows from several messages that one node has, and the differences between the two rounds must
be uniform; what is no word is a function of what was drawn and of words, computed here again from the page. One is as if it was
drawn: the noise of what is opened.

False alarms: at most 1e-6 for all comparisons of a pair of rounds together, by Bonferroni; bins of chi-square have 20 words or
more, for which its limit is near enough.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from scipy import stats

from support.masked_nodes import MINER, Keys, Nodes, Table, fixed_random, plan_for, random_tables
from verticil.shared.documents import record
from verticil.shared.masked.arithmetic import streams
from verticil.shared.masked.arithmetic.check import RUNS
from verticil.shared.masked.arithmetic.derivation import Hasher, Of, RoundName
from verticil.shared.masked.arithmetic.field import P
from verticil.shared.masked.round import opening as tables_work
from verticil.shared.masked.round.documents import Hello, Opened, Packets, Statement, TripleStatement
from verticil.shared.masked.round.pair_products import PairWork, RowsWork
from verticil.shared.masked.round.schedule import (
    SACRIFICE,
    Check,
    Kind,
    Message,
    Pair,
    Triple,
    checks_of,
    messages_of,
    pairs_of,
    triples_of,
)
from verticil.shared.masked.round.secrets import SETS, PairSecrets, Secrets, shared_toss_name, toss_name
from verticil.shared.masked.round.triple_products import SUMS, TripleWork
from verticil.wire.v1 import common_pb2

SIZES = {"north": (16, 3), "south": (14,), "east": (5, 18)}
WITH_TRIPLE = (*itertools.combinations(range(5), 2), (1, 2, 3))
N = 1200
FALSE_ALARM = 1e-6
IN_WORDS = {Kind.PRODUCT, Kind.MASKED, Kind.PACKET, Kind.W_SHARE, Kind.F_SHARE, Kind.ALPHA, Kind.SUMS_OPEN, Kind.SHARE}
"""Tell words of the field; what else they tell is compared, too."""
EMPTY = {Kind.THERE, Kind.PASSED, Kind.FITS, Kind.DONE}


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(tmp_path_factory.mktemp("keys"), tuple(SIZES))


@dataclass
class Seen:
    """One round.

    Attributes:
        nodes: as they end.
        drawn: by name, what each node drew.
        frames: of every message, as its recipient opens it.
        t0, t1: the transcripts.
    """

    nodes: Nodes
    drawn: dict[str, Secrets] = field(default_factory=dict)
    frames: dict[Message, list[bytes]] = field(default_factory=dict)
    t0: bytes = b""
    t1: bytes = b""

    def open(self, message: Message, path: Path) -> Path:
        node = self.nodes.rounds[message.recipient]
        with node._s.arriving(message, path):
            self.frames[message] = list(node._contents._frames(message))
        return path

    def of(self, kind: Kind, **about: Any) -> dict[Message, list[bytes]]:
        """All messages of a kind about something."""
        return {
            message: frames
            for message, frames in self.frames.items()
            if message.kind is kind and all(getattr(message, name) == value for name, value in about.items())
        }

    def one(self, kind: Kind, **about: Any) -> list[bytes]:
        """The frames of any of them: those of one owner, run and table are the same for whom they go to."""
        return next(iter(self.of(kind, **about).values()))


def seen(folder: Path, keys: Keys, tables: Mapping[str, Table], plan: Mapping[str, Any]) -> Seen:
    folder.mkdir()
    found = Seen(Nodes(folder, keys, plan_for(SIZES, N, **plan), tables, random=fixed_random))
    found.nodes.change = found.open
    for name, node in found.nodes.rounds.items():
        node.begin()
        found.drawn[name] = node._folder.secrets
    found.nodes.run()
    assert all(node.is_finished for node in found.nodes.rounds.values())
    found.t0, found.t1 = found.nodes.rounds[MINER]._s.t0, found.nodes.rounds[MINER]._s.t1
    return found


def both(folder: Path, keys: Keys, **plan: Any) -> tuple[Seen, Seen]:
    """Two rounds that differ in one person."""
    tables = random_tables(SIZES, N)
    other = {name: Table(table.rows.copy()) for name, table in tables.items()}
    for name, table in other.items():
        table.rows[7] = (table.rows[7] + 1) % np.array(SIZES[name])
    return seen(folder / "one", keys, tables, plan), seen(folder / "other", keys, other, plan)


# ---- words


def words(frames: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(frames), "<u4").astype(np.int64)


def told_words(message: Message, frames: list[bytes]) -> np.ndarray:
    """Of a message, without the frame or the bytes that are no words."""
    if message.kind is Kind.SUMS_OPEN:
        return words([frames[0][: 4 * SUMS]])
    return words(frames[1:] if message.kind in {Kind.MASKED, Kind.PACKET, Kind.W_SHARE} else frames)


def views(view: Seen) -> dict[str, np.ndarray]:
    """Everything in words that a node is told, and what follows from several things that it has; all by what it is."""
    found: dict[str, list[np.ndarray]] = {}

    def add(what: str, some: np.ndarray) -> None:
        if some.size:  # a verifier's packet has none
            found.setdefault(what, []).append(some % P)

    for message, frames in view.frames.items():
        if message.kind in IN_WORDS:
            of = "pair" if message.table < 0 else "triple"
            add(f"{message.recipient}: {message.kind} of a {of}", told_words(message, frames))
    for check, w in whole(view).items():
        add(f"{check.verifier} and {check.dealer}: w", w)
        if check.run:
            before = check._replace(run=0)
            add(f"{check.verifier} and {check.dealer}: w of two runs", w - whole_of(view, before))
            about = {"kind": Kind.PACKET, "recipient": check.dealer, **check.about._asdict()}
            b, first = (words(view.one(**{**about, "run": run})[1:]) for run in (check.run, 0))
            add(f"{check.dealer}: corrections of two runs", b - first)
    for message, frames in view.of(Kind.MASKED, table=-1).items():
        for pair in pairs_of(view.nodes.plan):
            if pair.dealer == message.recipient and message.owner in pair.parties:
                seed = view.drawn[message.owner].pairs[str(pair.number)].mask_seed
                mask = PairWork(view.nodes.plan, pair, view.t0).mask(message.owner, seed, 0)
                add(f"{message.recipient}: masked less a mask that it dealt", words(frames[1:]) - mask.ravel())
    for triple in triples_of(view.nodes.plan):
        of_triple(view, triple, add)
    shares = [words(frames) for frames in view.of(Kind.SHARE).values()]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        add(f"{MINER}: two shares", shares[one] + shares[other])
        add(f"{MINER}: two shares' difference", shares[one] - shares[other])
    return {what: np.concatenate(some) for what, some in found.items()}


def whole_of(view: Seen, check: Check) -> Any:
    """Both shares of w of a run: verifier and dealer have both."""
    shares = view.of(Kind.W_SHARE, **check.about._asdict()).values()
    return sum(words(frames[1:]) for frames in shares) % P


def whole(view: Seen) -> dict[Check, np.ndarray]:
    return {check: whole_of(view, check) for check in checks_of(view.nodes.plan)}


def of_triple(view: Seen, triple: Triple, add: Callable[[str, np.ndarray], None]) -> None:
    """What follows from e, which all three know."""
    work = TripleWork(view.nodes.plan, triple, view.t0)
    (dealt,) = (words(frames[:-1]).reshape(SETS, -1) for frames in view.of(Kind.PRODUCT, table=triple.table).values())
    for run in range(RUNS):
        tosses = [view.drawn[name].tosses[shared_toss_name(triple.table, run, "e")].value for name in triple.parties]
        e = work.e(tosses, run, view.t1)
        add(f"{triple.parties[-1]}: two sets of what was dealt", dealt[1 + run] - dealt[0])
        for owner in triple.parties:
            masked = words(view.one(Kind.MASKED, table=triple.table, owner=owner)[1:])
            alpha = words(view.one(Kind.ALPHA, table=triple.table, sender=owner, run=run))
            add(f"{owner}'s readers: e u less alpha", np.array([e * int(u) % P for u in masked]) - alpha)


def chances(some: np.ndarray) -> Iterator[float]:
    """Of what is seen in words, if they are uniform: of their upper and lower bits, of repeated ones, of 0, 1 and -1."""
    if (bits := min(int(np.log2(some.size / 20)), 8)) > 0:
        for part in (some >> (32 - bits), some & (2**bits - 1)):
            yield stats.chisquare(np.bincount(part, minlength=2**bits)).pvalue
    repeated = some.size - np.unique(some).size
    yield stats.poisson.sf(repeated - 1, some.size * (some.size - 1) / 2 / P)
    yield stats.binom.sf(np.count_nonzero((some <= 1) | (some == P - 1)) - 1, some.size, 3 / P)


def noises(one: Seen, other: Seen) -> dict[str, list[float]]:
    """Chances of what the opened tables have beside the people's, by the plan's variance, in all and in each: of a round, and of
    the two rounds' difference."""
    first, second = ([cells.ravel() for cells in scaled_noise(view)] for view in (one, other))
    differences = [(a - b) / np.sqrt(2) for a, b in zip(first, second, strict=True)]
    return {
        f"noise of {what}": [*map(of_variance_one, some), of_variance_one(np.concatenate(some))]
        for what, some in (("one", first), ("other", second), ("the difference", differences))
    }


def scaled_noise(view: Seen) -> list[np.ndarray]:
    plan, opened = view.nodes.plan, view.nodes.rounds[MINER].read_tables()
    assert opened is not None
    return [cells / plan.deviation_at(index) for index, cells in enumerate(view.nodes.noise(opened))]


def of_variance_one(some: np.ndarray) -> float:
    tail = stats.chi2.cdf(float(some @ some), some.size)
    return float(2 * min(tail, 1 - tail))


def telling(one: Seen, other: Seen) -> list[str]:
    """What is not as uniform words are, or as noise is."""
    first, second = views(one), views(other)
    assert first.keys() == second.keys()
    found = noises(one, other)
    for what, some in first.items():
        found[what] = [*chances(some), *chances(second[what])]
        found[f"{what}, less the other round's"] = list(chances((some - second[what]) % P))
    comparisons = sum(map(len, found.values()))
    return [what for what, some in found.items() if min(some) < FALSE_ALARM / comparisons]


# ---- all else, from the page


def listed(*fields: bytes | str | int) -> bytes:
    """E."""
    plain = [x if isinstance(x, bytes) else str(x).encode() for x in fields]
    return b"".join(len(x).to_bytes(8, "big") + x for x in plain)


class Page:
    """What messages tell that is no word: of a round's plan, what was drawn, and its words."""

    def __init__(self, view: Seen) -> None:
        self._view, self._plan, self._drawn = view, view.nodes.plan, view.drawn
        self._groups: dict[tuple[int, int], Pair | Triple] = {(p.number, -1): p for p in pairs_of(self._plan)}
        self._groups |= {(-1, triple.table): triple for triple in triples_of(self._plan)}
        self._checks = {check.about: check for check in checks_of(self._plan)}

    def commit(self, label: str, salt: bytes, what: bytes, transcript: bytes = b"", **of: bytes | str | int) -> bytes:
        fields = [of.get(name, b"") for name in ("pair", "direction", "run", "block", "part")]
        name = listed("verticil/masked/v1", self._plan.study, self._plan.round, label, transcript, *fields)
        return hashlib.sha256(listed(name, salt, what)).digest()

    def _field(self, pair: int, table: int) -> bytes | int:
        return listed(*self._groups[pair, table].parties) if table < 0 else table

    def told(self, message: Message) -> Any:
        """What the first frame of a message says, and of a document the document."""
        kind, view = message.kind, self._view
        match kind:
            case _ if kind in EMPTY:
                return b""
            case Kind.HELLO:
                return self._hello(message.sender)
            case Kind.STATEMENT:
                return self._statement(message.sender)
            case Kind.AGREED:
                return view.t0
            case Kind.AGREED_AGAIN:
                return view.t1
            case Kind.OPENED | Kind.RECEIPT:
                return self._of_tables(kind)
            case Kind.SEED:
                if message.table < 0:
                    of = self._drawn[message.owner].pairs[str(message.pair)]
                    return of.mask_seed + of.mask_salt
                three = self._drawn[message.owner].triples[str(message.table)]
                return b"".join(map(b"".join, zip(three.mask_seeds, three.mask_salts, strict=True)))
            case Kind.MASKED:
                return self._rows(message).masked_salt
            case _ if kind in SACRIFICE:
                return self._of_sacrifice(message)
        return self._of_check(message, self._checks[message.about])

    # of documents

    def _hello(self, name: str) -> Hello:
        plan, node, drawn = self._plan, self._view.nodes.rounds[name], self._drawn[name]
        data = b""
        if name != MINER:
            rows = np.ascontiguousarray(self._view.nodes.tables[name].rows, "<u4").tobytes()
            data = self.commit("data", drawn.data_salt, hashlib.sha256(rows).digest(), part=name)
        return Hello(
            study=plan.study,
            round=plan.round,
            name=name,
            plan=hashlib.sha256(record.encode(plan)).digest(),
            order=b"" if name == MINER else bytes(32),
            data=data,
            signing=node._s.credentials.public_signing_key,
            pins=dict(node._s.credentials.pinned),
            **{key: _public(getattr(drawn, key)) for key in ("sealing", "dealing", "padding")},
            masks={number: self._seed(name, int(number), of) for number, of in drawn.pairs.items()},
            triples={
                table: tuple(
                    self.commit("seed", salt, seed, pair=int(table), direction=listed(name), part=listed(name, number))
                    for number, (seed, salt) in enumerate(zip(of.mask_seeds, of.mask_salts, strict=True))
                )
                for table, of in drawn.triples.items()
            },
        )

    def _seed(self, name: str, pair: int, of: PairSecrets) -> bytes:
        to = listed(name, self._groups[pair, -1].partner(name))
        return self.commit("seed", of.mask_salt, of.mask_seed, pair=self._field(pair, -1), direction=to, part=name)

    def _statement(self, name: str) -> Statement:
        view, drawn = self._view, self._drawn[name]
        masked, packets, triples_of_it = {}, {}, {}
        for number, of in drawn.pairs.items():
            rows = b"".join(view.one(Kind.MASKED, pair=int(number), owner=name)[1:])
            to = self._groups[int(number), -1].partner(name)
            about = {"pair": self._field(int(number), -1), "direction": listed(name, to), "part": name}
            masked[number] = self.commit("masked", of.masked_salt, rows, view.t0, **about)
            packets[number] = self._packets(name, to, int(number), -1)
        for table, three in drawn.triples.items():
            rows = b"".join(view.one(Kind.MASKED, table=int(table), owner=name)[1:])
            about = {"pair": int(table), "direction": listed(name), "part": listed(name, 0)}
            group, dealt = self._groups[-1, int(table)], b""
            if name == group.parties[-1]:
                words_of_it = b"".join(view.one(Kind.PRODUCT, table=int(table)))
                dealt = self.commit("dealt", three.dealt_salt, words_of_it, view.t0, pair=int(table), part=name)
            triples_of_it[table] = TripleStatement(
                masked=self.commit("masked", three.masked_salt, rows, view.t0, **about),
                dealt=dealt,
                packets={to: self._packets(name, to, -1, int(table)) for to in group.others(name)},
            )
        return Statement(name=name, transcript=view.t0, masked=masked, packets=packets, triples=triples_of_it)

    def _packets(self, owner: str, to: str, pair: int, table: int) -> tuple[Packets, ...]:
        found = []
        for check in self._checks.values():
            if (check.owner, check.verifier, check.pair, check.table) == (owner, to, pair, table):
                run, view = self._rows(check).runs[check.run], self._view
                b = b"".join(view.one(Kind.PACKET, recipient=check.dealer, **check.about._asdict())[1:])
                about = self._about(check)
                of_verifier = self.commit(
                    "packet", run.verifier_salt, run.verifier_seed, view.t0, part=listed(owner, to), **about
                )
                of_dealer = self.commit(
                    "packet", run.dealer_salt, listed(run.dealer_seed, b), view.t0,
                    part=listed(owner, check.dealer), **about,
                )  # fmt: skip
                found.append(Packets(verifier=of_verifier, dealer=of_dealer))
        return tuple(found)

    def _of_tables(self, kind: Kind) -> Any:
        opened = self._view.nodes.rounds[MINER].read_tables()
        assert opened is not None
        digest = hashlib.sha256(b"".join(np.ascontiguousarray(table, "<i8").tobytes() for table in opened)).digest()
        if kind is Kind.RECEIPT:
            return digest
        plan = self._plan
        sha256 = hashlib.sha256(record.encode(plan)).digest()
        return Opened(study=plan.study, round=plan.round, transcript=self._view.t1, plan=sha256, tables=digest)

    # of a check, and of a sacrifice

    def _rows(self, of: Check | Message) -> PairSecrets:
        if of.table < 0:
            return self._drawn[of.owner].pairs[str(of.pair)]
        three = self._drawn[of.owner].triples[str(of.table)]
        return three.against(of.verifier or next(iter(three.runs)))

    def _about(self, check: Check) -> dict[str, bytes | int]:
        to = listed(check.owner, check.verifier)
        return {"pair": self._field(check.pair, check.table), "direction": to, "run": check.run}

    def _of_check(self, message: Message, check: Check) -> Any:
        kind, run, t1 = message.kind, self._rows(check).runs[check.run], self._view.t1
        to_verifier = message.recipient == check.verifier
        if kind is Kind.PACKET:
            return run.verifier_seed + run.verifier_salt if to_verifier else run.dealer_seed + run.dealer_salt
        tosses = {name: self._drawn[name].tosses[toss_name(check)] for name in (check.verifier, check.dealer)}
        closed = {
            name: self.commit("toss", of.salt, of.value, t1, part=listed(name, check.other(name)), **self._about(check))
            for name, of in tosses.items()
        }
        match kind:
            case Kind.CLOSED:
                return closed[message.sender]
            case Kind.OPEN:
                return tosses[message.sender].value + tosses[message.sender].salt
            case Kind.TOLD:
                return b"".join(of.value + of.salt + closed[name] for name, of in tosses.items())
        salts = {check.verifier: run.verifier_w_salt, check.dealer: run.dealer_w_salt}
        w = {
            name: self.commit(
                "expected", salts[name], self._w(check, name), t1, part=listed(check.owner, name), **self._about(check)
            )
            for name in tosses
        }
        said = b"".join([*(of.value for of in tosses.values()), *w.values(), *salts.values()])
        if kind is Kind.EXPECTED:
            return said
        if kind is Kind.W_SHARE:
            return hashlib.sha256(said).digest()
        other = self._view.one(Kind.F_SHARE, recipient=message.sender, **check.about._asdict())[0]
        return (-int.from_bytes(other, "little") % P).to_bytes(4, "little")

    def _w(self, check: Check, name: str) -> bytes:
        return b"".join(self._view.one(Kind.W_SHARE, sender=name, **check.about._asdict())[1:])

    def _of_sacrifice(self, message: Message) -> Any:
        kind, view, table, run, sender = message.kind, self._view, message.table, message.run, message.sender
        drawn = self._drawn[sender]
        if kind in {Kind.SUMS_CLOSED, Kind.SUMS_OPEN}:
            sums, salt = self._sums(message), drawn.triples[str(table)].sums_salts[run]
            closed = self.commit("sum", salt, sums, view.t1, pair=table, run=run, part=sender)
            return sums + salt if kind is Kind.SUMS_OPEN else closed
        which = "e" if kind in {Kind.E_CLOSED, Kind.E_OPEN} else "c"
        toss = drawn.tosses[shared_toss_name(table, run, which)]
        if kind in {Kind.E_OPEN, Kind.C_OPEN}:
            return toss.value + toss.salt
        return self.commit("toss", toss.salt, toss.value, view.t1, pair=table, run=run, part=listed(sender, which))

    def _sums(self, message: Message) -> bytes:
        """What is left of 0 when both others' are taken from it."""
        others = self._groups[message.group].others(message.sender)
        theirs = [self._view.one(Kind.SUMS_OPEN, sender=name, run=message.run)[0][: 4 * SUMS] for name in others]
        return (-sum(words([some]) for some in theirs) % P).astype("<u4").tobytes()


def _public(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw() if private else b""


def unlike(view: Seen) -> set[Kind]:
    """Kinds of messages that tell something else than the page says; words of the field aside."""
    page: Page = Page(view)
    found: set[Any] = set()
    documents: dict[Kind, type[Any]] = {Kind.HELLO: Hello, Kind.STATEMENT: Statement, Kind.OPENED: Opened}
    for message, frames in view.frames.items():
        if message.kind in {Kind.PRODUCT, Kind.ALPHA, Kind.SHARE}:
            continue  # words alone
        said: object = frames[0]
        if message.kind in documents:
            body = common_pb2.Signed.FromString(frames[0]).body
            said = record.decode(documents[message.kind], body, source="document")
        if said != page.told(message):
            found.add(message.kind)
    return found


@pytest.mark.timeout(600)  # two whole rounds with a table of three, every message opened
def test_every_node_is_told_uniform_words_or_what_the_page_permits(tmp_path, keys):
    one, other = both(tmp_path, keys, tables=WITH_TRIPLE)
    for view in (one, other):
        assert set(view.frames) == set(messages_of(view.nodes.plan))
        assert {message.kind for message in view.frames} == set(Kind)
        assert not unlike(view)
    assert {len(frames) for message, frames in one.frames.items() if message.kind not in IN_WORDS | {Kind.OPENED}} == {
        1
    }
    assert not telling(one, other)


# ---- planted leaks

Plant = Callable[[pytest.MonkeyPatch], None]


def a_row_in_the_clear(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = PairWork.mask

    def mask(self: PairWork, owner: str, seed: bytes, block: int) -> np.ndarray:
        found = honest(self, owner, seed, block)
        found[7] = 0
        return found

    monkeypatch.setattr(PairWork, "mask", mask)


def one_mask_for_two_partners(monkeypatch: pytest.MonkeyPatch) -> None:
    def mask(self: PairWork, owner: str, seed: bytes, block: int) -> np.ndarray:
        return streams.words(hashlib.sha256(self._t0 + owner.encode()).digest(), (N, self.widths[owner]))

    monkeypatch.setattr(PairWork, "mask", mask)


def without_transcript(label: str) -> Plant:
    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        honest = RoundName.derive

        def derived(self: RoundName, key: bytes, label_: str, of: Of) -> bytes:
            return honest(self, key, label_, dataclasses.replace(of, transcript=b"") if label_ == label else of)

        monkeypatch.setattr(RoundName, "derive", derived)

    return plant


def one_a_for_two_tosses(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = RowsWork.a_share

    def a_share(self: RowsWork, owner: str, seed: bytes, run: int, block: int, part: str = "a") -> np.ndarray:
        return honest(self, owner, bytes(32), 0, block, part)

    monkeypatch.setattr(RowsWork, "a_share", a_share)


def no_a(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = RowsWork.a_share

    def a_share(self: RowsWork, owner: str, seed: bytes, run: int, block: int, part: str = "a") -> np.ndarray:
        return honest(self, owner, seed, run, block, part) * np.uint32(part == "b")

    monkeypatch.setattr(RowsWork, "a_share", a_share)


def no_second_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = TripleWork.mask

    def mask(self: TripleWork, owner: str, number: int, seed: bytes, block: int) -> np.ndarray:
        return honest(self, owner, number, seed, block) * np.uint32(number == 0)

    monkeypatch.setattr(TripleWork, "mask", mask)


def no_pads(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = tables_work.ShareMaker._pad
    monkeypatch.setattr(tables_work.ShareMaker, "_pad", lambda *rest: honest(*rest) * np.uint32(0))


def no_noise_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = tables_work.noise_of
    monkeypatch.setattr(
        tables_work, "noise_of", lambda plan, name, *rest: None if name == "north" else honest(plan, name, *rest)
    )


def unsalted(label: str) -> Plant:
    def plant(monkeypatch: pytest.MonkeyPatch) -> None:
        honest = RoundName.committer

        def committer(self: RoundName, label_: str, salt: bytes, size: int, of: Of) -> Hasher:
            return honest(self, label_, bytes(32) if label_ == label else salt, size, of)

        monkeypatch.setattr(RoundName, "committer", committer)

    return plant


ALONE = {"unchecked": tuple(SIZES)}


@pytest.mark.whole
@pytest.mark.parametrize(
    ("plant", "plan", "what"),
    [
        pytest.param(a_row_in_the_clear, ALONE, "south: masked of a pair", id="a row in the clear"),
        pytest.param(
            one_mask_for_two_partners, ALONE, "south: masked less a mask that it dealt", id="one mask for two partners"
        ),
        pytest.param(
            without_transcript("mask"), ALONE, "south: masked of a pair, less the other round's", id="masks of no round"
        ),
        pytest.param(one_a_for_two_tosses, {}, "south and east: w of two runs", id="one a for two tosses"),
        pytest.param(no_a, {}, "south and east: w", id="no a"),
        pytest.param(
            no_second_mask, ALONE | {"tables": WITH_TRIPLE}, "north's readers: e u less alpha", id="alpha of one mask"
        ),
        pytest.param(no_pads, ALONE, "miner: share of a pair", id="no pads"),
        pytest.param(
            without_transcript("pad"), ALONE, "miner: share of a pair, less the other round's", id="pads of no round"
        ),
        pytest.param(without_transcript("noise"), ALONE, "noise of the difference", id="noise of no round"),
        pytest.param(no_noise_of_one, ALONE, "noise of one", id="noise left out"),
    ],
)
def test_words_that_tell_something_are_seen(tmp_path, keys, monkeypatch, plant, plan, what):
    plant(monkeypatch)
    assert what in telling(*both(tmp_path, keys, **plan))


@pytest.mark.whole
@pytest.mark.parametrize(
    ("label", "kinds"),
    [
        ("data", {Kind.HELLO}),
        ("seed", {Kind.HELLO}),
        ("masked", {Kind.STATEMENT}),
        ("packet", {Kind.STATEMENT}),
        ("expected", {Kind.EXPECTED, Kind.W_SHARE}),
        ("toss", {Kind.CLOSED, Kind.TOLD}),
    ],
)
def test_a_commitment_without_its_salt_is_seen(tmp_path, keys, monkeypatch, label, kinds):
    """Whoever knows the mask, or w, tries candidates for a person's value."""
    unsalted(label)(monkeypatch)
    view = seen(tmp_path / "round", keys, random_tables(SIZES, N), {})
    assert unlike(view) == kinds
