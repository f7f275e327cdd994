"""The program ``verticil`` of a node that lies in rounds of masked tables, or that only notes what it lets leave.

In the environment: ``SENT``, a file to which each message that is handed out is added, a line each: its index, its kind, who gets
it, and the SHA-256 of its bytes; ``LIE``, a name of `LIES`; empty: none. Run by test_masked_rogues.py.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np

from verticil.cli.main import run
from verticil.miner.rules import rounds as miner_rounds
from verticil.miner.service.coordinator import Coordinator
from verticil.party.protocol.masked import study as party_study
from verticil.party.protocol.masked.exchange import Exchange
from verticil.shared.masked.arithmetic.field import P
from verticil.shared.masked.arithmetic.plan import Plan
from verticil.shared.masked.round.message_payloads import Contents
from verticil.shared.masked.round.pair_products import PairWork
from verticil.shared.masked.round.round import Item, Round
from verticil.shared.masked.round.schedule import Kind, Message
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.wire.v1 import coordinator_pb2

TO: Final = "tax_office"
"""Who is treated otherwise than the rest by a node that lies to one only."""


def note_what_leaves(file: int) -> None:
    """Write down each message that is handed out."""
    honest = Round.sealed

    def sealed(self: Round, index: int) -> Item:
        item = honest(self, index)
        message = self._messages[index]
        os.write(file, f"{index} {message.kind} {message.recipient} {item.sha256.hex()}\n".encode())
        return item

    Round.sealed = sealed  # type: ignore[method-assign,assignment]


def frames(kind: Kind, change: Callable[[list[bytes]], list[bytes]]) -> Callable[[], None]:
    """Seal other frames of a kind of messages."""

    def lie() -> None:
        honest = Contents.make_frames

        def make_frames(self: Contents, message: Message) -> Any:
            found = honest(self, message)
            return change(list(found)) if message.kind is kind else found

        Contents.make_frames = make_frames  # type: ignore[method-assign,assignment]

    return lie


def words(size: int) -> bytes:
    """Of the field, drawn at random."""
    return np.random.default_rng(secrets.randbits(64)).integers(0, P, size // 4, dtype=np.uint32).tobytes()


def random_rows(found: list[bytes]) -> list[bytes]:
    return [found[0], *(words(len(frame)) for frame in found[1:])]


def random_words(found: list[bytes]) -> list[bytes]:
    return [words(len(frame)) for frame in found]


def rows_beyond_one() -> None:
    """A person is in two categories at once, committed to and checked as if it were right."""
    honest = PairWork.masked

    def masked(self: PairWork, owner: str, seed: bytes, people: Any) -> Iterator[bytes]:
        for block in honest(self, owner, seed, people):
            rows = np.frombuffer(block, "<u4").reshape(-1, self.widths[owner]).astype(np.uint64)
            rows[5] += 1
            yield (rows % P).astype("<u4").tobytes()

    PairWork.masked = masked  # type: ignore[method-assign,assignment]


def plans(change: Callable[[Plan], dict[str, Any]]) -> Callable[[], None]:
    """Have another plan than the study's."""

    def lie() -> None:
        honest = vars(party_study)["plan_of"]

        def other(*given: Any, **named: Any) -> Plan:
            plan = honest(*given, **named)
            Plan.__post_init__ = lambda _: None  # type: ignore[method-assign,assignment]
            return dataclasses.replace(plan, **change(plan))

        vars(party_study)["plan_of"] = other
        vars(miner_rounds)["plan_of"] = other

    return lie


def twice_the_sigma(plan: Plan) -> dict[str, Any]:
    return {"sigma": (2 * plan.sigma[0] / plan.sigma[1]).as_integer_ratio()}


def one_operator(plan: Plan) -> dict[str, Any]:
    """The dealer of the first pair is the greater of the two; or of the same operator, where it stays."""
    return {"operators": {**plan.operators, plan.miner: plan.parties[1]}}


def dealt_by_a_partner(plan: Plan) -> dict[str, Any]:
    return {"dealers": (plan.parties[1], *plan.dealers[1:])}


def effective(change: Callable[[Study], Study]) -> Callable[[], None]:
    """Tell the parties another effective study, under its own digest."""

    def lie() -> None:
        honest = Coordinator.Poll

        async def poll(self: Coordinator, identity: Any, request: Any) -> Any:
            reply = await honest(self, identity, request)
            for task in reply.tasks:
                if task.effective:
                    study = change(canonical.from_bytes(task.effective))
                    task.effective, task.effective_digest = canonical.to_bytes(study), canonical.digest(study)
            return reply

        Coordinator.Poll = poll  # type: ignore[method-assign,assignment]

    return lie


def lower_floor(study: Study) -> Study:
    """Every column is randomized less than the study says."""
    units = {
        place: dataclasses.replace(unit, transition=quantize(symmetric(unit.transition.n_states, epsilon=9.0)))
        for place, unit in enumerate(study.units)
    }
    return study.with_declaration(units)


