"""Arguments at the edge of the API: held against their annotations before a function runs, and values of numpy as Python's.

An annotation is read as text, so nothing slow is imported for it. A class goes by its name, an alias by that in the function's
module.
"""

from __future__ import annotations

import ast
import functools
import inspect
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from typing import Any, Final, Literal, ParamSpec, TypeVar, get_args, get_origin

from verticil.shared.core.errors import Misuse
from verticil.shared.core.name_lists import check_choice, either

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Kind = tuple[str, tuple[Any, ...]]
"""A class's name, and what is in its brackets: annotations, or the values of a Literal."""

_WORDS: Final[Mapping[str, str]] = {
    "bool": "True or False",
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "Path": "a path",
    "DataFrame": "a data frame",
    "Mapping": "a mapping such as {'name': value}",
    "Sequence": "a list",
    "Callable": "a function",
}
_TESTS: Final[Mapping[str, Callable[[object], bool]]] = {
    "object": lambda _: True,
    "Any": lambda _: True,
    "None": lambda value: value is None,
    "int": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "float": lambda value: isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value),
    "Path": lambda value: isinstance(value, os.PathLike),
    "Mapping": lambda value: isinstance(value, Mapping),
    "Sequence": lambda value: isinstance(value, Iterable) and not isinstance(value, bytes | Mapping),
    "Callable": callable,
    "Literal": lambda value: isinstance(value, str),
}
"""What fits an annotation; of any other one: an instance of a class of its name."""


def check_arguments(**words: str) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Return a decorator that refuses arguments which do not fit a function's annotations: USAGE, before anything is done.

    Scalars of numpy become Python's; for a sequence of texts one text will do; NaN is no number.

    Args:
        words: argument -> what is expected of it, where the words for its annotation do not say enough.
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:
                return function(*args, **kwargs)  # which says it in Python's own words
            for name, value in bound.arguments.items():
                parameter = signature.parameters[name]
                if not isinstance(parameter.annotation, str) or parameter.kind is parameter.VAR_KEYWORD:
                    continue
                hint = f"read the docstring of {function.__qualname__}"
                check = _Check(name, getattr(function, "__globals__", {}), words.get(name, ""), hint)
                if parameter.kind is parameter.VAR_POSITIONAL:
                    check.hint = "give each one as an argument of its own"
                    bound.arguments[name] = tuple(check.value(each, parameter.annotation) for each in value)
                else:
                    bound.arguments[name] = check.value(value, parameter.annotation)
            return function(*bound.args, **bound.kwargs)

        return call

    return decorate


def plain(value: object) -> Any:
    """Return a value as TOML has it: scalars of numpy as Python's, and whatever has several values as a list.

    >>> plain({"bins": range(0, 30, 10), "categories": {"yes", "no"}})
    {'bins': [0, 10, 20], 'categories': ['no', 'yes']}
    """
    value = _scalar(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        return value
    items = [plain(item) for item in value]
    if isinstance(value, Set):  # in one order, whatever the process
        items.sort(key=lambda item: (0, item, "") if isinstance(item, int | float) else (1, 0, str(item)))
    return items


def _scalar(value: Any) -> Any:
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


class _Check:
    """A check of one argument, with what its error says."""

    def __init__(self, where: str, names: Mapping[str, object], words: str, hint: str) -> None:
        self.where, self.names, self.words, self.hint = where, names, words, hint

    def value(self, value: object, annotation: str) -> object:
        """Return the value, or raise."""
        return self._value(value, _parse(annotation), "")

    def _value(self, value: object, annotation: ast.expr, place: str) -> object:
        value = _scalar(value)
        kinds = list(_kinds(annotation, self.names))
        for name, parts in kinds:
            if not _fits(value, name):
                continue
            if name == "Literal":
                check_choice(self.where, str(value), parts)
            elif isinstance(value, Mapping) and parts:
                return {
                    self._value(key, parts[0], ", a key"): self._value(item, parts[1], f", '{key}'")
                    for key, item in value.items()
                }
            elif name == "Sequence":
                items = (value,) if isinstance(value, str) else value
                assert isinstance(items, Iterable)
                return tuple(self._value(item, parts[0], ", an item") for item in items)
            return value
        expected = (not place and self.words) or _expected(kinds)
        raise Misuse(
            "USAGE", f"{self.where}{place}: got {_got(value)}, expected {expected}", hint=self._hint(value, kinds)
        )

    def _hint(self, value: object, kinds: list[Kind]) -> str:
        if not any(name == "DataFrame" for name, _ in kinds):
            return self.hint
        from verticil.tables.frames import frame_hint

        return frame_hint(value)


@functools.cache
def _parse(annotation: str) -> ast.expr:
    return ast.parse(annotation, mode="eval").body


def _kinds(annotation: ast.expr, names: Mapping[str, object]) -> Iterator[Kind]:
    """Yield the alternatives of an annotation, aliases resolved."""
    match annotation:
        case ast.BinOp(left=left, right=right):
            yield from (*_kinds(left, names), *_kinds(right, names))
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
            values = ast.literal_eval(inner)
            yield "Literal", values if isinstance(values, tuple) else (values,)
        case ast.Subscript(value=value, slice=inner):
            yield ast.unparse(value).rpartition(".")[2], tuple(inner.elts) if isinstance(inner, ast.Tuple) else (inner,)
        case ast.Name(id=name) if isinstance(alias := names.get(name), str):
            yield from _kinds(_parse(alias), names)
        case ast.Name(id=name) if (origin := get_origin(names.get(name))) is not None:
            yield ("Literal", get_args(names[name])) if origin is Literal else (origin.__name__, ())
        case _:
            yield ast.unparse(annotation).rpartition(".")[2], ()


def _fits(value: object, name: str) -> bool:
    test = _TESTS.get(name)
    return any(each.__name__ == name for each in type(value).__mro__) if test is None else test(value)


def _expected(kinds: list[Kind]) -> str:
    """Return what is expected in words: a text that stands for a path is named once, and a table's path is a file."""
    names = [name for name, _ in kinds]
    words: list[str] = []
    for name, parts in kinds:
        if name == "Literal":
            words += parts
        elif name == "Path" and "DataFrame" in names:
            words.append("a file")
        elif name != "None" and not (name == "str" and "Path" in names):
            words.append(_WORDS.get(name, f"a {name}"))
    return either(list(dict.fromkeys(words)))


def _got(value: object) -> str:
    """Return what a value is, never the value."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return str(value)
    name = type(value).__name__
    return "text" if isinstance(value, str) else f"{'an' if name[0] in 'aeiou' else 'a'} {name}"
