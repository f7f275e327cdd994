"""Packages that only some conversions need."""

from __future__ import annotations

import warnings
from importlib import import_module
from types import ModuleType

from verticil.shared.core.errors import Misuse
from verticil.shared.core.installation import install_package


def import_optional(package: str) -> ModuleType:
    """Import a package.

    Raises:
        Misuse: USAGE, it is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of theirs; as errors they would end the process while pyAgrum is loaded
            return import_module(package)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package.partition(".")[0]:
            raise
    raise Misuse("USAGE", f"this needs {package}, which is not installed", hint=install_package(package))
