"""The release of a study between peers (Model I), which every party assembles from the same statements."""

from __future__ import annotations

from verticil.party.protocol.between.artifact_store import Kind
from verticil.party.protocol.between.context import PeerStudyContext
from verticil.party.protocol.between.publication import write_and_sign
from verticil.shared.release.peer_assembly import assemble


def assemble_release(context: PeerStudyContext) -> None:
    """Write the release and sign its manifest; blocks.

    Raises:
        PeerFault: STUDY_MISMATCH, the statements do not belong together.
        DataFault: DISK_FULL, STATE_CORRUPT.
        LostError: a statement is not there any more.
    """
    structure = context.structure
    signed = [context.store.signed(context.digest, Kind.STATEMENT, name) for name in context.study.parties]
    is_learned = context.study.structure.parents is None
    content = assemble(
        context.study,
        context.digest,
        structure,
        signed,
        simulation=context.between.simulation,
        seed_derived=context.between.seed_derived,
        structure_signed=context.store.signed(context.digest, Kind.STRUCTURE) if is_learned else None,
        folder=context.node.site.config.state_directory,
    )
    write_and_sign(context, content)
