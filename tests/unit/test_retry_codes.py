"""Feature 20: what is tried again and what is not. Identity, configuration and version are for a person to mend."""

from __future__ import annotations

from unittest.mock import AsyncMock, Mock

import pytest

from verticil.party.peer import calls
from verticil.party.retry import ENDS_THE_DAEMON, TRIED_AGAIN
from verticil.party.running import node as running
from verticil.shared.errors import CODES, PeerFault, from_code
from verticil.shared.transport.calling.client import retriable

AUTHENTICATION = {
    "CERTIFICATE_INVALID",
    "CERTIFICATE_REVOKED",
    "IDENTITY_REFUSED",
    "TLS_REFUSED",
    "VERSION_UNSUPPORTED",
}


@pytest.mark.parametrize("code", sorted(AUTHENTICATION | {"CONFIG_INVALID", "SECRET_MISSING"}))
def test_feature_20_configuration_and_authentication_end_the_daemon(code: str) -> None:
    assert code in ENDS_THE_DAEMON
    assert code not in TRIED_AGAIN
    assert not retriable(from_code(code, "x"))


def test_feature_20_nothing_is_both_final_and_tried_again() -> None:
    assert set(CODES) >= ENDS_THE_DAEMON | TRIED_AGAIN
    assert not ENDS_THE_DAEMON & TRIED_AGAIN
    assert {code for code in CODES if retriable(from_code(code, "x"))} <= TRIED_AGAIN | {"NOT_READY"}


def test_feature_20_a_peers_certificate_is_waited_for_as_it_is_not_ours() -> None:
    """One peer with a wrong certificate does not end another party's daemon, nor a study: its operator mends it."""
    assert AUTHENTICATION - {"IDENTITY_REFUSED"} <= calls._WAITED_FOR


async def test_daemons_that_take_the_session_from_each_other_wait_longer_and_longer(monkeypatch, caplog):
    """Each connection works for a while, and then the other daemon with the same certificate has it."""
    paused: list[float] = []

    class EnoughError(Exception):
        pass

    async def sleep(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 8:
            raise EnoughError

    class Line:
        async def close(self) -> None:
            pass

    async def session(self, coordinator) -> None:
        self._backoff.reset()  # as a poll that was answered does
        raise PeerFault("SESSION_REPLACED", "party 'north' has connected anew since", hint="stop one of them")

    monkeypatch.setattr(running.asyncio, "sleep", sleep)
    monkeypatch.setattr(running.PartyNode, "_session", session)
    monkeypatch.setattr(running.PartyNode, "_beat", AsyncMock())
    monkeypatch.setattr("verticil.party.retry.secrets.SystemRandom", lambda: Mock(random=lambda: 1.0))
    party = running.PartyNode(Mock(), Line)
    with pytest.raises(EnoughError):
        await party._serve(Line)
    assert paused == [0.5, 2, 8, 32, 128, 300, 300, 300]
    assert "stop one of them" in caplog.text
    assert party._beat.await_args.kwargs == {"connected": False, "problem": "SESSION_REPLACED"}
