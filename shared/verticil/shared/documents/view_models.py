"""View models: what an application answers, with a name and a type for each thing, and the one way in which it becomes JSON.

A view model is a frozen dataclass. Its fields, in their order, are the keys of its JSON; a name here is therefore a promise to
programs that read it. `left_out` and `inlined` are for what is not always there.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from verticil.shared.documents.json_document import Json

Model = TypeVar("Model")


def left_out() -> Any:
    """Return a field that has no key when it is None."""
    return dataclasses.field(default=None, metadata={"none": "left out"})


def inlined() -> Any:
    """Return a field whose keys stand among those of the model that it belongs to; None has none."""
    return dataclasses.field(default=None, metadata={"keys": "inlined"})


def jsonable(value: object) -> Json:
    """Return the value in JSON's terms; an infinite number becomes the string "infinite" (JSON has none), NaN becomes null.

    >>> jsonable({"epsilon": float("inf"), "n": (1, 2.5)})
    {'epsilon': 'infinite', 'n': [1, 2.5]}
    """
    if isinstance(value, float):
        return "infinite" if math.isinf(value) else None if math.isnan(value) else value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return document(value)
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in cast("Mapping[object, object]", value).items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [jsonable(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, bool | int | str) or value is None:
        return value
    return str(value)


def document(view: object) -> dict[str, Json]:
    """Return a view model, or a mapping, as a JSON object.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Sent:
    ...     bytes: int
    ...     receipt: str | None = left_out()
    >>> document(Sent(bytes=3))
    {'bytes': 3}
    """
    if isinstance(view, Mapping):
        return {str(key): jsonable(item) for key, item in cast("Mapping[object, object]", view).items()}
    values: dict[str, Json] = {}
    for field in dataclasses.fields(cast("Any", view)):
        value = getattr(view, field.name)
        if value is None and field.metadata:
            continue
        if field.metadata.get("keys") == "inlined":
            values |= document(value)
        else:
            values[field.name] = jsonable(value)
    return values


def viewed(model: type[Model], said: Mapping[str, Json]) -> Model:
    """Return the view model of which `document` made a JSON object, without inlined ones; skip keys that it does not know.

    Raises:
        KeyError: a key is missing.
    """
    types = get_type_hints(model)
    return model(
        **{
            field.name: _value(types[field.name], said[field.name])
            for field in dataclasses.fields(cast("Any", model))
            if field.name in said or not field.metadata
        }
    )


def _value(kind: Any, value: Any) -> Any:
    if value is None:
        return None
    if get_origin(kind) is UnionType:
        kind = next(one for one in get_args(kind) if one is not NoneType)
    if get_origin(kind) is tuple:
        return tuple(_value(get_args(kind)[0], item) for item in value)
    if get_origin(kind) is not None:
        return {key: _value(get_args(kind)[1], item) for key, item in value.items()}
    return viewed(kind, value) if isinstance(kind, type) and dataclasses.is_dataclass(kind) else value
