"""What revoked and expired certificates mean at the miner: an approval is void, and a party cannot be waited for as before.

An approval counts when the last party has approved. One that was signed with a certificate which is on the deny-list by then is
dropped, and asked for again: anyone who had the key can have signed it. What had become effective before stays.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from typing import Final, Literal

from cryptography import x509

from verticil.miner.storage.records import Seen
from verticil.miner.storage.tables import CertificateTable
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.transport.authorization import Revocations

Standing = Literal["", "revoked", "expired", "carried"]

_TIME: Final = "%Y-%m-%dT%H:%M:%SZ"


class Certificates:
    """Which certificate each party showed last, and what that means now. Safe in several threads.

    Args:
        table: where it is kept.
        revocations: the deny-list.
        clock: UTC now.
    """

    def __init__(self, table: CertificateTable, revocations: Revocations, clock: Callable[[], dt.datetime]) -> None:
        self._table = table
        self._revocations = revocations
        self._clock = clock
        self._lock = threading.Lock()
        self._known = table.seen()
        self._unsaved: set[str] = set()

    def see(self, identity: Identity, certificate: x509.Certificate, *, carried: bool = False) -> None:
        """A node showed its certificate, in a call (also in one that is refused) or on a file. Fast; `keep` writes it down.

        One that is older than the party's newest changes nothing: the holder of a former key cannot speak for the present one.
        """
        if identity.role is not Role.PARTY:
            return
        seen = Seen(
            party=identity.name,
            serial=f"{certificate.serial_number:x}",
            not_before=certificate.not_valid_before_utc.strftime(_TIME),
            not_after=certificate.not_valid_after_utc.strftime(_TIME),
            carried_at=self._clock().strftime(_TIME) if carried else "",
        )
        with self._lock:
            known = self._known.get(identity.name)
            if seen != known and (known is None or known.not_before <= seen.not_before):
                self._known[identity.name] = seen
                self._unsaved.add(identity.name)

    def keep(self) -> None:
        """Write down what is new. Blocks."""
        with self._lock:
            new, self._unsaved = [self._known[party] for party in sorted(self._unsaved)], set()
        if new:
            self._table.keep(new)

    def standing(self, party: str) -> tuple[Standing, str]:
        """What stands in a party's way, or how it takes part, and since when (ISO 8601); empty: nothing that is known."""
        with self._lock:
            seen = self._known.get(party)
        if seen is None:
            return "", ""
        if (since := self._revocations.since().get(int(seen.serial, 16))) is not None:
            return "revoked", since.strftime(_TIME)
        if self._clock().strftime(_TIME) > seen.not_after:
            return "expired", seen.not_after
        return ("carried", seen.carried_at) if seen.carried_at else ("", "")
