"""How this node's certificate is, for its people: how long it counts, whether it was revoked, and the command against it."""

from __future__ import annotations

import datetime as dt
import shlex
from pathlib import Path
from typing import Final

from verticil.party.config import PartyConfig
from verticil.party.operator.view_model import Facts
from verticil.party.storage.studies import Heartbeat, stamp
from verticil.shared.config import read_toml
from verticil.shared.errors import VerticilError
from verticil.shared.identity.pki import read_certificates
from verticil.shared.membership.current import certificate_facts
from verticil.shared.membership.revocation import FILE_NAME, DenyList

_REVOKED: Final = "CERTIFICATE_REVOKED"


def own_certificate(config: PartyConfig, beat: Heartbeat | None, at: dt.datetime) -> Facts | None:
    """What `certificate_facts` tells, and ``command``; None when there is no certificate that can be read.

    A node that is revoked may hear of it by a refusal only (`beat`), for whoever refuses it tells it nothing else.
    """
    facts = certificate_facts(config.certificate, at)
    if facts is None:
        return None
    since = _revoked_since(config)
    refused = beat is not None and beat.problem == _REVOKED and _put_there(config.certificate) <= beat.at
    if since is None and not refused:
        return {**facts, "command": f"verticil pki renew {_quoted(config.certificate)}"}
    return {
        **facts,
        "words": "was revoked" + ("" if since is None else f" on {since:%Y-%m-%d}"),
        "warning": 0,
        "command": f"verticil pki request {config.name} --role party --new-keys --dir {_quoted(config.certificate.parent)}"
        f" --federation {_quoted(read_toml(config.path).path_value('federation', config.path.parent))}",
    }


def _revoked_since(config: PartyConfig) -> dt.datetime | None:
    beside = config.federation.ca_certificate
    try:
        serial = read_certificates(config.certificate)[0].serial_number
        found = DenyList(beside.read_bytes(), [beside.with_name(FILE_NAME), config.state_directory / FILE_NAME])
    except (OSError, ValueError, VerticilError):
        return None
    return found.since().get(serial)


def _put_there(certificate: Path) -> str:
    """When the present certificate was installed: a refusal before that was of an earlier one."""
    return stamp(dt.datetime.fromtimestamp(certificate.stat().st_mtime, dt.UTC))


def _quoted(path: Path) -> str:
    return shlex.quote(str(path))
