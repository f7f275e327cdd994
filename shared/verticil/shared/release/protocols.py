"""The release's part of each protocol: one line each."""

from __future__ import annotations

from typing import Final

from verticil.shared.core.registry import Registry
from verticil.shared.release.central import CentralRelease
from verticil.shared.release.curator import CuratorRelease
from verticil.shared.release.masked import MaskedRelease
from verticil.shared.release.peer import PeerRelease
from verticil.shared.release.protocol import ReleaseProtocol
from verticil.shared.study.document import Study

RELEASES: Final = Registry[ReleaseProtocol]("release of model")


def register_release(name: str, protocol: ReleaseProtocol) -> None:
    """Let releases be made and checked of studies by a protocol.

    Raises:
        ValueError: one of this name is registered already.
    """
    RELEASES.register(name, protocol)


register_release("central", CentralRelease())
register_release("peer", PeerRelease())
register_release("curator", CuratorRelease())
register_release("masked", MaskedRelease())


def release_protocol(study: Study) -> ReleaseProtocol:
    """Return the release's part of the protocol by which a study is carried out.

    Raises:
        Misuse: STUDY_UNSUPPORTED, this program does not have it.
    """
    return RELEASES.named(study.model)
