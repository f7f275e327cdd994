"""What records are worth, as JSON: of a release that was verified, simulated or synthesized, the sentence with the figures."""

from __future__ import annotations

from verticil.shared.documents.json_document import Json
from verticil.shared.numerics.joint.worth import Worth, sentence


def worth_document(worth: Worth) -> dict[str, Json]:
    """Return the JSON of what records are worth, the sentence with it."""
    return {
        **worth.document(),
        "source": worth.source,
        "useless": worth.is_useless,
        "sentence": sentence(worth),
    }
