"""What the records of a published release are worth, as its model.json says it."""

from __future__ import annotations

import functools
from pathlib import Path

from verticil.shared.documents.json_document import strict_json
from verticil.shared.numerics.joint.worth import Worth, read_worth


@functools.lru_cache(maxsize=256)
def published_worth(release: Path) -> Worth | None:
    """Return what the records of a release are worth; None: it has no model, or says nothing of it.

    Args:
        release: the folder of a published release, which does not change any more.
    """
    model = release / "model.json"
    if not model.is_file():
        return None
    document = strict_json(model.read_bytes())
    return read_worth(document) if isinstance(document, dict) else None
