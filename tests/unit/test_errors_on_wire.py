"""Errors as messages: what goes out and what is made of what comes in."""

from __future__ import annotations

import pytest

from verticil.shared.core.errors import CODES, from_code
from verticil.shared.federation.transport.errors_on_wire import from_detail, to_detail, without_text
from verticil.wire.v1 import common_pb2


@pytest.mark.parametrize("code", list(CODES))
def test_an_error_comes_back_as_it_went(code: str) -> None:
    error = from_code(code, "column 'race': matrix row 3 sums to 0.98", hint="ε ≤ 3")
    back = from_detail(to_detail(error))
    assert (type(back), back.code, back.message, back.hint) == (type(error), code, error.message, error.hint)


def test_foreign_text_is_cut_and_cannot_steer_a_terminal() -> None:
    error = from_detail(common_pb2.ErrorDetail(code="NOT_OWNER", message="\x1b[2J\r\n" + "x" * 5000, hint="\u202e"))
    assert error.message.startswith("\\x1b[2J\\r\\nxxx")
    assert len(error.message) == 1000
    assert error.message.isprintable()
    assert error.hint == "\\u202e"


@pytest.mark.parametrize("code", ["", "NOT_YET_INVENTED", "x" * 5000, "__class__"])
def test_an_unknown_code_is_an_invalid_message(code: str) -> None:
    assert from_detail(common_pb2.ErrorDetail(code=code)).code == "MESSAGE_INVALID"


def test_incidents_are_told_apart_and_quote_nothing() -> None:
    first, second = (without_text(ValueError("canary-7f3a"), method="Poll") for _ in range(2))
    assert str(first) != str(second)
    assert "canary" not in str(first)
