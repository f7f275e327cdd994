"""Other tuned numbers for one module, for the time of a test."""

from __future__ import annotations

import dataclasses
from types import ModuleType

import pytest


def tune(monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str = "TUNING", **numbers: float) -> None:
    """Put a `Tuning` with other numbers in the place of the one that a module reads by a name."""
    monkeypatch.setattr(module, name, dataclasses.replace(getattr(module, name), **numbers))
