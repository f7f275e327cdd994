"""The commands of `verticil` by name: each module is imported when its command runs, so that none waits for the others'.

Further commands are those of installed packages of this project, entry points of the group ``verticil.commands``
(`verticil.shared.core.plugins`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import TyperException

from verticil.shared.core import plugins
from verticil.shared.core.errors import Misuse
from verticil.shared.core.installation import install_experiments


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A command, or a group of commands.

    Attributes:
        help: its line in the list of commands: of a command the first line of what its function says.
        module: of `verticil.cli`, or of a package that adds the command.
        function: that carries it out; empty: a group, the module's `app`.
        example: shown below its help.
    """

    help: str
    module: str
    function: str = ""
    example: str


ENTRIES: Final[Mapping[str, Entry]] = {
    "demo": Entry(
        help="Run a whole federation on this machine: three organisations, mutual TLS, a published and verified release.",
        module="verticil.cli.demo",
        function="demo",
        example="--out trial --format json",
    ),
    "example": Entry(
        help="Write three small tables about the same people, made up and as messy as real ones, to try the other commands with.",
        module="verticil.cli.example",
        function="example_command",
        example="people",
    ),
    "simulate": Entry(
        help="Show what a federation of these parties would publish: a study in one process, with the code of the real nodes.",
        module="verticil.cli.demo",
        function="simulate_command",
        example="study.toml --data clinic=clinic.csv --data insurer=insurer.csv --out trial --compare",
    ),
    "synthesize": Entry(
        help="Make what one owner of the whole table would publish: synthetic records, with one bound for everything together.",
        module="verticil.cli.synthesize",
        function="synthesize_command",
        example="people.csv --study study.toml --epsilon 1 --out people-synthetic",
    ),
    "table": Entry(
        help="Show what a table is: each column's type, missing values, and what a draft of a study would make of it.",
        module="verticil.cli.table",
        function="table_command",
        example="people.csv",
    ),
    "evaluate": Entry(
        help="Compare synthetic tables, made by any program, with the real one: fidelity, utility, disclosure, stated knowledge.",
        module="verticil.cli.evaluate",
        function="evaluate_command",
        example="--real people.csv --synthetic synthetic.csv --holdout others.csv",
    ),
    "healthcheck": Entry(
        help="Ask a daemon whether it serves: read its state folder, and call a miner over mutual TLS, too. Exit 0 when it does.",
        module="verticil.cli.healthcheck",
        function="healthcheck",
        example="--config miner.toml",
    ),
    "doctor": Entry(
        help="Check certificates, state (database, audit log, secret), data, disk, connection, clock; say what to do. Changes "
        "nothing.",
        module="verticil.cli.doctor",
        function="doctor",
        example="party.toml",
    ),
    "docs": Entry(
        help="Open the documentation, or say where it is.",
        module="verticil.cli.docs",
        function="docs_command",
        example="runbook --no-browser",
    ),
    "man": Entry(
        help="Write the manual pages of all commands into a folder, for `man verticil`; older ones there are replaced.",
        module="verticil.cli.manual",
        function="man_command",
        example="manual/man1",
    ),
    "study": Entry(
        help="Write, check, submit and follow studies.",
        module="verticil.cli.study",
        example="check study.toml --n 30000",
    ),
    "knowledge": Entry(
        help="Show and ask the rules of a study.",
        module="verticil.cli.knowledge",
        example="ask study.toml protocol=TCP port=53",
    ),
    "party": Entry(
        help="The node at a data-holding site.", module="verticil.cli.party", example="run --config party.toml"
    ),
    "miner": Entry(
        help="The coordinator that learns and publishes.",
        module="verticil.cli.miner",
        example="run --config miner.toml",
    ),
    "release": Entry(
        help="Fetch, verify and use releases.", module="verticil.cli.release", example="verify release --ca ca.crt"
    ),
    "pki": Entry(
        help="Certificates: the coordinator's authority, and each site's own.",
        module="verticil.cli.pki",
        example="init --federation hearts",
    ),
    "attack": Entry(
        help="Test the bounds of privacy by attacks.", module="verticil.cli.attack", example="epsilon --draws 100000"
    ),
    "linkage": Entry(
        help="The key with which parties link their records.",
        module="verticil.cli.linkage",
        example="new-key linkage.key",
    ),
}


GROUP: Final = "verticil.commands"
"""Of entry points: name of a command -> its `Entry`."""
ELSEWHERE: Final[Mapping[str, str]] = {"reproduce": "verticil-experiments"}
"""Commands of packages in this project's checkout -> the package."""


def names() -> list[str]:
    """Return the names of all commands that can run here."""
    return [*ENTRIES, *plugins.names(GROUP)]


def entry_of(name: str) -> Entry | None:
    """Find a command; None: there is none of this name.

    Raises:
        Misuse: USAGE, it is in a package that is not installed, or is of another version.
    """
    if name in ENTRIES:
        return ENTRIES[name]
    if isinstance(entry := plugins.load(GROUP, name), Entry):
        return entry
    if package := ELSEWHERE.get(name):
        raise Misuse(
            "USAGE",
            f"the command '{name}' is in the package {package}, which is not installed",
            hint=install_experiments(),
        )
    return None


class Commands(TyperGroup):
    """The root: it lists commands by their entries, and loads the one that is run."""

    def list_commands(self, ctx: object) -> list[str]:
        """Return all names, in the order of the entries."""
        return names()

    def get_command(self, ctx: object, cmd_name: str) -> Any:
        """Return the command, with its name and help alone; `resolve_command` gives the whole one."""
        entry = entry_of(cmd_name)
        return None if entry is None else TyperCommand(cmd_name, help=entry.help)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the command that is asked for, loaded, and its arguments.

        Raises:
            Misuse: USAGE, a group has the command, which was asked for without the group.
        """
        try:
            name, command, rest = super().resolve_command(ctx, args)
        except TyperException:
            groups = [name for name, own in self.commands.items() if args[0] in getattr(own, "commands", ())]
            if not groups:
                raise
            whole = " or ".join(f"`verticil {group} {args[0]}`" for group in groups)
            hint = f"did you mean {whole}?"
            raise Misuse("USAGE", f"there is no command 'verticil {args[0]}'", hint=hint) from None
        return name, command if name is None else load(name), rest

    @property
    def commands(self) -> dict[str, Any]:
        """All commands of the program, loaded."""
        return {name: load(name) for name in names()}

    @commands.setter
    def commands(self, commands: Mapping[str, object]) -> None:
        assert not commands, "commands are declared in ENTRIES"


def load(name: str) -> Any:
    """Return the command of a name, with all that it takes; there is one."""
    entry = entry_of(name)
    assert entry is not None, name
    module, example = import_module(entry.module), f"Example: verticil {name} {entry.example}"
    root = typer.Typer(rich_markup_mode="rich", add_completion=False, pretty_exceptions_enable=False)
    if entry.function:
        root.command(name=name, epilog=example)(getattr(module, entry.function))
    else:
        root.add_typer(module.app, name=name, help=entry.help, epilog=example)
    return typer.main.get_group(root).commands[name]
