"""What the authority's operator does: sign requests, see what was issued, revoke.

The register is the folder ``issued/`` beside ``ca.crt``: each issuance is one public file, made once and never changed, so
signing for one site cannot touch another's. What is revoked stands in the deny-list (`revocation`). Neither file holds a
secret; ``ca.key`` does, and is all that must be kept from others.

Who asks for a name that somebody has already is refused, unless the request is a renewal signed with the key in use, or the
operator says that the site starts anew (`replace`). A renewal keeps name and role; the operator re-enters nothing.

A name whose certificates were revoked or have expired may come back: the operator is told so, and compares the key hash. With a
key that was revoked nothing comes back. A certificate that has expired is renewed as knowingly as a first request is signed.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from verticil.pki.request import Request
from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.federation.identity.authority import ISSUED, Authority, certify, chain_pem, record
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.pki import (
    check_issued,
    check_validity,
    identity_of,
    read_certificates,
    utc_now,
)
from verticil.shared.federation.membership.revocation import FILE_NAME, make_list, number_of, parse_list, revoked_in
from verticil.shared.storage.disk import create_files, replace_file, write_fault

_SERIAL: Final = re.compile(r"(?:0x)?([0-9a-fA-F]{1,40})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One issuance.

    Attributes:
        identity: whose.
        serials: of the TLS certificate and of the signing certificate.
        not_before, not_after: when both are valid (UTC).
        revoked_at: since when they count no more; None while they do.
        certificates: the TLS certificate, the signing certificate.
    """

    identity: Identity
    serials: tuple[int, ...]
    not_before: dt.datetime
    not_after: dt.datetime
    revoked_at: dt.datetime | None
    certificates: tuple[x509.Certificate, ...]

    def is_current(self, at: dt.datetime) -> bool:
        """Return whether it counts at a time."""
        return self.revoked_at is None and self.not_before <= at <= self.not_after


def entries(directory: Path) -> list[Entry]:
    """Return all issuances of the authority in `directory`, by role, name and time. (Those of version 0.1 were not recorded.)

    Raises:
        Misuse: FILE_MISSING without an authority.
        PeerFault: CERTIFICATE_INVALID, a file of the register is broken.
    """
    issuer = read_certificates(directory / "ca.crt")[0]
    revocations = _read_revocations(directory, issuer)[1]
    all_entries: list[Entry] = []
    for path in sorted((directory / ISSUED).glob("*.crt")):
        certificates = read_certificates(path)
        all_entries.append(_entry(certificates, revocations))
    return sorted(all_entries, key=lambda entry: (entry.identity.role, entry.identity.name, entry.not_before))


