"""What the code cites stands in the repository: every page that is named exists, and so does the section."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WINGS = ("deploy", "miner", "party", "shared", "tests")
PAGES = {page.name: page for wing in (*WINGS, ".github") for page in (ROOT / wing).rglob("*.md")} | {
    "README.md": ROOT / "README.md"
}
CITED = re.compile(r"(?<![\w`{}*/-])([\w-]+\.md)(?:,? (?:section )?(\d+(?:\.\d+)?))?")


def citations(text: str) -> set[tuple[str, str]]:
    """(page, section or nothing) of every page that a program text names in a sentence; a module may end with ``.md``."""
    words = re.sub(r"^\s*(?:from|import) .*$", "", text, flags=re.MULTILINE)
    return {(page, section) for page, section in CITED.findall(re.sub(r"\s*\n\s*(?:#\s*)?", " ", words))}


def missing(page: str, section: str) -> bool:
    if page not in PAGES:
        return True
    return bool(section) and not re.search(
        rf"^(?:#+ |\*\*){re.escape(section)}\.? ", PAGES[page].read_text(encoding="utf-8"), re.M
    )


def test_what_the_code_cites_stands_in_the_repository() -> None:
    files = {file for wing in WINGS for file in (ROOT / wing).rglob("*.py")} - {Path(__file__)}
    found = {
        (str(file.relative_to(ROOT)), *citation)
        for file in files
        for citation in citations(file.read_text(encoding="utf-8"))
    }
    assert len(found) >= 20
    assert [item for item in sorted(found) if missing(*item[1:])] == []


def test_a_page_and_a_section_that_are_not_there_are_found() -> None:
    assert citations("as said (plan.md section 3), or in randomization.md\n1.1") == {
        ("plan.md", "3"),
        ("randomization.md", "1.1"),
    }
    assert missing("plan.md", "3")
    assert missing("randomization.md", "1.9")
    assert not missing("randomization.md", "1.1")
