"""Feature 20: what is tried again and what is not. Identity, configuration and version are for a person to mend."""

from __future__ import annotations

import pytest

from verticil.party.peer import calls
from verticil.party.retry import ENDS_THE_DAEMON, TRIED_AGAIN
from verticil.shared.errors import CODES, from_code
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
