"""Import, export and closure where no daemon runs: the node is opened for the moment, and does not serve or learn.

What a bundle brings waits on the disk until the daemon is started, as if it had been stopped in between.
"""

from __future__ import annotations

from verticil.miner.airgap.exchange import CarriedDesk
from verticil.miner.airgap.local_control import Granted, Wish, grant
from verticil.miner.config import MinerConfig
from verticil.miner.scheduler.learning import InlineLearning
from verticil.miner.service.node import MinerNode
from verticil.miner.storage.audit import MinerAudit
from verticil.shared.identity.identity import Role
from verticil.shared.identity.pki import load_credentials, utc_now
from verticil.shared.identity.signing import SigningKey
from verticil.shared.membership.revocation import FILE_NAME, DenyList


async def grant_once(config: MinerConfig, wish: Wish) -> Granted:
    """Do it.

    Raises:
        DataFault: STATE_LOCKED, another process works on the state directory.
        VerticilError: as `CarriedDesk`, and as `load_credentials`.
    """
    credentials = load_credentials(config.certificate, config.key, config.federation, role=Role.MINER, name=config.name)
    signer = SigningKey.load(config.signing_key, config.certificate)
    deny_list = config.federation.ca_certificate.with_name(FILE_NAME)
    revocations = DenyList(credentials.ca_pem, [deny_list], kept=config.state_directory / FILE_NAME)
    node = MinerNode(
        config.state_directory,
        identity=credentials.identity,
        authority=credentials.ca_pem,
        signer=signer,
        executor=InlineLearning(clock=utc_now),
        limits=config.limits,
        randomized_days=config.randomized_days,
        revocations=revocations,
    )
    try:
        desk = CarriedDesk(
            config,
            node,
            authority=credentials.ca_pem,
            signer=signer,
            revocations=revocations,
            clock=utc_now,
            audit=MinerAudit(config.state_directory),
        )
        return await grant(desk, wish)
    finally:
        node.close()
