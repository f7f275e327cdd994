"""How long work is watched, stopped, and gone on with: progress, a call between short steps, and a checkpoint.

The work of an estimate is a few pieces, one after another, each with a name. What a finished piece found, and where the one in
hand stands, are plain named arrays; from them another process goes on to the same result, bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[np.generic]]
"""A state as named arrays of plain numbers, to be written without pickle."""
Progress = Callable[[str, int, int], None]
"""Is told of a piece of work, how many steps of at most how many are done."""
Keep = Callable[[Callable[[], Arrays]], None]
"""Takes what makes a checkpoint, after every step; making it is left out where none is wanted now."""


class ForeignCheckpoint(ValueError):  # the work can begin anew
    """A checkpoint is of other tables, another seed or other settings, or is incomplete."""


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """See the module.

    Attributes:
        progress: is told of every step.
        check: is called between short steps (well below a second), and raises to stop.
        keep: is offered a checkpoint after every step.
        identity: 32 bytes that name the work: tables, seed and settings.
    """

    progress: Progress = lambda _piece, _done, _most: None
    check: Callable[[], None] = lambda: None
    keep_checkpoint: Keep = lambda _make: None
    identity: bytes = bytes(32)
    _piece: str = ""
    _found: dict[str, dict[str, NDArray[np.generic]]] = field(default_factory=dict)
    _state: dict[str, NDArray[np.generic]] | None = None

    def go_on(self, checkpoint: Arrays | None) -> None:
        """Go on from a checkpoint; None: begin.

        Raises:
            ForeignCheckpoint: it is of other work.
        """
        if checkpoint is None:
            return
        name = checkpoint.get("work")
        if name is None or name.tobytes() != self.identity:
            raise ForeignCheckpoint("the checkpoint is of other tables, another seed or other settings")
        for key, array in checkpoint.items():
            piece, _, label = key.rpartition("/")
            if piece:
                self._found.setdefault(piece, {})[label] = array

    def piece(self, name: str, do: Callable[[], Arrays]) -> Arrays:
        """Return what a piece of the work finds: done now, or found before the checkpoint."""
        if f"{name}.done" in self._found:
            return self._found[f"{name}.done"]
        self._piece, self._state = name, self._found.pop(f"{name}.state", None)
        found = dict(do())
        self._state = None
        self._found[f"{name}.done"] = found
        return found

    def state(self) -> Arrays | None:
        """Return where the piece in hand stood at the checkpoint; None: at its beginning."""
        return self._state

    def report(self, done: int, most: int) -> None:
        """Say how far the piece in hand is, and stop where it is asked for."""
        self.progress(self._piece, done, most)
        self.check()

    def keep(self, state: Arrays) -> None:
        """Offer a checkpoint with this state of the piece in hand; it is copied if it is taken."""

        def make() -> Arrays:
            arrays: dict[str, NDArray[np.generic]] = {"work": np.frombuffer(self.identity, np.uint8)}
            for piece, found in (*self._found.items(), (f"{self._piece}.state", state)):
                arrays.update({f"{piece}/{label}": np.array(array) for label, array in found.items()})
            return arrays

        self.keep_checkpoint(make)
