"""Names and docstrings have words that a newcomer understands: no bare participles, a verb in each docstring of a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from support.syntax import parsed

ROOT = Path(__file__).resolve().parents[1]
WINGS = ("shared", "party", "miner", "deploy")
MOST_PARTICIPLES = 0.025
"""Of local names and of functions. Well-kept projects of the field have .002 to .03."""
LEAST_WORDS = 4
FIELD_TERMS = frozenset({"masked", "shared", "signed", "sealed", "randomized"})
NO_PARTICIPLES = frozenset({"need", "seed", "speed", "feed", "shed", "red", "bed", "exceed", "proceed", "embed"})
PARTICIPLES = frozenset(
    {
        "begun",
        "born",
        "bought",
        "bound",
        "broken",
        "brought",
        "built",
        "caught",
        "chosen",
        "done",
        "drawn",
        "driven",
        "eaten",
        "fallen",
        "felt",
        "forgotten",
        "found",
        "frozen",
        "given",
        "gone",
        "got",
        "grown",
        "heard",
        "held",
        "hidden",
        "kept",
        "known",
        "laid",
        "learnt",
        "led",
        "left",
        "lost",
        "made",
        "meant",
        "met",
        "paid",
        "risen",
        "said",
        "seen",
        "sent",
        "shown",
        "sold",
        "spent",
        "spoken",
        "stood",
        "struck",
        "taken",
        "taught",
        "thought",
        "thrown",
        "told",
        "torn",
        "understood",
        "won",
        "worn",
        "written",
    }
)
"""Those that do not end in -ed."""
NO_VERBS = frozenset(
    {
        "a",
        "all",
        "an",
        "and",
        "any",
        "as",
        "at",
        "both",
        "by",
        "each",
        "every",
        "for",
        "from",
        "how",
        "in",
        "it",
        "its",
        "no",
        "nobody",
        "none",
        "not",
        "nothing",
        "of",
        "on",
        "one",
        "only",
        "same",
        "that",
        "the",
        "their",
        "these",
        "they",
        "this",
        "those",
        "to",
        "true",
        "two",
        "what",
        "when",
        "where",
        "whether",
        "which",
        "who",
        "whoever",
        "whom",
        "whose",
        "with",
        "without",
    }
)
"""Words that a sentence in the imperative does not begin with."""


@dataclass
class Count:
    """What was counted in some sources.

    Attributes:
        names, functions: how many there are.
        participles: local names and parameters that are one, each ``FILE:LINE name``.
        function_participles: the same of functions.
        docstrings: the short ones, and those of functions that begin with no verb.
    """

    names: int = 0
    functions: int = 0
    participles: list[str] = field(default_factory=list)
    function_participles: list[str] = field(default_factory=list)
    docstrings: list[str] = field(default_factory=list)

    def add(self, where: str, source: str) -> None:
        """Count one file."""
        for node in ast.walk(parsed(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                self._read_docstring(where, node)
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions += 1
                if is_participle(node.name):
                    self.function_participles.append(f"{where}:{node.lineno} {node.name}")
                names = dict(local_names(node))
                self.names += len(names)
                self.participles += [f"{where}:{line} {name}" for name, line in names.items() if is_participle(name)]

    def _read_docstring(
        self, where: str, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    ) -> None:
        text = ast.get_docstring(node)
        if text is None:
            return
        line = 1 if isinstance(node, ast.Module) else node.lineno
        words = text.split()
        if len(words) < LEAST_WORDS:
            self.docstrings.append(f"{where}:{line} {text!r}")
            return
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_property(node)
        if is_function and words[0].strip(".,:;`").lower() in NO_VERBS:
            self.docstrings.append(f"{where}:{line} begins with {words[0]!r}")


def is_participle(name: str) -> bool:
    """Return whether a name is one word, and that a bare participle."""
    word = name.strip("_")
    if "_" in word or word in FIELD_TERMS or word in NO_PARTICIPLES:
        return False
    return word in PARTICIPLES or (word.endswith("ed") and len(word) > len("red"))


def is_property(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return whether a function is read like a value, so that its docstring names one."""
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def local_names(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[tuple[str, int]]:
    """Yield the parameters of a function and the names that it assigns, with the line of each."""
    given = function.args
    for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg):
        if argument is not None and argument.arg not in {"self", "cls"}:
            yield argument.arg, argument.lineno
    inside = list(ast.iter_child_nodes(function))
    while inside:
        node = inside.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inside += ast.iter_child_nodes(node)


@pytest.fixture(scope="module")
def product() -> Count:
    count = Count()
    for wing in WINGS:
        for path in sorted((ROOT / wing / "verticil").rglob("*.py")):
            if "wire" not in path.parts:
                count.add(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))
    return count


def test_few_local_names_are_bare_participles(product: Count) -> None:
    """`found` says neither what was found nor in which unit."""
    assert len(product.participles) <= MOST_PARTICIPLES * product.names, "\n".join(product.participles)


def test_few_functions_are_named_by_bare_participles(product: Count) -> None:
    assert len(product.function_participles) <= MOST_PARTICIPLES * product.functions, "\n".join(
        product.function_participles
    )


def test_every_docstring_says_something_and_a_functions_begins_with_a_verb(product: Count) -> None:
    assert not product.docstrings, "\n".join(product.docstrings)


PLANTED = '''"""A module with faults in it."""


def told(known: int) -> int:
    """The sum of both."""
    found, shared = known, 1
    return found + shared


class Two:
    """Of two."""

    @property
    def speed(self) -> int:
        """The speed of a value."""
        return 1
'''


def test_planted_words_are_counted_with_their_lines() -> None:
    count = Count()
    count.add("planted.py", PLANTED)
    assert sorted(count.participles) == ["planted.py:4 known", "planted.py:6 found"]
    assert count.function_participles == ["planted.py:4 told"]
    assert sorted(count.docstrings) == ["planted.py:10 'Of two.'", "planted.py:4 begins with 'The'"]
    assert (count.names, count.functions) == (3, 2)
