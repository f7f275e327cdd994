"""The deny-list: serial numbers of certificates that count no more although they have not expired.

It is a certificate revocation list (RFC 5280 section 5) that the authority signs: ``revoked.crl`` beside ``ca.crt``, in PEM
form, readable by ``openssl crl``. Its number grows with every revocation, and a node never goes back to a lower one. A node
reads it beside the authority's certificate that its federation.toml names; a party also gets it from the miner (Hello,
Poll) and from peers, and keeps what it got in its state folder. Without a list no certificate is revoked. A list does
not go out of date: it is the short life of certificates that bounds what a node does not hear of.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding

from verticil.shared.core.errors import Misuse, PeerFault, VerticilError
from verticil.shared.documents.foreign_files.limits import DENY_LIST_BYTES
from verticil.shared.documents.foreign_files.reading import TooLargeError, read_at_most
from verticil.shared.federation.identity.authority import Authority
from verticil.shared.federation.identity.pki import UNREADABLE
from verticil.shared.storage.disk import EVERY_SECONDS, FollowedFiles, replace_file, write_fault

FILE_NAME: Final = "revoked.crl"
_LIMIT_BYTES: Final = 1_048_576

_log = logging.getLogger(__name__)


def make_list(
    authority: Authority, since_by_serial: Mapping[int, dt.datetime], *, number: int, at: dt.datetime
) -> x509.CertificateRevocationList:
    """Sign a list.

    Args:
        authority: whose list.
        since_by_serial: serial number -> since when.
        number: higher than that of every list before.
        at: now.
    """
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(at)
        .next_update(max(authority.certificate.not_valid_after_utc, at + dt.timedelta(days=1)))
        .add_extension(x509.CRLNumber(number), critical=False)
    )
    for serial, since in sorted(since_by_serial.items()):
        entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(since).build()
        builder = builder.add_revoked_certificate(entry)
    return builder.sign(authority.key, hashes.SHA256())


def parse_list(data: bytes, authority: x509.Certificate, *, what: str) -> x509.CertificateRevocationList:
    """Read a list, PEM or DER, and verify that the authority signed it.

    Raises:
        PeerFault: CERTIFICATE_INVALID.
    """
    deny_list = None
    if len(data) <= _LIMIT_BYTES:
        try:
            is_pem = data.lstrip().startswith(b"-----BEGIN")
            deny_list = x509.load_pem_x509_crl(data) if is_pem else x509.load_der_x509_crl(data)
            if deny_list.is_signature_valid(authority.public_key()) and number_of(deny_list) > 0:  # type: ignore[arg-type]
                return deny_list
        except (*UNREADABLE, x509.ExtensionNotFound, x509.DuplicateExtension):
            deny_list = None
    raise PeerFault(
        "CERTIFICATE_INVALID",
        f"{what}: {'not signed by' if deny_list is not None else 'not a deny-list of'} the federation's authority",
        hint="ask the coordinator for revoked.crl again",
    )


def number_of(deny_list: x509.CertificateRevocationList) -> int:
    """Return the list's number; a later list has a higher one."""
    return deny_list.extensions.get_extension_for_class(x509.CRLNumber).value.crl_number


def revoked_in(deny_list: x509.CertificateRevocationList) -> dict[int, dt.datetime]:
    """Serial number -> since when, of a list."""
    return {entry.serial_number: entry.revocation_date_utc for entry in deny_list}


def _read_list(path: Path, authority: x509.Certificate) -> x509.CertificateRevocationList:
    """Read the list of a file, and verify it.

    Raises:
        FileNotFoundError: there is no such file.
        Misuse: FILE_MISSING, it is there and cannot be read.
        PeerFault: CERTIFICATE_INVALID.
    """
    try:
        data = read_at_most(path, DENY_LIST_BYTES)
    except FileNotFoundError:
        raise
    except OSError as error:
        hint = "let the account that runs the node read this file; it holds no secret"
        raise Misuse("FILE_MISSING", f"{path}: cannot be read ({error.strerror})", hint=hint) from None
    except TooLargeError as error:
        hint = "ask the coordinator for revoked.crl again"
        raise PeerFault("CERTIFICATE_INVALID", f"{path}: {error}, expected a deny-list", hint=hint) from None
    return parse_list(data, authority, what=str(path))


