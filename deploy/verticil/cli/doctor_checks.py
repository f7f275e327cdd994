"""All checks of a party or of a miner, in the order in which one builds on another."""

from __future__ import annotations

import os
import tomllib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cryptography import x509

from verticil.shared.core.errors import DataFault, Misuse, PeerFault, VerticilError
from verticil.shared.documents.config import RELAY, Federation, toml_text
from verticil.shared.federation.audit import Verified
from verticil.shared.federation.identity.identity import Identity, Role
from verticil.shared.federation.identity.key_words import key_words
from verticil.shared.federation.identity.pki import Credentials, load_credentials, utc_now
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.membership.revocation import FILE_NAME as DENY_LIST
from verticil.shared.federation.membership.revocation import DenyList
from verticil.shared.federation.transport.authorization import check_revoked
from verticil.shared.federation.transport.channel import split_endpoint
from verticil.shared.federation.transport.sealing import load_sealing_key
from verticil.shared.storage.database import version_of
from verticil.shared.study.protocol import MINER

if TYPE_CHECKING:
    from verticil.miner.config import MinerConfig
    from verticil.party.config import PartyConfig
    from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.cli.doctor_findings import Finding, fail, ok, warn
from verticil.cli.machine_checks import check_certificate, check_disk, check_private_files, check_proxy
from verticil.cli.node_checks import check_node

_PARTY_RESERVE_BYTES: Final = 64 << 20


async def checks(path: Path) -> AsyncIterator[Finding]:
    """Yield all checks of the node whose party.toml or miner.toml is at `path`."""
    if not path.exists():
        raise Misuse("FILE_MISSING", f"{path}: no such file", hint="give the path of party.toml or miner.toml")
    try:
        document = tomllib.loads(toml_text(path))
    except tomllib.TOMLDecodeError:
        raise Misuse("CONFIG_INVALID", f"{path}: not UTF-8 TOML") from None
    checks = _of_miner(path) if "listen" in document else _of_party(path)
    async for finding in checks:
        yield finding


async def _of_party(path: Path) -> AsyncIterator[Finding]:
    from verticil.party.config import load_party
    from verticil.party.storage.secret import FILE_NAME as SITE_SECRET

    config = load_party(path)
    yield ok("configuration", f"{path.name}: party '{config.name}' of federation '{config.federation.name}'")
    identity, credentials = _identity(config, Role.PARTY)
    for finding in identity:
        yield finding
    private = {
        "private key": config.key,
        "signing key": config.signing_key,
        "linkage key": config.linkage_key,
        "site secret": config.state_directory / SITE_SECRET,
        **({"sealing key": config.sealing_key} if _seals(config) else {}),
        **{
            f"address or password of data set '{name}'": file
            for name, rule in config.datasets.items()
            if rule.server is not None
            for file in rule.files
        },
    }
    for finding in chain(check_private_files(private), _masked(config), _state(config), _tables(config)):
        yield finding
    yield check_disk(config.state_directory, reserve_bytes=_PARTY_RESERVE_BYTES)
    if credentials is None:
        return
    deny_list = _deny_list(config.federation, credentials, config.state_directory)
    for finding in _deny_list_findings(credentials, deny_list):
        yield finding
    endpoint = config.federation.endpoint
    if endpoint is not None:
        yield check_proxy(endpoint, os.environ)
        async for finding in check_node(endpoint, credentials, clock=utc_now, revocations=deny_list):
            yield finding
    if config.peer is not None:
        for name, address in config.federation.peers.items():
            if name != config.name and address != RELAY:
                peer = Identity(federation=config.federation.name, role=Role.PARTY, name=name)
                async for finding in check_node(
                    address, credentials, clock=utc_now, peer_identity=peer, revocations=deny_list
                ):
                    yield finding


