"""The protocols that a study may name by its key ``model``: one line each, and what is asked of whichever it is."""

from __future__ import annotations

from typing import Final

from verticil.shared.core.registry import Registry
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.study.central import Central
from verticil.shared.study.curator import Curator
from verticil.shared.study.document import Study
from verticil.shared.study.masked import Masked
from verticil.shared.study.peer import Peer
from verticil.shared.study.protocol import Disclosure, Protocol
from verticil.shared.study.vocabulary import METHODS

PROTOCOLS: Final = Registry[Protocol]("model")


def register(protocol: Protocol) -> None:
    """Let studies name a protocol.

    Raises:
        ValueError: one of this name is registered already.
    """
    PROTOCOLS.register(protocol.name, protocol)


register(Central())
register(Peer())
register(Curator())
register(Masked())


def protocol_of(study: Study) -> Protocol:
    """Return the protocol by which a study is carried out.

    Raises:
        Misuse: STUDY_UNSUPPORTED, this program does not have it.
    """
    return PROTOCOLS.named(study.model)


def opens_tables(study: Study) -> bool:
    """Return whether no column is sent: the study's tables come out of a round of messages among its parties and the miner."""
    return protocol_of(study).opens_tables


def measures_itself(study: Study) -> bool:
    """Return whether the method chooses what is measured, of its owner's whole table; else it gets tables as they are."""
    return METHODS[study.structure.method].whole_table and protocol_of(study).whole_table


def disclosure(study: Study) -> Disclosure:
    """Return what finding the common people reveals in a study, to whom."""
    return protocol_of(study).linkage[study.linkage.mode]


def table_deviations(study: Study) -> tuple[float, ...]:
    """Return the standard deviation of the noise on each count of each of a study's tables, see
    `Protocol.table_deviations`.
    """
    return protocol_of(study).table_deviations(study)


def coarse_deviations(study: Study) -> tuple[float, ...]:
    """Return the same of the tables in runs of neighbouring categories, see `Protocol.coarse_deviations`."""
    return protocol_of(study).coarse_deviations(study)


def sent_units(study: Study, dag: Dag | None = None) -> tuple[int, ...]:
    """Return the units that leave their owner, ascending: what each person is charged for.

    Args:
        study: a study of any protocol.
        dag: see `Protocol.read_by`.
    """
    protocol, every = protocol_of(study), range(len(study.units))
    return tuple(index for index in every if protocol.read_by(study, index, dag) != ())


def recipients_of(study: Study, index: int, dag: Dag | None = None) -> tuple[str, ...]:
    """Return who gets the randomized values of unit `index`: ``miner``, or names of parties; see `Protocol.read_by`."""
    readers = protocol_of(study).read_by(study, index, dag)
    return ("miner",) if readers is None else readers
