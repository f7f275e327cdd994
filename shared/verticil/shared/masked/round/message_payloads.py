"""What the messages of a round hold: how this node makes its own, and what it finds wrong with those that come.

model-three.md, sections 2 and 4. A content is a few frames: the first has what is short, the others a block of rows each, or a
table each. What is made twice of the same seeds (masked rows, packets) is compared with what was committed to before it has
its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from google.protobuf.message import DecodeError

from verticil.shared.core.errors import PeerFault, Refusal
from verticil.shared.documents import record
from verticil.shared.masked.arithmetic.derivation import Of
from verticil.shared.masked.arithmetic.field import P, Words
from verticil.shared.masked.round import opening as tables_work
from verticil.shared.masked.round.documents import Hello, Opened, Statement
from verticil.shared.masked.round.frames import Reader
from verticil.shared.masked.round.pair_products import PairWork, Tossed, bytes_of, words_of
from verticil.shared.masked.round.round_state import RoundState, check_statement, hello_of, signing_key_matches
from verticil.shared.masked.round.schedule import Check, Kind, Message
from verticil.shared.masked.round.secrets import toss_name
from verticil.shared.masked.round.triple_contents import TripleContents
from verticil.wire.v1 import common_pb2

Frames = Iterable[bytes]


class TossMessage(NamedTuple):
    """What a toss came to, as one of the two nodes tells it (3f): 192 bytes."""

    verifier: bytes
    verifier_salt: bytes
    verifier_commitment: bytes
    dealer: bytes
    dealer_salt: bytes
    dealer_commitment: bytes


class Expectation(NamedTuple):
    """What the owner of rows expects (3g): 192 bytes."""

    verifier: bytes
    dealer: bytes
    verifier_w: bytes
    dealer_w: bytes
    verifier_salt: bytes
    dealer_salt: bytes


class Contents(Reader):
    """Makes and checks the contents of one node's messages.

    Args:
        standing: of the node.
    """

    def __init__(self, standing: RoundState) -> None:
        super().__init__(standing)
        self._triples = TripleContents(standing)
        self._make: dict[Kind, Callable[[Message], Frames]] = {
            Kind.HELLO: lambda _: [self._signed(self._s.own_hello)],
            Kind.AGREED: lambda _: [self._s.t0],
            Kind.SEED: self._seed,
            Kind.PRODUCT: self._product,
            Kind.STATEMENT: lambda _: [self._signed(self._s.own_statement)],
            Kind.AGREED_AGAIN: lambda _: [self._s.t1],
            Kind.MASKED: self._masked,
            Kind.PACKET: self._packet,
            Kind.FITS: lambda _: [b""],
            Kind.CLOSED: lambda message: [self._own_toss_commitment(self._check_of(message))],
            Kind.OPEN: self._open,
            Kind.TOLD: lambda message: [b"".join(self._both_openings(self._check_of(message)))],
            Kind.EXPECTED: lambda message: [self.expectation_bytes(self._check_of(message))],
            Kind.W_SHARE: self._w_share,
            Kind.F_SHARE: self._f_share,
            Kind.DONE: lambda _: [b""],
            Kind.SHARE: self._share,
            Kind.OPENED: self._make_opened,
            Kind.RECEIPT: lambda _: [self._tables_sha256()],
        }
        self._see: dict[Kind, Callable[[Message], None]] = {
            Kind.HELLO: self._see_hello,
            Kind.AGREED: lambda message: self._see_same(message, self._s.t0),
            Kind.SEED: self._see_seed,
            Kind.PRODUCT: self._see_product,
            Kind.STATEMENT: self._see_statement,
            Kind.AGREED_AGAIN: lambda message: self._see_same(message, self._s.t1),
            Kind.MASKED: self._see_masked,
            Kind.PACKET: self._see_packet,
            Kind.CLOSED: self._see_closed,
            Kind.OPEN: self._see_open,
            Kind.TOLD: self._see_told,
            Kind.EXPECTED: self._see_expected,
            Kind.W_SHARE: self._see_w_share,
            Kind.F_SHARE: self._see_f_share,
            Kind.SHARE: self._see_share,
            Kind.OPENED: self._see_opened,
            Kind.RECEIPT: lambda message: self._see_same(message, self._tables_sha256()),
        }

    def make_frames(self, message: Message) -> Frames:
        """Make the frames of a message of this node.

        Raises:
            Refusal: APPROVAL_VOID, while they are read: the table is another than what was committed to.
        """
        make = self._triples.make.get(message.kind) if message.table >= 0 else None
        return (make or self._make[message.kind])(message)

    def check(self, message: Message) -> None:
        """See that a message that came, and is at its place, is what it must be.

        Raises:
            PeerFault: MESSAGE_INVALID or STUDY_MISMATCH; the round ends.
        """
        see = self._triples.see.get(message.kind) if message.table >= 0 else None
        see = see or self._see.get(message.kind)
        if see is None:
            self._only(message)  # which is empty
        else:
            see(message)
        if message.kind is Kind.SEED:
            self._see_that_seeds_differ(message)

    # ---- reading what came

    def _rows(self, message: Message) -> tuple[bytes, Iterator[Words]]:
        """Return the first frame, and the words of each block behind it."""
        frames, work = self._frames(message), self._s.rows_work(message)
        head = next(frames)
        width = work.widths[message.owner] if message.kind is Kind.MASKED else len(work.sizes[message.owner])
        return head, work.blocks_of(frames, width, self._name(message))

    def _masked_rows(self, check: Check) -> Iterator[Words]:
        about = check.about._replace(verifier="", run=-1)
        return self._rows(self._s.message(Kind.MASKED, about))[1]

    def _packet_of(self, check: Check) -> tuple[bytes, Iterator[Words]]:
        """Return the seed of this node's packet, and of the dealer's the corrections."""
        message = self._about(Kind.PACKET, check)
        if check.verifier == self._s.me:
            return self._only(message)[:32], iter(())
        head, rows = self._rows(message)
        return head[:32], rows

    # ---- documents

    def _signed(self, body: bytes) -> bytes:
        return self._s.credentials.signing.sign(body).SerializeToString()

    def _document(self, message: Message) -> common_pb2.Signed:
        (frame,) = self._frames(message)
        return self._signed_by(message, frame)

    def _signed_by(self, message: Message, frame: bytes) -> common_pb2.Signed:
        try:
            signed = common_pb2.Signed.FromString(frame)
        except DecodeError:
            raise self._wrong(message, "not a signed document") from None
        self._s.credentials.verify(signed, message.sender)
        return signed

    def _see_hello(self, message: Message) -> None:
        signed = self._document(message)
        hello = hello_of(signed.body, message.sender)
        if hello.name != message.sender or not signing_key_matches(signed, hello):
            raise self._wrong(message, "not signed by whom it names")

    def _see_statement(self, message: Message) -> None:
        signed = self._document(message)
        statement = record.decode(Statement, signed.body, source=self._name(message))
        check_statement(statement, message.sender, self._s)
        if not signing_key_matches(signed, self._s.hellos[message.sender]):
            raise self._wrong(message, "signed with another key than its hello says")

    def _see_same(self, message: Message, own: bytes) -> None:
        if self._only(message) != own:
            raise self._wrong(message, "it has other messages of this round than this node")

    def hello(self) -> bytes:
        """Make the body of this node's hello."""
        s, secrets, plan = self._s, self._s.secrets, self._s.plan
        is_party = s.is_party
        return record.encode(
            Hello(
                study=plan.study,
                round=plan.round,
                name=s.me,
                plan=s.plan_sha256,
                order=s.people.order if is_party else b"",
                data=self.data_seal() if is_party else b"",
                signing=s.credentials.public_signing_key,
                pins={name: s.credentials.pinned[name] for name in s.contributors},
                sealing=_public(secrets.sealing),
                dealing=_public(secrets.dealing) if secrets.dealing else b"",
                padding=_public(secrets.padding) if is_party else b"",
                masks={
                    str(pair.number): PairWork(plan, pair, b"").seed_commitment(
                        s.me, secrets.pairs[str(pair.number)].mask_seed, secrets.pairs[str(pair.number)].mask_salt
                    )
                    for pair in s.own_pairs
                },
                triples=self._triples.seed_commitments(),
            )
        )

    def data_seal(self) -> bytes:
        """Return the commitment to this party's randomized columns: by it the site sees that a retry has the same
        draws.
        """
        s, digest = self._s, hashlib.sha256()
        for start in range(0, s.plan.n_people, 1 << 16):
            rows = slice(start, min(start + (1 << 16), s.plan.n_people))
            digest.update(np.ascontiguousarray(s.people.codes(rows), "<u4").tobytes())
        return s.name.commitment("data", s.secrets.data_salt, digest.digest(), Of(part=s.me))

    def statement(self) -> bytes:
        """Make the body of this party's statement: commitments to all masked rows and packets."""
        s, masked, packets = self._s, {}, {}
        for pair in s.own_pairs:
            number, secrets, work = str(pair.number), s.secrets.pairs[str(pair.number)], s.work(pair.number)
            rows = work.masked(s.me, secrets.mask_seed, s.people)
            masked[number] = work.masked_commitment(s.me, secrets.masked_salt, rows)
            packets[number] = s.own_packets(pair.about._replace(owner=s.me, verifier=pair.partner(s.me)))
        triples = self._triples.statements()
        return record.encode(Statement(name=s.me, transcript=s.t0, masked=masked, packets=packets, triples=triples))

    # ---- dealing

    def _seed(self, message: Message) -> Frames:
        secrets = self._s.secrets.pairs[str(message.pair)]
        return [secrets.mask_seed + secrets.mask_salt]

    def _see_seed(self, message: Message) -> None:
        seed, salt = self._parts(message)
        commitment = self._s.work(message.pair).seed_commitment(message.owner, seed, salt)
        if commitment != self._s.hellos[message.owner].masks[str(message.pair)]:
            raise self._wrong(message, "the seed does not fit its commitment")

    def _see_that_seeds_differ(self, message: Message) -> None:
        """Check that seeds differ from each other, and from all that came to this dealer."""
        seeds = self._parts(message)[::2]
        if len(set(seeds)) != len(seeds):
            raise self._wrong(message, "two of its seeds are equal")
        for other in self._s.all_incoming(Kind.SEED):
            if other != message and self._is_there(other) and not set(seeds).isdisjoint(self._parts(other)[::2]):
                where = f"pair {other.pair}" if other.table < 0 else f"table {other.table}"
                raise self._wrong(message, f"it is a seed of '{other.owner}' in {where}, too")

    def _mask_seed(self, check: Check) -> bytes:
        return self._parts(self._s.message(Kind.SEED, check.about._replace(verifier="", run=-1)))[0]

    def _product(self, message: Message) -> Frames:
        pair = self._s.pair(message.pair)
        about = pair.about
        first, second = (
            self._parts(self._s.message(Kind.SEED, about._replace(owner=name)))[0] for name in pair.parties
        )
        return [bytes_of(self._s.work(message.pair).dealt_product(first, second))]

    def _see_product(self, message: Message) -> None:
        self._product_of(message)

    def _product_of(self, message: Message) -> Words:
        work, pair = self._s.work(message.pair), self._s.pair(message.pair)
        shape = work.widths[pair.first], work.widths[pair.second]
        (frame,) = self._frames(message)
        return words_of(frame, shape, self._name(message))

    # ---- masking

    def _masked(self, message: Message) -> Frames:
        s, secrets, work = self._s, self._s.rows_secrets(message), self._s.rows_work(message)
        yield secrets.masked_salt
        digest = work.masked_committer(s.me, secrets.masked_salt)
        for frame in work.masked(s.me, secrets.mask_seed, s.rows_people(message)):
            digest.update(frame)
            yield frame
        if digest.digest() != s.rows_committed(message):
            raise report_change()

    def _see_masked(self, message: Message) -> None:
        salt, rows = self._rows(message)
        pieces = (bytes_of(block) for block in rows)
        commitment = self._s.rows_work(message).masked_commitment(message.owner, salt, pieces)
        if commitment != self._s.rows_committed(message):
            raise self._wrong(message, "it does not fit what was committed to")

    def _packet(self, message: Message) -> Frames:
        s, check = self._s, self._check_of(message)
        of, work = s.rows_secrets(check).runs[message.run], s.rows_work(check)
        if message.recipient == check.verifier:
            yield of.verifier_seed + of.verifier_salt
            return
        yield of.dealer_seed + of.dealer_salt
        yield from work.corrections(s.me, of, message.run)

    def _see_packet(self, message: Message) -> None:
        check, work = self._check_of(message), self._s.rows_work(message)
        commitments = self._s.packets_committed(check)
        if message.recipient == check.verifier:
            seed, salt = self._parts(message)
            commitment = work.packet_commitment(message.owner, check.verifier, message.run, (seed, salt))
            fits = commitment == commitments.verifier
        else:
            head, rows = self._rows(message)
            pieces = (bytes_of(block) for block in rows)
            opening = head[:32], head[32:]
            commitment = work.packet_commitment(message.owner, check.dealer, message.run, opening, pieces)
            fits = commitment == commitments.dealer
        if not fits:
            raise self._wrong(message, "it does not fit what was committed to")

    # ---- the toss

    def _own_toss_commitment(self, check: Check) -> bytes:
        own = self._s.secrets.tosses[toss_name(check)]
        return self._s.rows_work(check).toss_commitment(check, self._s.me, own.value, own.salt, self._s.t1)

    def _open(self, message: Message) -> Frames:
        own = self._s.secrets.tosses[toss_name(self._check_of(message))]
        return [own.value + own.salt]

    def _about(self, kind: Kind, check: Check, sender: str = "") -> Message:
        return self._s.message(kind, check.about, sender)

    def _see_closed(self, message: Message) -> None:
        if self._only(message) == self._own_toss_commitment(self._check_of(message)):
            raise self._wrong(message, "it is this node's own commitment")

    def _see_open(self, message: Message) -> None:
        check = self._check_of(message)
        value, salt = self._parts(message)
        commitment = self._s.rows_work(message).toss_commitment(check, message.sender, value, salt, self._s.t1)
        if commitment != self._only(self._about(Kind.CLOSED, check)):
            raise self._wrong(message, "the toss does not fit its commitment")

    def _both_openings(self, check: Check) -> TossMessage:
        """Return both openings and both commitments; at verifier or dealer."""
        own = self._s.secrets.tosses[toss_name(check)]
        mine = own.value, own.salt, self._own_toss_commitment(check)
        value, salt = self._parts(self._about(Kind.OPEN, check))
        theirs = value, salt, self._only(self._about(Kind.CLOSED, check))
        return TossMessage(*mine, *theirs) if check.verifier == self._s.me else TossMessage(*theirs, *mine)

    def _see_told(self, message: Message) -> None:
        check, work, t1 = self._check_of(message), self._s.rows_work(message), self._s.t1
        openings = TossMessage(*self._parts(message))
        one = work.toss_commitment(check, check.verifier, openings.verifier, openings.verifier_salt, t1)
        other = work.toss_commitment(check, check.dealer, openings.dealer, openings.dealer_salt, t1)
        if one != openings.verifier_commitment or other != openings.dealer_commitment or one == other:
            raise self._wrong(message, "the toss does not fit its commitments")
        second = self._about(Kind.TOLD, check, check.other(message.sender))
        if self._is_there(second) and TossMessage(*self._parts(second)) != openings:
            raise self._wrong(message, f"'{second.sender}' sends another toss; one of the two is at fault")

    def _toss_of(self, check: Check, verifier: bytes, dealer: bytes) -> Tossed:
        return self._s.rows_work(check).toss(check, verifier, dealer, self._s.t1)

    # ---- what is expected, and the shares of w and f

    def expectation_bytes(self, check: Check) -> bytes:
        """Return what the owner expects, made once and kept: one for a run, ever."""
        s, name = self._s, f"f/expected-{toss_name(check)}"
        content = s.folder.read(name)
        if content is None:
            openings = TossMessage(*self._parts(self._about(Kind.TOLD, check, check.verifier)))
            secrets = s.rows_secrets(check)
            run, coefficients = secrets.runs[check.run], self._toss_of(check, openings.verifier, openings.dealer)
            w = s.rows_work(check).expected_commitments(check, secrets, coefficients, s.t1, s.rows_people(check))
            expectation = Expectation(openings.verifier, openings.dealer, *w, run.verifier_w_salt, run.dealer_w_salt)
            content = b"".join(expectation)
            s.folder.write(name, content)
        return content

    def _expectation(self, check: Check) -> Expectation:
        """Return the owner's expectation, as it came."""
        return Expectation(*self._parts(self._about(Kind.EXPECTED, check)))

    def _see_expected(self, message: Message) -> None:
        openings, expectation = self._both_openings(self._check_of(message)), Expectation(*self._parts(message))
        if (expectation.verifier, expectation.dealer) != (openings.verifier, openings.dealer):
            raise self._wrong(message, "it is for another toss than this node's")

    def _w_share(self, message: Message) -> Frames:
        check, work, t1 = self._check_of(message), self._s.rows_work(message), self._s.t1
        expectation = self._expectation(check)
        coefficients, (seed, _) = self._toss_of(check, expectation.verifier, expectation.dealer), self._packet_of(check)
        yield hashlib.sha256(b"".join(expectation)).digest()
        if check.verifier == self._s.me:
            salt, commitment = expectation.verifier_salt, expectation.verifier_w
            pieces = work.w_of_verifier(check, seed, coefficients, self._masked_rows(check))
        else:
            salt, commitment = expectation.dealer_salt, expectation.dealer_w
            pieces = work.w_of_dealer(check, seed, coefficients, self._mask_seed(check))
        digest = work.w_committer(check, self._s.me, salt, t1)
        for frame in pieces:
            digest.update(frame)
            yield frame
        if digest.digest() != commitment:
            raise self._wrong(
                self._about(Kind.EXPECTED, check), "what it expects of this node does not follow from what it sent"
            )

    def _see_w_share(self, message: Message) -> None:
        check, expectation = self._check_of(message), self._expectation(self._check_of(message))
        head, rows = self._rows(message)
        if head != hashlib.sha256(b"".join(expectation)).digest():
            raise PeerFault(
                "MESSAGE_INVALID",
                f"{self._name(message)}: '{check.owner}' told '{message.sender}' another expectation than this node",
                hint=f"'{check.owner}' is at fault, or '{message.sender}'; the round ends",
            )
        by_verifier = message.sender == check.verifier
        salt, commitment = (
            (expectation.verifier_salt, expectation.verifier_w)
            if by_verifier
            else (expectation.dealer_salt, expectation.dealer_w)
        )
        pieces = (bytes_of(block) for block in rows)
        if self._s.rows_work(message).w_commitment(check, message.sender, salt, self._s.t1, pieces) != commitment:
            raise self._wrong(message, f"it is not what '{check.owner}' expects")

    def own_f(self, check: Check) -> int:
        """Return this node's share of f, made once and kept."""
        s, name = self._s, f"f/share-{toss_name(check)}"
        content = s.folder.read(name)
        if content is None:
            content = self._computed_f(check).to_bytes(4, "little")
            s.folder.write(name, content)
        return int.from_bytes(content, "little")

    def _computed_f(self, check: Check) -> int:
        s, work, expectation = self._s, self._s.rows_work(check), self._expectation(check)
        coefficients, (seed, corrections) = (
            self._toss_of(check, expectation.verifier, expectation.dealer),
            self._packet_of(check),
        )
        theirs = self._rows(self._about(Kind.W_SHARE, check))[1]
        rho = work.row_coefficients(check, coefficients, s.t1)
        if check.verifier == s.me:
            masked = self._masked_rows(check)
            return work.f_of_verifier(check, seed, coefficients, zip(masked, theirs, rho, strict=True))
        masks = work.masks(check.owner, self._mask_seed(check))
        return work.f_of_dealer(check, seed, coefficients, zip(masks, corrections, theirs, rho, strict=True))

    def _f_share(self, message: Message) -> Frames:
        return [self.own_f(self._check_of(message)).to_bytes(4, "little")]

    def _see_f_share(self, message: Message) -> None:
        check = self._check_of(message)
        theirs = int.from_bytes(self._only(message), "little")
        if theirs >= P:
            raise self._wrong(message, "not a word")
        if (theirs + self.own_f(check)) % P:
            raise PeerFault(
                "MESSAGE_INVALID",
                f"masked tables: the rows of '{check.owner}' for '{check.verifier}', checked with the dealer '{check.dealer}', "
                f"run {check.run}: the check fails, so one of these three did not follow the protocol; nothing was opened",
                hint="do not approve another round with these three before it is known which of them",
            )

    # ---- the tables

    def _share(self, message: Message) -> Frames:
        del message
        s = self._s
        products = {pair.number: self._own_product(pair.number) for pair in s.own_pairs}
        return tables_work.ShareMaker(
            s.plan,
            s.me,
            s.t1,
            noise=s.secrets.noise,
            padding=s.secrets.padding,
            paddings={name: s.hellos[name].padding for name in s.plan.parties},
            products=products,
            triples={triple.table: self._triples.own_part(triple) for triple in s.own_triples},
            people=s.people,
        ).frames()

    def _own_product(self, number: int) -> Words:
        s, pair, work = self._s, self._s.pair(number), self._s.work(number)
        other = s.message(Kind.MASKED, pair.about._replace(owner=pair.partner(s.me)))
        rows = self._rows(other)[1]
        if s.me == pair.first:
            return work.share_of_first(s.secrets.pairs[str(number)].mask_seed, rows)
        return work.share_of_second(self._product_of(s.message(Kind.PRODUCT, pair.about)), rows, s.people)

    def _shares_of(self, message: Message) -> Iterator[Words]:
        plan = self._s.plan
        for index, frame in zip(range(len(plan.opened)), self._frames(message), strict=True):
            yield words_of(frame, plan.shape_at(index), self._name(message))

    def _see_share(self, message: Message) -> None:
        for _ in self._shares_of(message):
            pass

    def open_tables(self, shares: Iterable[Message]) -> None:
        """Add the parties' shares up, with the miner's noise, and keep what comes out; at the miner.

        Raises:
            PeerFault: MESSAGE_INVALID, what comes out are no counts.
        """
        s = self._s

        def noise(index: int) -> Words | None:
            if s.me not in s.plan.counted:
                return None
            return tables_work.noise_of(s.plan, s.me, s.secrets.noise, s.t1, index)

        tables = tables_work.opened_tables(s.plan, [self._shares_of(message) for message in shares], noise)
        if not tables_work.are_counts(s.plan, tables):
            raise PeerFault(
                "MESSAGE_INVALID",
                "masked tables: what the shares add up to are no tables of this many people: a share or a pad is missing",
                hint="the round ends; a party has other messages of this round than the others, or did not follow the protocol",
            )
        s.folder.write("tables", b"".join(np.ascontiguousarray(table, "<i8").tobytes() for table in tables))

    def tables(self) -> bytes | None:
        """Return the opened tables, as they are sent; None: not yet."""
        return self._s.folder.read("tables")

    def _tables_sha256(self) -> bytes:
        return hashlib.sha256(self.tables() or b"").digest()

    def _said_of_tables(self, sha256: bytes) -> Opened:
        s = self._s
        return Opened(study=s.plan.study, round=s.plan.round, transcript=s.t1, plan=s.plan_sha256, tables=sha256)

    def _make_opened(self, message: Message) -> Frames:
        yield self._signed(record.encode(self._said_of_tables(self._tables_sha256())))
        data, start = self.tables() or b"", 0
        for size in self.frame_sizes(message)[1:]:
            yield data[start : start + size]
            start += size

    def _see_opened(self, message: Message) -> None:
        frames = self._frames(message)
        signed = self._signed_by(message, next(frames))
        document = record.decode(Opened, signed.body, source=self._name(message))
        data = b"".join(frames)
        if document != self._said_of_tables(hashlib.sha256(data).digest()):
            raise self._wrong(message, "the miner signed other tables, or tables of another round")
        if not signing_key_matches(signed, self._s.hellos[message.sender]):
            raise self._wrong(message, "signed with another key than its hello says")
        try:
            counts = tables_work.tables_from(self._s.plan, data)
        except ValueError as error:
            raise self._wrong(message, str(error)) from None
        if not tables_work.in_range(counts):
            raise self._wrong(message, "a count is beyond what a word can say")
        self._s.folder.write("tables", data)
        self._s.folder.write("opened", signed.SerializeToString())


def _public(private: bytes) -> bytes:
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


def report_change() -> Refusal:
    """Return the refusal for what was begun with and is not there any more; it says nothing of what differs."""
    return Refusal(
        "APPROVAL_VOID",
        "masked tables: this site's columns, or what they were randomized with, are not what the round began with",
        hint="the round ends; a new round, with a new approval, has the table as it is now",
    )
