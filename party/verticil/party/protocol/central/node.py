"""What all studies at this party share."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field

from verticil.party.audit.log import Event, What
from verticil.party.protocol.central.spool import Spool
from verticil.party.site import Site
from verticil.shared.audit.chain import DAEMON
from verticil.shared.errors import VerticilError
from verticil.shared.identity.signing import SigningKey
from verticil.shared.transport.access import EMPTY_DENY_LIST, Revocations
from verticil.shared.vitals import Waiting


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

    def fail(self, digest: bytes, error: VerticilError) -> None:
        """This party cannot go on with a study; the first failure stays. Blocks."""
        record, at = self.site.state.study(digest), self.clock()
        with self.site.database.transaction():
            if record.failure is None:
                detail = f"{error.code}, as {error.teller} says" if error.teller else error.code
                event = Event(what=What.FAILURE, who=DAEMON, study=digest, study_id=record.study_id, detail=detail)
                self.site.audit.record(event, at)
            self.site.state.fail(digest, error, at)
