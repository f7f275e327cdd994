"""The systemd unit of a node: ``node.service`` here with absolute paths, and a sandbox that leaves it its state and the network.

What is written and why:

- ``ProtectSystem=strict`` with ``ReadWritePaths`` of the state folder alone: the node writes nowhere else. Renewed certificates
  are put in place by a person.
- ``RestartPreventExitStatus=2 3 4 5 6``: what a person must mend (documents, policy, approval, identity and version, a gate) is
  not tried again. A broken network is waited for by the node itself and never ends it.
- ``MemoryDenyWriteExecute`` is off where numba is installed: it compiles kernels when they are first used, which takes memory
  that is written and then executed. Everything else works with it, so it is on where there is no numba.
- ``PrivateTmp=yes``: the node has a ``/tmp`` of its own, so nothing that it needs may lie in the machine's.
- ``Type=notify`` with ``WatchdogSec``: the unit has started when the node serves (`verticil.shared.core.health`); one that hangs,
  its event loop, its threads or its disk, is killed and started again. Reading a large audit log back takes its time at the
  start.
- ``TimeoutStopSec``: a node stops within a few seconds, and goes on where it was when it was killed.

`tests/unit/test_service_unit.py` has the units checked by ``systemd-analyze verify`` where that is installed.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Annotated, Final

import typer

from verticil.cli.output import Format, FormatOption, emit, put
from verticil.cli.party_site import ConfigOption, site_of
from verticil.pki.files import write_new
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.config import path_in, read_toml

if TYPE_CHECKING:
    from verticil.miner.config import MinerConfig
    from verticil.party.config import PartyConfig

UNITS: Final = Path("/etc/systemd/system")
_HOMES: Final = ("/home", "/root", "/run/user")
_TEMPORARY: Final = ("/tmp", "/var/tmp")  # noqa: S108 - compared, not written to

UserOption = Annotated[str, typer.Option("--user", help="The account that the node runs as; it owns the state folder.")]
PrintOption = Annotated[bool, typer.Option("--print", help="Write the unit to standard output, and nothing else.")]
ToOption = Annotated[Path, typer.Option("--to", help="Folder of the units.")]


def unit_text(
    *, what: str, command: tuple[str, ...], user: str, state: str, reads: tuple[str, ...] = (), compiles: bool
) -> str:
    """Write the text of the unit.

    Args:
        what: for people.
        command: program and arguments, absolute.
        user: account.
        state: the only folder that is written to.
        reads: other files and folders that the node needs; where one is in somebody's home, homes are readable.
        compiles: numba is installed.

    Raises:
        Misuse: CONFIG_INVALID, a path that a unit cannot hold, or one that the node does not see.
    """
    paths = (*command, state, *reads)
    if hidden := next((path for path in paths if _lies_in(path, _TEMPORARY)), None):
        raise Misuse(
            "CONFIG_INVALID",
            f"{hidden}: a systemd unit has a /tmp and a /var/tmp of its own and does not see this path, expected another folder",
            hint="move it to a folder that lasts, such as /srv/verticil, and name it there",
        )
    in_homes = any(_lies_in(path, _HOMES) for path in paths)
    execute = (
        "# numba compiles kernels when they are first used.\nMemoryDenyWriteExecute=no"
        if compiles
        else "MemoryDenyWriteExecute=yes"
    )
    return Template(files("verticil.cli").joinpath("node.service").read_text("utf-8")).substitute(
        what=what,
        command=" ".join(map(_quote_word, command)),
        user=user,
        state=_quote_word(state),
        homes="read-only" if in_homes else "yes",
        execute=execute,
    )


def _lies_in(path: str, folders: tuple[str, ...]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


def _read_paths(config: Path, document: PartyConfig | MinerConfig, *more: Path) -> tuple[str, ...]:
    """Return the files that a node needs: as its documents name them, and where links lead."""
    files = (
        Path(sys.executable),
        Path(__file__),
        config,
        path_in(read_toml(config), "federation", config.parent),
        document.federation.ca_certificate,
        document.certificate,
        document.key,
        document.signing_key,
        document.sealing_key,
        document.state_directory,
        *more,
    )
    return tuple(str(path) for file in files for path in (Path(os.path.abspath(file)), file.resolve()))


def _quote_word(text: str) -> str:
    """Write a word of a unit file.

    >>> _quote_word("/srv/clinic"), _quote_word("/srv/st anna/100%")
    ('/srv/clinic', '"/srv/st anna/100%%"')
    """
    if not text.isprintable() or set(text) & set("\"'\\$;"):
        raise Misuse(
            "CONFIG_INVALID", f"{text!r}: a unit cannot hold this path", hint="use a folder with a plainer name"
        )
    word = text.replace("%", "%%")
    return f'"{word}"' if " " in word else word


def _program() -> tuple[str, ...]:
    command = Path(sys.executable).absolute().with_name("verticil")
    return (str(command),) if command.is_file() else (str(Path(sys.executable).absolute()), "-m", "verticil.cli")


def install(name: str, text: str, *, to: Path, show: bool, form: Format) -> None:
    """Write the unit, or show it.

    Raises:
        Misuse: FILE_EXISTS; FILE_MISSING, it cannot be written there.
    """
    path = to / name
    if show:
        if not emit({"unit": name, "text": text}, form=form):
            sys.stdout.write(text)
        return
    write_new(path, text)
    if not emit({"unit": name, "path": str(path)}, form=form):
        put(f"wrote {path}")
        put(f"next: systemctl daemon-reload && systemctl enable --now {name}")


def install_party(
    user: UserOption = "verticil",
    show: PrintOption = False,
    to: ToOption = UNITS,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Write the systemd unit of this site's node, with absolute paths and a sandbox. Starts nothing."""

    document = site_of(config)
    tables = [path for rule in document.datasets.values() for path in rule.files]
    text = unit_text(
        what=f"party {document.name}",
        command=(*_program(), "party", "run", "--config", str(config.resolve()), "--log-json"),
        user=user,
        state=str(document.state_directory.resolve()),
        reads=_read_paths(config, document, document.linkage_key, *tables),
        compiles=importlib.util.find_spec("numba") is not None,
    )
    install(f"verticil-party-{document.name}.service", text, to=to, show=show, form=form)


def install_miner(
    user: UserOption = "verticil",
    show: PrintOption = False,
    to: ToOption = UNITS,
    config: Annotated[Path, typer.Option(help="miner.toml.")] = Path("miner.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Write the systemd unit of the miner, with absolute paths and a sandbox. Starts nothing."""
    from verticil.miner.config import load_miner

    document = load_miner(config)
    text = unit_text(
        what="miner",
        command=(*_program(), "miner", "run", "--config", str(config.resolve()), "--log-json"),
        user=user,
        state=str(document.state_directory.resolve()),
        reads=_read_paths(config, document),
        compiles=True,
    )
    install("verticil-miner.service", text, to=to, show=show, form=form)
