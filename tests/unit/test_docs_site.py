"""The documentation's site builds strictly and offline, asks no other machine for anything, and `verticil docs` finds pages."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from verticil.cli.docs import find_page
from verticil.shared.core.errors import Misuse

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "deploy" / "docs"
ROLES = ("start", "operator", "officer", "analyst", "consumer", "developer", "reference", "theory")
MOST_BYTES = 3 * 2**20
"""Of the built site, so that the wheel may have it."""
FOREIGN = re.compile(rb"""(?:src|href)=["']?https?://[^"'\s>]+\.(?:js|css|woff2?|png|svg)|@import url|url\(https?:""")


def build(folder: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """Build the site of the pages in a copy, with no way to a network."""
    environment = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "-f",
        str(folder / "site" / "mkdocs.yml"),
        "-d",
        str(site),
    ]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    for name in ("docs", "examples", "site"):
        shutil.copytree(
            ROOT / "deploy" / name, tmp_path / "deploy" / name, ignore=shutil.ignore_patterns("__pycache__")
        )
    (tmp_path / "tests").symlink_to(ROOT / "tests")  # the page of features is made of their first words
    return tmp_path / "deploy"


@pytest.mark.whole
def test_the_site_builds_is_small_and_asks_nobody(pages: Path) -> None:
    built = build(pages, pages / "out")
    assert built.returncode == 0, built.stderr
    files = [path for path in (pages / "out").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MOST_BYTES
    asked = {path.name: FOREIGN.findall(path.read_bytes()) for path in files if path.suffix in {".html", ".css"}}
    assert {name: found for name, found in asked.items() if found} == {}
    (search,) = (pages / "out" / "assets" / "javascripts" / "workers").glob("search.*.js")
    # without it "verify a release" finds every page that has a word with the letter a in front
    assert "stopWordFilter(word" in search.read_text(encoding="utf-8")
    assert find_page("runbook", pages / "out", pages / "docs") == pages / "out" / "operator" / "runbook.html"


@pytest.mark.whole
def test_what_a_reader_would_stumble_over_ends_the_build(pages: Path) -> None:
    planted = {
        "operator/index.md": "\n[away](missing-page) [and](runbook.md#no-such-heading)\n",
        "operator/unlisted/index.md": "# Unlisted\n",
        "pictures/forgotten.png": "",
        "operator/pages.md": "\n## Speed\n\nThe page takes 3 CPU seconds.\n",
    }
    for page, text in planted.items():
        (pages / "docs" / page).parent.mkdir(exist_ok=True)
        with (pages / "docs" / page).open("a", encoding="utf-8") as file:
            file.write(text)
    built = build(pages, pages / "out")
    assert built.returncode != 0
    said = built.stdout + built.stderr
    assert [
        word
        for word in (
            "missing-page",
            "no-such-heading",
            "unlisted/index",
            "forgotten.png",
            "The page takes 3 CPU seconds",
        )
        if word not in said
    ] == []


def test_each_role_has_a_first_page_that_the_front_page_links_and_that_numbers_three_things() -> None:
    front = (DOCS / "index.md").read_text(encoding="utf-8")
    for role in ROLES:
        assert f"({role}/index.md)" in front
    for role in ROLES[:-2]:
        first = (DOCS / role / "index.md").read_text(encoding="utf-8")
        steps = re.findall(r"^\d\. (.*(?:\n   .*)*)", first, re.MULTILINE)
        assert len(steps) == 3, role
    assert {path.parent.name for path in DOCS.rglob("*.md")} == {"docs", *ROLES}


def test_pages_are_found_by_name_and_a_name_that_is_none_says_what_is_near(tmp_path: Path) -> None:
    assert find_page("errors", tmp_path, DOCS) == DOCS / "reference" / "errors.md"
    assert find_page("officer/index", tmp_path, DOCS) == DOCS / "officer" / "index.md"
    assert find_page("index", tmp_path, DOCS) == DOCS / "index.md"
    with pytest.raises(Misuse, match="no page is called 'runbok'") as refused:
        find_page("runbok", tmp_path, DOCS)
    assert "runbook" in refused.value.hint
    with pytest.raises(Misuse, match="not in this installation"):
        find_page("errors", tmp_path, tmp_path)


WIDEST = 7
"""Most columns of a table on a page that a person wrote."""


def test_no_table_is_wider_than_a_screen() -> None:
    rows = re.compile(r"^\|(?:\s*:?-+:?\s*\|)+$", re.MULTILINE)
    widths = {
        path.name: [row.count("|") - 1 for row in rows.findall(path.read_text(encoding="utf-8"))]
        for path in DOCS.rglob("*.md")
    }
    assert sum(map(len, widths.values())) > 100
    assert {name: found for name, found in widths.items() if found and max(found) > WIDEST} == {}


def test_no_empty_line_tears_a_table() -> None:
    assert {
        path.name: rows for path in DOCS.rglob("*.md") if (rows := torn_rows(path.read_text(encoding="utf-8")))
    } == {}
    table = "text\n\n| a | b |\n|---|---|\n| 1 | 2 |\n"
    assert torn_rows(table) == []
    assert torn_rows(f"{table}\n| 3 | 4 |\n| 5 | 6 |\n") == ["| 3 | 4 |"]


def torn_rows(page: str) -> list[str]:
    """Return the rows of a page that stand behind an empty line and are no head of a table."""
    return re.findall(r"\n\n(\|.*)\n(?!\|(?:\s*:?-+:?\s*\|)+\n)", page)


def test_every_measured_figure_of_a_page_names_its_bench() -> None:
    without_bench = runpy.run_path(str(ROOT / "deploy" / "site" / "figures.py"))["figures_without_bench"]
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / ".github" / "CONTRIBUTING.md"]
    assert [
        f"{page.name}:{line}: {text}"
        for page in pages
        for line, text in without_bench(page.read_text(encoding="utf-8"))
    ] == []
    planted = (
        "# Speed\n\nIt takes 3 CPU s (`python tests/bench/run.py`).\n\n## Next\n\n"
        "Records are 12 % nearer than `a` of a python program `b`.\nAt 95 % at most 4 MiB.\nIt is 3 times faster.\n"
    )
    assert list(without_bench(planted)) == [
        (7, "Records are 12 % nearer than `a` of a python program `b`."),
        (9, "It is 3 times faster."),
    ]


def test_each_bench_that_a_page_names_exists() -> None:
    named = {
        bench
        for page in DOCS.rglob("*.md")
        for bench in re.findall(r"tests/bench/\w+\.\w+", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert [bench for bench in sorted(named) if not (ROOT / bench).is_file()] == []
