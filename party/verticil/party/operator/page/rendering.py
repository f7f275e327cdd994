"""HTML of the local page: one self-contained document without script, form, image or outside address.

Every text is escaped (autoescape), whoever wrote it: titles of studies, names of people, labels, messages. The style sheet is
inline, and its hash is the only thing that the content security policy lets a browser use.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import math
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Final

from verticil.shared.release.report import wording

if TYPE_CHECKING:
    from jinja2 import Environment


def _read(name: str) -> str:
    return (files("verticil.party.operator.page") / "templates" / name).read_text(encoding="utf-8")


_STYLE: Final = _read("page.css")
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CONTENT_SECURITY_POLICY: Final = (
    f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def render(template: str, values: Mapping[str, object], *, root: str, shown_at: str) -> str:
    """A page as HTML.

    Args:
        template: its name, without ending.
        values: what `verticil.party.operator.page.view` says.
        root: relative address of the overview, as in ``../``.
        shown_at: when the state was read.
    """
    page = _environment().get_template(f"{template}.html.j2")
    return page.render(values, style=_STYLE, root=root, shown_at=shown_at, page=template)


@functools.cache
def _environment() -> Environment:
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    found = Environment(
        loader=FunctionLoader(_read), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    found.filters |= {
        "epsilon": epsilon_text,
        "left": left_text,
        "sentence": sentence,
        "size": size_text,
        "when": when_text,
    }
    return found


def epsilon_text(value: object) -> str:
    """An epsilon, rounded up to two digits.

    >>> epsilon_text(2.001), epsilon_text(None), epsilon_text("infinite")
    ('2.01', 'no limit', 'no limit')
    """
    return wording.epsilon(float(value) if isinstance(value, int | float) else math.inf)


def sentence(words: str) -> str:
    """Words as a sentence, in which no line ends before a percent sign.

    >>> sentence("a true 'yes' is kept 85 % of the time")
    "A true 'yes' is kept 85\\xa0% of the time."
    """
    return f"{words[:1].upper()}{words[1:]}.".replace(" %", "\N{NO-BREAK SPACE}%")


def left_text(value: float) -> str:
    """What may still be spent, rounded down to two digits.

    >>> left_text(28.1099), left_text(math.inf)
    ('28.10', 'no limit')
    """
    return "no limit" if math.isinf(value) else f"{math.floor(value * 100 + 1e-6) / 100:.2f}"


def size_text(n_bytes: int) -> str:
    """A number of bytes.

    >>> size_text(516), size_text(3_000_000)
    ('516 bytes', '2.9 MiB')
    """
    if n_bytes < 10_240:
        return f"{n_bytes:,} bytes"
    return f"{n_bytes / 1024:,.1f} KiB" if n_bytes < 1 << 20 else f"{n_bytes / (1 << 20):,.1f} MiB"


def when_text(stamp: str) -> str:
    """A stamp of the state, for people; always UTC.

    >>> when_text("2026-11-21T17:31:06Z")
    '2026-11-21 17:31:06'
    """
    return stamp[:19].replace("T", " ")