def _entry(certificates: Sequence[x509.Certificate], revocations: Mapping[int, dt.datetime]) -> Entry:
    serials = tuple(certificate.serial_number for certificate in certificates)
    return Entry(
        identity=identity_of(certificates[0]),
        serials=serials,
        not_before=certificates[0].not_valid_before_utc,
        not_after=certificates[0].not_valid_after_utc,
        revoked_at=min((revocations[serial] for serial in serials if serial in revocations), default=None),
        certificates=tuple(certificates),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestStatus:
    """What the register says of a request that may be signed.

    Attributes:
        is_renewal: of a certificate that counts: there is nothing left to decide.
        notes: what the operator should know before signing, in words.
    """

    is_renewal: bool
    notes: tuple[str, ...]


def check_request(
    authority: Authority, request: Request, *, replace: bool = False, role: Role | None = None, at: dt.datetime
) -> RequestStatus:
    """Return whether a request may be signed at all.

    Args:
        authority: who would sign.
        request: what is asked for.
        replace: the site starts anew: its name is taken, and the request is not signed with the key in use.
        role: the role that the operator expects; any when absent.
        at: now.

    Raises:
        Misuse: CONFIG_INVALID, another federation's; USAGE, another role than expected.
        PeerFault: IDENTITY_REFUSED, the name is taken; CERTIFICATE_INVALID, what it renews is not this authority's;
            CERTIFICATE_REVOKED, a key in it, or what it renews, was revoked.
    """
    if request.identity.federation != authority.federation:
        raise Misuse(
            "CONFIG_INVALID",
            f"request: for federation '{request.identity.federation}', expected '{authority.federation}'",
            hint="the site used the federation.toml of another federation",
        )
    if role is not None and request.identity.role is not role:
        raise Misuse("USAGE", f"--role: the request asks for '{request.identity.role}', expected '{role}'")
    all_entries = entries(authority.directory)
    _refuse_revoked(authority, request, all_entries)
    notes: list[str] = []
    if request.renews is not None:
        check_issued(request.renews, authority.certificate, what="certificate to renew")
        if at <= request.renews.not_valid_after_utc:
            check_validity(request.renews, at=at, what="certificate to renew")
            return RequestStatus(is_renewal=True, notes=())
        notes.append(
            f"renews a certificate that expired on {request.renews.not_valid_after_utc:%Y-%m-%d}, with its key"
        )
    own = [entry for entry in all_entries if entry.identity == request.identity]
    for entry in own:
        if entry.is_current(at) and not replace and entry.certificates[0].public_key() != request.tls_key:
            raise PeerFault(
                "IDENTITY_REFUSED",
                f"request: {request.identity} has a certificate with another key until {entry.not_after:%Y-%m-%d}",
                hint="does the site know of this request? Its old keys are lost or were read: first"
                f" verticil pki revoke {request.identity.name}, then sign; both are to count: sign with --replace",
            )
    revoked_entries = [entry for entry in own if entry.revoked_at is not None]
    if revoked_entries:
        last = max(revoked_entries, key=lambda entry: entry.revoked_at or at)
        notes.append(f"this name was revoked on {last.revoked_at:%Y-%m-%d}, serial {last.serials[0]:x}: it joins anew")
    elif own and request.renews is None and not any(entry.is_current(at) for entry in own):
        notes.append(
            f"the last certificate of this name expired on {max(e.not_after for e in own):%Y-%m-%d}: it joins anew"
        )
    return RequestStatus(is_renewal=False, notes=tuple(notes))


def _refuse_revoked(authority: Authority, request: Request, all_entries: Sequence[Entry]) -> None:
    """Refuse what was revoked: the certificate that is renewed, and keys of any certificate on the deny-list."""
    again = f"verticil pki request {request.identity.name} --role {request.identity.role} --new-keys"
    if request.renews is not None and (
        request.renews.serial_number in _read_revocations(authority.directory, authority.certificate)[1]
    ):
        raise PeerFault(
            "CERTIFICATE_REVOKED",
            f"certificate to renew: serial {request.renews.serial_number:x} was revoked",
            hint=f"it is not renewed; the site starts anew with new keys: {again}",
        )
    for entry in all_entries:
        keys = [certificate.public_key() for certificate in entry.certificates]
        if entry.revoked_at is not None and (request.tls_key in keys or request.signing_key in keys):
            raise PeerFault(
                "CERTIFICATE_REVOKED",
                f"request: a key in it is that of serial {entry.serials[0]:x}, which was revoked on {entry.revoked_at:%Y-%m-%d}",
                hint=f"the site starts anew with new keys: {again}",
            )


def sign_request(
    authority: Authority,
    request: Request,
    out: Path,
    *,
    days: int = 90,
    replace: bool = False,
    role: Role | None = None,
    at: dt.datetime | None = None,
) -> Entry:
    """Sign a request, and write what the site installs: its two certificates and the authority's, in one PEM file.

    Args:
        authority: who signs.
        request: what was asked for, and shown to the operator.
        out: the file to make; a private key is in none of these.
        days: how long both certificates are valid.
        replace, role, at: as for `check_request`.

    Raises:
        Misuse: FILE_EXISTS; and as `check_request`.
        PeerFault: as `check_request`.
        DataFault: DISK_FULL; nothing was issued then.
    """
    now = utc_now() if at is None else at
    check_request(authority, request, replace=replace, role=role, at=now)
    certificates = certify(
        authority, request.identity, request.tls_key, request.signing_key, hosts=request.hosts, days=days, at=now
    )
    answer = chain_pem((*certificates, authority.certificate))
    create_files({out: (answer, 0o644), **record(authority, certificates)}, exists_hint="name another file with --out")
    return _entry(certificates, {})


def revoke(authority: Authority, target: str, *, at: dt.datetime | None = None) -> tuple[Path, list[Entry], int]:
    """Revoke a certificate, or all that a node has, and write the signed deny-list.

    Args:
        authority: whose certificates.
        target: a serial number in hex, a name (all roles' current certificates of that name), or the path of a certificate.
        at: now.

    Returns:
        The deny-list's path, the entries of the register that are revoked by this, and how many serials the list has.

    Raises:
        Misuse: USAGE, nothing of the kind was issued; FILE_MISSING where nothing can be written.
        PeerFault: CERTIFICATE_INVALID, the certificate is another authority's, or the present list is broken.
        DataFault: DISK_FULL; the old list stays.
    """
    now = (utc_now() if at is None else at).replace(microsecond=0)
    number, revocations = _read_revocations(authority.directory, authority.certificate)
    all_entries = entries(authority.directory)
    matching = [entry for entry in all_entries if entry.identity.name == target and entry.is_current(now)]
    serials = {serial for entry in matching for serial in entry.serials}
    if not matching:
        serials = set(_serials_of(authority, target, all_entries))
        matching = [entry for entry in all_entries if serials & set(entry.serials)]
    all_revocations = {**dict.fromkeys(serials, now), **revocations}
    path = authority.directory / FILE_NAME
    deny_list = make_list(authority, all_revocations, number=number + 1, at=now)
    try:
        replace_file(path, deny_list.public_bytes(Encoding.PEM), part=path.with_name(f".{path.name}.part"))
        path.chmod(0o644)  # public, and to be copied
    except OSError as error:
        raise write_fault(error, path) from None
    return path, matching, len(all_revocations)


def _serials_of(authority: Authority, target: str, all_entries: Sequence[Entry]) -> tuple[int, ...]:
    if Path(target).suffix == ".crt" and Path(target).is_file():
        certificates = read_certificates(Path(target))
        for certificate in certificates:
            check_issued(certificate, authority.certificate, what=target)
        return tuple(certificate.serial_number for certificate in certificates)
    if (match := _SERIAL.fullmatch(target)) and int(match[1], 16):
        serial = int(match[1], 16)
        return next((entry.serials for entry in all_entries if serial in entry.serials), (serial,))
    raise Misuse(
        "USAGE",
        f"revoke: got '{target[:80]}', expected a serial number in hex, the name of a node with a current certificate,"
        " or the path of a certificate",
        hint="verticil pki list --ca DIR shows names and serials",
    )


def _read_revocations(directory: Path, issuer: x509.Certificate) -> tuple[int, dict[int, dt.datetime]]:
    """Number and entries of the present deny-list."""
    path = directory / FILE_NAME
    if not path.exists():
        return 0, {}
    deny_list = parse_list(path.read_bytes(), issuer, what=str(path))
    return number_of(deny_list), revoked_in(deny_list)
