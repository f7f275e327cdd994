"""What a check found: one line for people with what to do, one object for programs, one exit code for both."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from verticil.shared.core.errors import CODES, VerticilError

if TYPE_CHECKING:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The outcome of one check. It names files, hosts, counts and times, never a value of a table.

    Attributes:
        check: what was looked at: ``name resolution``.
        level: ``ok``, ``warn`` (it works, for now) or ``fail`` (it does not).
        detail: what was seen.
        hint: what to do about it; empty when it is ok.
        code: of the error that a daemon would end with; empty unless it failed.
    """

    check: str
    level: Literal["ok", "warn", "fail"]
    detail: str
    hint: str = ""
    code: str = ""


def ok(check: str, detail: str) -> Finding:
    """Return a finding that all works."""
    return Finding(check=check, level="ok", detail=detail)


def warn(check: str, detail: str, hint: str) -> Finding:
    """Return a finding that it works, for now."""
    return Finding(check=check, level="warn", detail=detail, hint=hint)


def fail(check: str, error: VerticilError) -> Finding:
    """Return a finding that it does not work."""
    return Finding(check=check, level="fail", detail=error.message, hint=error.hint, code=error.code)


def exit_code(findings: Iterable[Finding]) -> int:
    """0 when nothing failed, else that of the first failure: what is mended first, as the checks build on each other.

    >>> exit_code([ok("disk", ""), warn("proxy", "", "")])
    0
    """
    return next((CODES[finding.code][1] for finding in findings if finding.level == "fail"), 0)
