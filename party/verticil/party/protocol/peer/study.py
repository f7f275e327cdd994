"""One study between peers at this party (Model I), from the common people to the release: does the steps that `plan` plans.

What any study between parties has is in `verticil.party.protocol.with_peers.study`.
"""

from __future__ import annotations

from dataclasses import fields
from enum import StrEnum

from verticil.party.protocol.peer import sharing as learning
from verticil.party.protocol.peer.plan import PeerFacts, Step, plan
from verticil.party.protocol.planning import Plan
from verticil.party.protocol.with_peers.artifact_store import Kind
from verticil.party.protocol.with_peers.context import PeerStudyContext, known_structure
from verticil.party.protocol.with_peers.plan import Step as Between
from verticil.party.protocol.with_peers.publication import write_and_sign
from verticil.party.protocol.with_peers.study import BetweenStudy
from verticil.party.storage.studies import StudyRecord
from verticil.shared.release.peer_assembly import assemble


class PeerStudy(BetweenStudy[PeerFacts]):
    """The work on one study between peers; see `BetweenStudy`."""

    def read_facts(self, record: StudyRecord) -> PeerFacts:
        """Return what this party stores of the study; see `BetweenStudy.read_facts`."""
        me, digest = self.node.me, self.digest
        common = self.common_facts(record)
        study = record.task.effective_study if common.agreed else record.task.proposal_study
        structure = known_structure(self.store, record, study) if common.agreed else None
        columns = (name for kind, name in self.store.items(digest) if kind is Kind.COLUMN)
        return PeerFacts(
            **{field.name: getattr(common, field.name) for field in fields(common)},
            structure=structure is not None,
            wanted=learning.wanted_units(study, me, structure) if common.agreed else frozenset(),
            received=frozenset(map(int, columns)),
            needed=learning.needed_units(study, me, structure) if common.agreed else frozenset(),
            spooled=frozenset(self.site.state.artifacts(digest, record.task.effective_digest)),
        )

    def next_step(self, facts: PeerFacts) -> Plan:
        """Return the next step; see `BetweenStudy.next_step`."""
        return plan(facts)

    async def carry_on(self, step: StrEnum, context: PeerStudyContext) -> str | None:
        """Carry on with the study; see `BetweenStudy.carry_on`."""
        match step:
            case Step.RANDOMIZE:
                await learning.randomize_columns(context, self.facts.needed)
            case Step.PULL:
                return await learning.pull_columns(context, self.facts.wanted - self.facts.received)
            case Step.SCORE:
                await learning.find_structure(context)
            case Step.LEARN:
                await learning.learn_parameters(context)
                self.data.drop()
            case Step.COLLECT:
                missing = [name for name in context.others if name not in self.facts.statements]
                return await learning.collect_statements(context, missing)
            case Between.ASSEMBLE:
                await self.node.heavily(lambda: assemble_release(context))
            case _:
                raise ValueError(f"no step of a study between peers: {step}")
        return None


def assemble_release(context: PeerStudyContext) -> None:
    """Write the release and sign its manifest; blocks.

    Raises:
        PeerFault: STUDY_MISMATCH, the statements do not belong together.
        DataFault: DISK_FULL, STATE_CORRUPT.
        LostError: a statement is not there any more.
    """
    structure = context.structure
    signed = [context.store.signed(context.digest, Kind.STATEMENT, name) for name in context.study.parties]
    learned = context.study.structure.parents is None
    content = assemble(
        context.study,
        context.digest,
        structure,
        signed,
        simulation=context.between.simulation,
        seed_derived=context.between.seed_derived,
        structure_signed=context.store.signed(context.digest, Kind.STRUCTURE) if learned else None,
        folder=context.node.site.config.state_directory,
    )
    write_and_sign(context, content)
