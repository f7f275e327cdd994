"""What `.ci/run` does about Debian packages that are missing, with stand-ins for what it asks of the machine."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = "# two\nthere  true\nabsent  test -e {made}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree in which one package of two is missing, and a README that ends the run behind the packages."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    (tmp_path / ".ci" / "packages").write_text(PACKAGES.format(made=tmp_path / "made"))
    (tmp_path / "README.md").write_text("nothing\n")
    return tmp_path


def run(tree: Path, *arguments: str, user: int) -> tuple[int, str]:
    """Of somebody whose number is `user`; apt-get writes down what it is asked, and installs."""
    programs = tree / "programs"
    programs.mkdir()
    for name, does in (("id", f"echo {user}"), ("apt-get", f'echo "$@" >>{tree}/asked; touch {tree}/made')):
        (programs / name).write_text(f"#!/bin/sh\n{does}\n")
        (programs / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        [tree / ".ci" / "run", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_what_is_missing_is_installed_by_root(tree: Path) -> None:
    code, said = run(tree, user=0)
    assert (tree / "asked").read_text().splitlines()[-1].split()[-2:] == ["--no-install-recommends", "absent"]
    assert (code, "missing" in said) == (1, False)
    assert "no test command found" in said  # it went on


def test_what_is_missing_is_named_to_others_and_the_run_fails(tree: Path) -> None:
    code, said = run(tree, user=1000)
    assert (code, said) == (1, "missing: absent (packages of Debian, .ci/packages); .ci/run --core does without\n")
    assert not (tree / "asked").exists()


def test_core_does_without(tree: Path) -> None:
    code, said = run(tree, "--core", user=0)
    assert (code, "no test command found" in said) == (1, True)
    assert not (tree / "asked").exists()


def test_every_program_that_a_test_asks_for_is_in_the_list() -> None:
    listed = set(re.findall(r"command -v (\S+)", (ROOT / ".ci" / "packages").read_text()))
    asked = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"\bprogram\(\"([\w-]+)\"\)", path.read_text(encoding="utf-8"))
    }
    assert {"openssl", "systemd-analyze", "docker-compose"} <= asked <= listed
