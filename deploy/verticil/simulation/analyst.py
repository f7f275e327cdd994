"""The demonstration's analyst: submits the study, follows it until it is published, fetches and verifies the release.

Run as a program (``python3 -m verticil.simulation.analyst --folder DIR``) it is the analyst's container of deploy/compose.yaml:
`DIR` is the analyst's folder as `provision` lays it out, and the release appears in it.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Final

from verticil.shared.core.errors import VerticilError, from_code
from verticil.shared.documents.config import load_federation
from verticil.shared.federation.identity.pki import load_credentials
from verticil.shared.federation.transport.client import Connection, GrpcControl
from verticil.shared.federation.transport.errors_on_wire import retriable
from verticil.shared.federation.transport.interface import Control
from verticil.shared.release.download import fetch_release
from verticil.shared.release.verification import VerifiedRelease, verify_release
from verticil.shared.study.canonical import to_bytes
from verticil.shared.study.document import Study
from verticil.shared.study.draft_review import require_reviewed
from verticil.shared.study.reading import read_study
from verticil.shared.study.states import State
from verticil.wire.v1 import common_pb2, control_pb2

WAIT_SECONDS: Final = 2
ASK_AGAIN_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class CarriedOut:
    """A study that was published.

    Attributes:
        study: the proposal.
        verified: what verification of the fetched release found.
        releases: the release's folder, under who has it.
    """

    study: Study
    verified: VerifiedRelease
    releases: Mapping[str, Path]


async def follow_study(
    control: Control,
    digest: bytes,
    *,
    step: Callable[[str], None] = lambda _line: None,
    check: Callable[[], None] = lambda: None,
    patience_seconds: float = 0.0,
) -> control_pb2.StudySummary:
    """Wait until a study is published.

    Args:
        control: the connection to the miner.
        digest: of the proposal.
        step: called with every change, in words.
        check: called every few seconds; raises what should end the waiting.
        patience_seconds: how long a miner that does not answer is asked again.

    Raises:
        VerticilError: the study ended otherwise, with the miner's code, message and hint.
    """
    version, last_line, last_answer = 0, "", time.monotonic()
    while True:
        check()
        request = control_pb2.GetStudyRequest(study_digest=digest, known_version=version, wait_seconds=WAIT_SECONDS)
        try:
            study = (await control.get_study(request)).study
        except VerticilError as error:
            if not retriable(error) or time.monotonic() - last_answer >= patience_seconds:
                raise
            if last_line != error.code:
                step(f"waiting for the miner: {error.code}")
                last_line = error.code
            await asyncio.sleep(ASK_AGAIN_SECONDS)
            continue
        version, last_answer = study.version, time.monotonic()
        name = State(study.state).words
        line = name + (f": {study.stage_detail}" if study.stage_detail else "")
        if line != last_line:
            step(line)
            last_line = line
        if study.state == common_pb2.STUDY_STATE_PUBLISHED:
            return study
        if study.state >= common_pb2.STUDY_STATE_DENIED:
            end = study.failure
            raise from_code(end.code or "STUDY_WITHDRAWN", end.message or f"the study ended: {name}", hint=end.hint)


def connect_to_miner(folder: Path) -> GrpcControl:
    """Open the line to the miner from an analyst's folder, to be closed."""
    federation = load_federation(folder / "federation.toml")
    credentials = load_credentials(folder / "pki" / "analyst.crt", folder / "pki" / "analyst.key", federation)
    idle = federation.idle_timeout_seconds
    return GrpcControl(Connection(federation.miner_endpoint, credentials, idle_timeout_seconds=idle))


async def carry_out(
    folder: Path,
    release: Path,
    *,
    step: Callable[[str], None],
    check: Callable[[], None] = lambda: None,
    patience_seconds: float = 0.0,
) -> CarriedOut:
    """Submit ``folder/study.toml`` and bring the verified release home.

    Args:
        folder: the analyst's folder.
        release: folder to make.
        step, check, patience_seconds: as for `follow_study`.

    Raises:
        Misuse: UNREVIEWED.
        VerticilError: whatever ended the study or the connection; RELEASE_INVALID or RELEASE_UNTRUSTED.
    """
    study = read_study(folder / "study.toml")
    require_reviewed(study)
    control = connect_to_miner(folder)
    try:
        reply = await control.submit_study(control_pb2.SubmitStudyRequest(proposal=to_bytes(study)))
        step(f"study '{study.id}' submitted, digest {reply.study_digest.hex()[:12]}")
        await follow_study(control, reply.study_digest, step=step, check=check, patience_seconds=patience_seconds)
        await fetch_release(control, reply.study_digest, release)
    finally:
        await control.close()
    authority = load_federation(folder / "federation.toml").ca_certificate.read_bytes()
    verification = await asyncio.to_thread(verify_release, release, ca_certificate=authority)
    step("release fetched and verified")
    return CarriedOut(study=study, verified=verification, releases={"analyst": release})


def _end(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(143)


def main() -> int:
    """Carry the study out; nothing is done again when the release is there already."""
    parser = argparse.ArgumentParser(description="Submit the demonstration's study and fetch its release.")
    parser.add_argument("--folder", type=Path, required=True)
    folder: Path = parser.parse_args().folder
    signal.signal(signal.SIGTERM, _end)  # as the first process of a container there is no default
    try:
        asyncio.run(
            carry_out(
                folder,
                folder / "release",
                step=lambda line: print(line, flush=True),  # noqa: T201
                patience_seconds=math.inf,  # a container's miner may be away for a while
            )
        )
    except VerticilError as error:
        if error.code != "FILE_EXISTS":
            sys.stderr.write(f"{error}\n")
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
