"""Studies that were decoded a moment ago: every poll of every party asks for them."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final

from verticil.shared.study import canonical
from verticil.shared.study.document import Study

_KEPT: Final = 64


class DecodedStudies:
    """The last ones, by their digests; from any thread."""

    def __init__(self) -> None:
        self._studies: OrderedDict[bytes, Study] = OrderedDict()
        self._lock = threading.Lock()

    def decoded(self, digest: bytes, encoded: bytes) -> Study:
        """The study with that digest."""
        with self._lock:
            if digest in self._studies:
                self._studies.move_to_end(digest)
                return self._studies[digest]
        study = canonical.from_bytes(encoded)
        with self._lock:
            self._studies[digest] = study
            while len(self._studies) > _KEPT:
                self._studies.popitem(last=False)
        return study
