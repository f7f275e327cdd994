"""Packages of this project that are distributions of their own: what they add, found by their entry points.

A distribution whose name begins with ``verticil-`` names in its entry points, by group, what it adds; where a group is read
stands what it holds. Nothing here knows any of these distributions.

`importlib.metadata.entry_points` would read the metadata of every installed package, on every start: .05 s of a processor, a
third of what ``verticil --help`` takes. Here only names of folders on the path are listed, and one small file is read for each
distribution whose folder says that it is one of ours (``verticil_NAME-VERSION.dist-info``, as the installers write it).

A distribution of another version than this program's is never loaded: it was written against other code.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Final

from verticil.shared.core.errors import Misuse

_OWN: Final = "verticil"
_ENDING: Final = ".dist-info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """An installed distribution of this project.

    Attributes:
        name: of the distribution, ``verticil-`` and more.
        version: its own.
        expected: this program's; empty: the program runs from its sources, and has none.
        groups: group -> name -> where the value stands, ``MODULE`` or ``MODULE:ATTRIBUTE``.
    """

    name: str
    version: str
    expected: str
    groups: Mapping[str, Mapping[str, str]]

    @property
    def fits(self) -> bool:
        """Whether it is of this program's version."""
        return self.expected in {"", self.version}


def names(group: str) -> tuple[str, ...]:
    """Return what distributions of this version add to a group, by name."""
    return tuple(name for plugin in _installed(tuple(sys.path)) if plugin.fits for name in plugin.groups.get(group, ()))


def load(group: str, name: str) -> object | None:
    """Load what a distribution adds to a group under a name; None: nothing of this name is installed.

    Raises:
        Misuse: USAGE, the distribution is of another version.
    """
    for plugin in _installed(tuple(sys.path)):
        if place := plugin.groups.get(group, {}).get(name):
            if not plugin.fits:
                raise Misuse(
                    "USAGE",
                    f"'{name}' is in the package {plugin.name} {plugin.version}, expected version {plugin.expected}, that of "
                    f"{_OWN}",
                    hint=f"install {plugin.name} {plugin.expected}, or pip uninstall {plugin.name}",
                )
            module, _, attribute = place.partition(":")
            loaded = import_module(module)
            return getattr(loaded, attribute) if attribute else loaded
    return None


@functools.cache
def _installed(path: tuple[str, ...]) -> tuple[Plugin, ...]:
    """Return the distributions of this project in the folders of a search path; of one that stands twice, the first."""
    places: dict[str, tuple[str, str]] = {}
    for folder in path:
        for entry in _entries(folder):
            if entry.startswith(_OWN) and entry.endswith(_ENDING):
                name, _, version = entry.removesuffix(_ENDING).partition("-")
                places.setdefault(name, (version, os.path.join(folder, entry, "entry_points.txt")))
    own_version, _ = places.pop(_OWN, ("", ""))
    return tuple(
        Plugin(name=name.replace("_", "-"), version=version, expected=own_version, groups=_groups(file))
        for name, (version, file) in places.items()
        if name.startswith(f"{_OWN}_")
    )


def _entries(folder: str) -> list[str]:
    """Return the names in a folder; none where it cannot be read."""
    try:
        return os.listdir(folder or os.curdir)
    except OSError:
        return []


def _groups(file: str) -> dict[str, dict[str, str]]:
    """Read the entry points of one distribution; none where it has no such file."""
    groups: dict[str, dict[str, str]] = {}
    group: dict[str, str] = {}
    try:
        with open(file, encoding="utf-8") as lines:
            for line in map(str.strip, lines):
                if line.startswith("["):
                    group = groups.setdefault(line.strip("[]"), {})
                elif "=" in line:
                    name, _, place = line.partition("=")
                    group[name.strip()] = place.strip()
    except OSError:
        return {}
    return groups
