"""Feature 20: what is tried again and what is not. What a person here must mend ends the daemon; the rest is waited out."""

from __future__ import annotations

from unittest.mock import AsyncMock, Mock

import pytest

from verticil.party.protocol.node import party_node as running
from verticil.party.protocol.retry import ENDS_THE_DAEMON, OTHERS_MEND, TRIED_AGAIN, ends_the_daemon, is_waited_out
from verticil.party.protocol.with_peers import network
from verticil.shared.core.errors import CODES, PeerFault, from_code
from verticil.shared.federation.transport.errors_on_wire import from_detail, retriable
from verticil.wire.v1 import common_pb2

AUTHENTICATION = {
    "CERTIFICATE_INVALID",
    "CERTIFICATE_REVOKED",
    "IDENTITY_REFUSED",
    "TLS_REFUSED",
    "VERSION_UNSUPPORTED",
}


@pytest.mark.parametrize("code", ["CONFIG_INVALID", "LEDGER_OLDER", "SECRET_MISSING", "STATE_CORRUPT"])
def test_feature_20_only_a_fault_of_this_machine_ends_the_daemon(code: str) -> None:
    own, told = from_code(code, "x"), from_detail(common_pb2.ErrorDetail(code=code), teller="the miner")
    assert ends_the_daemon(own)
    assert not is_waited_out(own)
    assert not ends_the_daemon(told)
    assert is_waited_out(told)


@pytest.mark.parametrize("code", sorted(CODES))
def test_no_code_that_another_node_sends_ends_the_daemon(code: str) -> None:
    assert not ends_the_daemon(from_detail(common_pb2.ErrorDetail(code=code), teller="the miner"))


@pytest.mark.parametrize("code", sorted(AUTHENTICATION))
def test_who_answers_wrongly_is_waited_out(code: str) -> None:
    assert is_waited_out(from_code(code, "x"))
    assert not retriable(from_code(code, "x"))  # not the same call at once: the connection, after a while


def test_feature_20_nothing_is_both_final_and_tried_again() -> None:
    assert set(CODES) >= ENDS_THE_DAEMON | OTHERS_MEND | TRIED_AGAIN
    assert not ENDS_THE_DAEMON & (OTHERS_MEND | TRIED_AGAIN)
    assert {code for code in CODES if retriable(from_code(code, "x"))} <= TRIED_AGAIN | {"NOT_READY"}


def test_feature_20_a_peers_certificate_is_waited_for_as_it_is_not_ours() -> None:
    """One peer with a wrong certificate does not end another party's daemon, nor a study: its operator mends it."""
    assert AUTHENTICATION - {"IDENTITY_REFUSED"} <= network._WAITED_FOR


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
    monkeypatch.setattr("verticil.party.protocol.retry.secrets.SystemRandom", lambda: Mock(random=lambda: 1.0))
    party = running.PartyNode(Mock(), Line)
    with pytest.raises(EnoughError):
        await party._serve(Line)
    assert paused == [0.5, 2, 8, 32, 128, 300, 300, 300]
    assert "stop one of them" in caplog.text
    assert party._beat.await_args.kwargs == {"is_connected": False, "problem": "SESSION_REPLACED"}
