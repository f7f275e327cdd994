"""What the code cites stands in the repository, page and section; what the pages of theory name stands in the code."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WINGS = ("deploy", "miner", "party", "shared", "tests")
PAGES = {page.name: page for wing in (*WINGS, ".github") for page in (ROOT / wing).rglob("*.md")} | {
    "README.md": ROOT / "README.md"
}
CITED = re.compile(r"(?<![\w`{}*/-])([\w-]+\.md)(?:,? (?:section )?(\d+(?:\.\d+)?))?")

THEORY = sorted((ROOT / "deploy" / "docs" / "theory").glob("*.md"))
NAMED = re.compile(r"`([a-z_]\w*(?:\.[A-Za-z_]\w*)+)`")
FOREIGN = frozenset({"mbi.extensions.mixture_of_products"})
DEFINED = re.compile(r"^(?:(?:async )?def|class) (\w+)|^([A-Z][A-Z_]*)\b.* = ", re.MULTILINE)
ENDINGS = (".toml", ".json", ".md", ".csv", ".parquet", ".py", ".bif", ".bifxml", ".html", ".ttl")


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


def programs() -> set[str]:
    """Return the dotted names of the product's modules, and of the functions, classes and constants at their top."""
    known: set[str] = set()
    for path in (path for wing in WINGS[:-1] for path in (ROOT / wing).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if "verticil" in parts:
            module = ".".join(parts[parts.index("verticil") + 1 :]).removesuffix(".__init__")
            names = DEFINED.findall(path.read_text(encoding="utf-8"))
            known |= {module, *(f"{module}.{name or constant}" for name, constant in names)}
    return known


def named(text: str) -> set[str]:
    """Return the functions, classes and modules that a page names; it may leave out the first words of a name."""
    return {name.removeprefix("verticil.") for name in NAMED.findall(text) if not name.endswith(ENDINGS)} - FOREIGN


def unknown_names(text: str, known: set[str]) -> list[str]:
    return sorted(name for name in named(text) if not any(f".{full}".endswith(f".{name}") for full in known))


def formulas_without_function(text: str, known: set[str]) -> list[str]:
    """Return the headings of sections that display a formula and name nothing of the product."""
    _, *sections = re.split(r"^(?=#+ )", text, flags=re.MULTILINE)
    return [
        section.partition("\n")[0]
        for section in sections
        if "$$" in section and not named(section).difference(unknown_names(section, known))
    ]


def test_the_pages_of_theory_name_functions_that_exist_and_each_formula_has_one() -> None:
    known = programs()
    texts = {page.name: page.read_text(encoding="utf-8") for page in THEORY}
    assert sum(len(NAMED.findall(text)) for text in texts.values()) > 100
    assert {name: unknown for name, text in texts.items() if (unknown := unknown_names(text, known))} == {}
    assert {name: bare for name, text in texts.items() if (bare := formulas_without_function(text, known))} == {}


def test_a_function_that_nobody_wrote_and_a_formula_of_none_are_found() -> None:
    known = programs()
    page = (ROOT / "deploy" / "docs" / "theory" / "scores.md").read_text(encoding="utf-8")
    assert unknown_names(page.replace("scores.FamilyScores", "scores.FamilyScore"), known) == [
        "miner.learning.scoring.scores.FamilyScore"
    ]
    planted = "# Page\n\n`joint.mixture.fit`\n\n## 1. One\n\n$$x$$ `a.b` `study.toml`\n\n## 2. Two\n\n$$y$$ `joint.mixture.fit`\n"
    assert formulas_without_function(planted, known) == ["## 1. One"]
