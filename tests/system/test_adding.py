"""The examples of the page for newcomers: each patch is applied to a copy of the sources, and what stands behind it runs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from verticil.shared.core.errors import VerticilError

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "deploy" / "docs" / "developer" / "adding.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "deploy" / "examples" / "adding"


def named_on_the_page(ending: str) -> dict[str, str]:
    """The examples that the page names, by what they add."""
    found = re.findall(rf"\]\(\.\./\.\./examples/adding/([\w-]+)\.{ending}\)", PAGE)
    return {name.replace("-", " "): (EXAMPLES / f"{name}.{ending}").read_text(encoding="utf-8") for name in found}


PATCHES = named_on_the_page("patch")
PROGRAMS = named_on_the_page("py")
FILES = {
    "scheme": 4,
    "search": 3,
    "estimator": 2,
    "rpc": 5,
    "study key": 4,
    "release format": 2,
    "table source": 4,
    "kind of privacy event": 4,
    "metric": 2,
}
"""How many files a newcomer edits at most."""
GENERATED = {"rpc": 1}
"""Files that a program writes: counted, and made here by that program."""
LEFT = shutil.ignore_patterns("*.csv.gz", "node_modules", "*.pyc.*", "*.tmp.*")
"""Not copied; compiled code is, but for what is just being written."""
WINGS = ("shared", "party", "miner", "deploy", "protos")


def touched(patch: str) -> list[str]:
    return re.findall(r"^\+\+\+ b/(\S+)$", patch, re.MULTILINE)


def run(folder: Path, *words: str) -> str:
    """A command in the copy, whose sources come before those that are installed."""
    path = os.pathsep.join(
        str(folder / wing) for wing in ("shared", "party", "miner", "deploy", "deploy/experiments", "tests")
    )
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # protoc's plug-in
    environment = {**os.environ, "PATH": programs, "PYTHONPATH": path}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout


def patched(folder: Path, name: str) -> Path:
    for wing in (*WINGS, "tests/support"):
        shutil.copytree(ROOT / wing, folder / wing, ignore=LEFT)
    (folder / "example.patch").write_text(PATCHES[name], encoding="utf-8")
    run(folder, "git", "apply", "-p1", "example.patch")
    if name in GENERATED:
        run(folder, sys.executable, "protos/generate.py")
    return folder


def test_every_example_stands_on_the_page_and_touches_no_more_files_than_it_says() -> None:
    assert set(PATCHES) == set(PROGRAMS) == set(FILES)
    for name, patch in PATCHES.items():
        files = touched(patch)
        assert len(files) + GENERATED.get(name, 0) == FILES[name], (name, files)
        stated = re.search(rf"^\| an? {re.escape(name)} \| (\d) \|", PAGE, re.MULTILINE | re.IGNORECASE)
        assert stated is not None, name
        assert int(stated[1]) == FILES[name], name


@pytest.mark.machine  # git
def test_every_example_fits_the_sources(tmp_path: Path) -> None:
    for name, patch in PATCHES.items():
        (tmp_path / "example.patch").write_text(patch, encoding="utf-8")
        command = ["git", "apply", "--check", "-p1", str(tmp_path / "example.patch")]
        checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert checked.returncode == 0, (name, checked.stderr)


@pytest.mark.whole
@pytest.mark.machine  # git
@pytest.mark.parametrize("name", FILES)
def test_an_example_works_as_it_stands_on_the_page(name: str, tmp_path: Path) -> None:
    """Without the patch the same program fails: it is the patch that it shows."""
    folder = patched(tmp_path / "copy", name)
    (folder / "shows.py").write_text(PROGRAMS[name], encoding="utf-8")
    run(folder, sys.executable, "shows.py")
    changed = [file for file in touched(PATCHES[name]) if file.endswith(".py")]
    for file in changed:
        assert (
            subprocess.run(
                [sys.executable, "-m", "ruff", "check", "-q", "--config", str(ROOT / "pyproject.toml"), file],
                cwd=folder,
            ).returncode
            == 0
        )
    if tests := [file for file in changed if file.startswith("tests/")]:
        run(folder, sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--import-mode=importlib", *tests)
    with pytest.raises((AssertionError, ImportError, OSError, VerticilError)):
        exec(compile(PROGRAMS[name], "shows.py", "exec"), {"__name__": "shows"})
