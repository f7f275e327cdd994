"""What the messages of a three-way table hold, but for those that are as a pair's (model-three.md, section 8).

The miner deals two kinds of sets of masks' products: one that is used, and for each run one that is sacrificed. Before any row
leaves, the three parties see by the latter that the former is right: e is tossed, each mask told once in combination, then the
coefficients are tossed, and each commits to its sums before it hears the others'.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import numpy as np

from verticil.shared.core.errors import PeerFault
from verticil.shared.masked.arithmetic.field import P, Words, add
from verticil.shared.masked.arithmetic.triples import Three
from verticil.shared.masked.round.documents import TripleStatement
from verticil.shared.masked.round.frames import Reader
from verticil.shared.masked.round.pair_products import bytes_of, words_of
from verticil.shared.masked.round.round_state import RoundState
from verticil.shared.masked.round.schedule import About, Kind, Message, Triple
from verticil.shared.masked.round.secrets import SETS, TripleSecrets, shared_toss_name
from verticil.shared.masked.round.triple_products import SUMS, TripleWork

Frames = Iterable[bytes]
_TOSSES: Final = {"e": (Kind.E_CLOSED, Kind.E_OPEN), "c": (Kind.C_CLOSED, Kind.C_OPEN)}


class TripleContents(Reader):
    """Makes and checks these contents of one node's messages.

    Args:
        standing: of the node.
    """

    def __init__(self, standing: RoundState) -> None:
        super().__init__(standing)
        self.make: Mapping[Kind, Callable[[Message], Frames]] = {
            Kind.SEED: self._seeds,
            Kind.PRODUCT: self._dealt,
            Kind.THERE: lambda _: [b""],
            Kind.E_CLOSED: lambda message: [self._own_commitment(message, "e")],
            Kind.E_OPEN: lambda message: [b"".join(self._own_toss(message, "e"))],
            Kind.ALPHA: self._alpha,
            Kind.C_CLOSED: lambda message: [self._own_commitment(message, "c")],
            Kind.C_OPEN: lambda message: [b"".join(self._own_toss(message, "c"))],
            Kind.SUMS_CLOSED: lambda message: [self._own_sums_commitment(message)],
            Kind.SUMS_OPEN: lambda message: [self._own_sums(message) + self._sums_salt(message)],
            Kind.PASSED: lambda _: [b""],
        }
        self.see: Mapping[Kind, Callable[[Message], None]] = {
            Kind.SEED: self._see_seeds,
            Kind.PRODUCT: self._see_dealt,
            Kind.E_CLOSED: lambda message: self._see_closed(message, self._own_commitment(message, "e")),
            Kind.E_OPEN: lambda message: self._see_toss(message, "e"),
            Kind.ALPHA: self._see_alpha,
            Kind.C_CLOSED: lambda message: self._see_closed(message, self._own_commitment(message, "c")),
            Kind.C_OPEN: lambda message: self._see_toss(message, "c"),
            Kind.SUMS_CLOSED: lambda message: self._see_closed(message, self._own_sums_commitment(message)),
            Kind.SUMS_OPEN: self._see_sums,
        }

    def _of(self, message: Message) -> tuple[Triple, TripleWork]:
        return self._s.triples[message.table], self._s.triple_work(message.table)

    def _secrets_of(self, table: int) -> TripleSecrets:
        return self._s.secrets.triples[str(table)]

    # ---- what the documents say

    def seed_commitments(self) -> dict[str, tuple[bytes, ...]]:
        """Return the commitments of this party's hello: to the seeds of all sets, by the index of the table."""
        s, commitments = self._s, {}
        for triple in s.own_triples:
            secrets, work = self._secrets_of(triple.table), TripleWork(s.plan, triple, b"")
            pairs = zip(secrets.mask_seeds, secrets.mask_salts, strict=True)
            commitments[str(triple.table)] = tuple(
                work.seed_commitment(s.me, number, *pair) for number, pair in enumerate(pairs)
            )
        return commitments

    def statements(self) -> dict[str, TripleStatement]:
        """Return the commitments of this party's statement: to masked rows, packets, and to what was dealt to it."""
        s, statements = self._s, {}
        for triple in s.own_triples:
            work, secrets = s.triple_work(triple.table), self._secrets_of(triple.table)
            others = triple.others(s.me)
            rows = work.rows(s.me, others[0])
            pieces = rows.masked(s.me, secrets.mask_seeds[0], work.own_unit(s.me, s.people))
            dealt = b""
            if s.me == triple.parties[-1]:
                digest = work.dealt_committer(s.me, secrets.dealt_salt)
                for frame in self._frames(s.message(Kind.PRODUCT, triple.about)):
                    digest.update(frame)
                dealt = digest.digest()
            packets = {
                verifier: s.own_packets(triple.about._replace(owner=s.me, verifier=verifier)) for verifier in others
            }
            statements[str(triple.table)] = TripleStatement(
                masked=rows.masked_commitment(s.me, secrets.masked_salt, pieces),
                dealt=dealt,
                packets={verifier: some for verifier, some in packets.items() if some},
            )
        return statements

    # ---- dealing

    def _seeds(self, message: Message) -> Frames:
        secrets = self._secrets_of(message.table)
        return [b"".join(part for pair in zip(secrets.mask_seeds, secrets.mask_salts, strict=True) for part in pair)]

    def _see_seeds(self, message: Message) -> None:
        (_, work), parts = self._of(message), self._parts(message)
        commitments = tuple(
            work.seed_commitment(message.owner, number, *parts[2 * number : 2 * number + 2]) for number in range(SETS)
        )
        if commitments != self._s.hellos[message.owner].triples[str(message.table)]:
            raise self._wrong(message, "the seeds do not fit their commitments")

    def _dealt(self, message: Message) -> Frames:
        triple, work = self._of(message)
        seeds = {
            name: self._parts(self._s.message(Kind.SEED, triple.about._replace(owner=name)))[::2]
            for name in triple.parties
        }
        return work.dealt(seeds)

    def _see_dealt(self, message: Message) -> None:
        for number, frame in enumerate(self._frames(message)):
            words_of(frame, (len(frame) // 4,), f"{self._name(message)}, frame {number}")

    def _shares(self, triple: Triple, number: int) -> Iterator[Three]:
        """Return this party's shares of a set, of each block of rows."""
        s, work = self._s, self._s.triple_work(triple.table)
        if s.me != triple.parties[-1]:
            return work.shares(s.me, number, self._secrets_of(triple.table).mask_seeds[number])
        message = s.message(Kind.PRODUCT, triple.about)
        return work.dealt_shares(self._frames(message), number, self._name(message))

    # ---- tosses of three

    def _own_toss(self, message: Message, which: str) -> tuple[bytes, bytes]:
        own = self._s.secrets.tosses[shared_toss_name(message.table, message.run, which)]
        return own.value, own.salt

    def _own_commitment(self, message: Message, which: str) -> bytes:
        s, own = self._s, self._own_toss(message, which)
        return s.triple_work(message.table).toss_commitment(s.me, message.run, which, own, s.t1)

    def _see_closed(self, message: Message, own: bytes) -> None:
        """Check that no two commitments of the three are equal."""
        commitment = self._only(message)
        others = [item for item in self._both(message.kind, message.about) if item != message and self._is_there(item)]
        if commitment == own or any(self._only(item) == commitment for item in others):
            raise self._wrong(message, "it is the commitment of another one, too")

    def _both(self, kind: Kind, about: About) -> Iterator[Message]:
        """Return both others' messages of a kind."""
        s = self._s
        return (s.message(kind, about, name) for name in s.triples[about.table].others(s.me))

    def _see_toss(self, message: Message, which: str) -> None:
        value, salt = self._parts(message)
        work = self._s.triple_work(message.table)
        commitment = work.toss_commitment(message.sender, message.run, which, (value, salt), self._s.t1)
        if commitment != self._only(self._s.message(_TOSSES[which][0], message.about, message.sender)):
            raise self._wrong(message, "the toss does not fit its commitment")

    def _tosses(self, message: Message, which: str) -> list[bytes]:
        """Return what the three tossed, in the order of their names."""
        tosses = {item.sender: self._parts(item)[0] for item in self._both(_TOSSES[which][1], message.about)}
        tosses[self._s.me] = self._own_toss(message, which)[0]
        return [tosses[name] for name in self._s.triples[message.table].parties]

    # ---- the sacrifice

    def _e(self, message: Message) -> int:
        return self._s.triple_work(message.table).e(self._tosses(message, "e"), message.run, self._s.t1)

    def _own_alpha(self, message: Message) -> Iterator[Words]:
        seeds = self._secrets_of(message.table).mask_seeds
        return self._s.triple_work(message.table).alpha(self._s.me, self._e(message), seeds, message.run)

    def _alpha(self, message: Message) -> Frames:
        return map(bytes_of, self._own_alpha(message))

    def _alpha_of(self, message: Message) -> Iterator[Words]:
        """Another one's, as it came."""
        work = self._s.triple_work(message.table)
        for rows, frame in zip(work.blocks, self._frames(message), strict=True):
            yield words_of(frame, (rows.stop - rows.start, work.size(message.sender)), self._name(message))

    def _see_alpha(self, message: Message) -> None:
        for _ in self._alpha_of(message):
            pass

    def _own_sums(self, message: Message) -> bytes:
        """Return this party's sums of a run, computed once and kept."""
        s, name = self._s, f"f/sums-{message.table}.{message.run}"
        content = s.folder.read(name)
        if content is None:
            triple, work = self._of(message)
            alphas = {item.sender: self._alpha_of(item) for item in self._both(Kind.ALPHA, message.about)}
            alphas[s.me] = self._own_alpha(message)
            sums = work.sums(
                s.me,
                message.run,
                e=self._e(message),
                tosses=self._tosses(message, "c"),
                seeds=self._secrets_of(message.table).mask_seeds,
                shares=(self._shares(triple, 0), self._shares(triple, 1 + message.run)),
                alphas=[alphas[name] for name in triple.parties],
                t1=s.t1,
            )
            content = bytes_of(sums)
            s.folder.write(name, content)
        return content

    def _sums_salt(self, message: Message) -> bytes:
        return self._secrets_of(message.table).sums_salts[message.run]

    def _own_sums_commitment(self, message: Message) -> bytes:
        s, work = self._s, self._s.triple_work(message.table)
        return work.sums_commitment(s.me, message.run, self._own_sums(message), self._sums_salt(message), s.t1)

    def _sums_of(self, message: Message) -> Words:
        return words_of(self._only(message)[: 4 * SUMS], (SUMS,), self._name(message))

    def _see_sums(self, message: Message) -> None:
        (triple, work), data = self._of(message), self._only(message)
        sums, salt = data[: 4 * SUMS], data[4 * SUMS :]
        commitment = work.sums_commitment(message.sender, message.run, sums, salt, self._s.t1)
        if commitment != self._only(self._s.message(Kind.SUMS_CLOSED, message.about, message.sender)):
            raise self._wrong(message, "the sums do not fit their commitment")
        total = add(self._sums_of(message), np.frombuffer(self._own_sums(message), "<u4"))
        (other,) = (item for item in self._both(message.kind, message.about) if item != message)
        if self._is_there(other) and (add(total, self._sums_of(other)) % P).any():
            i, j, k = triple.parties
            raise PeerFault(
                "MESSAGE_INVALID",
                f"masked tables: table {triple.table}, of '{i}', '{j}' and '{k}', whose masks '{triple.dealer}' dealt, run "
                f"{message.run}: what was dealt is not right, or was not told rightly, so one of these four did not follow the "
                "protocol; no masked row of the table has left, and nothing was opened",
                hint="do not approve another round with these four before it is known which of them",
            )

    # ---- the table

    def own_part(self, triple: Triple) -> Words:
        """Return this party's part of the table."""
        s, work, seed = self._s, self._s.triple_work(triple.table), self._secrets_of(triple.table).mask_seeds[0]
        if s.me == triple.parties[-1]:
            message = s.message(Kind.PRODUCT, triple.about)
            (last,) = deque(self._frames(message), maxlen=1)
            whole = words_of(last, work.sizes, self._name(message))
        else:
            whole = work.whole(s.me, seed)
        masked = {name: self._masked_rows(triple, name) for name in triple.others(s.me)}
        return work.share(s.me, seed, masked=masked, shares=self._shares(triple, 0), whole=whole, people=s.people)

    def _masked_rows(self, triple: Triple, owner: str) -> Iterator[Words]:
        message = self._s.message(Kind.MASKED, triple.about._replace(owner=owner))
        work, frames = self._s.rows_work(message), self._frames(message)
        next(frames)
        return work.blocks_of(frames, work.widths[owner], self._name(message))
