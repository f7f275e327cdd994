"""What a protocol is: everything in which the ways of carrying a study out differ, before anybody works.

A study names its protocol by its key ``model``. Nothing outside of the registries asks which one it is: code that differs asks
the `Protocol` (here: who reads what, which rules a study keeps, how it is worded), the release's part (`release.protocols`), the
party's and the simulation's. Everything here follows from the study alone, so that all nodes agree without talking about it.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final, Literal

from verticil.shared.documents.json_document import Json
from verticil.shared.mechanisms.discrete_gaussian import variance
from verticil.shared.mechanisms.subset import Subset
from verticil.shared.numerics.model.artifact import packed_size
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.study.document import Study
from verticil.shared.study.inapplicable import refuse
from verticil.shared.study.tables import coarse_pairs, set_sigmas, table_sigmas
from verticil.shared.study.unit import Unit
from verticil.shared.study.vocabulary import METHODS, Inapplicable, fail

MINER: Final = "miner"
"""How a study and a policy name the miner beside the parties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Disclosure:
    """What one mode of linkage reveals.

    Finding the common people costs privacy before a single value is randomized, and epsilon does not count it. So each mode of
    linkage says what it shows to whom; the words are the same in ``study check``, in the review before an approval, and in a
    release. They hold for nodes that follow the protocol; what one that does not can gain stands in the row ``together``.

    Attributes:
        mode: of linkage.
        miner: what the miner learns; None where there is none.
        parties: what each party learns about the others' people.
        together: what the miner (between peers: a peer) can gain that works with a party, or that does not follow the protocol.
    """

    mode: str
    miner: str | None
    parties: str
    together: str

    @property
    def rows(self) -> tuple[tuple[str, str], ...]:
        """The pairs of recipient and content."""
        first = () if self.miner is None else (("to the miner", self.miner),)
        return (*first, ("to each party", self.parties), ("beyond the protocol", self.together))

    def document(self) -> dict[str, str]:
        """Return the disclosure for a document."""
        return {
            "mode": self.mode,
            **({} if self.miner is None else {"miner": self.miner}),
            "parties": self.parties,
            "beyond_the_protocol": self.together,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that the analyst should know.

    Attributes:
        severity: ``error``: the study cannot succeed as it stands; ``warning``: it can, and may disappoint; ``note``: good to
            know, nothing to mend.
        code: stable name of the kind of finding.
        where: the part of the study, as in ``column 'race'``.
        message: what was found.
        hint: what can be done.
    """

    severity: Literal["error", "warning", "note"]
    code: str
    where: str
    message: str
    hint: str


class Statement(ABC):
    """What model.json and the manifest of a release say of a protocol besides what they say of every one.

    Attributes:
        key: under which the documents have it.
    """

    key: ClassVar[str]

    @property
    @abstractmethod
    def exact(self) -> bool:
        """Whether the parameters are exact functions of raw data."""

    @property
    def replaces(self) -> bool:
        """Whether parameters that rest on few people were replaced by others."""
        return False

    @property
    @abstractmethod
    def parameters(self) -> str:
        """What covers the parameters, which no epsilon of a column does."""

    @abstractmethod
    def document(self) -> Json:
        """Return the statement itself, as a document."""

    def of_family(self, child: int) -> dict[str, Json]:
        """Return what model.json says of one family besides."""
        return {}


class Protocol(ABC):
    """One way of carrying a study out.

    Attributes:
        name: as a study's key ``model`` has it.
        summary: what happens, for those who approve.
        linkage: the modes of linkage that a study may ask for, and what each reveals.
        coordinated: an analyst submits the study to a miner, which carries it out and signs the release; else the operator of
            every party loads it, every party states what it computed, and every party signs.
        shares: the parties share statistics of their own raw data: the study has a ``share`` table.
        opens_tables: no column is sent: the study's tables are opened at the end of a round of messages among parties and miner,
            and nobody sees a row. The parties serve each other, though a miner tells them the study, which may have a ``masked``
            table.
        counts_families: the miner has tables of whole families, so it leaves parents out of those that are too large.
        whole_table: one organisation has all columns, and may choose which tables of them it measures.
        inapplicable: keys of a study that it has no use for; see `study.inapplicable`.
        sources: what the network is estimated from, for the description of the synthetic records.
        privacy_note: what the statement on the randomized columns says besides; it begins with a blank, or is empty.
        randomization_default: that table of a study that has none; empty: such a study says of every column how it is randomized.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    linkage: ClassVar[Mapping[str, Disclosure]]
    coordinated: ClassVar[bool]
    shares: ClassVar[bool]
    opens_tables: ClassVar[bool] = False
    counts_families: ClassVar[bool]
    inapplicable: ClassVar[Mapping[str, Inapplicable]] = MappingProxyType({})
    whole_table: ClassVar[bool] = False
    sources: ClassVar[str]
    privacy_note: ClassVar[str]
    randomization_default: ClassVar[Mapping[str, object]] = MappingProxyType({})

    @abstractmethod
    def read_by(self, study: Study, index: int, dag: Dag | None = None) -> tuple[str, ...] | None:
        """Return the parties that unit `index` goes to in the whole of a study, in the study's order; None: it goes to the
        miner.

        Args:
            study: the effective study.
            index: of the unit.
            dag: the structure, where it is learned; None: it is not yet known, and then every party that may read it counts.
        """

    def asked_by(self, study: Study, index: int, dag: Dag | None) -> tuple[str, ...]:
        """Return the parties that may ask another one for unit `index` while the study goes on; none: it goes to the miner.

        Args:
            study: the effective study.
            index: of the unit.
            dag: the structure; None: before it is known.
        """
        del study, index, dag
        return ()

    @abstractmethod
    def learner(self, study: Study, child: int) -> str | None:
        """Return the party that learns the family of a variable, with its own columns raw; None: the miner, with none."""

    @abstractmethod
    def searches_scores(self, study: Study) -> bool:
        """Return whether a miner searches the structure from scores of pairs that the parties send, with nothing else of
        them.
        """

    @abstractmethod
    def not_permitted(self, study: Study, party: str, recipients: Collection[str]) -> Iterator[str]:
        """Say which receivers of what `party` would send are not among those that its policy permits."""

    def shared_tables(self, study: Study, party: str) -> int:
        """Count the tables of its own raw data of which a party shares something; all carry the noise that `share` asks
        for.
        """
        return 0

    def readable(self, study: Study) -> tuple[int, ...]:
        """Return the units whose randomized values anybody but their owner can come to have, ascending: those that are
        sent.
        """
        return tuple(index for index in range(len(study.units)) if self.read_by(study, index) != ())

    def bytes_sent(self, study: Study, n_people: int) -> int:
        """Return the bytes of all columns to all who read them, packed; compressed on the line where that makes them
        smaller.
        """
        size = 0
        for index, unit in enumerate(study.units):
            readers = self.read_by(study, index)
            codes = unit.transition.size if isinstance(unit.transition, Subset) else 1
            packed = packed_size(n_people, unit.transition.n_states, codes_per_record=codes)
            size += (1 if readers is None else len(readers)) * packed
        return size

    def exchanges(self, study: Study) -> int:
        """Count the messages that wait for one another, from the common list to all that a model is learned from; one:
        columns.
        """
        return 1

    def table_deviations(self, study: Study) -> tuple[float, ...]:
        """Return the standard deviation of the noise on each count, people, of each of `tables_of`; raises as
        `tables_sigma`.
        """
        return tuple(math.sqrt(variance(sigma)) for sigma in table_sigmas(study))

    def coarse_deviations(self, study: Study) -> tuple[float, ...]:
        """Return the same of each of `coarse_pairs`, in runs of neighbouring categories."""
        sigma = set_sigmas(study).coarse
        return () if sigma is None else (math.sqrt(variance(sigma)),) * len(coarse_pairs(study))

    def check(self, study: Study, *, source: str) -> None:
        """Check what this protocol asks of a study, which keeps the rules of all protocols already.

        Args:
            study: the study.
            source: name of the document, for messages.

        Raises:
            Misuse: STUDY_INVALID or STUDY_UNSUPPORTED.
        """
        refuse(study, self.inapplicable, source=source)
        if study.linkage.mode not in self.linkage:
            fail(
                f"{source}: linkage.mode",
                f"'{study.linkage.mode}' does not go with the model '{self.name}', expected one of {', '.join(self.linkage)}",
            )
        if METHODS[study.structure.method].whole_table and not self.whole_table and study.tables is None:
            method = study.structure.method
            fail(
                f"{source}: structure.method",
                f"'{method}' chooses what is measured of a whole table, which nobody has with the model "
                f"'{self.name}', or is given noisy tables",
                hint=f"name [tables], or let the owner of a whole table run verticil synthesize --method {method}",
            )
        if self.shares and study.share is None:
            what = f"expected what is done before parameters are shared with the model '{self.name}'"
            fail(f"{source}: share", f"missing, {what}")
        if not self.shares and study.share is not None:
            fail(f"{source}: share", f"does not go with the model '{self.name}'", hint="remove it")
        if not self.opens_tables and study.masked is not None:
            fail(
                f"{source}: masked",
                f"goes with the model 'masked', got '{self.name}'",
                hint="remove it, or set the model",
            )

    def check_unit(self, unit: Unit, *, where: str) -> None:  # noqa: B027 - most protocols take every scheme
        """Check what this protocol asks of one draw, a study's or one that a party declares.

        Raises:
            Misuse: STUDY_INVALID.
        """

    def check_people(self, study: Study, n_people: int) -> None:  # noqa: B027 - most protocols take any number
        """Check that a study can be carried out for so many common people.

        Raises:
            Misuse: STUDY_INVALID or STUDY_UNSUPPORTED.
        """

    def statement(self, study: Study, dag: Dag) -> Statement | None:
        """Return what a release's documents say besides, of an effective study and the structure; None: nothing."""
        return None

    def learned_from(self, study: Study) -> str:
        """Return what the model of a study was estimated from, for people."""
        return self.sources

    def findings(self, study: Study) -> Iterator[Finding]:
        """Say what the analyst should know of a study besides what is said of every one."""
        yield from ()
