"""The command that installs something beside this program, as a hint says it: one that works from where the program came.

An installer notes in ``direct_url.json`` (PEP 610) that a distribution came from a checkout, a file or an address, and then no
index need have it. The metadata are read when a hint is made, never at the start.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from typing import Final
from urllib.parse import unquote, urlsplit

_OWN: Final = "verticil"
_EXPERIMENTS: Final = os.path.join("deploy", "experiments")


def install_command(extra: str) -> str:
    """Return the command that installs this program again with an extra."""
    return f"{_installer()} install {_requirement(extra)}"


def install_package(name: str) -> str:
    """Return the command that installs a package of others."""
    return f"{_installer()} install {name}"


def install_experiments(extra: str = "") -> str:
    """Return the command that installs the package of the experiments, which is in a checkout of this program alone."""
    folder, _ = _source()
    extras = f"[{extra}]" if extra else ""
    if folder and os.path.isdir(place := os.path.join(folder, _EXPERIMENTS)):
        return f"{_installer()} install {shlex.quote(place + extras)}"
    return f"in a checkout of verticil: {_installer()} install {shlex.quote(f'./{_EXPERIMENTS}{extras}')}"


def _installer() -> str:
    """Return ``pip`` where that is the one of this environment, else the interpreter with its module."""
    first = shutil.which("pip")
    if first is not None and os.path.dirname(first) == os.path.dirname(sys.executable):
        return "pip"
    return f"{shlex.quote(sys.executable)} -m pip"


def _requirement(extra: str) -> str:
    """Return what an installer is asked for: a folder or file that is there, an address, or the name."""
    place, is_editable = _source()
    if "://" in place:
        return shlex.quote(f"{_OWN}[{extra}] @ {place}")
    return "-e " * is_editable + shlex.quote(f"{place or _OWN}[{extra}]")


def _source() -> tuple[str, bool]:
    """Return where this program was installed from, and whether it runs from there; empty: from an index."""
    from importlib import metadata

    try:
        noted = json.loads(metadata.distribution(_OWN).read_text("direct_url.json") or "{}")
        url, is_editable = str(noted.get("url", "")), bool(noted.get("dir_info", {}).get("editable", False))
    except (metadata.PackageNotFoundError, ValueError, AttributeError):
        return "", False
    if url.startswith("file:"):
        path = unquote(urlsplit(url).path)
        return (path, is_editable) if os.path.exists(path) else ("", False)
    version_control = noted.get("vcs_info", {})
    if version_control and url:
        return f"{version_control.get('vcs')}+{url}@{version_control.get('commit_id')}", False
    return url, False
