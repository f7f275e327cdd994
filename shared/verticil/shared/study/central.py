"""The protocol ``central`` (Model II): a miner gets the randomized columns of all parties, and learns from them."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from verticil.shared.numerics.model.graph import Dag
from verticil.shared.study.document import Study
from verticil.shared.study.protocol import Disclosure, Protocol

MEMBERS: Final = "which of its own people are at all the other parties, and how many these are"
"""What every party learns by finding the common people, in any protocol."""
_LINKAGE: Final = {
    "keyed-hash": Disclosure(
        mode="keyed-hash",
        miner="how many people each party has, and which parties have a pseudonym in common",
        parties=MEMBERS,
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
        parties=f"{MEMBERS}; and how many people every other party has",
        together="a miner and any one party can learn which of the people whom that party put into its list are at each other"
        " party, during the study only and not by guessing afterwards; a miner alone can only leave people out",
    ),
}


class Central(Protocol):
    """The protocol of Model II."""

    name = "central"
    summary = "a miner receives randomized columns and learns from them"
    coordinated = True
    shares = False
    counts_families = True
    sources = "randomized columns"
    privacy_note = ""
    linkage = _LINKAGE

    def read_by(self, study: Study, index: int, dag: Dag | None = None) -> None:
        """Return None: the miner reads every unit."""

    def learner(self, study: Study, child: int) -> None:
        """Return None: the miner learns every family."""

    def searches_scores(self, study: Study) -> bool:
        """Return False: the miner has the columns, and computes scores itself."""
        return False

    def not_permitted(self, study: Study, party: str, recipients: Collection[str]) -> Iterator[str]:
        """Yield the miner where it may not receive columns."""
        if "miner" not in recipients:
            yield "model 'central' sends to the miner, which is not in policy.recipients"
