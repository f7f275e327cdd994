"""A federation from an analyst's notebook: submit, follow, fetch, as ``verticil study`` and ``verticil release`` do."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from verticil.api.arguments import check_arguments
from verticil.api.release import Anchors, Release, open_release, temporary_folder
from verticil.api.runs import Progress, steps
from verticil.api.study import Study, resolve_study

if TYPE_CHECKING:
    from verticil.analyst.federation import Connection
    from verticil.shared.documents.json_document import Json
    from verticil.shared.federation.transport.interface import Control
    from verticil.shared.study import document

Answer = TypeVar("Answer")


@check_arguments()
def connect(federation: Path | str = "federation.toml", *, certificate: Path | str = "analyst.crt") -> Federation:
    """Connect to a federation's miner, over mutual TLS; nothing is sent before a method is called.

    Args:
        federation: federation.toml.
        certificate: yours; its key lies beside it, named ``.key``.

    Raises:
        Misuse: FILE_MISSING, CONFIG_INVALID.
        PeerFault: CERTIFICATE_INVALID.

    >>> import verticil.api as vt
    >>> vt.connect("federation.tml", certificate="lee.crt")
    Traceback (most recent call last):
        ...
    verticil.shared.core.errors.Misuse: FILE_MISSING: federation.tml: no such file (hint: give the path of an existing TOML file)
    """
    from verticil.shared.documents.config import load_federation
    from verticil.shared.federation.identity.pki import load_credentials

    place, own = Path(federation), Path(certificate)
    document = load_federation(place)
    credentials = load_credentials(own, own.with_suffix(".key"), document)
    return Federation(path=place, certificate=own, name=document.name, identity=credentials.identity.uri)


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Federation:
    """A federation, and who you are there. Each call has a connection of its own.

    Attributes:
        path: of federation.toml.
        certificate: of your certificate.
        name: the federation's.
        identity: yours, as the miner sees it.
    """

    path: Path
    certificate: Path
    name: str
    identity: str

    @check_arguments()
    def submit(self, study: Study | document.Study | Path | str) -> dict[str, Json]:
        """Propose a study to the parties; nothing is read or sent anywhere before their officers approve it.

        Returns:
            The document of ``verticil study submit --format json``: ``id``, ``digest``, ``state``.

        Raises:
            Misuse: UNREVIEWED, it is a draft; STUDY_INVALID, it cannot succeed as it stands (see `Study.check`); STUDY_OVER, the
                same study ended before.
            VerticilError: what the miner refuses.
        """
        from verticil.analyst.federation import submit_study
        from verticil.analyst.lint import refuse_hopeless

        proposal = resolve_study(study)
        refuse_hopeless(proposal)

        async def run(connection: Connection) -> dict[str, Json]:
            digest, state = await submit_study(connection, proposal)
            return {"id": proposal.id, "digest": digest.hex(), "state": state.words}

        return self._run_call(run)

    @check_arguments()
    def status(self, study: str) -> dict[str, Json]:
        """Return where a study stands: the document of ``verticil study status --format json``.

        Args:
            study: its id; ANALYST/ID where several analysts use it; or its digest.
        """
        from verticil.shared.pages.study_status import summary_payload
        from verticil.wire.v1.control_pb2 import GetStudyRequest

        async def run(connection: Connection) -> dict[str, Json]:
            return summary_payload((await connection.analyst().get_study(GetStudyRequest(study_id=study))).study)

        return self._run_call(run)

    def studies(self) -> list[dict[str, Json]]:
        """Return all studies that the miner knows, the newest last, each as of `status`."""
        from verticil.shared.pages.study_status import summary_payload
        from verticil.wire.v1.control_pb2 import ListStudiesRequest

        async def run(connection: Connection) -> list[dict[str, Json]]:
            reply = await connection.analyst().list_studies(ListStudiesRequest())
            return [summary_payload(item) for item in reply.studies]

        return self._run_call(run)

    @check_arguments()
    def follow(self, study: str, *, progress: Progress | None = None) -> dict[str, Json]:
        """Wait until a study is published, however long that takes; interrupted, the study goes on, and can be followed again.

        Args:
            study: as for `status`.
            progress: told every change.

        Returns:
            As of `status`.

        Raises:
            VerticilError: how the study ended otherwise, with the miner's code.
        """
        from verticil.analyst.federation import find_study
        from verticil.shared.pages.study_status import summary_payload
        from verticil.simulation.analyst import follow_study

        async def run(connection: Connection) -> dict[str, Json]:
            control: Control = connection.analyst()
            digest = await find_study(connection, study)
            return summary_payload(await follow_study(control, digest, step=steps(progress), patience_seconds=math.inf))

        return self._run_call(run)

    @check_arguments()
    def fetch(self, study: str, *, out: Path | str | None = None) -> Release:
        """Fetch the release of a study and verify it by the federation's authority and deny-list.

        Args:
            study: as for `status`.
            out: folder to make for the release; None: one that goes when the release is no longer used.

        Raises:
            VerticilError: FILE_EXISTS, STUDY_UNKNOWN, RELEASE_INVALID, RELEASE_UNTRUSTED, or what the miner says.
        """
        from verticil.analyst.federation import find_study
        from verticil.shared.documents.config import load_federation
        from verticil.shared.release.download import fetch_release

        with ExitStack() as stack:
            temporary = stack.enter_context(temporary_folder()) if out is None else None
            folder = Path(out) if out is not None else Path(str(temporary)) / "release"

            async def run(connection: Connection) -> None:
                source = connection.control or connection.coordinator
                assert source is not None
                await fetch_release(source, await find_study(connection, study), folder)

            self._run_call(run)
            anchors = Anchors(ca=load_federation(self.path).ca_certificate)
            return open_release(folder, anchors, temporary=temporary)

    @check_arguments()
    def cancel(self, study: str) -> dict[str, Json]:
        """Withdraw a study that is not yet published; what parties have sent by then stays charged in their ledgers.

        Returns:
            The document of ``verticil study cancel --format json``: ``id``, ``state``.

        Raises:
            Misuse: STUDY_OVER, it had ended otherwise.
        """
        from verticil.analyst.federation import find_study
        from verticil.shared.study.states import State, require_withdrawn
        from verticil.wire.v1.control_pb2 import CancelStudyRequest

        async def run(connection: Connection) -> State:
            digest = await find_study(connection, study)
            return State((await connection.analyst().cancel_study(CancelStudyRequest(study_digest=digest))).state)

        state = self._run_call(run)
        require_withdrawn(study, state)
        return {"id": study, "state": state.words}

    def _run_call(self, call: Callable[[Connection], Coroutine[Any, Any, Answer]]) -> Answer:
        from verticil.analyst.federation import open_connection

        async def run() -> Answer:
            async with open_connection(self.path, self.certificate) as connection:
                return await call(connection)

        return run_coroutine(run)

    def __repr__(self) -> str:
        return f"Federation '{self.name}'\nyou are {self.identity}\nsubmit, status, follow, fetch, cancel; studies()"


def run_coroutine(make: Callable[[], Coroutine[Any, Any, Answer]]) -> Answer:
    """Return what a coroutine gives, also where an event loop runs already, as in a notebook; interrupted, it is cancelled."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(make())
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any] | None]] = Future()

    async def run_here() -> Answer:
        running.set_result((asyncio.get_running_loop(), asyncio.current_task()))
        return await make()

    with ThreadPoolExecutor(1, thread_name_prefix="verticil-federation") as pool:
        try:
            return pool.submit(lambda: asyncio.run(run_here())).result()
        except KeyboardInterrupt:
            loop, task = running.result()
            if task is not None:
                loop.call_soon_threadsafe(task.cancel)
            raise
