"""What the records of a published release are worth, as its model.json says it, for whoever asks how a study stands."""

from __future__ import annotations

import functools
from pathlib import Path

from verticil.shared.documents.json_document import parse
from verticil.shared.numerics.joint.worth import read_worth
from verticil.wire.v1 import control_pb2


@functools.lru_cache(maxsize=256)
def published_worth(release: Path) -> control_pb2.Worth | None:
    """Return what the records of a release are worth; None: it has no model, or says nothing of it.

    Args:
        release: the folder of a published release, which does not change any more.

    Raises:
        GateFailed: RELEASE_INVALID, its model is no JSON document.
    """
    model = release / "model.json"
    if not model.is_file():
        return None
    worth = read_worth(parse(model.read_bytes(), source=model.name).value)  # type: ignore[arg-type]  # an object
    if worth is None:
        return None
    return control_pb2.Worth(
        two_way=worth.two_way,
        independent=worth.independent,
        one_way=worth.one_way,
        drowned=worth.drowned,
        weakened=worth.weakened,
    )