async def _of_miner(path: Path) -> AsyncIterator[Finding]:
    from verticil.miner.config import load_miner

    config = load_miner(path)
    federation = config.federation
    yield ok("configuration", f"{path.name}: miner '{config.name}' of federation '{federation.name}'")
    identity, credentials = _identity(config, Role.MINER)
    for finding in identity:
        yield finding
    private = {"private key": config.key, "signing key": config.signing_key}
    for finding in chain(check_private_files(private), _miner_sealing(config)):
        yield finding
    yield check_disk(config.state_directory, reserve_bytes=config.limits.disk_reserve_bytes)
    for finding in _miner_state(config.state_directory):
        yield finding
    if credentials is None:
        return
    if federation.relays:
        limit = config.limits.max_relay_bytes
        relay_names = ", ".join(name for name, address in federation.peers.items() if address == RELAY)
        if limit:
            yield ok("relay", f"{limit:,} bytes of memory for parties that cannot be dialled: {relay_names}")
        else:
            yield warn(
                "relay",
                f"this miner relays nothing, and {relay_names} cannot be dialled",
                "set [limits] max_relay_bytes",
            )
    yield _host_in_certificate(federation.miner_endpoint, credentials)
    deny_list = _deny_list(federation, credentials, config.state_directory)
    for finding in _deny_list_findings(credentials, deny_list):
        yield finding
    host, port = split_endpoint(config.listen)
    if port == 0:
        yield warn("listen", f"{config.listen}: any free port", "parties dial the one in federation.toml: name it here")
        return
    own = "127.0.0.1" if host in {"0.0.0.0", "::"} else host  # noqa: S104 - compared, not bound
    name = split_endpoint(federation.miner_endpoint)[0]
    async for finding in check_node(
        f"{own}:{port}", credentials, clock=utc_now, server_name=name, revocations=deny_list
    ):
        if finding.check == "TCP" and finding.level == "fail":
            yield warn("listen", f"nothing listens on {own}:{port}", "start it: verticil miner run")
        else:
            yield finding


def _miner_state(state: Path) -> Iterator[Finding]:
    from verticil.miner.storage.audit import MinerAudit
    from verticil.miner.storage.forgotten_catalogue import inspect_catalogue

    try:
        version = inspect_catalogue(state)
        of = f"whole, of version {version}, and" if version else "there is none yet, which is"
        yield ok("catalogue", f"{of} not behind the audit log, nor behind the studies' folders")
    except VerticilError as error:
        yield fail("catalogue", error)
    yield _log(MinerAudit(state).verify)


def _log(verify: Callable[[], Verified]) -> Finding:
    try:
        verification = verify()
    except VerticilError as error:
        return fail("audit log", error)
    return ok("audit log", f"{verification.n_lines} lines hold, head {verification.head.hex()[:16]}")


def _identity(config: PartyConfig | MinerConfig, role: Role) -> tuple[list[Finding], Credentials | None]:
    def load() -> Credentials:
        return load_credentials(config.certificate, config.key, config.federation, role=role, name=config.name)

    certificate, credentials = check_certificate(load, at=utc_now())
    try:
        SigningKey.load(config.signing_key, config.certificate)
        signing = ok("signing certificate", "fits the signing key")
    except VerticilError as error:
        signing = fail("signing certificate", error)
    return [certificate, signing], credentials


def _tables(config: PartyConfig) -> Iterator[Finding]:
    from verticil.party.dataset.people_rows import header

    for name, rule in config.datasets.items():
        check = f"data set '{name}'"
        try:
            if rule.server is not None and not rule.server.is_checked():
                hint = "add ?sslmode=verify-full&sslrootcert=FILE to its URL, FILE with the authority of the server's certificate"
                yield warn(check, "neither the identity of the database nor the line to it is checked", hint)
            yield _named_people(check, rule, header(rule), f"[dataset.{name}]")
            for table, related in rule.tables.items():
                of_table = f"{check}, table '{table}'"
                yield _named_people(of_table, related, header(related), f"[dataset.{name}.tables.{table}]")
        except VerticilError as error:
            yield fail(check, error)


def _named_people(check: str, rule: DatasetRule, names: Sequence[str], place: str) -> Finding:
    """Return whether a table that can be read has the column that names people."""
    if rule.id in names:
        return ok(check, f"readable, {len(names)} columns")
    fault = DataFault(
        "DATA_COLUMN_MISSING",
        f"{rule.name}: no column '{rule.id}' in the header",
        hint=f"say in {place} id which column identifies people",
    )
    return fail(check, fault)


def _state(config: PartyConfig) -> Iterator[Finding]:
    from verticil.party.audit.log import AuditLog
    from verticil.party.operator.commands import told_older
    from verticil.party.site import Site
    from verticil.party.storage.database import FILE_NAME, SCHEMA, SCHEMA_VERSION
    from verticil.party.storage.secret import read_secret

    check = "database"
    try:
        if 0 < (version := version_of(config.state_directory / FILE_NAME, SCHEMA)) < SCHEMA_VERSION:
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
            check = "ledger"
            site.ledger.check_rows()
            check = "state"
            if (older := told_older(config, site.state.heartbeat())) is not None:
                raise older
            yield ok(check, f"{len(site.ledger.rows())} ledger rows; they have everything that the audit log has")
    except VerticilError as error:
        yield fail("state" if error.code == "LEDGER_OLDER" else check, error)


