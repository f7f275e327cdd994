"""Checkpoints of searches and estimates on disk: where one stood, so that a killed miner goes on there, to the same result.

One file for a search: a magic word, the *binding* (a digest of everything that the search is a function of: study, columns or
scores, software), the SHA-256 of all that follows and precedes, and the arrays as numpy's npz, without pickle. It is replaced
whole (`store.write_durably`). A file that is torn, or of another search, is not used: the search begins anew, and says so in
the log. A checkpoint is never needed: where it cannot be written, the log says so, and the search goes on.

It holds no record of a person: networks under construction, their scores, the state of the search's random numbers; of a joint
estimate what the model in hand is made of, records drawn from networks among it. Whoever can write the
miner's state directory can change it, as they could change the miner; constraints are checked on the result, not here.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import time
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from verticil.miner.learning.search.protocol import Checkpoint, ForeignCheckpoint, Interruption, LearningCancelled
from verticil.miner.storage.store import write_durably
from verticil.shared.core.errors import DataFault
from verticil.shared.documents.json_document import Json
from verticil.shared.numerics.joint import checkpoints as work

R = TypeVar("R")

CHECKPOINT_SECONDS: Final = 2.0
"""Between two checkpoints: the most work that a kill undoes, with one step of the search."""
_LEAST_SHARE: Final = 20.0
"""On a slow disk they are written less often: at most a twentieth of the time goes there."""
_MAGIC: Final = b"VTCHECK1"
_HEADER: Final = len(_MAGIC) + 64

_log: Final = logging.getLogger(__name__)


def binding_of(inputs: Json, study: bytes) -> bytes:
    """Return the SHA-256 of everything that a search is a function of, the versions of the software among it.

    Args:
        inputs: digests of columns, or scores.
        study: canonical bytes of the effective study.
    """
    software = [version(name) for name in ("verticil", "numpy", "numba", "scipy")]
    return hashlib.sha256(json.dumps([software, inputs]).encode("ascii") + b"\n" + study).digest()


def resume(
    search: Callable[[Interruption], R],
    path: Path | None,
    binding: bytes,
    *,
    is_cancelled: Callable[[], bool],
    what: str,
    seconds: float = CHECKPOINT_SECONDS,
) -> R:
    """Search from where a checkpoint at `path` says, or from the start, leaving checkpoints there; also when cancelled.

    Args:
        search: gets the checkpoint and what takes new ones.
        path: None: without checkpoints.
        is_cancelled: asked often; when it says so, the search stops.
        binding, what, seconds: see `CheckpointFile`.

    Raises:
        Whatever `search` raises, but for ForeignCheckpoint, the search's or the estimate's.
    """
    if path is None:
        return search(Interruption(cancelled=is_cancelled))
    file = CheckpointFile(path, binding, what=what, seconds=seconds)
    try:
        if (checkpoint := file.read()) is not None:
            try:
                return search(Interruption(cancelled=is_cancelled, checkpoint=checkpoint, keep=file.keep))
            except (ForeignCheckpoint, work.ForeignCheckpoint) as error:
                file.refuse(str(error))
        return search(Interruption(cancelled=is_cancelled, keep=file.keep))
    except LearningCancelled as stop:
        if stop.checkpoint is not None:
            file.write(stop.checkpoint)
        raise


class CheckpointFile:
    """The checkpoint of one search.

    Args:
        path: of the file; its folder exists.
        binding: 32 bytes that no other search has.
        what: the search, for the log.
        seconds: between two checkpoints.
        clock: seconds.
    """

    def __init__(
        self,
        path: Path,
        binding: bytes,
        *,
        what: str,
        seconds: float = CHECKPOINT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if len(binding) != 32:
            raise ValueError(f"a binding of {len(binding)} bytes, expected 32")
        self._path, self._binding, self._what = path, binding, what
        self._seconds, self._clock = seconds, clock
        self._due = clock() + seconds

    def read(self) -> Checkpoint | None:
        """Return what was written last; None where there is nothing that can be used, which the log says."""
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            self.refuse(f"it cannot be read ({type(error).__name__})")
            return None
        payload = data[_HEADER:]
        if len(data) < _HEADER or data[:_HEADER] != self._header(payload):
            other = len(data) >= _HEADER and data[: len(_MAGIC) + 32] != _MAGIC + self._binding
            self.refuse("it is of another search" if other else "its bytes are not those that were written")
            return None
        try:
            with np.load(io.BytesIO(payload), allow_pickle=False) as arrays:
                content = {str(name): cast("NDArray[np.generic]", arrays[name]) for name in arrays.files}
        except (ValueError, OSError, zipfile.BadZipFile):
            self.refuse("it does not hold arrays")
            return None
        _log.info("%s: the search goes on from its checkpoint", self._what)
        return content

    def keep(self, make: Callable[[], Checkpoint]) -> None:
        """Write a checkpoint if one is due."""
        if self._clock() >= self._due:
            self.write(make())

    def write(self, checkpoint: Checkpoint) -> None:
        """Replace the file; where that cannot be, the old one stays, and the log tells."""
        began = self._clock()
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, **checkpoint)
        payload = buffer.getvalue()
        try:
            write_durably(self._path, self._header(payload) + payload)
        except (OSError, DataFault) as error:
            reason = error.code if isinstance(error, DataFault) else type(error).__name__
            _log.warning("%s: no checkpoint can be written (%s); the search goes on without", self._what, reason)
        end = self._clock()
        self._due = end + max(self._seconds, _LEAST_SHARE * (end - began) if self._seconds else 0.0)

    def _header(self, payload: bytes) -> bytes:
        return _MAGIC + self._binding + hashlib.sha256(_MAGIC + self._binding + payload).digest()

    def refuse(self, reason: str) -> None:
        """Tell that what was read is not used."""
        _log.warning("%s: the checkpoint is not used: %s; the search begins anew", self._what, reason)
