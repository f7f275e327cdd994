"""How ``verticil miner import | export | close`` reach the exchange: of the running daemon, or of a node opened for the moment.

Only one process may work on a state directory. While the daemon runs, a command leaves a folder in ``state/carried/window`` with
what it wants and, for an import, a copy of the bundle; the daemon looks there twice a second, does it, and leaves the reply (and
the bundle that it made) in the same folder. So the daemon need not be able to read the stick, nor a sandbox be opened for it. Who
may write into the state directory may leave requests, as it may use the command.

Where no daemon runs (`handle_offline`), the node is opened for the moment, and does not serve or learn. What a bundle brings
waits on the disk until the daemon is started, as if it had been stopped in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from verticil.miner.airgap.exchange import Exchange
from verticil.miner.config import MinerConfig
from verticil.miner.scheduler.learning import InlineLearning
from verticil.miner.service.node import MinerNode
from verticil.miner.service.tasks import TASKS
from verticil.miner.storage.audit import MinerAudit
from verticil.shared.core.errors import Misuse, PeerFault, VerticilError, from_code
from verticil.shared.documents.json_document import Json
from verticil.shared.documents.view_models import document, viewed
from verticil.shared.federation.airgap.exchange import Closed, Exported, Imported
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import load_credentials, utc_now
from verticil.shared.federation.transport.errors_on_wire import without_text
from verticil.shared.storage.disk import replace_file, write_fault
from verticil.shared.storage.durable import remove_tree, rename, sync_directory

LOOK_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 5.0
"""Within this time a daemon that lives takes a request up."""
_REQUEST: Final = "wish.json"
_TAKEN: Final = "taken"
_REPLY: Final = "reply.json"
_BUNDLE: Final = "bundle"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlRequest:
    """What a command wants.

    Attributes:
        verb: ``import``, ``export`` or ``close``.
        file: to read, or to make; nothing of a closure.
        party, releases, plain: of an export.
        accept_older: of an import.
        study, reason: of a closure.
    """

    verb: str
    file: Path = Path()
    party: str = ""
    releases: tuple[str, ...] = ()
    plain: bool = False
    accept_older: bool = False
    study: str = ""
    reason: str = ""


Answer = Exported | Imported | Closed
_ANSWERS: Final = {"export": Exported, "import": Imported, "close": Closed}


async def handle(exchange: Exchange, request: ControlRequest) -> Answer:
    """Do it; raises as `Exchange`."""
    if request.verb == "close":
        return await exchange.close(request.study, request.reason)
    if request.verb == "import":
        return await exchange.import_bundle(request.file, accept_older=request.accept_older)
    return await exchange.export_bundle(request.party, request.file, releases=request.releases, plain=request.plain)


class LocalControl:
    """The daemon's side.

    Args:
        exchange: does the work.
        state_directory: the miner's.
    """

    def __init__(self, exchange: Exchange, state_directory: Path) -> None:
        self._exchange = exchange
        self._folder = state_directory / "carried" / "window"

    async def run(self) -> None:
        """Serve until cancelled. What an earlier process had begun is removed, so that who asked need not wait for it."""
        await asyncio.to_thread(self._clear)
        while True:
            for folder in await asyncio.to_thread(self._waiting):
                await self._serve(folder)
            await asyncio.sleep(LOOK_SECONDS)

    def _clear(self) -> None:
        for mark in self._folder.glob(f"*/{_TAKEN}"):
            remove_tree(mark.parent, ignore_errors=True)

    def _waiting(self) -> list[Path]:
        with contextlib.suppress(OSError):
            return sorted(
                place.parent for place in self._folder.glob(f"*/{_REQUEST}") if not (place.parent / _TAKEN).exists()
            )
        return []

    async def _serve(self, folder: Path) -> None:
        try:
            (folder / _TAKEN).touch()
            content = cast("dict[str, Json]", json.loads((folder / _REQUEST).read_bytes()))
            request = viewed(ControlRequest, {"file": "", "study": "", "reason": "", **content})
            request = replace(request, file=folder / _BUNDLE)
            reply = document(await handle(self._exchange, request))
        except VerticilError as error:
            reply = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
        except Exception as error:  # noqa: BLE001 (one request must not stop the daemon; the text may hold anything)
            fault = without_text(error, method="window")
            reply = {"error": {"code": fault.code, "message": fault.message, "hint": fault.hint}}
        try:
            text = json.dumps(reply).encode("utf-8")
            await asyncio.to_thread(replace_file, folder / _REPLY, text, part=folder / ".reply.part")
        except OSError as error:
            _log.warning("the reply to a command cannot be written (%s)", error.strerror)


def ask_the_daemon(state_directory: Path, request: ControlRequest) -> Answer:
    """Leave a request for the daemon, and wait for the reply. Blocks.

    Args:
        state_directory: the miner's.
        request: what is wanted.

    Raises:
        PeerFault: NOT_READY, no daemon takes it up.
        VerticilError: what the daemon met.
    """
    target = request.file
    if request.verb == "export" and target.exists():
        raise Misuse("FILE_EXISTS", f"{target}: exists already and is not overwritten", hint="name another file")
    folder = state_directory / "carried" / "window" / secrets.token_hex(8)
    try:
        folder.mkdir(mode=0o700, parents=True)
        if request.verb == "import":
            shutil.copyfile(target, folder / _BUNDLE)
        replace_file(folder / _REQUEST, json.dumps(document(request)).encode("utf-8"), part=folder / ".wish.part")
        reply = _reply(folder)
        if "error" in reply:
            problem = cast("dict[str, str]", reply["error"])
            message = (
                problem["message"].replace(str(folder / _BUNDLE), str(target)).replace(f"{_BUNDLE}:", f"{target.name}:")
            )
            raise from_code(problem["code"], message, hint=problem["hint"])
        if request.verb == "export":
            part = target.with_name(f".{target.name}.part")
            shutil.copyfile(folder / _BUNDLE, part)
            rename(part, target)
            sync_directory(target.parent)
            reply["file"] = str(target)
        return viewed(_ANSWERS[request.verb], reply)
    except FileNotFoundError:
        raise Misuse(
            "FILE_MISSING", f"{target}: cannot be read or written", hint="name a file in a folder that exists"
        ) from None
    except OSError as error:
        raise write_fault(error, target) from None
    finally:
        remove_tree(folder, ignore_errors=True)


def _reply(folder: Path) -> dict[str, Json]:
    seconds = 0.0
    while not (folder / _REPLY).exists():
        if seconds >= PATIENCE_SECONDS and not (folder / _TAKEN).exists():
            raise PeerFault(
                "NOT_READY",
                "another process holds the miner's state directory, and takes up no files",
                hint="a daemon of this version takes them up; or stop it, and give the command again",
            )
        time.sleep(0.1)
        seconds += 0.1
    return cast("dict[str, Json]", json.loads((folder / _REPLY).read_bytes()))


async def handle_offline(config: MinerConfig, request: ControlRequest) -> Answer:
    """Do it.

    Raises:
        DataFault: STATE_LOCKED, another process works on the state directory.
        VerticilError: as `Exchange`, and as `load_credentials`.
    """
    credentials = load_credentials(config.certificate, config.key, config.federation, role=Role.MINER, name=config.name)
    node = MinerNode.open(config, credentials, InlineLearning(clock=utc_now))
    try:
        return await handle(Exchange(config, node, audit=MinerAudit(config.state_directory)), request)
    finally:
        node.close()


async def _serve_beside(config: MinerConfig, node: MinerNode, audit: MinerAudit) -> None:
    """Do in the daemon what commands ask for."""
    await LocalControl(Exchange(config, node, audit=audit), config.state_directory).run()


TASKS.register("carried files", _serve_beside)
