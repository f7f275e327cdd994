"""What a study of the blank protocol is: who reads what, which studies are valid, and the event that it causes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from verticil.shared.numerics.model.graph import Dag
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.events import EventKind, PlannedEvent, PrivacyEvent
from verticil.shared.study.document import Study
from verticil.shared.study.protocol import Disclosure, Protocol
from verticil.shared.study.vocabulary import fail

NAME: Final = "blank"
ROUNDS: Final = 2
EPSILON: Final = 0.5
"""What a party is charged for all rounds of a study together, though nothing of its table is in them."""


class Blank(Protocol):
    """The parties exchange rounds of empty messages."""

    name: ClassVar[str] = NAME
    summary = (
        "the organisations find the people whom they have in common, exchange empty messages, and tell nothing else"
    )
    linkage: ClassVar = {
        "keyed-hash": Disclosure(
            mode="keyed-hash",
            miner=None,
            parties="which of its people are at all parties before it in the study, and who is common to all",
            together="the same of a party that does not follow the protocol",
        )
    }
    coordinated = False
    shares = False
    counts_families = False
    sources = "nothing at all"
    privacy_note = " No column was sent."

    def read_by(self, study: Study, index: int, dag: Dag | None = None) -> tuple[str, ...]:
        """See `Protocol.read_by`: nobody reads a unit."""
        return ()

    def learner(self, study: Study, child: int) -> str:
        """See `Protocol.learner`: its owner would."""
        return study.schema.variables[child].owner

    def searches_scores(self, study: Study) -> bool:
        """See `Protocol.searches_scores`: there are none."""
        return False

    def not_permitted(self, study: Study, party: str, recipients: Collection[str]) -> Iterator[str]:
        """See `Protocol.not_permitted`: every party gets messages of every other one."""
        if strangers := [name for name in study.parties if name != party and name not in recipients]:
            yield f"model '{NAME}': {', '.join(strangers)} not in policy.recipients"

    def check(self, study: Study, *, source: str) -> None:
        """See `Protocol.check`: a structure without an arrow is given."""
        super().check(study, source=source)
        if study.given_dag is None or study.given_dag.edges():
            fail(f"{source}: structure", f"the model '{NAME}' learns nothing", hint='method = "given", without parents')


@dataclass(frozen=True, slots=True, kw_only=True)
class BlankRounds(PrivacyEvent):
    """Rounds of empty messages were exchanged.

    Attributes:
        epsilon: what a party is charged for them.
    """

    epsilon: float


def planned_event(study: Study, party: str) -> Iterable[PlannedEvent]:
    """Return the event that a study causes at a party; none, where it is of another protocol."""
    if study.model == NAME:
        yield PlannedEvent(
            event=BlankRounds(epsilon=EPSILON),
            variables=tuple(study.schema[position].name for position in study.schema.owned_by(party)),
            readers=tuple(name for name in study.parties if name != party),
        )


KIND: Final = EventKind(
    name="blank-rounds",
    event=BlankRounds,
    cost=lambda event: Cost(epsilon=event.epsilon),
    words=lambda event: f"empty messages were exchanged: epsilon {event.epsilon:g}",
    of_study=planned_event,
)
