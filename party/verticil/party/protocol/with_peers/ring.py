"""Linkage ``dh-psi`` between peers: every party's list goes round the ring of all parties, and all compare what comes out of it.

Order rules. The ring is the study's order of parties, closed.
1. A party blinds its own list (hop 0). For h = 1, 2, .. it takes the list of the party h places before it from its predecessor,
   blinds and shuffles it. Its successor takes it from there; what every party has blinded is for all.
2. With its last list made the party deletes its scalar. No party can blind another id for this study then.
3. Everybody takes all the lists that every party has blinded, and intersects them: the common list, in ascending order of
   tokens. Everybody signs it, and goes on when all have signed the same.
4. The places of the common people are followed back round the ring: the last party that blinded a list sends its predecessor
   where they stood in what it got, and so on to the owner, who knows its own people then and nobody else's.

Promises
- A list is blinded only when its owner and every party that blinded it since have signed it, with one number of tokens; when it
  is ascending and has no token that this party has seen in another list; and when it is the first that this party received for
  that place: what came is remembered before the first token is blinded, and another list is refused for good.
- The scalar is drawn for one study, is on the disk (0600) before the first token leaves, and is never drawn a second time once
  one has left. A kill anywhere leads to the same tokens. Scalar and lists are removed when the people are found.
- Shuffling keeps from every party of which of its people are at some of the others only; all the others together can undo it.

Does not: notice a party that sends false places of a list that it blinded. It can have other people of that list's owner taken
for common ones; it does not learn who they are, and the minimum holds.
"""

from __future__ import annotations

import asyncio
import hashlib
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from google.protobuf.message import DecodeError

from verticil.party.dataset.blinding import TOKEN_BYTES, BlindingState, TokenInvalidError, tokens_of
from verticil.party.dataset.pseudonyms import check_common_size
from verticil.party.local_dataset import LocalDataset
from verticil.party.protocol.planning import LostError, WaitedForError
from verticil.party.protocol.with_peers import blinded_lists
from verticil.party.protocol.with_peers.artifact_store import Item, Kind
from verticil.party.protocol.with_peers.context import PeerStudyContext
from verticil.shared.core.errors import PeerFault, Refusal
from verticil.shared.federation.alignment.statements import sender
from verticil.wire.v1 import common_pb2, peer_pb2

_LARGEST_LIST: Final = 2**32
"""Bytes of a list: 134 million people."""
_LARGEST_STEPS: Final = 2**20
_DROPPED: Final = frozenset({Kind.TAKEN, Kind.STEPS, Kind.BLINDED, Kind.FULL, Kind.TOKENS, Kind.SHUFFLE})
"""What no party needs any more when the people are found: every party has signed the common list by then."""


async def blind_lists(context: PeerStudyContext) -> None:
    """Blind the own list and those of the others, each when it has come; see the order rules.

    Raises:
        WaitedForError: a list is not there yet, or this party's people have stopped the study.
        PeerFailedError: it never will be.
        PeerFault: MESSAGE_INVALID, a list is not what it should be, naming the party; ALIGNMENT_MISMATCH, it is another one than
            before, or this party's scalar is lost.
        Refusal: APPROVAL_VOID, LINKAGE_TOO_SMALL.
        DataFault: DISK_FULL, STATE_CORRUPT.
    """
    holding = await context.read_approved()
    ring = _Ring(context)
    for hop in range(len(ring.parties)):
        await ring.blind(hop, holding)
    await asyncio.to_thread(ring.blinding_state.forget_key)


async def find_common_people(context: PeerStudyContext) -> None:
    """Compare the lists that every party has blinded, and find the own people; see the order rules.

    Raises:
        WaitedForError, PeerFailedError, DataFault: as `blind_lists`.
        PeerFault: also ALIGNMENT_MISMATCH, a peer has signed another common list, or another one was accepted before.
        Refusal: APPROVAL_VOID, LINKAGE_TOO_SMALL, COMMON_SET_TOO_SIMILAR, COMMON_SETS_FULL.
    """
    holding = await context.read_approved()
    ring, store = _Ring(context), context.store
    await asyncio.to_thread(ring.blinding_state.forget_key)
    if not ring.has(Kind.COMMITMENT):
        await ring.compare()
    await asyncio.to_thread(ring.blinding_state.drop)
    n_common, sha256 = await ring.signed_by_all()
    if not ring.has(Kind.COMMON):
        common_rows = await ring.follow(n_common)

        def accept() -> None:
            rows = blinded_lists.common_rows(holding.n_records, common_rows)
            context.accept_people(holding, rows, sha256)
            store.put(context.digest, Kind.COMMON, common_rows)

        await context.node.heavily(accept)

    def end() -> None:
        store.clear(context.digest, keep=frozenset(Kind) - _DROPPED)
        context.node.site.state.confirm(context.digest, n_common, sha256)

    await asyncio.to_thread(end)


