"""The code blocks of the README and of the pages behind it do what they say: typed into one shell, in a fresh folder."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support import PATIENCE_SECONDS
from support.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "deploy" / "docs"
TOUR = [ROOT / "README.md", DOCS / "start" / "tour.md", DOCS / "operator" / "joining.md"]
"""In the order in which a reader comes by them: what a page made is there on the next."""
OTHERS = sorted({*DOCS.rglob("*.md"), ROOT / ".github" / "CONTRIBUTING.md"} - set(TOUR))
RUN_ELSEWHERE = {
    "runbook.md": "test_runbook.py",
    "alone.md": "test_alone_page.py",
    "hospital-insurer.md": "test_worked_examples.py",
    "one-organisation.md": "test_worked_examples.py",
    "three-registers.md": "test_worked_examples.py",
    "evaluation.md": "test_evaluation_page.py",
    "knowledge.md": "test_knowledge_page.py",
    "measured.md": "../../deploy/experiments/tests/test_reproduce.py",
    "posterior.md": "test_posterior_nodes.py",
    "releases.md": "../unit/test_release_estimates_cli.py",
    "several-rows.md": "test_several_rows_page.py",
    "python.md": "test_tutorial.py",
    "studies.md": "../unit/test_typed_columns.py",
    "tables.md": "../unit/test_party_config.py",
}
BLOCK = re.compile(r"<!-- (run|command: \w+) -->\n```(\w+)\n(.*?)```", re.DOTALL)
FENCE = re.compile(r"^```(?!mermaid)\w+$", re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s#:]+)(?:#[^)]*)?\)")


def text_of(pages: list[Path]) -> str:
    return "\n".join(page.read_text(encoding="utf-8") for page in pages)


def blocks(kind: str) -> list[tuple[str, str]]:
    return [(language, body) for marker, language, body in BLOCK.findall(text_of(TOUR)) if marker == kind]


def test_every_block_is_run_by_something() -> None:
    assert len(FENCE.findall(text_of(TOUR))) == len(BLOCK.findall(text_of(TOUR)))
    assert len(blocks("run")) == 14
    for page in OTHERS:
        if FENCE.search(page.read_text(encoding="utf-8")):
            assert (Path(__file__).parent / RUN_ELSEWHERE[page.name]).is_file(), page


def test_the_readme_is_short_and_every_link_leads_somewhere() -> None:
    assert len(TOUR[0].read_text(encoding="utf-8").splitlines()) <= 130
    for page in (*TOUR, *OTHERS):
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), (page.name, link)


def test_the_two_commands_install_what_they_then_run() -> None:
    (_, demo), (_, tests) = blocks("command: demo")[0], blocks("command: tests")[0]
    for command, ending in ((demo, "verticil demo"), (tests, "pytest -n 3 --dist worksteal")):
        parts = command.strip().split(" && ")
        assert parts[0] == "python3 -m venv .venv"
        assert parts[1].startswith(".venv/bin/pip install ")
        assert parts[2] == f".venv/bin/{ending}"
    assert blocks("command: demo")[0][1].strip() in (DOCS / "start" / "index.md").read_text(encoding="utf-8")


def test_the_tour_begins_with_lines_of_the_readme() -> None:
    readme, tour = (page.read_text(encoding="utf-8").splitlines() for page in TOUR[:2])
    first = [line.removeprefix("    ") for line in tour[: tour.index("## With a miner")] if line.startswith("    ")]
    assert len(first) == 4
    assert [line for line in first if line not in readme] == []


@pytest.mark.whole
@pytest.mark.timeout(900)  # the work of many tests
def test_the_tour(tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)  # the one that the first command of the page made
    ports = {
        written: str(free_port()) for written in ("8443", "8444", "8445", "8446")
    }  # the README's may be taken here
    lines = ["set -euxo pipefail", "trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT"]
    for language, body in blocks("run"):
        text = re.sub("844[3456]", lambda found: ports[found[0]], body)
        lines.append(text if language == "sh" else f"python - <<'PYTHON'\n{text}PYTHON")
    environment = {**os.environ, "HOME": str(tmp_path)}
    shell = subprocess.Popen(
        ["bash", "-c", "\n".join(lines)],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = shell.communicate(timeout=7 * PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        os.killpg(shell.pid, signal.SIGKILL)
        output, _ = shell.communicate()
        pytest.fail(f"the tour hangs:\n{output[-3000:]}")
    assert shell.returncode == 0, output[-3000:]
    assert "draft  published" in output
    assert "NOT VERIFIED" not in output
    assert "verified: signed by verticil://trial/miner/miner" in output  # fetched from Python
    assert re.search(
        "verified: (9|10) files and 8 receipts", output
    )  # one more where records come from a joint model, too
    people = tmp_path / "people"
    assert (people / "more.csv").read_text(encoding="utf-8").count("\n") == 10_001
    assert (people / "release" / "report.html").is_file()
    assert (people / "peers" / "report.html").is_file()
