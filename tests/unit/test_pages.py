"""The pages for people who change the product say what is there: named tests exist, drawn packages are the real ones."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

from support.syntax import parsed

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "deploy" / "docs"
NAMED = re.compile(r"`((?:deploy/experiments/)?tests/[\w/]+\.py)(?:::(\w+))?`")


@functools.cache
def names_in(path: Path) -> set[str]:
    return set(re.findall(r"^(?:async )?def (\w+)\(", path.read_text(encoding="utf-8"), re.MULTILINE))


def not_there(text: str) -> list[str]:
    """Files and tests that a page names and that do not exist."""
    found = []
    for file, name in NAMED.findall(text):
        path = ROOT / file
        if not path.is_file() or (name and name not in names_in(path)):
            found.append(f"{file}::{name}")
    return found


def test_every_test_that_a_page_names_exists() -> None:
    pages = sorted(DOCS.rglob("*.md"))
    assert {page.name: not_there(page.read_text(encoding="utf-8")) for page in pages} == {
        page.name: [] for page in pages
    }


def test_a_test_that_is_not_there_is_found() -> None:
    assert not_there("`tests/unit/test_pages.py::test_none` `tests/unit/test_no_pages.py`") == [
        "tests/unit/test_pages.py::test_none",
        "tests/unit/test_no_pages.py::",
    ]
    assert (
        not_there("`tests/unit/test_pages.py::test_a_test_that_is_not_there_is_found` `tests/unit/test_pages.py`") == []
    )


# ---- rooms

PACKAGES = (DOCS / "developer" / "packages.md").read_text(encoding="utf-8")
ARCHITECTURE = (DOCS / "developer" / "architecture.md").read_text(encoding="utf-8")
WINGS = ("shared", "party", "miner", "deploy", "deploy/experiments")
ROOTS = ("verticil.shared", "verticil.party", "verticil.miner")


def modules_of(wing: str) -> dict[str, Path]:
    found = {}
    for path in sorted((ROOT / wing / "verticil").rglob("*.py")):
        name = ".".join(path.relative_to(ROOT / wing).with_suffix("").parts)
        if not name.startswith("verticil.wire"):
            found[name.removesuffix(".__init__")] = path
    return found


def room_of(module: str) -> str:
    """A package directly inside a wing (of `deploy`: a package), or nothing for what stands at a wing's root."""
    parts = module.split(".")[1:]
    if parts[0] in {"shared", "party", "miner"}:
        return (
            f"{parts[0]}/{parts[1]}"
            if len(parts) > 1 and (ROOT / parts[0] / "verticil" / Path(*parts[:2])).is_dir()
            else ""
        )
    return parts[0]


@functools.cache
def rooms(wing: str) -> dict[str, set[str]]:
    """Room -> the rooms of the same wing that it imports."""
    found: dict[str, set[str]] = {}
    for module, path in modules_of(wing).items():
        if not (room := room_of(module)):
            continue
        targets = found.setdefault(room, set())
        for node in ast.walk(parsed(path.read_text(encoding="utf-8"))):
            names = (
                [node.module] if isinstance(node, ast.ImportFrom) and node.module
                else [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            )  # fmt: skip
            targets |= {room_of(name) for name in names if name.startswith("verticil.") and name.count(".") >= 1}
    return {
        room: {target for target in targets if target in found and target != room} for room, targets in found.items()
    }


def drawn(wing: str) -> tuple[set[str], set[tuple[str, str]]]:
    """Rooms and arrows of a wing's picture."""
    block = re.search(rf"<!-- packages: {wing} -->\n```mermaid\n(.*?)```", PACKAGES, re.DOTALL)
    assert block is not None, wing
    names = dict(re.findall(r'^  (\w+)\["([^"]+)"\]$', block[1], re.MULTILINE))
    arrows = {(names[a], names[b]) for a, b in re.findall(r"^  (\w+) --> (\w+)$", block[1], re.MULTILINE)}
    return set(names.values()), arrows


def reachable(arrows: set[tuple[str, str]], start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        here = waiting.pop()
        new = {b for a, b in arrows if a == here} - found
        found |= new
        waiting += new
    return found


def test_the_pictures_show_the_rooms_and_the_ways_between_them() -> None:
    """Every room is drawn; an arrow that is drawn is an import, and an import is an arrow or a way along arrows."""
    for wing in WINGS:
        real = rooms(wing)
        names, arrows = drawn(wing)
        assert names == set(real), wing
        assert {(a, b) for a, b in arrows if b not in real[a]} == set(), wing
        assert {(a, b) for a in real for b in real[a] if b not in reachable(arrows, a)} == set(), wing


def test_every_package_is_named_on_the_page_of_packages() -> None:
    for wing in WINGS:
        for room in rooms(wing):
            assert f"| `{room}` |" in PACKAGES, room


def test_every_module_on_the_ways_through_the_code_exists() -> None:
    modules = {f".{name}" for wing in WINGS for name in modules_of(wing)}
    ways = ARCHITECTURE[ARCHITECTURE.index("## Three ways") :]
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)+)`", ways)
    assert len(named) > 30
    assert [
        name for name in named if not any(module.endswith("." + name.replace("/", ".")) for module in modules)
    ] == []
