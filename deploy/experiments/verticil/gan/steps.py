"""Steps of a training, and its checkpoint: a training that was killed goes on from there to the same generator.

A checkpoint is of one training: of its event, its settings, its records and its rules. Records and rules are named by a digest
of their content under the training's secret key, so the file tells nothing of them, and a training never goes on from a
checkpoint of other records.
"""

from __future__ import annotations

import dataclasses
import hashlib
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from verticil.gan.accounting import GeneratorTraining
from verticil.gan.conditions import terms
from verticil.gan.rule_loss import with_tensors
from verticil.gan.settings import AnySettings, settings_text
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.knowledge.rules import Knowledge
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.privacy.events import to_json
from verticil.shared.storage.durable import rename

_EVERY: Final = 100
"""Steps between checkpoints."""
_RECORDS: Final = "records"
"""The key of a checkpoint that came later: those without it begin again, with the same noise."""


def content_digest(codes: Sequence[Codes], schema: Schema, knowledge: Knowledge | None, key: bytes) -> str:
    """Return a digest of records and of what is stated of them, under the training's key.

    Args:
        codes: (n,) of each column.
        schema: the columns.
        knowledge: what is stated; None: nothing.
        key: 32 bytes, secret.

    Returns:
        64 hexadecimal digits.
    """
    digest = hashlib.blake2b(key=key, digest_size=32, person=b"verticil/checkpt")
    digest.update(repr((schema, knowledge, [len(column) for column in codes])).encode())
    for column in codes:
        digest.update(column.astype("<u4").tobytes())
    return digest.hexdigest()


class Steps(ABC):
    """A training that is done step by step, and goes on from a checkpoint.

    Args:
        codes: (n,) of each column.
        schema: the columns.
        knowledge: what is stated of them; None: nothing.
        event: what the training costs; as many steps as are made.
        settings: the other numbers.
        key: 32 bytes, secret; all noise follows from it.
    """

    def __init__(
        self,
        codes: Sequence[Codes],
        schema: Schema,
        knowledge: Knowledge | None,
        event: GeneratorTraining,
        settings: AnySettings,
        *,
        key: bytes,
    ) -> None:
        self._event, self._schema, self._key = event, schema, key
        self._records = content_digest(codes, schema, knowledge, key)
        self.__settings = settings
        self._codes = np.stack([column.astype(np.int64) for column in codes])
        self._rules = terms(knowledge, schema)
        self._tensors = [with_tensors(term) for term in self._rules]
        self._width = sum(schema.n_states)
        self._starts = np.concatenate([[0], np.cumsum(schema.n_states)[:-1]])

    @abstractmethod
    def step(self, number: int) -> None:
        """Make one step; `number` counts from 0."""

    @property
    @abstractmethod
    def weights(self) -> Mapping[str, list[Any]]:
        """All weights that a step changes, by names of their own."""

    @property
    @abstractmethod
    def optimizers(self) -> Sequence[Any]:
        """All optimizers, whose state a step changes."""

    def run_steps(self, checkpoint: Path | None, step: Callable[[int], None]) -> None:
        """Make all steps that are not done.

        Args:
            checkpoint: a file that the training is written to now and then, and goes on from; None: nowhere.
            step: called with how many steps are done.

        Raises:
            DataFault: STATE_CORRUPT, the checkpoint is of another training.
        """
        done = 0 if checkpoint is None or not checkpoint.exists() else self.resume(checkpoint)
        for number in range(done, self._event.steps):
            self.step(number)
            step(number + 1)
            if checkpoint is not None and ((number + 1) % _EVERY == 0 or number + 1 == self._event.steps):
                self.save(checkpoint, number + 1)

    def _account(self, done: int) -> dict[str, Any]:
        """Return what the training has cost, and of what it is."""
        return {
            "event": to_json(self._event),
            "settings": settings_text(self.__settings),
            "spent": "" if not done else to_json(dataclasses.replace(self._event, steps=done, epsilon=None)),
            _RECORDS: self._records,
        }

    def save(self, path: Path, done: int) -> None:
        """Write everything that the next step depends on, and the accountant's state."""
        import torch  # pyright: ignore[reportMissingImports]

        written = path.with_name(f".{path.name}.partial")
        written.unlink(missing_ok=True)
        written.touch(mode=0o600)
        torch.save(
            {
                "done": done,
                "account": self._account(done),
                **{name: [weight.detach() for weight in weights] for name, weights in self.weights.items()},
                "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            },
            written,
        )
        rename(written, path)

    def resume(self, path: Path) -> int:
        """Go on from a checkpoint, and return how many steps it has behind it.

        A checkpoint of a program before names no records: its training begins again, with the same noise.

        Raises:
            DataFault: STATE_CORRUPT.
        """
        import torch  # pyright: ignore[reportMissingImports]

        try:
            state = torch.load(path, weights_only=True)
            done, account = int(state["done"]), dict(state["account"])
            if _RECORDS not in account:
                return 0
            if account != self._account(done):
                raise ValueError("of another training")
            with torch.no_grad():
                for name, weights in self.weights.items():
                    for weight, value in zip(weights, state[name], strict=True):
                        weight.copy_(value)
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
        except (OSError, ValueError, KeyError, TypeError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise DataFault(
                "STATE_CORRUPT",
                f"{path.name}: not a checkpoint of this training, expected the same records, study, noise and settings",
                hint="remove it: the training then begins again, with the same noise, and costs nothing more",
            ) from error
        return done
