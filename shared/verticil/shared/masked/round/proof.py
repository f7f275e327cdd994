"""What proves, long after a round, that a party took part in it: its own short signatures under the messages that it sent.

A message's file ends with the sender's signature over what the message is: study, round, plan, kind, sender, recipient and the
transcript that it is bound to (`verticil.shared.masked.round.envelope`). That signature is a few hundred bytes, tells nothing of
what is sealed, and cannot be made by anybody else. So every node keeps two of each party: under its hello, which leaves behind
the ledger's row of the linkage, and under one message that leaves behind the charge of the round. It shows them to that party
when the party asks: a ledger that was set back to an earlier state learns from them what it had charged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from verticil.shared.core.errors import PeerFault
from verticil.shared.masked.arithmetic.derivation import PURPOSE
from verticil.shared.masked.arithmetic.streams import decode_fields
from verticil.shared.masked.round.schedule import CHARGED, Kind
from verticil.wire.v1 import common_pb2

BEHIND_CHARGE: Final = CHARGED | {Kind.EXPECTED, Kind.RECEIPT}
"""Kinds of a party's messages that leave only behind the ledger's charge of the round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedMessage:
    """What a party signed of one message of a round.

    Attributes:
        study: digest of the proposal.
        round: from 1.
        plan: SHA-256 of the plan's canonical bytes.
        kind: of the message.
        sender, recipient: names.
        transcript: that it is bound to; of a message behind the charge T1.
    """

    study: bytes
    round: int
    plan: bytes
    kind: Kind
    sender: str
    recipient: str
    transcript: bytes

    @property
    def is_behind_charge(self) -> bool:
        """Whether the ledger was charged for the round before this message left."""
        return self.kind in BEHIND_CHARGE and len(self.transcript) == len(self.plan) == 32


def read_signed_message(body: bytes) -> SignedMessage:
    """Read the body of a signature under a message; the signature is checked by the caller.

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    try:
        what, _, _ = decode_fields(body)
        purpose, mark, study, number, plan, _, kind, sender, recipient, transcript = decode_fields(what)
        if (purpose, mark) != (PURPOSE.encode(), b"message"):
            raise ValueError
        message = SignedMessage(
            study=study,
            round=int(number),
            plan=plan,
            kind=Kind(kind.decode()),
            sender=sender.decode(),
            recipient=recipient.decode(),
            transcript=transcript,
        )
    except ValueError:
        raise PeerFault(
            "MESSAGE_INVALID", "a signature under a message of a round: not one that this program makes"
        ) from None
    return message


def is_missing_in(proof: Iterable[common_pb2.Signed], kind: Kind) -> bool:
    """Return whether a party's proof lacks what a message of this kind would prove: that a round began, or that it was
    charged.
    """
    if kind is not Kind.HELLO and kind not in BEHIND_CHARGE:
        return False
    return _proves(kind) not in {_proves(read_signed_message(signed.body).kind) for signed in proof}


def _proves(kind: Kind) -> str:
    return "charge" if kind in BEHIND_CHARGE else "round"


def rounds_charged(messages: Collection[SignedMessage]) -> Sequence[bytes]:
    """Return the transcripts T1 of the rounds that messages prove to have been charged, ascending."""
    return sorted({message.transcript for message in messages if message.is_behind_charge})
