"""What records are worth, as JSON: of a release that was verified, simulated or synthesized, the sentence with the figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from verticil.shared.documents.json_document import Json
from verticil.shared.numerics.joint.worth import Worth, sentence

if TYPE_CHECKING:
    from verticil.wire.v1.control_pb2 import StudySummary


def worth_of_study(study: StudySummary) -> Worth | None:
    """Return what the miner says that the records of a published study are worth; None: its release does not say it."""
    if not study.HasField("worth"):
        return None
    own = study.worth
    return Worth(
        two_way=own.two_way,
        independent=own.independent,
        one_way=own.one_way,
        drowned=tuple(own.drowned),
        weakened=tuple(own.weakened),
    )


def worth_document(worth: Worth) -> dict[str, Json]:
    """Return the JSON of what records are worth, the sentence with it."""
    return {
        **worth.document(),
        "source": worth.source,
        "useless": worth.is_useless,
        "sentence": sentence(worth),
    }