def _sealing(config: PartyConfig) -> Finding:
    from verticil.party.protocol.relay.network import open_seals

    try:
        peer_keys = open_seals(config).peers
    except VerticilError as error:
        return fail("sealing key", error)
    if missing := [name for name in config.federation.peers if name not in {config.name, *peer_keys}]:
        hint = "they read them out: verticil pki seal NAME.crt; put them into every site's federation.toml"
        return warn("sealing key", f"[sealing] has no key of {', '.join(missing)}", hint)
    return ok("sealing key", f"is the pinned one; those of {len(peer_keys)} other parties are known")


def _seals(config: PartyConfig) -> bool:
    """Return whether the party needs its sealing key between peers."""
    return config.peer is not None and (config.federation.relays or config.policy.masked.allow)


def _masked(config: PartyConfig) -> Iterator[Finding]:
    """Check the sealing keys, and whether a masked study could be approved and carried out here, where the policy permits any."""
    from verticil.party.config import pinned_keys

    if _seals(config):
        yield _sealing(config)
    policy, check = config.policy.masked, "masked tables"
    if policy.differing:
        fault = Misuse(
            "CONFIG_INVALID",
            f"policy.confirmed_keys: {', '.join(policy.differing)}: federation.toml pins another key than was confirmed",
            hint="use nothing until they have read you the words of their key again, by telephone; compare federation.toml",
        )
        yield fail("confirmed keys", fault)
    if not policy.allow:
        return
    keys = pinned_keys(config.federation)
    others = [name for name in (*config.federation.peers, MINER) if name != config.name]
    if own := keys.get(config.name):
        yield ok("words of this party's key", f"{key_words(config.name, own)}: read them to the others, by telephone")
    without_key = [name for name in others if name not in keys]
    strangers = [name for name in others if name not in config.policy.recipients]
    lacking = (
        (config.peer is None, "[peer]", "say where this party serves the others, or relay = true"),
        (
            without_key,
            f"a key in federation.toml of {', '.join(without_key)}",
            "verticil pki seal NAME.crt at each of them",
        ),
        (policy.most is None, "policy.max_masked_epsilon", "say what tables may tell everybody"),
        (
            config.policy.dealer is None,
            "policy.max_floor_epsilon_per_study",
            "say what a dealer with its partner may learn",
        ),
        (strangers, f"{', '.join(strangers)} in policy.recipients", "masked columns and shares of tables go to them"),
    )
    for is_so, what, hint in lacking:
        if is_so:
            yield warn(check, f"permitted, but no such study can be approved: missing is {what}", hint)
    dealers = [name for name in others if policy.why_not(name, policy.dealers) is None]
    noise = [name for name in others if policy.why_not(name, policy.noise) is None]
    if not (dealers and noise):
        what = "deals masks" if noise else "is counted for noise"
        confirm = "they read you the words of their keys, then: verticil party confirm-key NAME WORDS"
        yield warn(check, f"permitted; by this policy no other party {what}", confirm)
    else:
        yield ok(
            check, f"masks may be dealt by {', '.join(dealers)}; noise is counted of {', '.join(noise)} and this party"
        )


def _miner_sealing(config: MinerConfig) -> Iterator[Finding]:
    """Check that the miner's sealing key is the pinned one, and all parties that serve others have theirs, where it has one."""
    federation = config.federation
    if federation.miner_sealing is None:
        return
    try:
        load_sealing_key(config.sealing_key, federation.miner_sealing)
    except VerticilError as error:
        yield fail("sealing key", error)
        return
    yield ok("sealing key", f"is the pinned one; its words: {key_words(MINER, federation.miner_sealing)}")
    if missing := [name for name in federation.peers if name not in federation.sealing]:
        hint = "they read them out: verticil pki seal NAME.crt; put them into every site's federation.toml"
        yield warn("sealing key", f"[sealing] has no key of {', '.join(missing)}", hint)


def _deny_list(federation: Federation, credentials: Credentials, state: Path) -> DenyList:
    return DenyList(credentials.ca_pem, [federation.ca_certificate.with_name(DENY_LIST), state / DENY_LIST])


def _deny_list_findings(credentials: Credentials, deny_list: DenyList) -> Iterator[Finding]:
    """Check that this node is not revoked, and that every list that is there can be used."""
    serial = x509.load_pem_x509_certificate(credentials.chain_pem).serial_number
    try:
        check_revoked(serial, credentials.identity, deny_list)
    except PeerFault as fault:
        yield fail("deny-list", fault)
        return
    if faults := deny_list.faults():
        yield from (fail("deny-list", error) for error in faults)
        return
    number = deny_list.number()
    yield ok(
        "deny-list", f"number {number}, {len(deny_list.serials())} serials, not ours" if number else "none known here"
    )


def _host_in_certificate(endpoint: str, credentials: Credentials) -> Finding:

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
    return fail("endpoint", fault)