class _Ring:
    """One party's place in the ring."""

    def __init__(self, context: PeerStudyContext) -> None:
        self._context = context
        self.parties = context.study.parties
        self._me = self.parties.index(context.me)
        self._last = len(self.parties) - 1
        self.minimum = context.minimum
        self.blinding_state = BlindingState(context.node.site.config.state_directory, context.digest)

    def has(self, kind: Kind, owner: int | None = None) -> bool:
        """Return whether an item is in the artifact store."""
        name = "" if owner is None else str(owner)
        return (kind, name) in self._context.store.items(self._context.digest)

    # ---- hop by hop

    async def blind(self, hop: int, holding: LocalDataset) -> None:
        """Make this party's list of the party `hop` places before it; nothing is done when it is there."""
        context, store, owner = self._context, self._context.store, self._owner(hop)
        if self.has(Kind.BLINDED, owner) and self.has(Kind.STEPS, owner):
            return
        before: list[peer_pb2.BlindedStep] = []
        if hop == 0:
            data = holding.seeds.tobytes()
        else:
            data, before = await self._take_list(owner, hop)
        await asyncio.to_thread(self._check_key)
        name = f"{owner}.made"

        async def progress(percent: int) -> None:
            await asyncio.to_thread(self._show, hop, percent)

        try:
            await self.blinding_state.blind_into(
                name, data, own=hop == 0, heavily=context.node.heavily, progress=progress
            )
        except TokenInvalidError as error:
            raise self._context.wrong_list(owner, hop - 1, f"token {error.position} is not a point of P-256") from None

        def keep() -> None:
            stored_list = self.blinding_state.take(name) or b""
            if len(stored_list) != len(data):
                raise self._make_lost_fault("its half-made list is of another number of people than its table")
            shuffled_list, order = blinded_lists.sort_for_sending(stored_list)
            store.put(context.digest, Kind.SHUFFLE, order.tobytes(), str(owner))
            store.put(context.digest, Kind.BLINDED, shuffled_list, str(owner))
            steps = peer_pb2.BlindedSteps(steps=[*before, context.blinded_step(owner, hop, shuffled_list)])
            store.put(context.digest, Kind.STEPS, steps, str(owner))
            self.blinding_state.remove(name)

        await context.node.heavily(keep)

    def _check_key(self) -> None:
        """Refuse to blind with a second scalar when a list of the first has left."""
        has_sent_lists = any(kind is Kind.STEPS for kind, _ in self._context.store.items(self._context.digest))
        if has_sent_lists and not self.blinding_state.has_key:
            raise self._make_lost_fault("a list that it blinded is lost, and the scalar is deleted")

    def _show(self, hop: int, percent: int) -> None:
        site, total_percent = self._context.node.site, (100 * hop + percent) // len(self.parties)
        if self._context.digest in site.revocations.list_stopped():
            raise WaitedForError("stopped by this party's people")
        site.state.show(self._context.digest, f"blinding lists, {total_percent} %", at=self._context.node.clock())

    async def _take_list(self, owner: int, hop: int) -> tuple[bytes, list[peer_pb2.BlindedStep]]:
        """Take a list as the predecessor blinded it, check it, and store that it is the only one taken."""
        store, digest, name = self._context.store, self._context.digest, f"{owner}.in"
        target = await asyncio.to_thread(self.blinding_state.path, name)
        taken_steps: list[peer_pb2.BlindedStep] | None = None
        if self.has(Kind.TAKEN, owner):
            stored_steps = await asyncio.to_thread(self._read_stored, Kind.TAKEN, owner)
            taken_steps = list(peer_pb2.BlindedSteps.FromString(stored_steps).steps)
            data = await asyncio.to_thread(self.blinding_state.take, name)
            if data is not None and hashlib.sha256(data).digest() == taken_steps[-1].sha256:
                return data, taken_steps
        steps = await self._steps(owner, hop - 1)
        if taken_steps is not None and _digests(taken_steps) != _digests(steps):
            raise self._make_changed_fault(owner, hop - 1)
        await self._fetch(owner, hop - 1, target, steps)

        def check_list() -> bytes:
            data = target.read_bytes()
            self._check(owner, hop - 1, data, itertools.chain(self._inputs(but=target), self._own_lists()))
            return data

        data = await self._context.node.heavily(check_list)
        await asyncio.to_thread(store.put, digest, Kind.TAKEN, peer_pb2.BlindedSteps(steps=steps), str(owner))
        return data, steps

    # ---- what arrives

    async def _steps(self, owner: int, hop: int) -> list[peer_pb2.BlindedStep]:
        """Fetch what was signed of a list, and check it."""
        what = self._what(owner, hop)
        call = self._context.call_for_list(peer_pb2.PSEUDONYM_LIST_STEPS, owner)
        teller = sender(self.parties, owner, hop)
        data = await self._context.fetch(teller, call, limit=_LARGEST_STEPS, what=what)
        try:
            steps = list(peer_pb2.BlindedSteps.FromString(data).steps)
        except DecodeError:
            raise self._context.wrong_list(owner, hop, "the signed statement of it cannot be read") from None
        study, check = self._context.digest, self._context.node.check_statement
        await asyncio.to_thread(
            blinded_lists.check_steps, steps, parties=self.parties, study=study, owner=owner, hop=hop, check=check
        )
        return steps

    async def _fetch(self, owner: int, hop: int, target: Path, steps: list[peer_pb2.BlindedStep]) -> None:
        """Fetch a list into a file, and check that it is the one that was signed."""
        name, what = sender(self.parties, owner, hop), self._what(owner, hop)
        call = self._context.call_for_list(peer_pb2.PSEUDONYM_LIST_BLINDED, owner)
        sha256 = await self._context.fetched_into(target, name, call, limit=_LARGEST_LIST, what=what)
        if (target.stat().st_size, sha256) != (steps[-1].size, steps[-1].sha256):
            raise self._make_changed_fault(owner, hop)

    def _check(self, owner: int, hop: int, data: bytes, others: Iterable[bytes]) -> None:
        """Refuse what is no list, is too short, or repeats a token of another list."""
        if problem := blinded_lists.list_problem(data):
            raise self._context.wrong_list(owner, hop, problem)
        if len(data) < self.minimum * TOKEN_BYTES:
            raise Refusal(
                "LINKAGE_TOO_SMALL",
                f"{self._what(owner, hop)}: fewer people than the {self.minimum} that are expected in common",
                hint="nothing was randomized; is that party's table whole?",
            )
        tokens = tokens_of(data)
        if any(blinded_lists.in_both(tokens, tokens_of(other)).size for other in others):
            raise self._context.wrong_list(
                owner, hop, "it has points that are also in a list that other parties have blinded"
            )

    def _inputs(self, *, but: Path | None = None) -> Iterator[bytes]:
        """Yield the lists that came, as they came, one in memory at a time."""
        paths = [self.blinding_state.path(f"{self._owner(hop)}.in") for hop in range(1, len(self.parties))]
        return (path.read_bytes() for path in paths if path != but and path.exists())

    def _own_lists(self, *, full: bool = True) -> Iterator[bytes]:
        """Yield the lists that this party made; with or without the one that every party has blinded."""
        hops = range(len(self.parties) if full else self._last)
        owners = [owner for owner in map(self._owner, hops) if self.has(Kind.BLINDED, owner)]
        return (self._read_stored(Kind.BLINDED, owner) for owner in owners)

    # ---- the common list

    async def compare(self) -> None:
        """Take all lists that every party has blinded, intersect them, and sign the result."""
        context, store = self._context, self._context.store
        for owner in range(len(self.parties)):
            if owner != self._owner(self._last) and not self.has(Kind.FULL, owner):
                await self._take_full(owner)

        def find() -> None:
            common = tokens_of(self._read_stored(Kind.BLINDED, self._owner(self._last)))
            for owner in range(len(self.parties)):
                if owner != self._owner(self._last):
                    common = blinded_lists.in_both(common, tokens_of(self._read_stored(Kind.FULL, owner)))
            check_common_size(len(common), self.minimum)
            data = common.tobytes()
            sha256 = hashlib.sha256(data).digest()
            problem = "the peers tell another common list than the one that was accepted"
            context.require_same_common(sha256, problem, hint="nothing is computed for a second list")
            store.put(context.digest, Kind.TOKENS, data)
            store.put(context.digest, Kind.COMMITMENT, context.commitment(len(common), sha256, [sha256]))

        await context.node.heavily(find)

    async def _take_full(self, owner: int) -> None:
        store, digest, hop = self._context.store, self._context.digest, self._last
        steps = await self._steps(owner, hop)
        mine = peer_pb2.BlindedSteps.FromString(self._read_stored(Kind.STEPS, owner)).steps
        if _digests(steps[: len(mine)]) != _digests(mine):
            raise self._context.wrong_list(owner, hop, "it was not made of the list that this party blinded")
        target = await asyncio.to_thread(store.target, digest, Kind.FULL, str(owner))
        await self._fetch(owner, hop, target, steps)

        def keep() -> None:
            data = target.read_bytes()
            self._check(owner, hop, data, itertools.chain(self._inputs(), self._own_lists(full=False)))
            item = Item(sha256=hashlib.sha256(data).digest(), size=len(data))
            store.enter(digest, Kind.FULL, str(owner), item)

        await self._context.node.heavily(keep)

    async def signed_by_all(self) -> tuple[int, bytes]:
        """Size and SHA-256 of the common list, when every party has signed it."""
        own = common_pb2.Commitment.FromString(await asyncio.to_thread(self._read_stored, Kind.COMMITMENT))
        n_common, sha256 = own.n_records, own.nodes[0]
        for name in self._context.others:
            what = "the statement of the common list"
            call = self._context.call_for_list(peer_pb2.PSEUDONYM_LIST_COMMITMENT)
            data = await self._context.fetch(name, call, limit=_LARGEST_STEPS, what=what)
            await asyncio.to_thread(self._check_commitment, name, data, n_common, sha256)
        return n_common, sha256

    def _check_commitment(self, name: str, data: bytes, n_common: int, sha256: bytes) -> None:
        what, body = f"common list of party '{name}'", self._context.common_statement(name, n_common, sha256)
        try:
            statement = common_pb2.Commitment.FromString(data).statement
        except DecodeError:
            raise PeerFault("MESSAGE_INVALID", f"{what}: cannot be read") from None
        if statement.body != body:
            raise PeerFault(
                "ALIGNMENT_MISMATCH",
                f"study '{self._context.record.study_id}': party '{name}' found another common list than '{self._context.me}'",
                hint="nothing was randomized; a party sent others another list than this one",
            )
        self._context.node.check_statement(statement, body, party=name, what=what)

    # ---- back to the owners

    async def follow(self, n_common: int) -> bytes:
        """Store for the predecessor where the common people stood in what it sent; and find the own people's places."""
        for hop in range(self._last, 0, -1):
            owner = self._owner(hop)
            if not self.has(Kind.POSITIONS, owner):
                places = await self._places(owner, hop, n_common)
                await asyncio.to_thread(
                    self._context.store.put, self._context.digest, Kind.POSITIONS, places, str(owner)
                )
        return await self._places(self._me, 0, n_common)

    async def _places(self, owner: int, hop: int, n_common: int) -> bytes:
        """Return where the common people stand in the list from which this party made its list of `owner`."""
        if hop == self._last:

            def find() -> bytes:
                full = tokens_of(self._read_stored(Kind.BLINDED, owner))
                return blinded_lists.places(full, tokens_of(self._read_stored(Kind.TOKENS))).tobytes()

            positions = await self._context.node.heavily(find)
        else:
            successor = sender(self.parties, owner, hop + 1)
            what = f"places in the list of party '{self.parties[owner]}'"
            call, limit = (
                self._context.call_for_list(peer_pb2.PSEUDONYM_LIST_POSITIONS, owner),
                blinded_lists.POSITION_BYTES * n_common,
            )
            positions = await self._context.fetch(successor, call, limit=limit, what=what)
        order = await asyncio.to_thread(self._read_stored, Kind.SHUFFLE, owner)
        n_tokens = len(order) // blinded_lists.POSITION_BYTES
        if problem := blinded_lists.positions_problem(positions, n_tokens=n_tokens, n_common=n_common):
            raise PeerFault(
                "MESSAGE_INVALID",
                f"places in the list of party '{self.parties[owner]}', sent by party"
                f" '{sender(self.parties, owner, hop + 1)}': {problem}",
                hint="nothing was randomized; that party's operator should look at its log",
            )
        return blinded_lists.trace_positions(positions, order)

    # ---- asking and saying

    def _owner(self, hop: int) -> int:
        return (self._me - hop) % len(self.parties)

    def _read_stored(self, kind: Kind, owner: int | None = None) -> bytes:
        """Return the bytes of an item that cannot be made again."""
        try:
            return self._context.store.read(self._context.digest, kind, "" if owner is None else str(owner))
        except LostError:
            raise self._make_lost_fault("a file of its linkage is lost or harmed") from None

    def _what(self, owner: int, hop: int) -> str:
        return f"the blinded list of party '{self.parties[owner]}', hop {hop}"

    def _make_changed_fault(self, owner: int, hop: int) -> PeerFault:
        return PeerFault(
            "ALIGNMENT_MISMATCH",
            f"blinded list of party '{self.parties[owner]}', hop {hop}: party '{sender(self.parties, owner, hop)}' tells"
            " another list than before",
            hint="nothing is blinded for a second list; if its table or state changed, submit the study under a new id",
        )

    def _make_lost_fault(self, problem: str) -> PeerFault:
        return PeerFault(
            "ALIGNMENT_MISMATCH",
            f"alignment of party '{self._context.me}': {problem}",
            hint="nothing was randomized; submit the study again under a new id",
        )


def _digests(steps: Iterable[peer_pb2.BlindedStep]) -> list[tuple[int, bytes]]:
    return [(step.size, step.sha256) for step in steps]
