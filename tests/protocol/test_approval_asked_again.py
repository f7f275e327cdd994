"""A party says that the miner asks for its approval again when it does, and not when an older answer was on its way."""

from __future__ import annotations

import logging

import pytest

from support import party_session as session
from verticil.shared.study.states import State

pki, federation = session.pki, session.federation

WARNING = "as when a key was revoked"


@pytest.mark.parametrize(("of_the_approval", "is_said"), [(+10, False), (-10, True)])
async def test_only_a_version_after_the_approval_asks_again(
    federation: session.Federation, of_the_approval: int, is_said: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The first poll after the approval has it not: of a version before it, which the parties' race makes, or of a later one."""
    arrived: list[str] = []

    def falsify(name: str, reply: object) -> object:
        if name == "report" and "approval" in wires[-1].reported and not arrived:
            arrived.append("approval")
            reply.version = max(1, reply.version + of_the_approval)  # type: ignore[attr-defined]
        elif name == "poll" and arrived == ["approval"] and reply.tasks:  # type: ignore[attr-defined]
            arrived.append("poll")
            reply.tasks[0].approved = False  # type: ignore[attr-defined]
        return reply

    wires = federation.wires["north"]

    def interfere(name: str, wire: session.Wire) -> None:
        if name == "north":
            wire.falsify = falsify

    federation.interfere = interfere
    federation.start("north", "south")
    digest = await federation.submit()
    with caplog.at_level(logging.WARNING):
        await federation.until(digest, State.ESTIMATING, State.LEARNING)
    assert arrived == ["approval", "poll"]
    assert (WARNING in caplog.text) == is_said
