"""The miner at the other end of a line, for the pages of an analyst: the calls of ``verticil study list | submit | cancel``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from verticil.analyst.federation import needs_analyst, open_connection, submit_study
from verticil.analyst.lint import refuse_hopeless
from verticil.shared.core.errors import Misuse
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import check_validity, identity_of, read_certificates, utc_now
from verticil.shared.study.states import State, require_withdrawn
from verticil.wire.v1 import control_pb2

if TYPE_CHECKING:
    from verticil.shared.federation.audit import AuditLine
    from verticil.shared.study.document import Study


class LineSource:
    """What the miner tells an analyst; each call opens a connection of its own with the analyst's certificate.

    Args:
        federation: federation.toml.
        certificate: the analyst's; its key lies beside it.

    Raises:
        Misuse: FILE_MISSING, CONFIG_INVALID; USAGE with a party's certificate.
        PeerFault: CERTIFICATE_INVALID.
    """

    def __init__(self, federation: Path, certificate: Path) -> None:
        self._files = federation, certificate
        leaf = read_certificates(certificate)[0]
        identity = identity_of(leaf)
        if identity.role is Role.PARTY:
            raise needs_analyst(identity)
        check_validity(leaf, at=utc_now(), what=str(certificate))
        self.node = f"miner of {identity.federation}"
        self.reader = identity.name
        self.role = identity.role
        self.may_submit = identity.role is Role.ANALYST

    async def version(self) -> object:
        """Return what is equal as long as no study has changed, and no party is further than before."""
        return [study.SerializeToString(deterministic=True) for study in await self.studies()]

    async def studies(self) -> Sequence[control_pb2.StudySummary]:
        """Return all studies, oldest first."""
        async with open_connection(*self._files) as connection:
            return list((await connection.analyst().list_studies(control_pb2.ListStudiesRequest())).studies)

    async def study(self, digest: bytes) -> control_pb2.StudySummary:
        """Return one study; raises Misuse: STUDY_UNKNOWN."""
        async with open_connection(*self._files) as connection:
            return (await connection.analyst().get_study(control_pb2.GetStudyRequest(study_digest=digest))).study

    async def proposal(self, digest: bytes) -> Study | None:
        """Return nothing: the miner tells an analyst where a study stands, not what it asks."""
        return None

    async def events(self, digest: bytes) -> tuple[()]:
        """Return nothing: the miner tells no analyst when each thing happened."""
        return ()

    async def files(self, digest: bytes) -> tuple[()]:
        """Return nothing: ``verticil release fetch`` verifies what it fetches."""
        return ()

    async def file(self, digest: bytes, path: str) -> bytes:
        """Refuse: a release is fetched by a command that verifies it."""
        raise Misuse(
            "FILE_MISSING", "this page shows no file of a release", hint="verticil release fetch STUDY --out DIR"
        )

    async def log(self) -> Sequence[AuditLine]:
        """Return nothing: the log is the operator's."""
        return ()

    async def end(self, digest: bytes, reason: str) -> None:
        """Withdraw a study of this analyst's.

        Raises:
            PeerFault: IDENTITY_REFUSED, another analyst's.
            Misuse: STUDY_OVER.
        """
        async with open_connection(*self._files) as connection:
            control = connection.analyst()
            study = (await control.get_study(control_pb2.GetStudyRequest(study_digest=digest))).study
            state = (await control.cancel_study(control_pb2.CancelStudyRequest(study_digest=digest))).state
        require_withdrawn(study.study_id, State(state))

    async def submit(self, study: Study) -> bytes:
        """Propose a study to the parties; its digest. Raises as ``verticil study submit``."""
        refuse_hopeless(study)
        async with open_connection(*self._files) as connection:
            return (await submit_study(connection, study))[0]
