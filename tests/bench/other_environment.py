"""Environments of their own for programs that do not install beside ours: made once, in the user's cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The folder of this bench in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache"))) / "verticil-bench"


def interpreter(name: str, *requirements: str) -> Path:
    """The interpreter of an environment with some requirements, which is made where it is not there."""
    folder = cache_folder() / name
    python = folder / "bin" / "python"
    if not python.is_file():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *requirements], check=True)
    return python
