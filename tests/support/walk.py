"""The way that a value takes through the rooms of a party, measured while the program runs.

A room is a module of `verticil.party`; the package `dataset` lies behind the door of `local_dataset` and counts with it.
`verticil.shared`, on which all rooms stand, is none. A function is on the way when one of its arguments, `self` apart, is what is
followed. A stay begins when the way enters a function of another room than the one before; a return is a stay in a room that
the way had left.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import FrameType


def stays(
    run: Callable[[], object], follows: Callable[[object], bool], *, end: Callable[..., object]
) -> tuple[str, ...]:
    """The rooms in which the way stays, in order; where it returns, a room again.

    Args:
        run: its beginning; the first room is the one that this enters.
        follows: whether an argument is what is followed.
        end: the function at which it ends.
    """
    found: list[str] = []
    ended = False

    def entered(frame: FrameType, event: str, _: object) -> None:
        nonlocal ended
        module, code = str(frame.f_globals.get("__name__", "")), frame.f_code
        if event != "call" or ended or not module.startswith("verticil.party.") or code.co_name.startswith(("<", "__")):
            return
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        if found and not any(follows(frame.f_locals.get(name)) for name in arguments if name != "self"):
            return
        room = "local_dataset" if ".dataset." in module else module.removeprefix("verticil.party.")
        if not found or found[-1] != room:
            found.append(room)
        ended = code is end.__code__

    sys.setprofile(entered)
    try:
        run()
    finally:
        sys.setprofile(None)
    assert ended
    return tuple(found)


def returns(found: Sequence[str]) -> int:
    """How often a way is in a room that it had left."""
    return len(found) - len(set(found))
