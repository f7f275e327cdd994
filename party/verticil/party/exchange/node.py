"""What all studies at this party share."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from dataclasses import dataclass, field

from verticil.party.control.site import Site
from verticil.party.exchange.spool import Spool
from verticil.shared.transport.signing import SigningKey

__all__ = ["Node"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Node:
    """What all studies at this party share.

    Attributes:
        site: opened state.
        spool: released bytes.
        signing_key: signs approvals.
        authority: certificate of the federation's CA, PEM.
        clock: UTC now.
        heavy: held during CPU work, so that studies take turns.
    """

    site: Site
    spool: Spool
    signing_key: SigningKey
    authority: bytes
    clock: Callable[[], dt.datetime]
    heavy: asyncio.Lock = field(default_factory=asyncio.Lock)
