"""What a release carries of its protocol: what others signed, how it is checked, and what the report says of it."""

from __future__ import annotations

import datetime as dt
import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from verticil.shared.core.arrays import Counts
from verticil.shared.documents.json_document import Json, JsonNode
from verticil.shared.numerics.model.network import Network
from verticil.shared.privacy.statement import PrivacyStatement
from verticil.shared.release.content import OpenedTables, ReleaseContent
from verticil.shared.release.signatures import Trust
from verticil.shared.study.document import Study

if TYPE_CHECKING:
    from jinja2 import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """How much of what others signed was checked.

    Attributes:
        receipts: of the miner.
        statements: of the parties.
        opened: SHA-256 of the opened tables that the release names, hex; empty: it names none.
        alarms: where it says that these do not fit together.
    """

    receipts: int = 0
    statements: int = 0
    opened: str = ""
    alarms: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """What the report says of one protocol, as values of `ReleaseProtocol.template` and in the sections of all protocols.

    Attributes:
        figures: (what, how much, a note) of the headline, for the total of one person.
        share: what a column's published share is, in a sentence's middle.
        noisy: the shares and probabilities carry noise.
        no_pairs: why no pair of columns is compared.
        evidence: what manifest.json has of what others signed.
        replaced: how many probabilities were replaced, of how many, because they rest on fewer than so many people; all empty
            where the study has no such rule.
    """

    figures: tuple[tuple[str, str, str], ...]
    share: str
    noisy: bool
    no_pairs: str
    evidence: str
    replaced: tuple[str, str, str] = ("", "", "")


class ReleaseProtocol(ABC):
    """The release's part of a protocol."""

    def opened(self, study: Study, tables: Sequence[Counts], n_people: int) -> OpenedTables | None:
        """Return what a release says of tables that parties and miner opened together; None: the protocol opens none.

        Args:
            study: the effective study.
            tables: in the order of `tables_of`, whole numbers.
            n_people: how many people are common.
        """
        del study, tables, n_people
        return None

    @abstractmethod
    def evidence(self, content: ReleaseContent) -> dict[str, Json]:
        """Return the keys of the manifest that hold what others signed."""

    @abstractmethod
    def check(
        self, manifest: JsonNode, study: Study, model: Network, trust: Trust, *, publisher: str, published: dt.datetime
    ) -> Checked:
        """Check what others signed, and that the release is made of it.

        Args:
            manifest: its root.
            study: the effective study, already checked against its digest.
            model: the network of model.json.
            trust: the reader's.
            publisher: who signed the release (first).
            published: time of publication.

        Raises:
            GateFailed: RELEASE_INVALID.
        """

    @abstractmethod
    def section(self, content: ReleaseContent, statement: PrivacyStatement) -> Section:
        """Return the report's section."""

    @abstractmethod
    def template(self) -> str:
        """Return the report's sections 1 and 2, as a Jinja template: what the release is, and what can be learned about a
        person.
        """


def own_template(name: str) -> str:
    """Return a template of the report's own folder."""
    return files("verticil.shared.release.report").joinpath(name).read_text("utf-8")


@functools.cache  # it keeps the compiled templates, which take longer to make than a page
def templates(read: Callable[[str], str]) -> Environment:
    """Return the templates that `read` finds; they escape everything that they are given, and refuse what they are not given."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    return Environment(
        loader=FunctionLoader(read), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
