"""The miner as a daemon: configuration and credentials, the node, the port, an orderly end.

It opens no connection. Renewed certificates and a new deny-list are taken up while it runs. Before it listens it has checked its
certificate, its keys and that no other process uses the state directory. When `stop` is set it says NOT_SERVING, answers those
who wait in a poll, gives running calls their grace, stops learning (which begins anew at the next start) and closes the
catalogue. Being killed instead loses nothing that was acknowledged. Whom it refused, and which certificate it shows, stands in
its audit log (`verticil.miner.storage.audit`).
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import functools
import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cryptography import x509

from verticil.miner.airgap import local_control as _local_control  # noqa: F401  # pyright: ignore[reportUnusedImport]  # its task
from verticil.miner.config import MinerConfig, load_miner
from verticil.miner.page import task as _page  # noqa: F401  # pyright: ignore[reportUnusedImport]  # its task
from verticil.miner.scheduler.learning import SpawnedLearning
from verticil.miner.service.metrics import miner_gauges
from verticil.miner.service.node import MinerNode
from verticil.miner.service.tasks import TASKS
from verticil.miner.storage.audit import MinerAudit
from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.core.health import Vitals, require_room
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import CredentialSource, check_validity, load_credentials, utc_now
from verticil.shared.federation.membership.current import FollowedCredentials
from verticil.shared.federation.refusals import Refusals, RefusedLine, audit_writer, expiry_notice
from verticil.shared.federation.transport.authorization import Revocations, check_revoked
from verticil.shared.federation.transport.interface import Control, Coordinator, bind
from verticil.shared.federation.transport.metrics import Metrics
from verticil.shared.federation.transport.server import RpcServer
from verticil.shared.storage.disk import create_file

_log: Final = logging.getLogger(__name__)
_GRACE_SECONDS: Final = 20.0

_TEMPLATE: Final = """\
schema = 1
name = "{name}"
federation = "{federation}"
state_directory = "state"
listen = "{listen}"

[identity]
certificate = "{certificate}"
key = "{key}"
signing_key = "{signing_key}"          # Ed25519; signs releases and receipts

[limits]
max_bytes_per_study = 4294967296
max_concurrent_uploads = 8
disk_reserve_bytes = 1073741824
max_relay_bytes = 268435456            # memory for sealed messages between parties that cannot be dialled; 0: none
max_open_studies_per_analyst = 20      # that have not ended
max_daily_studies_per_analyst = 50     # submitted within 24 hours

[workers]
processes = 1
memory_bytes = 2147483648

[retention]
randomized_days = 30

