"""How a test says which error it expects."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from verticil.shared.core.errors import VerticilError


@contextlib.contextmanager
def fails(code: str, *texts: str) -> Iterator[None]:
    """Expect an error of this code whose text has these parts."""
    with pytest.raises(VerticilError) as caught:
        yield
    assert caught.value.code == code, caught.value
    for text in texts:
        assert text in str(caught.value)
