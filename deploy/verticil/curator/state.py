"""What the owner of a table keeps from one run to the next: secret, ledger, and the keys that sign its releases.

A folder beside the table, made on first use. ``state`` is that of a party (secret, database with the ledger); ``pki/NAME`` is
an authority of its own with the keys of the one owner. Nobody else vouches for it: who gets a release compares the
fingerprint of ``ca.crt`` with the owner. The folder goes into backups like a node's: without its secret, noise is drawn anew
and charged again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import shutil
from collections.abc import Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from verticil.curator.reconciliation import check_releases
from verticil.party.people.sketches import Sketches
from verticil.party.policy.ledger import Ledger
from verticil.party.site import init_state
from verticil.party.storage.database import Database
from verticil.party.storage.secret import SiteSecret, read_secret
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import SigningKey
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.durable import rename, sync_directory

FOLDER: Final = "verticil-curator"
"""Name of the folder beside the table."""
_DAYS: Final = 3650  # of the authority and of the keys: nobody renews them


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CuratorState:
    """The opened folder.

    Attributes:
        secret: of all noise.
        database, ledger: what was spent.
        sketches: whom it was spent on.
        signer: the owner's key.
        authority: ``ca.crt``, PEM.
    """

    secret: SiteSecret = field(repr=False)
    database: Database
    ledger: Ledger
    sketches: Sketches
    signer: SigningKey
    authority: bytes


@contextlib.contextmanager
def open_state(folder: Path, owner: str, *, now: dt.datetime) -> Generator[CuratorState]:
    """Open the folder, and make what it lacks; a run that was killed in the middle of that leaves nothing in the way.

    Args:
        folder: see the module.
        owner: the party's name, which the keys are for.
        now: since when new keys are valid, UTC.

    Raises:
        Refusal: LEDGER_OLDER, a release beside the folder is not in its ledger.
        DataFault: DISK_FULL, STATE_CORRUPT, STATE_READ_ONLY, SECRET_MISSING.
    """
    state, keys = folder / "state", folder / "pki" / owner
    init_state(state)
    if not keys.is_dir():
        _make_keys(keys, owner, now)
    database = Database(state)
    try:
        ledger, authority = Ledger(database), (keys / "ca.crt").read_bytes()
        check_releases(folder, ledger, authority=authority)
        yield CuratorState(
            secret=read_secret(state),
            database=database,
            ledger=ledger,
            sketches=Sketches(database, state),
            signer=SigningKey.load(keys / f"{owner}.sign", keys / f"{owner}.crt"),
            authority=authority,
        )
    finally:
        database.close()


def _make_keys(keys: Path, owner: str, now: dt.datetime) -> None:
    """Authority and keys appear together, or not at all."""
    staging = keys.with_name(f".{owner}.partial")
    with disk_faults(keys):
        shutil.rmtree(staging, ignore_errors=True)
        staging.parent.mkdir(mode=0o700, exist_ok=True)
        create_authority(staging, "curator", days=_DAYS, at=now)
        issue(staging, owner, Role.PARTY, staging, days=_DAYS, at=now)
        sync_directory(staging)
        rename(staging, keys)
        for above in (keys.parent, keys.parent.parent, keys.parent.parent.parent):
            sync_directory(above)
