"""What developers run is what `.ci/run` runs, and nothing of it is fetched from elsewhere."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
RUN = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
NOX = (ROOT / ".ci" / "noxfile.py").read_text(encoding="utf-8")


def words_of(session: str) -> list[tuple[str, ...]]:
    """The commands of a session, as far as they are written out."""
    function = next(n for n in ast.parse(NOX).body if isinstance(n, ast.FunctionDef) and n.name == session)
    calls = [n for n in ast.walk(function) if isinstance(n, ast.Call) and ast.unparse(n.func) == "session.run"]
    return [tuple(str(a.value) for a in call.args if isinstance(a, ast.Constant)) for call in calls]


def test_nox_does_what_the_ci_does() -> None:
    for command in words_of("lint"):
        assert re.search(rf"^{re.escape(' '.join(command))}$", RUN, re.MULTILINE), command
    assert words_of("types") == [("mypy",), ("mypy", "tests")]
    assert "\nmypy tests || wrong_types=yes\n" in RUN
    packages = re.search(r"PACKAGES = (\(.*?\))", NOX, re.DOTALL)
    assert packages is not None
    checked = re.findall(r"-p verticil\.(\w+)", next(line for line in RUN.splitlines() if line.startswith("mypy -p")))
    assert sorted(ast.literal_eval(packages[1])) == sorted(checked)
    wings = {
        path.name
        for wing in ("shared", "party", "miner", "deploy", "deploy/experiments")
        for path in (ROOT / wing / "verticil").iterdir()
    }
    assert set(checked) == wings - {"wire", "__pycache__"}
    assert "<!-- command: tests -->" in NOX


def test_what_takes_longest_runs_where_it_is_asked_for_and_nothing_else_is_added() -> None:
    """`--whole` takes one marker out of those that the default run leaves out; pyright and the benches alone are there."""
    checker, benches, (*_, option, markers) = words_of("whole")
    assert (checker, option, markers) == (("pyright",), "-m", "whole and not slow")
    assert RUN.count(f"\n  {' '.join(benches)} || ") == 1
    only = RUN[RUN.index('if [ -n "$whole" ]; then\n  echo "== pyright, and mypy of the benches"') :]
    assert "pyright" in only[: only.index("\nfi\n")]
    assert RUN.count("\n  pyright || ") == 1
    assert "${left_out/not whole and /}" in RUN
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    left_out = re.search(r'^  "-m", "(.*)",$', project, re.MULTILINE)
    assert left_out is not None
    assert left_out[1].count("not whole and ") == 1


def test_the_generators_tests_run_where_they_are_asked_for_and_nowhere_else() -> None:
    (command,) = words_of("gan")
    assert re.search(rf"^  {re.escape(' '.join(command))}$", RUN, re.MULTILINE)
    assert RUN.index("pip install --quiet -e './deploy/experiments[gan]'") < RUN.index(f"\n  {' '.join(command)}\n")
    ((program, option, markers, folder),) = words_of("experiments")
    assert f'\n  {program} {option} "{markers}" {folder}\n' in RUN
    usual = re.search(r"nox.options.sessions = (\[.*?\])", NOX)
    assert usual is not None
    assert ast.literal_eval(usual[1]) == ["lint", "types", "tests"]


def test_hooks_are_local() -> None:
    """A hospital's firewall blocks what pre-commit would fetch; every program of a hook is in the extra `dev`."""
    config: dict[str, Any] = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert [repository["repo"] for repository in config["repos"]] == ["local"]
    for hook in config["repos"][0]["hooks"]:
        assert hook["language"] == "system"
        program = hook["entry"].split()[0]
        assert re.search(rf'^  "{program}[>=]', project, re.MULTILINE), program


def test_locks_name_no_place() -> None:
    """Neither an index nor a path of the machine that made them."""
    for lock in (ROOT / "deploy" / "requirements").glob("*.txt"):
        for line in lock.read_text(encoding="utf-8").splitlines():
            assert re.fullmatch(r"[a-z0-9][\w.-]*==\S+ \\|    --hash=sha256:[0-9a-f]{64}(?: \\)?", line), (
                lock.name,
                line,
            )
    assert {"nox", "pre-commit", "pytest", "ruff"} <= {
        line.partition("==")[0] for line in (ROOT / "deploy" / "requirements" / "ci.txt").read_text().splitlines()
    }
