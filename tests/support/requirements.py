"""What this project's extras ask for, and an environment that has nothing else."""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8"))


def required(*extras: str) -> list[Requirement]:
    """What this project asks for, extras that name other extras followed."""
    found = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    todo = list(extras)
    while todo:
        for text in PROJECT["project"]["optional-dependencies"][todo.pop()]:
            requirement = Requirement(text)
            if requirement.name == "verticil":
                todo += requirement.extras
            else:
                found.append(requirement)
    return found


def installed_with(*extras: str) -> set[str]:
    """The distributions that come with these extras, by what the installed ones ask for in turn."""
    found: set[str] = {"verticil"}
    todo = required(*extras)
    while todo:
        asked = todo.pop()
        name = canonicalize_name(asked.name)
        if name in found or (asked.marker is not None and not asked.marker.evaluate({"extra": ""})):
            continue
        found.add(name)
        for one in map(Requirement, metadata.requires(name) or ()):
            if one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in ("", *asked.extras)):
                one.marker = None
                todo.append(one)
    return found


class _Others(MetaPathFinder):
    """Finds no module of a distribution that is not among these."""

    def __init__(self, names: set[str]) -> None:
        self._hidden = {
            module
            for module, owners in metadata.packages_distributions().items()
            if not {canonicalize_name(owner) for owner in owners} & names
        }

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> None:
        if fullname.partition(".")[0] in self._hidden:
            raise ModuleNotFoundError(f"No module named '{fullname}'", name=fullname)


def hide_others(*extras: str) -> MetaPathFinder:
    """Let this process import what these extras bring, and nothing else that is installed."""
    finder = _Others(installed_with(*extras))
    sys.meta_path.insert(0, finder)
    return finder
