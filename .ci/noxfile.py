"""What `.ci/run` does after it has made its environment, by parts: `nox -f .ci/noxfile.py [-s lint|types|tests|docs]`.

The sessions run in the environment of nox itself (the extra `dev`), because that is the one of the lock file; nothing is fetched.
`-s whole` is what `.ci/run --whole` does besides, `-s experiments` is what `.ci/run --experiments` does, and `-s gan` what
`.ci/run --gan` does, in an environment that has the extra `gan` of deploy/experiments, too; without a name they are left
out, and so is `-s docs`, which builds the site of the documentation (a test builds it, too).
"""

from __future__ import annotations

import re
from pathlib import Path

import nox

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (
    "shared",
    "party",
    "miner",
    "cli",
    "api",
    "analysis",
    "analyst",
    "attack",
    "curator",
    "design",
    "evaluate",
    "gan",
    "pki",
    "reproduce",
    "simulation",
    "tables",
    "experiments",
)

nox.options.default_venv_backend = "none"
nox.options.sessions = ["lint", "types", "tests"]


@nox.session
def lint(session: nox.Session) -> None:
    """Formatting and lint."""
    session.chdir(ROOT)
    session.run("ruff", "format", "--check", ".")
    session.run("ruff", "check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy."""
    session.chdir(ROOT)
    session.run("mypy", *(word for package in PACKAGES for word in ("-p", f"verticil.{package}")))
    session.run("mypy", "tests")


@nox.session
def tests(session: nox.Session) -> None:
    """The README's test command; `-- ARGUMENTS` are pytest's, in place of its own."""
    session.chdir(ROOT)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = re.search(r"<!-- command: tests -->.*?&& \.venv/bin/pytest ([^&\n]*)\n", readme, re.DOTALL)
    if command is None:
        session.error("README.md: no test command found behind '<!-- command: tests -->'")
    session.run("pytest", *(session.posargs or command[1].split()))


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation's site strictly, into deploy/verticil/cli/site, from where a wheel takes it."""
    session.chdir(ROOT)
    session.run("mkdocs", "build", "-f", "deploy/site/mkdocs.yml", env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def whole(session: nox.Session) -> None:
    """The second type checker, the types of the benches, and the tests that take longest."""
    session.chdir(ROOT)
    session.run("pyright")
    session.run("mypy", "--config-file", "tests/bench/mypy.ini")
    session.run("pytest", "-n", "3", "--dist", "worksteal", "-m", "whole and not slow")


@nox.session
def experiments(session: nox.Session) -> None:
    """The tests of the papers' experiments."""
    session.chdir(ROOT)
    session.run("pytest", "-m", "experiments and not (gan or slow)", "deploy/experiments")


@nox.session
def gan(session: nox.Session) -> None:
    """The tests of the generator, which need torch."""
    session.chdir(ROOT)
    session.run("pytest", "-m", "gan", "deploy/experiments")
