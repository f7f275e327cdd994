"""What all studies at this party share."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from verticil.party.audit.log import Event, What
from verticil.party.protocol.central.spool import Spool
from verticil.party.site import Site
from verticil.shared.alignment.statements import check_statement
from verticil.shared.audit import DAEMON
from verticil.shared.errors import VerticilError
from verticil.shared.identity.identity import Role
from verticil.shared.identity.signing import SigningKey, verify_signed
from verticil.shared.transport.authorization import EMPTY_DENY_LIST, Revocations
from verticil.shared.vitals import Waiting
from verticil.wire.v1 import common_pb2

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """What all studies at this party share.

    Attributes:
        site: opened state.
        spool: released bytes.
        signing_key: signs approvals.
        revocations: the deny-list.
        authority: certificate of the federation's CA, PEM.
        clock: UTC now.
        heavy: held during CPU work, so that studies take turns.
        waiting: what waits for room on this disk.
    """

    site: Site
    spool: Spool
    signing_key: SigningKey
    revocations: Revocations = EMPTY_DENY_LIST
    authority: bytes
    clock: Callable[[], dt.datetime]
    heavy: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: Waiting = field(default_factory=Waiting)

    @property
    def me(self) -> str:
        """This party's name."""
        return self.site.config.name

    async def heavily(self, work: Callable[[], T]) -> T:
        """Do CPU work in a thread; studies take turns."""
        async with self.heavy:
            return await asyncio.to_thread(work)

    def verify(self, signed: common_pb2.Signed, *, role: Role, name: str | None = None) -> None:
        """Check that a node of this federation signed, with a certificate that counts now; raises as `verify_signed`."""
        verify_signed(signed, self.authority, role=role, name=name, at=self.clock(), revoked=self.revocations.since())

    def check_statement(self, signed: common_pb2.Signed, body: bytes, *, party: str, what: str) -> None:
        """Check that `party` signed exactly `body`; raises as `verticil.shared.alignment.statements.check_statement`."""
        at, revoked = self.clock(), self.revocations.since()
        check_statement(signed, body, authority=self.authority, party=party, at=at, what=what, revoked=revoked)

    def fail(self, digest: bytes, error: VerticilError) -> None:
        """This party cannot go on with a study; the first failure stays. Blocks."""
        record, at = self.site.state.study(digest), self.clock()
        with self.site.database.transaction():
            if record.failure is None:
                detail = f"{error.code}, as {error.teller} says" if error.teller else error.code
                event = Event(what=What.FAILURE, who=DAEMON, study=digest, study_id=record.study_id, detail=detail)
                self.site.audit.record(event, at)
            self.site.state.fail(digest, error, at)
