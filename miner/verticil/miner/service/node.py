"""The whole miner but for its port: store, rules, services and scheduler, put together in one place.

The daemon puts a gRPC server in front of `coordinator` and `control`; the simulation calls them in memory. Use it as::

    async with MinerNode.open(config, credentials, executor) as node:
        ...  # node.coordinator and node.control answer; studies go on by themselves

Opening locks the state directory; leaving stops the running jobs, closes the catalogue and lets the directory go. What was
under way goes on when a node is opened there again.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from verticil.miner.config import MinerConfig, ServiceLimits
from verticil.miner.rules.certificates import Certificates
from verticil.miner.rules.leases import Changes, Leases
from verticil.miner.rules.rounds import Rounds, Sealing
from verticil.miner.rules.session import Session
from verticil.miner.rules.submission import Submissions
from verticil.miner.scheduler.learning import Executor
from verticil.miner.scheduler.scheduler import Scheduler
from verticil.miner.service.control import Control
from verticil.miner.service.coordinator import Coordinator
from verticil.miner.service.masked import MaskedMessages
from verticil.miner.service.relay import Relay
from verticil.miner.service.scores import Scores
from verticil.miner.storage.catalogue import Catalogue
from verticil.miner.storage.forgotten_catalogue import check_memory, end_forgotten
from verticil.miner.storage.schema import CATALOGUE
from verticil.miner.storage.store import Store
from verticil.shared.federation.identity.identity import Identity
from verticil.shared.federation.identity.pki import Credentials, utc_now
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.federation.membership.revocation import FILE_NAME, DenyList
from verticil.shared.federation.transport.authorization import EMPTY_DENY_LIST, Revocations
from verticil.shared.federation.transport.sealing import load_sealing_key


def sealing_of(config: MinerConfig) -> Sealing | None:
    """Return what this miner seals with in rounds of masked tables; None: federation.toml pins no key of it.

    Raises:
        Misuse: CONFIG_INVALID, its key is not the one that federation.toml pins.
        DataFault: SECRET_MISSING.
    """
    federation = config.federation
    if federation.miner_sealing is None:
        return None
    return Sealing(key=load_sealing_key(config.sealing_key, federation.miner_sealing), pinned=federation.sealing)


class MinerNode:
    """A miner on one state directory, in one event loop.

    Args:
        directory: state directory; made when absent.
        identity: the miner's.
        authority: certificate of the federation's authority, PEM.
        signer: signs receipts and releases.
        sealing: for rounds of masked tables; None: such studies are refused.
        executor: runs learning jobs and searches.
        limits: quotas.
        randomized_days: days after publication until the randomized columns are deleted.
        clock: UTC now.
        monotonic: seconds, for leases.
        free_bytes: free space on the disk of a path; the operating system's answer unless given.
        simulation: releases say that everything ran on one machine.
        seed_derived: releases say that the parties' secrets come from a seed.
        revocations: the deny-list, which is sent to parties.
        accept_older: end what the catalogue has forgotten, in place of refusing (`verticil.miner.storage.forgotten_catalogue`).

    Raises:
        DataFault: STATE_LOCKED, another miner uses the directory; STATE_CORRUPT; CATALOGUE_OLDER.
    """

    def __init__(
        self,
        directory: Path,
        *,
        identity: Identity,
        authority: bytes,
        signer: SigningKey,
        executor: Executor,
        limits: ServiceLimits,
        randomized_days: int,
        sealing: Sealing | None = None,
        clock: Callable[[], dt.datetime] = utc_now,
        monotonic: Callable[[], float] = time.monotonic,
        free_bytes: Callable[[Path], int] | None = None,
        simulation: bool = False,
        seed_derived: bool = False,
        revocations: Revocations = EMPTY_DENY_LIST,
        accept_older: bool = False,
    ) -> None:
        self.store = Store(
            directory,
            max_bytes_per_study=limits.max_bytes_per_study,
            disk_reserve_bytes=limits.disk_reserve_bytes,
            free_bytes=free_bytes,
        )
        self.store.lock()
        try:
            if not accept_older:
                check_memory(directory)
            self.catalogue = Catalogue(directory / CATALOGUE)
            if accept_older:
                end_forgotten(self.store, self.catalogue, clock())
        except BaseException:
            self.store.unlock()
            raise
        self.signer = signer
        self.session = Session(
            store=self.store,
            catalogue=self.catalogue,
            identity=identity,
            authority=authority,
            sign=signer.sign,
            clock=clock,
            revocations=revocations,
        )
        self.rounds = Rounds(self.session, signer, sealing, seed_derived=seed_derived)
        self.submissions = Submissions(self.session, limits, self.rounds)
        self.certificates = Certificates(self.catalogue.certificates, revocations, clock)
        self.changes = Changes()
        leases = Leases(monotonic=monotonic, first_epoch=int(clock().timestamp()) << 20)
        self.scheduler = Scheduler(
            self.session,
            self.changes,
            leases,
            executor,
            self.rounds,
            signer=signer,
            randomized_days=randomized_days,
            simulation=simulation,
            seed_derived=seed_derived,
            keep=self.certificates.keep,
        )
        self.scores = Scores(self.session, executor, self.changes)
        self.relay = Relay(self.changes, max_bytes=limits.max_relay_bytes, monotonic=monotonic)

        def serving(leases: Leases) -> Coordinator:
            return Coordinator(
                self.session,
                self.changes,
                leases,
                self.scores,
                self.relay,
                rounds=self.rounds,
                messages=MaskedMessages(self.session, self.rounds, self.changes),
                max_concurrent_uploads=limits.max_concurrent_uploads,
                revocations=revocations,
            )

        self.coordinator = serving(leases)
        # The same rules and facts, for calls that come over no line. Leases of its own: who calls so is not online.
        self.offline = serving(Leases(monotonic=monotonic))
        self.control = Control(
            self.session,
            self.submissions,
            self.changes,
            leases,
            self.certificates,
            detail=self.scheduler.detail,
        )
        self.leases = leases
        self._work: tuple[asyncio.Task[None], ...] = ()

    @classmethod
    def open(
        cls,
        config: MinerConfig,
        credentials: Credentials,
        executor: Executor,
        *,
        seed_derived: bool = False,
        accept_older: bool = False,
    ) -> Self:
        """Open the node of miner.toml.

        Args:
            config: miner.toml.
            credentials: its certificate and key, checked.
            executor, seed_derived, accept_older: see the class.

        Raises:
            PeerFault: CERTIFICATE_INVALID, the signing key is not the certificate's.
            Misuse: CONFIG_INVALID, the sealing key is not the one that federation.toml pins.
            DataFault: SECRET_MISSING, and as the class.
        """
        deny_list = config.federation.ca_certificate.with_name(FILE_NAME)
        return cls(
            config.state_directory,
            identity=credentials.identity,
            authority=credentials.ca_pem,
            signer=SigningKey.load(config.signing_key, config.certificate),
            executor=executor,
            limits=config.limits,
            randomized_days=config.randomized_days,
            sealing=sealing_of(config),
            seed_derived=seed_derived,
            revocations=DenyList(credentials.ca_pem, [deny_list], path=config.state_directory / FILE_NAME),
            accept_older=accept_older,
        )

    async def __aenter__(self) -> Self:
        self._work = (
            asyncio.create_task(self.scheduler.run(), name="scheduler"),
            asyncio.create_task(self.scores.run(), name="scores"),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.changes.close()
        for work in self._work:
            work.cancel()
        for work in self._work:
            with contextlib.suppress(asyncio.CancelledError):
                await work
        self.close()

    def close(self) -> None:
        """Close files; for a node that was never entered."""
        self.catalogue.close()
        self.store.unlock()
