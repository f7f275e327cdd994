"""Credentials that follow their files: a renewed certificate is used from the next handshake on, without a restart.

Files are looked at when somebody asks, every few seconds at most. What does not fit together (the certificate is there and
its key is not yet, a copy is half done) leaves the former credentials in use and is a warning, once for each state of the
files. Who the node is never changes while it runs.

Also here: how soon a certificate ends, and the warnings about it, 30, 7 and 1 days before.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.config import Federation
from verticil.shared.federation.identity.pki import (
    Credentials,
    key_files,
    load_credentials,
    read_certificates,
    utc_now,
)
from verticil.shared.storage.disk import FollowedFiles

WARN_DAYS: Final = (1, 7, 30)
"""Days before the end of a certificate at which a node warns, ascending."""

_DAY: Final = dt.timedelta(days=1)
_log = logging.getLogger(__name__)


def expiry_warning(not_after: dt.datetime, at: dt.datetime) -> int | None:
    """Return the warning that is due: 30, 7 or 1 (days), 0 when it has expired; None while there is time.

    >>> end = dt.datetime(2027, 1, 31)
    >>> [expiry_warning(end, end - dt.timedelta(days=d)) for d in (31, 30, 7.5, 7, 1, 0)]
    [None, 30, 30, 7, 1, 0]
    """
    if at >= not_after:
        return 0
    return next((days for days in WARN_DAYS if not_after - at <= days * _DAY), None)


def expiry_words(not_after: dt.datetime, at: dt.datetime) -> str:
    """Describe how long a certificate is still valid, for people.

    >>> end = dt.datetime(2027, 1, 31)
    >>> expiry_words(end, dt.datetime(2027, 1, 1, 12)), expiry_words(end, dt.datetime(2027, 1, 30, 12))
    ('ends in 29 days', 'ends in 12 hours')
    """
    if at >= not_after:
        return "has expired"
    hours = int((not_after - at) / dt.timedelta(hours=1))
    return f"ends in {hours // 24} days" if hours >= 48 else f"ends in {hours} hours"


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateState:
    """How a node's certificate is.

    Attributes:
        valid_until: ISO 8601.
        seconds_left: negative when it has expired.
        words: for people.
        warning: 30, 7, 1 (days), 0 (expired) or None.
    """

    valid_until: str
    seconds_left: int
    words: str
    warning: int | None


def certificate_state(certificate: Path, at: dt.datetime) -> CertificateState | None:
    """Return the state of a node's certificate; None when there is none that can be read.

    Args:
        certificate: the node's certificate file.
        at: now.
    """
    try:
        not_after = read_certificates(certificate)[0].not_valid_after_utc
    except VerticilError:
        return None
    return CertificateState(
        valid_until=not_after.isoformat(),
        seconds_left=round((not_after - at).total_seconds()),
        words=expiry_words(not_after, at),
        warning=expiry_warning(not_after, at),
    )


class FollowedCredentials:
    """A node's credentials as its files have them; a `CredentialSource`. Safe in several threads.

    Args:
        first: what was read at the start.
        federation: names the authority.
        clock: UTC now.
        monotonic: clock in seconds that never jumps.
    """

    def __init__(
        self,
        first: Credentials,
        federation: Federation,
        *,
        clock: Callable[[], dt.datetime] = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._now = first
        self._federation = federation
        self._clock = clock
        self._key = first.key.with_name(first.key.name.replace(".next.", "."))
        self._files = FollowedFiles((first.certificate, *key_files(self._key)), monotonic=monotonic)
        self._lock = threading.Lock()
        self._warned: int | None = None

    def current(self) -> Credentials:
        """Return the credentials as the files have them now."""
        if self._files.changed():
            with self._lock:
                self._read()
        self._warn()
        return self._now

    def _read(self) -> None:
        identity = self._now.identity
        try:
            read = load_credentials(
                self._now.certificate,
                self._key,
                self._federation,
                role=identity.role,
                name=identity.name,
                at=self._clock(),
            )
        except VerticilError as error:
            _log.warning("the certificate cannot be read again; the one read before stays in use: %s", error)
            return
        if read.chain_pem != self._now.chain_pem:
            self._now, self._warned = read, None
            _log.info("certificate replaced: %s, valid until %s", identity, f"{read.not_after:%Y-%m-%d %H:%M} UTC")

    def _warn(self) -> None:
        now = self._clock()
        due = expiry_warning(self._now.not_after, now)
        # Under the marked authority of a demonstration certificates are of a day, and none is renewed.
        if due is not None and due != self._warned and not (due and self._now.is_demo):
            self._warned = due
            _log.warning(
                "our certificate %s %s (%s): verticil pki renew %s",
                self._now.certificate.name,
                expiry_words(self._now.not_after, now),
                f"{self._now.not_after:%Y-%m-%d %H:%M} UTC",
                self._now.certificate,
            )
