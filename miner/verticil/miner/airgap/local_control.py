"""How ``verticil miner import | export | close`` reach the desk: of the running daemon, or of a node opened for the moment.

Only one process may work on a state directory. While the daemon runs, a command leaves a folder in ``state/carried/window`` with
what it wants and, for an import, a copy of the bundle; the daemon looks there twice a second, does it, and leaves the reply (and
the bundle that it made) in the same folder. So the daemon need not be able to read the stick, nor a sandbox be opened for it. Who
may write into the state directory may use the window, as it may use the command.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import secrets
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, cast

from verticil.miner.airgap.exchange import CarriedDesk
from verticil.shared.airgap.outcome import Closed, Exported, Imported
from verticil.shared.disk import replace_file, write_fault
from verticil.shared.durable import remove_tree, rename, sync_directory
from verticil.shared.errors import Misuse, PeerFault, VerticilError, from_code
from verticil.shared.transport.errors_on_wire import without_text
from verticil.shared.view import Json, document, viewed

LOOK_SECONDS: Final = 0.5
PATIENCE_SECONDS: Final = 5.0
"""Within this time a daemon that lives takes a wish up."""
_WISH: Final = "wish.json"
_TAKEN: Final = "taken"
_REPLY: Final = "reply.json"
_BUNDLE: Final = "bundle"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
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


Granted = Exported | Imported | Closed
_GRANTED: Final = {"export": Exported, "import": Imported, "close": Closed}


async def grant(desk: CarriedDesk, wish: Wish) -> Granted:
    """Do it; raises as `CarriedDesk`."""
    if wish.verb == "close":
        return await desk.close(wish.study, wish.reason)
    if wish.verb == "import":
        return await desk.take_in(wish.file, accept_older=wish.accept_older)
    return await desk.hand_out(wish.party, wish.file, releases=wish.releases, plain=wish.plain)


class Window:
    """The daemon's side.

    Args:
        desk: does the work.
        state_directory: the miner's.
    """

    def __init__(self, desk: CarriedDesk, state_directory: Path) -> None:
        self._desk = desk
        self._folder = state_directory / "carried" / "window"

    async def run(self) -> None:
        """Serve until cancelled. What an earlier process had begun is removed, so that who asked need not wait for it."""
        await asyncio.to_thread(self._clear)
        while True:
            for folder in await asyncio.to_thread(self._waiting):
                await self._serve(folder)
            await asyncio.sleep(LOOK_SECONDS)

    def _clear(self) -> None:
        for begun in self._folder.glob(f"*/{_TAKEN}"):
            remove_tree(begun.parent, ignore_errors=True)

    def _waiting(self) -> list[Path]:
        with contextlib.suppress(OSError):
            return sorted(
                place.parent for place in self._folder.glob(f"*/{_WISH}") if not (place.parent / _TAKEN).exists()
            )
        return []

    async def _serve(self, folder: Path) -> None:
        try:
            (folder / _TAKEN).touch()
            said = cast("dict[str, object]", json.loads((folder / _WISH).read_bytes()))
            wish = Wish(
                verb=cast("str", said["verb"]),
                file=folder / _BUNDLE,
                party=cast("str", said["party"]),
                releases=tuple(cast("list[str]", said["releases"])),
                plain=bool(said["plain"]),
                accept_older=bool(said["accept_older"]),
                study=cast("str", said.get("study", "")),
                reason=cast("str", said.get("reason", "")),
            )
            reply = document(await grant(self._desk, wish))
        except VerticilError as error:
            reply = {"error": {"code": error.code, "message": error.message, "hint": error.hint}}
        except Exception as error:  # noqa: BLE001 (one wish must not stop the daemon; the text may hold anything)
            fault = without_text(error, method="window")
            reply = {"error": {"code": fault.code, "message": fault.message, "hint": fault.hint}}
        try:
            text = json.dumps(reply).encode("utf-8")
            await asyncio.to_thread(replace_file, folder / _REPLY, text, part=folder / ".reply.part")
        except OSError as error:
            _log.warning("window: the reply cannot be written (%s)", error.strerror)


def ask_the_daemon(state_directory: Path, wish: Wish, *, sleep: Callable[[float], None] = time.sleep) -> Granted:
    """The command's side: leave a wish, wait for the reply. Blocks.

    Args:
        state_directory: the miner's.
        wish: what is wanted.
        sleep: waits.

    Raises:
        PeerFault: NOT_READY, nobody takes it up.
        VerticilError: what the daemon met.
    """
    target, window = wish.file, state_directory / "carried" / "window"
    if wish.verb == "export" and target.exists():
        raise Misuse("FILE_EXISTS", f"{target}: exists already and is not overwritten", hint="name another file")
    folder = window / secrets.token_hex(8)
    try:
        folder.mkdir(mode=0o700, parents=True)
        if wish.verb == "import":
            shutil.copyfile(target, folder / _BUNDLE)
        said = {
            "verb": wish.verb,
            "party": wish.party,
            "releases": list(wish.releases),
            "plain": wish.plain,
            "accept_older": wish.accept_older,
            "study": wish.study,
            "reason": wish.reason,
        }
        replace_file(folder / _WISH, json.dumps(said).encode("utf-8"), part=folder / ".wish.part")
        reply = _reply(folder, sleep)
        if "error" in reply:
            told = cast("dict[str, str]", reply["error"])
            message = (
                told["message"].replace(str(folder / _BUNDLE), str(target)).replace(f"{_BUNDLE}:", f"{target.name}:")
            )
            raise from_code(told["code"], message, hint=told["hint"])
        if wish.verb == "export":
            part = target.with_name(f".{target.name}.part")
            shutil.copyfile(folder / _BUNDLE, part)
            rename(part, target)
            sync_directory(target.parent)
            reply["file"] = str(target)
        return viewed(_GRANTED[wish.verb], reply)
    except FileNotFoundError:
        raise Misuse(
            "FILE_MISSING", f"{target}: cannot be read or written", hint="name a file in a folder that exists"
        ) from None
    except OSError as error:
        raise write_fault(error, target) from None
    finally:
        remove_tree(folder, ignore_errors=True)


def _reply(folder: Path, sleep: Callable[[float], None]) -> dict[str, Json]:
    waited = 0.0
    while not (folder / _REPLY).exists():
        if waited >= PATIENCE_SECONDS and not (folder / _TAKEN).exists():
            raise PeerFault(
                "NOT_READY",
                "another process holds the miner's state directory, and takes up no files",
                hint="a daemon of this version takes them up; or stop it, and give the command again",
            )
        sleep(0.1)
        waited += 0.1
    return cast("dict[str, Json]", json.loads((folder / _REPLY).read_bytes()))
