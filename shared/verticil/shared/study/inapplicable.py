"""Keys of a study that its model or its method has no use for.

A protocol and a method each say once which keys these are and why. A study that has one is refused; a study that is carried out
another way, as by its owner alone, goes on without it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from verticil.shared.core.errors import Misuse
from verticil.shared.study.document import Study
from verticil.shared.study.vocabulary import Inapplicable


def refuse(study: Study, keys: Mapping[str, Inapplicable], *, source: str) -> None:
    """Refuse a study that has one of the keys, with another value than its default.

    Args:
        study: the study.
        keys: dotted names of fields (``release.pairs``), and why.
        source: name of the document, for messages.

    Raises:
        Misuse: the key's code.
    """
    for key, why in _list_inapplicable(study, keys):
        raise Misuse(why.code, f"{source}: {key}: {why.problem}", hint=why.hint)


def without(study: Study, keys: Mapping[str, Inapplicable]) -> Study:
    """Return the study with the defaults of these keys."""
    for key, _ in _list_inapplicable(study, keys):
        study = _replace_fields(study, key.split("."))
    return study


def _list_inapplicable(study: Study, keys: Mapping[str, Inapplicable]) -> Iterator[tuple[str, Inapplicable]]:
    for key, why in keys.items():
        record: Any = study
        *around, name = key.split(".")
        for each in around:
            record = getattr(record, each)
        if record is not None and getattr(record, name) != _default(record, name):
            yield key, why


def _replace_fields(record: Any, path: list[str]) -> Any:
    name, *inside = path
    value = _replace_fields(getattr(record, name), inside) if inside else _default(record, name)
    return dataclasses.replace(record, **{name: value})


def _default(record: Any, name: str) -> Any:
    return next(field.default for field in dataclasses.fields(record) if field.name == name)
