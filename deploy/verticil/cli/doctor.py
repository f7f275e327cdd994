"""``verticil doctor``: what stands between this node and its work, check by check, and what to do about it.

It reads configuration, certificates, the state and the header of the table, opens a few connections and asks other nodes for
their health. It sends nothing about any study, makes and changes nothing, and never shows a value of a table.
The exit code is that of the first check that failed (README); warnings alone are 0.
"""

from __future__ import annotations

import asyncio
import dataclasses
import os
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from verticil.cli.output import Format, FormatOption, emit, text_console
from verticil.shared.errors import DataFault, Misuse, PeerFault, VerticilError

if TYPE_CHECKING:
    from verticil.cli.doctor_checks import Finding
    from verticil.party.config import PartyConfig
    from verticil.shared.audit import Verified
    from verticil.shared.config import Federation
    from verticil.shared.identity.pki import Credentials
    from verticil.shared.membership.revocation import DenyList

_COLOURS: Final = {"ok": "green", "warn": "yellow", "fail": "red"}
_PARTY_RESERVE_BYTES: Final = 64 << 20


def doctor(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="party.toml or miner.toml.")] = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Check certificates, state (database, audit log, secret), data, disk, connection, clock; say what to do. Changes nothing."""
    from verticil.cli.doctor_checks import exit_code

    findings = asyncio.run(_collect(config, show=form is Format.text))
    code = exit_code(findings)
    payload = {"config": str(config), "ok": code == 0, "checks": [dataclasses.asdict(finding) for finding in findings]}
    if not emit(payload, form=form):
        counted = {level: sum(finding.level == level for finding in findings) for level in _COLOURS}
        text_console().print(
            f"{counted['ok']} ok, {counted['warn']} {'warning' if counted['warn'] == 1 else 'warnings'}, {counted['fail']} failed"
        )
    if code:
        raise typer.Exit(code)


async def _collect(config: Path, *, show: bool) -> list[Finding]:
    from verticil.cli.doctor_checks import failed

    findings: list[Finding] = []
    console = text_console()
    try:
        async for finding in _checks(config):
            findings.append(finding)
            if show:
                console.print(f"[{_COLOURS[finding.level]}]{finding.level:4}[/] ", end="")
                console.print(f"{finding.check}: {finding.detail}", markup=False)
                if finding.hint and finding.level != "ok":
                    console.print(f"     -> {finding.hint}", markup=False)
    except VerticilError as error:  # the configuration itself
        findings.append(failed("configuration", error))
        if show:
            console.print("[red]fail[/] ", end="")
            console.print(f"configuration: {error.message}", markup=False)
            if error.hint:
                console.print(f"     -> {error.hint}", markup=False)
    return findings


async def _checks(path: Path) -> AsyncIterator[Finding]:
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Misuse(
            "FILE_MISSING", f"{path}: no such file", hint="give the path of party.toml or miner.toml"
        ) from None
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError):
        raise Misuse("CONFIG_INVALID", f"{path}: not UTF-8 TOML") from None
    checks = _of_miner(path) if "listen" in document else _of_party(path)
    async for finding in checks:
        yield finding


async def _of_party(path: Path) -> AsyncIterator[Finding]:
    from verticil.cli.doctor_checks import check_disk, check_node, check_private_files, ok
    from verticil.party.config import load_party
    from verticil.party.storage.secret import FILE_NAME as SITE_SECRET
    from verticil.shared.config import RELAY
    from verticil.shared.identity.identity import Identity, Role
    from verticil.shared.identity.pki import utc_now

    config = load_party(path)
    yield ok("configuration", f"{path.name}: party '{config.name}' of federation '{config.federation.name}'")
    credentials: Credentials | None = None
    for finding, found in _identity(
        config.federation, config.certificate, config.key, config.signing_key, Role.PARTY, config.name
    ):
        credentials = found or credentials
        yield finding
    private = {
        "private key": config.key,
        "signing key": config.signing_key,
        "linkage key": config.linkage_key,
        "site secret": config.state_directory / SITE_SECRET,
        **({"sealing key": config.sealing_key} if config.peer is not None and config.federation.relays else {}),
    }
    for finding in check_private_files(private):
        yield finding
    if config.peer is not None and config.federation.relays:
        yield _sealing(config)
    for finding in _state(config):
        yield finding
    for finding in _tables(config):
        yield finding
    yield check_disk(config.state_directory, reserve_bytes=_PARTY_RESERVE_BYTES)
    if credentials is None:
        return
    denied = _deny_list(config.federation, credentials, config.state_directory)
    yield _not_revoked(credentials, denied)
    endpoint = config.federation.endpoint
    if endpoint is not None:
        yield _proxy(endpoint)
        async for finding in check_node(endpoint, credentials, clock=utc_now, revocations=denied):
            yield finding
    if config.peer is not None:
        for name, address in config.federation.peers.items():
            if name != config.name and address != RELAY:
                peer = Identity(federation=config.federation.name, role=Role.PARTY, name=name)
                async for finding in check_node(address, credentials, clock=utc_now, expected=peer, revocations=denied):
                    yield finding


async def _of_miner(path: Path) -> AsyncIterator[Finding]:
    from verticil.cli.doctor_checks import check_disk, check_node, check_private_files, ok, warn
    from verticil.miner.config import load_miner
    from verticil.shared.config import RELAY
    from verticil.shared.identity.identity import Role
    from verticil.shared.identity.pki import utc_now
    from verticil.shared.transport.channel import split_endpoint

    config = load_miner(path)
    federation = config.federation
    yield ok("configuration", f"{path.name}: miner '{config.name}' of federation '{federation.name}'")
    credentials: Credentials | None = None
    for finding, found in _identity(
        federation, config.certificate, config.key, config.signing_key, Role.MINER, config.name
    ):
        credentials = found or credentials
        yield finding
    for finding in check_private_files({"private key": config.key, "signing key": config.signing_key}):
        yield finding
    yield check_disk(config.state_directory, reserve_bytes=config.limits.disk_reserve_bytes)
    for finding in _miner_state(config.state_directory):
        yield finding
    if credentials is None:
        return
    if federation.relays:
        limit = config.limits.max_relay_bytes
        relayed = ", ".join(name for name, address in federation.peers.items() if address == RELAY)
        if limit:
            yield ok("relay", f"{limit:,} bytes of memory for parties that cannot be dialled: {relayed}")
        else:
            yield warn(
                "relay", f"this miner relays nothing, and {relayed} cannot be dialled", "set [limits] max_relay_bytes"
            )
    yield _host_in_certificate(federation.miner_endpoint, credentials)
    denied = _deny_list(federation, credentials, config.state_directory)
    yield _not_revoked(credentials, denied)
    host, port = split_endpoint(config.listen)
    if port == 0:
        yield warn("listen", f"{config.listen}: any free port", "parties dial the one in federation.toml: name it here")
        return
    own = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 - compared, not bound
    name = split_endpoint(federation.miner_endpoint)[0]
    async for finding in check_node(f"{own}:{port}", credentials, clock=utc_now, server_name=name, revocations=denied):
        if finding.check == "TCP" and finding.level == "fail":
            yield warn("listen", f"nothing listens on {own}:{port}", "start it: verticil miner run")
        else:
            yield finding


def _miner_state(state: Path) -> Iterator[Finding]:
    from verticil.cli.doctor_checks import failed, ok
    from verticil.miner.storage.audit import MinerAudit
    from verticil.miner.storage.memory import inspect_catalogue

    try:
        version = inspect_catalogue(state)
        of = f"whole, of version {version}, and" if version else "there is none yet, which is"
        yield ok("catalogue", f"{of} not behind the audit log, nor behind the studies' folders")
    except VerticilError as error:
        yield failed("catalogue", error)
    yield _log(MinerAudit(state).verify)


def _log(verify: Callable[[], Verified]) -> Finding:
    from verticil.cli.doctor_checks import failed, ok

    try:
        found = verify()
    except VerticilError as error:
        return failed("audit log", error)
    return ok("audit log", f"{found.n_lines} lines hold, head {found.head.hex()[:16]}")


def _identity(
    federation: Federation, certificate: Path, key: Path, signing_key: Path, role: str, name: str
) -> Iterator[tuple[Finding, Credentials | None]]:
    from verticil.cli.doctor_checks import check_certificate, failed, ok
    from verticil.shared.identity.identity import Role
    from verticil.shared.identity.pki import load_credentials, utc_now
    from verticil.shared.identity.signing import SigningKey

    yield check_certificate(
        lambda: load_credentials(certificate, key, federation, role=Role(role), name=name), at=utc_now()
    )
    try:
        SigningKey.load(signing_key, certificate)
        yield ok("signing certificate", "fits the signing key"), None
    except VerticilError as error:
        yield failed("signing certificate", error), None


def _tables(config: PartyConfig) -> Iterator[Finding]:
    from verticil.cli.doctor_checks import failed, ok
    from verticil.party.dataset.table import header

    for name, rule in config.datasets.items():
        check = f"data set '{name}'"
        try:
            names = header(rule)
        except VerticilError as error:
            yield failed(check, error)
            continue
        if rule.id not in names:
            fault = DataFault(
                "DATA_COLUMN_MISSING",
                f"{rule.path.name}: no column '{rule.id}' in the header",
                hint=f"say in [dataset.{name}] id which column identifies people",
            )
            yield failed(check, fault)
        else:
            yield ok(check, f"readable, {len(names)} columns")


def _state(config: PartyConfig) -> Iterator[Finding]:
    from verticil.cli.doctor_checks import failed, ok, warn
    from verticil.party.audit.log import AuditLog
    from verticil.party.operator.commands import told_older
    from verticil.party.site import Site
    from verticil.party.storage.database import FILE_NAME, SCHEMA_VERSION
    from verticil.party.storage.secret import read_secret
    from verticil.shared.storage.database import version_of

    check = "database"
    try:
        if 0 < (version := version_of(config.state_directory / FILE_NAME)) < SCHEMA_VERSION:
            later = f"{FILE_NAME} is of version {version}: the next command or daemon brings it to {SCHEMA_VERSION}"
            yield warn(check, later, "make a backup first with the version of verticil that wrote it")
            return
        with Site.look(config) as site:
            site.database.check()
            yield ok(check, f"{FILE_NAME} is whole, of version {SCHEMA_VERSION}")
            yield _log(AuditLog(site.database, config.state_directory).verify)
            check = "site secret"
            site.ledger.check_secret(read_secret(config.state_directory).value)
            yield ok(check, "fits the ledger")
            check = "state"
            if (older := told_older(config, site.state.heartbeat())) is not None:
                raise older
            yield ok(check, f"{len(site.ledger.rows())} ledger rows, and all that the audit log tells is in them")
    except VerticilError as error:
        yield failed("state" if error.code == "LEDGER_OLDER" else check, error)


def _sealing(config: PartyConfig) -> Finding:
    from verticil.cli.doctor_checks import failed, ok, warn
    from verticil.party.protocol.relay.network import open_seals

    try:
        known = open_seals(config).peers
    except VerticilError as error:
        return failed("sealing key", error)
    if missing := [name for name in config.federation.peers if name not in {config.name, *known}]:
        hint = "they read them out: verticil pki seal NAME.crt; put them into every site's federation.toml"
        return warn("sealing key", f"[sealing] has no key of {', '.join(missing)}", hint)
    return ok("sealing key", f"is the pinned one; those of {len(known)} other parties are known")


def _deny_list(federation: Federation, credentials: Credentials, state: Path) -> DenyList:
    from verticil.shared.membership.revocation import FILE_NAME, DenyList

    return DenyList(credentials.ca_pem, [federation.ca_certificate.with_name(FILE_NAME), state / FILE_NAME])


def _not_revoked(credentials: Credentials, denied: DenyList) -> Finding:
    from cryptography import x509

    from verticil.cli.doctor_checks import failed, ok
    from verticil.shared.transport.authorization import check_revoked

    serial = x509.load_pem_x509_certificate(credentials.chain_pem).serial_number
    try:
        check_revoked(serial, credentials.identity, denied)
    except PeerFault as fault:
        return failed("deny-list", fault)
    number = denied.number()
    return ok(
        "deny-list", f"number {number}, {len(denied.serials())} serials, not ours" if number else "none known here"
    )


def _host_in_certificate(endpoint: str, credentials: Credentials) -> Finding:
    from cryptography import x509

    from verticil.cli.doctor_checks import failed, ok
    from verticil.shared.transport.channel import split_endpoint

    host = split_endpoint(endpoint)[0]
    certificate = x509.load_pem_x509_certificate(credentials.chain_pem)
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    hosts = {*names.get_values_for_type(x509.DNSName), *map(str, names.get_values_for_type(x509.IPAddress))}
    if host.lower() in {name.lower() for name in hosts}:
        return ok("endpoint", f"{host} is a name of this certificate")
    fault = PeerFault(
        "CERTIFICATE_INVALID",
        f"endpoint: federation.toml says {host}, which is not a name of this certificate",
        hint=f"have it renewed with that name: verticil pki renew {credentials.certificate} --host {host}",
    )
    return failed("endpoint", fault)


def _proxy(endpoint: str) -> Finding:
    from verticil.cli.doctor_checks import check_proxy

    return check_proxy(endpoint, os.environ)
