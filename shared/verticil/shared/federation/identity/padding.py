"""Signed documents whose size on the way says nothing of the numbers in them.

A number in canonical JSON takes 1 to 24 letters, by its value. `pad` fills a document up to the size that it would have with
the widest numbers, in a field beside the document that no reader looks at: body, signature and every digest of the document stay
as they are. So the size depends on which numbers there are, which the study says, and not on what they are. Absent numbers and
truth values count as numbers, and so do numbers in a document that stands in another one as a text. Other texts are not filled
up: those of documents between peers are names and digests.
"""

from __future__ import annotations

import json
from typing import Final

from verticil.wire.v1 import common_pb2

WIDEST: Final = 24
"""Letters of the widest number in canonical JSON, ``-1.2345678901234567e-300``."""


_SLACK: Final = 16
"""More than the lengths of body and padding take."""


class _Number(str):
    """The letters of a number."""

    __slots__ = ()


def pad(signed: common_pb2.Signed, *, limit_bytes: int) -> common_pb2.Signed:
    """Return the same signed document with its padding.

    Args:
        signed: its body is JSON; one that is not is left as long as it is.
        limit_bytes: of a body; a document that would be larger is filled up to this.
    """
    lacking = _lacking(_parse_number(signed.body))
    whole = max(len(signed.body), min(len(signed.body) + lacking, limit_bytes)) + _SLACK
    n_left = whole - len(signed.body) - _length_of(len(signed.body))
    return common_pb2.Signed(
        body=signed.body, signature=signed.signature, certificate=signed.certificate, padding=_fields_of(n_left)
    )


def _length_of(number: int) -> int:
    """Bytes in which protobuf says a length."""
    return max(1, -(-number.bit_length() // 7))


def _fields_of(size: int) -> list[bytes]:
    """Contents of fields that take so many bytes, at least 2, with their tags and lengths: one, or where none does, two."""
    for width in range(1, 6):
        content = size - 1 - width
        if content >= 0 and _length_of(content) == width:
            return [bytes(content)]
    return [*_fields_of(size - 2), b""]


def _lacking(value: object) -> int:
    """Letters that all numbers lack to the widest."""
    if isinstance(value, dict):
        return sum(map(_lacking, value.values()))
    if isinstance(value, list):
        return sum(map(_lacking, value))
    if isinstance(value, _Number):
        return WIDEST - len(value)
    if value is None or isinstance(value, bool):
        return WIDEST - len(json.dumps(value))
    return _lacking(_parse_number(value)) if isinstance(value, str) and value.startswith("{") else 0


def _parse_number(text: str | bytes) -> object:
    """Value of a JSON text, with the letters of its numbers; of another text nothing."""
    try:
        return json.loads(text, parse_int=_Number, parse_float=_Number)
    except ValueError:
        return ""
