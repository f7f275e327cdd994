"""What finding the common people reveals, to whom: one table for whoever approves, lints, or reads a release.

Finding the common people costs privacy before a single value is randomized, and epsilon does not count it. So each mode of
linkage says what it shows to whom; the words are the same in ``study check``, in the review before an approval, and in a release.
They hold for parties and a miner that follow the protocol; what one that does not can gain stands in the row ``together``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure:
    """What one mode of linkage reveals.

    Attributes:
        mode: of linkage.
        miner: what the miner learns; None between peers, where there is none.
        parties: what each party learns about the others' people.
        together: what the miner (between peers: a peer) can gain that works with a party, or that does not follow the protocol.
    """

    mode: str
    miner: str | None
    parties: str
    together: str

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """(to whom, what)."""
        first = () if self.miner is None else (("to the miner", self.miner),)
        return (*first, ("to each party", self.parties), ("beyond the protocol", self.together))

    def document(self) -> dict[str, str]:
        """For a document."""
        return {
            "mode": self.mode,
            **({} if self.miner is None else {"miner": self.miner}),
            "parties": self.parties,
            "beyond_the_protocol": self.together,
        }


_MEMBERS: Final = "which of its own people are at all the other parties, and how many these are"

_CENTRAL: Final = {
    "keyed-hash": Disclosure(
        mode="keyed-hash",
        miner="how many people each party has, and which parties have a pseudonym in common",
        parties=_MEMBERS,
        together="a miner and any one party can look up every id that they can guess, at every party, also later: that party has"
        " the linkage key; a miner that lies can have people randomized and sent who are not common",
    ),
    "order-commitment": Disclosure(
        mode="order-commitment",
        miner="how many rows the tables have, in which order they are released (that of the tables), and, where tables differ,"
        " which blocks of 1024 rows are equal",
        parties="that all tables hold the same people in the same order; where they do not, the first block of rows that differs",
        together="where tables differ, a miner and any one party can test a guess of a whole block of 1024 ids in their order;"
        " where they agree, that party knows all the people anyway",
    ),
    "dh-psi": Disclosure(
        mode="dh-psi",
        miner="how many people each party has, and which parties have an unreadable token in common, hence how many any of them"
        " share",
        parties=f"{_MEMBERS}; and how many people every other party has",
        together="a miner and any one party can learn which of the people whom that party put into its list are at each other"
        " party, during the study only and not by guessing afterwards; a miner alone can only leave people out",
    ),
}
_PEER: Final = {
    "keyed-hash": Disclosure(
        mode="keyed-hash",
        miner=None,
        parties=f"{_MEMBERS}; and which of its own people are at all parties before it in the study's order",
        together="every party has the linkage key: it can look up every id that it can guess in the lists that it gets",
    ),
    "order-commitment": Disclosure(
        mode="order-commitment",
        miner=None,
        parties="that all tables hold the same people in the same order; where they do not, which blocks of 1024 rows are equal,"
        " and how many rows each table has",
        together="every party has the linkage key: where tables differ, it can test a guess of a whole block of 1024 ids in their"
        " order",
    ),
    "dh-psi": Disclosure(
        mode="dh-psi",
        miner=None,
        parties=f"{_MEMBERS}; how many people every other party has, and how many any of them share, but of none of its own"
        " people that they are at some of the others only",
        together="a party can learn whether the people whom it puts into its list are at all the others, and all the others"
        " together at which of them such a person is, during the study only and not by guessing afterwards; a peer that does"
        " not follow the protocol can have other people taken for common ones, and does not learn who they are",
    ),
}


def disclosure(mode: str, model: str) -> Disclosure:
    """What the mode reveals in this protocol.

    Args:
        mode: ``keyed-hash``, ``order-commitment`` or ``dh-psi``.
        model: ``central`` or ``peer``.

    >>> disclosure("dh-psi", "central").rows[0][0]
    'to the miner'
    """
    return (_PEER if model == "peer" else _CENTRAL)[mode]