def less_noise(study: Study) -> Study:
    assert study.tables is not None
    return dataclasses.replace(study, tables=dataclasses.replace(study.tables, epsilon=2 * study.tables.epsilon))


def withheld(*kinds: Kind) -> Callable[[], None]:
    """Send messages of these kinds to all but one."""

    def lie() -> None:
        honest = Round.outgoing

        def outgoing(self: Round, name: str, have: Any = ()) -> tuple[int, ...]:
            found = honest(self, name, have)
            return tuple(index for index in found if name != TO or self._messages[index].kind not in kinds)

        Round.outgoing = outgoing  # type: ignore[method-assign,assignment]

    return lie


def gone_with_the_rows() -> None:
    """End the process when the rows of another party are there."""
    honest = Round.receive

    def receive(self: Round, index: int, path: Path) -> None:
        honest(self, index, path)
        if self._messages[index].kind is Kind.MASKED:
            os._exit(3)

    Round.receive = receive  # type: ignore[method-assign,assignment]


def round_before() -> None:
    """Send the messages of the first round in every later one."""
    kept, first = Path(os.environ["SENT"]).with_suffix(".kept"), set[bytes]()
    kept.mkdir(exist_ok=True)
    honest = Round.sealed

    def sealed(self: Round, index: int) -> Item:
        item = honest(self, index)
        first.update({self._plan.study} if not first else ())
        copy = kept / str(index)
        if self._plan.study in first:
            shutil.copyfile(item.path, copy)
            return item
        return item._replace(path=copy, size=copy.stat().st_size, sha256=_sha256(copy))

    Round.sealed = sealed  # type: ignore[method-assign,assignment]


def another_place() -> None:
    """Send, in place of each message of masked rows, one that went to another party."""
    honest = Round.sealed

    def sealed(self: Round, index: int) -> Item:
        message = self._messages[index]
        rows = [item.index for item in self._outgoing if item.kind is Kind.MASKED and item.index in self._sent]
        return honest(self, rows[rows.index(index) - 1] if message.kind is Kind.MASKED and len(rows) > 1 else index)

    Round.sealed = sealed  # type: ignore[method-assign,assignment]


def asked_twice() -> None:
    """Ask for each message as if it had not come, and then again."""
    honest = Exchange._take

    async def take(self: Exchange, name: str, listed: Any, fetch: Any) -> None:
        async def twice(index: int) -> None:
            await fetch(index)
            self.opened.arriving(index).unlink()
            await fetch(index)

        await honest(self, name, listed, twice)

    Exchange._take = take  # type: ignore[method-assign,assignment]


def disordered_relay() -> None:
    """Lose every 60th envelope that is left, and of every tenth reply hand out what lies there last first."""
    put, take, left, taken = Coordinator.PutRelay, Coordinator.TakeRelay, [0], [0]

    async def lossy(self: Coordinator, identity: Any, request: Any) -> Any:
        left[0] += 1
        if left[0] % 60 == 0:
            return coordinator_pb2.PutRelayReply()
        return await put(self, identity, request)

    async def upside_down(self: Coordinator, identity: Any, request: Any) -> Any:
        reply = await take(self, identity, request)
        taken[0] += 1
        found = list(reply.envelopes)[:: -1 if taken[0] % 10 == 0 else 1]
        del reply.envelopes[:]
        reply.envelopes.extend(found)
        return reply

    Coordinator.PutRelay = lossy  # type: ignore[method-assign,assignment]
    Coordinator.TakeRelay = upside_down  # type: ignore[method-assign,assignment]


def _sha256(path: Path) -> bytes:
    return hashlib.sha256(path.read_bytes()).digest()


LIES: Final[dict[str, Callable[[], None]]] = {
    "": lambda: None,
    "masked rows of random words": frames(Kind.MASKED, random_rows),
    "rows beyond one, committed to": rows_beyond_one,
    "a dealer's products of random words": frames(Kind.PRODUCT, random_words),
    "a share of random words": frames(Kind.SHARE, random_words),
    "opened tables of other counts": frames(Kind.OPENED, lambda found: [found[0], *map(words, map(len, found[1:]))]),
    "messages of the round before": round_before,
    "rows for another party": another_place,
    "another slot": plans(lambda _: {"slot_milliseconds": 1}),
    "a pair of columns twice": plans(lambda plan: {"tables": (*plan.tables, plan.tables[0])}),
    "partner and dealer of one operator": plans(one_operator),
    "a pair that its partner deals": plans(dealt_by_a_partner),
    "another sigma": plans(twice_the_sigma),
    "an effective study of a lower floor": effective(lower_floor),
    "an effective study of less noise": effective(less_noise),
    "rows for one of two": withheld(Kind.MASKED),
    "tables for one of two": withheld(Kind.OPENED),
    "gone with another's rows": gone_with_the_rows,
    "every message asked for twice": asked_twice,
    "a relay that loses and reorders": disordered_relay,
    "slots of a millisecond": plans(lambda _: {"slot_milliseconds": 1}),
}


if __name__ == "__main__":
    note_what_leaves(os.open(os.environ["SENT"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600))
    LIES[os.environ["LIE"]]()
    run()
