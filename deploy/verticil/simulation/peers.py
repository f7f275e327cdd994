"""A study between peers on one machine: its operators' part, and where each party stands.

What an operator would type at each site is done here for all of them: load the study, look at its state until it is published,
take the release home. The demonstration (real processes) and the simulation (one event loop) use it; neither looks at anything
that the site's own people could not see.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import random
import socket
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from verticil.party.config import load_party
from verticil.party.operator import commands, peer_commands
from verticil.party.operator.view_model import StudyStatus
from verticil.shared.core.errors import InternalFault, PeerFault, VerticilError, from_code
from verticil.shared.release.verification import VerifiedRelease, verify_release
from verticil.shared.study.document import Study

_HOST: Final = "127.0.0.1"
_PORTS: Final = range(26_000, 32_000)
"""Not among those that a system gives to each connection and to whoever listens on any port (Linux: 32768 to 60999)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyProgress:
    """Where the parties stand in one study.

    Attributes:
        stages: what each does, or waits for.
        published: every party has the signed release.
    """

    stages: Mapping[str, str]
    published: bool


def free_addresses(names: Iterable[str]) -> dict[str, str]:
    """Find a free port of this machine for each name.

    Another program may take one before its node does; the node then says so.
    """
    addresses: dict[str, str] = {}
    with ExitStack() as stack:
        draw = iter(random.SystemRandom().sample(_PORTS, len(_PORTS)))
        for name in names:
            listener = stack.enter_context(socket.socket())
            while name not in addresses:
                port = next(draw)
                with suppress(OSError):  # it is taken
                    listener.bind((_HOST, port))
                    addresses[name] = f"{_HOST}:{port}"
    return addresses


def load_everywhere(
    parties: Mapping[str, Path], study: Path | Study, *, at: dt.datetime | None = None, unreviewed: bool = False
) -> str:
    """Load the same study at every party.

    Args:
        parties: name -> folder.
        study: study.toml, or the study itself.
        at: now.
        unreviewed: load a draft that its author has not reviewed, too.

    Returns:
        The study's digest, hexadecimal.
    """
    studies = [
        peer_commands.load_study(load_party(folder / "party.toml"), study, at=at, allow_unreviewed=unreviewed)
        for folder in parties.values()
    ]
    return studies[0].digest


def standing(parties: Mapping[str, Path], digest: str) -> StudyProgress:
    """Return where each party stands.

    Raises:
        VerticilError: what ended the study at a party, as that party wrote it down; the one that met it, not one that was told.
    """
    studies = _studies(parties, digest)
    failures = _failures(studies)
    if failures and all(error.code == "STUDY_WITHDRAWN" for error in failures):
        # The one that met it wrote it down before it told anybody, but maybe after it was read here.
        failures = _failures(_studies(parties, digest))
    if failures:
        raise next((error for error in failures if error.code != "STUDY_WITHDRAWN"), failures[0])
    return StudyProgress(
        stages={name: study.stage for name, study in studies.items()},
        published=all(study.state == "published" for study in studies.values()),
    )


def _studies(parties: Mapping[str, Path], digest: str) -> dict[str, StudyStatus]:
    """Return the study as each party has it now."""
    return {
        name: next(
            study for study in commands.status(load_party(folder / "party.toml")).studies if study.digest == digest
        )
        for name, folder in parties.items()
    }


def _failures(studies: Mapping[str, StudyStatus]) -> list[VerticilError]:
    return [
        from_code(failure.code, f"party '{name}': {failure.message}", hint=failure.hint)
        for name, study in studies.items()
        if (failure := study.failure) is not None
    ]


async def until_published(
    parties: Mapping[str, Path],
    digest: str,
    *,
    step: Callable[[str], None],
    check: Callable[[], None],
    look_seconds: float,
) -> None:
    """Wait until every party has the signed release.

    Args:
        parties: name -> folder.
        digest: of the study.
        step: called with every change at a party, in words.
        check: called before every look; raises what should end the waiting.
        look_seconds: between two looks.

    Raises:
        VerticilError: as `standing`, and what `check` raises.
    """
    last_stages: Mapping[str, str] = {}
    while True:
        check()
        current = await asyncio.to_thread(standing, parties, digest)
        for name, stage in current.stages.items():
            if last_stages.get(name) != stage:
                step(f"{name}: {stage}")
        last_stages = current.stages
        if current.published:
            return
        await asyncio.sleep(look_seconds)


def take_home(
    parties: Mapping[str, Path], digest: str, place: Path, *, ca_certificate: bytes
) -> tuple[dict[str, Path], VerifiedRelease]:
    """Take every party's release, verify each, and see that all are the same.

    Args:
        parties: name -> folder.
        digest: of the study.
        place: folder for one release a party, named as the party.
        ca_certificate: the federation's.

    Returns:
        The folder of each party's release, and what verification found in the first.

    Raises:
        VerticilError: RELEASE_INVALID or another; STUDY_MISMATCH when two parties have different releases.
    """
    folders: dict[str, Path] = {}
    verifications: dict[str, VerifiedRelease] = {}
    for name, folder in parties.items():
        target = place / name / "release"
        peer_commands.take_release(load_party(folder / "party.toml"), digest, target)
        folders[name], verifications[name] = target, verify_release(target, ca_certificate=ca_certificate)
    manifests = {(folder / "manifest.json").read_bytes() for folder in folders.values()}
    if len(manifests) != 1:
        raise PeerFault(
            "STUDY_MISMATCH", f"{len(manifests)} different releases of {len(folders)} parties, expected one"
        )
    if not verifications:
        raise InternalFault("INTERNAL", "a study without parties")
    return folders, next(iter(verifications.values()))
