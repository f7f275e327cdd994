"""Packages that only one kind of table needs: there, or named with the extra that brings them."""

from __future__ import annotations

import importlib
from types import ModuleType

from verticil.shared.errors import Misuse


def needed(module: str, *, extra: str, for_what: str) -> ModuleType:
    """The module.

    Raises:
        Misuse: CONFIG_INVALID, it is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError:
        pass
    package = module.partition(".")[0].replace("_", "-")
    problem = f"[dataset.NAME] of party.toml: {for_what} needs {package}, which is not installed"
    raise Misuse("CONFIG_INVALID", problem, hint=f"pip install 'verticil[{extra}]'")