# [ui]                                 # pages for the operator, in a browser on this machine: verticil miner ui
# listen = "127.0.0.1:8898"
"""


async def run_miner(
    config: MinerConfig,
    *,
    stop: asyncio.Event,
    on_start: Callable[[int], None] | None = None,
    seed_derived: bool = False,
    accept_older: bool = False,
    vitals: Vitals | None = None,
) -> None:
    """Serve until `stop` is set.

    Args:
        config: miner.toml.
        stop: set it to end the daemon.
        on_start: called with the port once the miner serves.
        seed_derived: releases say that the parties' secrets come from a seed (the demo).
        accept_older: end what the catalogue has forgotten, in place of refusing.
        vitals: notified when it serves, and asks how it is.

    Raises:
        Misuse: FILE_MISSING, CONFIG_INVALID (the port is taken).
        PeerFault: CERTIFICATE_INVALID, IDENTITY_REFUSED.
        DataFault: SECRET_MISSING, STATE_LOCKED, STATE_CORRUPT, CATALOGUE_OLDER.
    """
    if not config.state_directory.is_dir():
        raise DataFault(
            "CATALOGUE_OLDER",
            f"{config.state_directory}: there is no state directory",
            hint=f"restore its newest backup; a new miner begins with an empty one: mkdir {config.state_directory}",
        )
    credentials = load_credentials(config.certificate, config.key, config.federation, role=Role.MINER, name=config.name)
    executor = SpawnedLearning(
        config.state_directory / "cache", processes=config.workers.processes, memory_bytes=config.workers.memory_bytes
    )
    node = MinerNode.open(config, credentials, executor, seed_derived=seed_derived, accept_older=accept_older)
    metrics, refusals, audit = Metrics(), Refusals(), MinerAudit(config.state_directory)
    credentials_in_use = FollowedCredentials(credentials, config.federation)
    metrics.read(
        functools.partial(
            miner_gauges,
            node.session,
            node.leases,
            node.relay,
            config.state_directory,
            credentials_in_use,
            rounds=node.rounds,
            detail=node.scheduler.detail,
        )
    )
    server = RpcServer(
        config.listen,
        credentials_in_use,
        [bind(Coordinator, node.coordinator), bind(Control, node.control)],
        revocations=node.session.revocations,
        idle_timeout_seconds=config.federation.idle_timeout_seconds,
        metrics=metrics,
        on_refusal=refusals,
        on_caller=node.certificates.see,
    )

    def write(line: RefusedLine, at: dt.datetime) -> None:
        audit.record("refused", at, who=line.who, detail=line.detail)

    async with node, contextlib.AsyncExitStack() as ending:
        beside = {
            asyncio.create_task(executor.compile_first(), name="compiling"),
            *(asyncio.create_task(TASKS.named(name)(config, node, audit), name=name) for name in TASKS.names),
        }
        try:
            ending.callback(_note_knowledge, audit, node)
            look = functools.partial(_note, audit, credentials_in_use, node)
            await ending.enter_async_context(audit_writer(refusals, write=write, look=look, clock=utc_now))
            port = await server.start()
            if config.metrics is not None:
                ending.callback(metrics.serve(config.metrics).close)
            if on_start is not None:
                on_start(port)
            if vitals is not None:
                vitals.serving(functools.partial(_health, config, credentials_in_use, node.session.revocations, port))
            await stop.wait()
            _log.info("stopping")
        finally:
            node.changes.close()
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            await server.stop(grace_seconds=_GRACE_SECONDS)


def _health(config: MinerConfig, credentials: CredentialSource, revocations: Revocations, port: int) -> str:
    """Say how the miner is, in words; raise what keeps it from its work."""
    require_room(config.state_directory, reserve_bytes=config.limits.disk_reserve_bytes)
    now = credentials.current()
    certificate = x509.load_pem_x509_certificate(now.chain_pem)
    check_revoked(certificate.serial_number, now.identity, revocations)
    check_validity(certificate, at=utc_now(), what=now.certificate.name)
    return f"listening on port {port}"


def _note(audit: MinerAudit, credentials: CredentialSource, node: MinerNode) -> None:
    _note_certificate(audit, credentials)
    _note_knowledge(audit, node)


def _note_knowledge(audit: MinerAudit, node: MinerNode) -> None:
    """Write into the audit log how much the catalogue knows, if that is new; an older copy of it is then noticed."""
    audit.anchor(node.catalogue.known(), utc_now())


def _note_certificate(audit: MinerAudit, credentials: CredentialSource) -> None:
    """Write into the audit log which certificate the miner shows, and that it ends soon, if that is new."""
    now, at = credentials.current(), utc_now()
    audit.note(
        "certificate", hashlib.sha256(now.chain_pem).digest(), at, detail=f"valid until {now.not_after:%Y-%m-%d}"
    )
    if (notice := expiry_notice(now, at)) is not None:
        audit.note("certificate-ends", notice.sha256, at, detail=notice.detail)


def init_miner(directory: Path, *, name: str, federation: Path, listen: str = "0.0.0.0:8443") -> Path:
    """Write a miner.toml with every key, and the state directory.

    Args:
        directory: made when absent.
        name: the miner's name in the federation.
        federation: federation.toml.
        listen: host:port.

    Returns:
        The path of miner.toml.

    Raises:
        Misuse: FILE_EXISTS, there is a miner.toml; FILE_MISSING or CONFIG_INVALID, the federation document is not one, or a
            name or the address is not acceptable.
        DataFault: DISK_FULL; there is no miner.toml then.
    """
    target = directory / "miner.toml"
    chain = directory / "pki" / f"{name}.crt"

    def relative(path: Path) -> str:
        return os.path.relpath(path.resolve(), directory.resolve())

    text = _TEMPLATE.format(
        name=name,
        federation=relative(federation),
        listen=listen,
        certificate=relative(chain),
        key=relative(chain.with_suffix(".key")),
        signing_key=relative(chain.with_suffix(".sign")),
    )
    directory.mkdir(parents=True, exist_ok=True)
    create_file(target, text.encode("utf-8"), mode=0o644, exists_hint="edit it, or choose another folder")
    try:
        load_miner(target)
    except Misuse:
        target.unlink()
        raise
    (directory / "state").mkdir(mode=0o700, exist_ok=True)
    return target