class DenyList:
    """The newest list that a node knows of. Safe in several threads.

    Implements `verticil.shared.federation.transport.authorization.Revocations`.

    A file that does not hold or cannot be read is a warning and changes nothing: it can take no certificate out of the list, and
    a broken copy must not stop a federation. A deleted file changes nothing either.

    Args:
        authority: certificate of the federation's authority, PEM.
        sources: files in which a list may stand.
        path: where the newest list is kept; one of the sources as well. None: in memory only.
        every_seconds: the files are looked at no more often.
        monotonic: clock in seconds that never jumps.
    """

    def __init__(
        self,
        authority: bytes,
        sources: Sequence[Path],
        *,
        path: Path | None = None,
        every_seconds: float = EVERY_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._authority = x509.load_pem_x509_certificate(authority)
        places: list[Path] = [*sources] if path is None else [*sources, path]
        self._sources = tuple(dict.fromkeys(places))
        self._kept = path
        self._lock = threading.Lock()
        self._number, self._serials, self._encoded = 0, frozenset[int](), b""
        self._since: Mapping[int, dt.datetime] = {}
        self._faults: Mapping[Path, VerticilError] = {}
        self._files = FollowedFiles(self._sources, every_seconds=every_seconds, monotonic=monotonic)
        self._read()

    def serials(self) -> frozenset[int]:
        """Serial numbers that count no more."""
        self._look()
        return self._serials

    def since(self) -> Mapping[int, dt.datetime]:
        """Serial number -> since when it counts no more."""
        self._look()
        return self._since

    def number(self) -> int:
        """Return the list's number; 0 without a list."""
        self._look()
        return self._number

    def faults(self) -> tuple[VerticilError, ...]:
        """Return what is wrong with the files that are there and could not be used, in the order of the sources."""
        self._look()
        return tuple(self._faults.values())

    def newer_than(self, number: int) -> bytes:
        """Return the list for somebody who knows the one with that number: DER; empty when theirs is as new."""
        self._look()
        return self._encoded if self._number > number else b""

    def offer(self, data: bytes) -> bool:
        """Take a list that somebody tells, if it is newer and the authority's.

        Returns:
            Whether it is in use from now on.

        Raises:
            PeerFault: CERTIFICATE_INVALID, the authority did not sign it.
        """
        deny_list = parse_list(data, self._authority, what="deny-list that was sent")
        with self._lock:
            return self._take(deny_list)

    def _look(self) -> None:
        if self._files.changed():
            self._read()

    def _read(self) -> None:
        with self._lock:
            faults: dict[Path, VerticilError] = {}
            for path in self._sources:
                try:
                    self._take(_read_list(path, self._authority))
                except FileNotFoundError:
                    continue
                except VerticilError as fault:
                    faults[path] = fault
            logged = {str(fault) for fault in self._faults.values()}
            in_use = "the deny-list in use stays as it is" if self._number else "no deny-list is in use"
            for text in map(str, faults.values()):
                if text not in logged:
                    _log.warning("%s; %s", text, in_use)
            self._faults = faults
        if any(isinstance(fault, Misuse) for fault in faults.values()):
            self._files.expect_change()

    def _take(self, deny_list: x509.CertificateRevocationList) -> bool:
        if number_of(deny_list) <= self._number:
            return False
        self._since = revoked_in(deny_list)
        self._serials = frozenset(self._since)
        self._number, self._encoded = number_of(deny_list), deny_list.public_bytes(Encoding.DER)
        _log.info("deny-list %d in use: %d certificates revoked", self._number, len(self._serials))
        if self._kept is not None:
            try:
                self._kept.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                replace_file(
                    self._kept,
                    deny_list.public_bytes(Encoding.PEM),
                    part=self._kept.with_name(f".{self._kept.name}.part"),
                )
            except OSError as error:
                fault: VerticilError = write_fault(error, self._kept)
                _log.warning("the deny-list is in use but could not be kept: %s", fault)
        return True
