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

from verticil.miner.storage.catalogue_tables import CertificateTable
from verticil.miner.storage.records import Seen
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

    def see(self, identity: Identity, certificate: x509.Certificate, *, is_carried: bool = False) -> None:
        """Note a certificate that a node showed, in a call (also a refused one) or on a file. Fast; `keep` writes it down.

        One that is older than the party's newest changes nothing: the holder of a former key cannot speak for the present one.
        """
        if identity.role is not Role.PARTY:
            return
        showing = Seen(
            party=identity.name,
            serial=f"{certificate.serial_number:x}",
            not_before=certificate.not_valid_before_utc.strftime(_TIME),
            not_after=certificate.not_valid_after_utc.strftime(_TIME),
            carried_at=self._clock().strftime(_TIME) if is_carried else "",
        )
        with self._lock:
            previous = self._known.get(identity.name)
            if showing != previous and (previous is None or previous.not_before <= showing.not_before):
                self._known[identity.name] = showing
                self._unsaved.add(identity.name)

    def keep(self) -> None:
        """Write down what is new. Blocks."""
        with self._lock:
            new, self._unsaved = [self._known[party] for party in sorted(self._unsaved)], set()
        if new:
            self._table.keep(new)

    def standing(self, party: str) -> tuple[Standing, str]:
        """Return what stands in a party's way, or how it takes part, and since when (ISO 8601); empty: nothing that is known."""
        with self._lock:
            showing = self._known.get(party)
        if showing is None:
            return "", ""
        if (since := self._revocations.since().get(int(showing.serial, 16))) is not None:
            return "revoked", since.strftime(_TIME)
        if self._clock().strftime(_TIME) > showing.not_after:
            return "expired", showing.not_after
        return ("carried", showing.carried_at) if showing.carried_at else ("", "")
