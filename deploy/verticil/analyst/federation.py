"""How analysts, parties and consumers reach the miner: federation.toml and a certificate, nothing else."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from verticil.shared.core.errors import Misuse
from verticil.shared.federation.identity.identity import Identity, Role

if TYPE_CHECKING:
    from verticil.shared.federation.transport.interface import Control, Coordinator
    from verticil.shared.study.document import Study
    from verticil.shared.study.states import State


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """An open connection to the miner: `coordinator` with a party's certificate, `control` with any other."""

    identity: Identity
    control: Control | None
    coordinator: Coordinator | None

    def analyst(self) -> Control:
        """Return the analyst's side.

        Raises:
            Misuse: USAGE with a party's certificate.
        """
        if self.control is None:
            raise needs_analyst(self.identity)
        return self.control


def needs_analyst(identity: Identity) -> Misuse:
    """Return the error of a command that was given a party's certificate and needs an analyst's."""
    message = f"{identity.uri}: this command needs an analyst's certificate"
    return Misuse("USAGE", message, hint="give an analyst's with --certificate")


@asynccontextmanager
async def open_connection(federation: Path, certificate: Path) -> AsyncGenerator[Connection]:
    """Connect with a certificate; the key is the file of the same name with the suffix .key."""
    from verticil.shared.documents.config import load_federation
    from verticil.shared.federation.identity.pki import load_credentials
    from verticil.shared.federation.membership.revocation import FILE_NAME, DenyList
    from verticil.shared.federation.transport.client import Connection as Line
    from verticil.shared.federation.transport.client import GrpcControl, GrpcCoordinator

    document = load_federation(federation)
    credentials = load_credentials(certificate, certificate.with_suffix(".key"), document)
    line = Line(
        document.miner_endpoint,
        credentials,
        idle_timeout_seconds=document.idle_timeout_seconds,
        revocations=DenyList(credentials.ca_pem, [document.ca_certificate.with_name(FILE_NAME)]),
    )
    party = credentials.identity.role is Role.PARTY
    try:
        yield Connection(
            identity=credentials.identity,
            control=None if party else GrpcControl(line),
            coordinator=GrpcCoordinator(line) if party else None,
        )
    finally:
        await line.close()


async def find_study(connection: Connection, study_id: str) -> bytes:
    """Return the digest of the study that the caller can see and means by an id, ANALYST/id or digest.

    Raises:
        Misuse: STUDY_UNKNOWN, none or several.
    """
    from verticil.shared.study.canonical import from_bytes
    from verticil.shared.study.names import Named, choose
    from verticil.wire.v1 import control_pb2, coordinator_pb2

    if connection.control is not None:
        reply = await connection.control.get_study(control_pb2.GetStudyRequest(study_id=study_id))
        return reply.study.study_digest
    assert connection.coordinator is not None
    tasks = (await connection.coordinator.poll(coordinator_pb2.PollRequest())).tasks
    proposals = (task for task in tasks if task.proposal)
    choice = choose(
        study_id,
        (
            Named(digest=task.study_digest, study_id=from_bytes(task.proposal).id, submitter=task.submitter)
            for task in proposals
        ),
    )
    if choice is None:
        raise Misuse(
            "STUDY_UNKNOWN", f"no study '{study_id}' with this party", hint="list them with: verticil party status"
        )
    return choice.digest


async def submit_study(connection: Connection, study: Study) -> tuple[bytes, State]:
    """Propose a study to the parties, which `lint.refuse_hopeless` has let pass: its digest, and the state that it is in.

    Raises:
        Misuse: STUDY_OVER, the same study ended before; USAGE with a party's certificate.
    """
    from verticil.shared.study.canonical import to_bytes
    from verticil.shared.study.states import State, require_open
    from verticil.wire.v1.control_pb2 import SubmitStudyRequest

    reply = await connection.analyst().submit_study(SubmitStudyRequest(proposal=to_bytes(study)))
    state = State(reply.state)
    require_open(study.id, state)
    return reply.study_digest, state
