"""``verticil reproduce`` in the list of commands (entry point of ``verticil.commands``): imported whenever the list is shown."""

from __future__ import annotations

from typing import Final

from verticil.cli.commands import Entry

ENTRY: Final = Entry(
    help="Run a paper's experiments through this program's own methods, and print theirs beside ours.",
    module="verticil.reproduce.command",
    function="reproduce",
    example="ma-sivakumar --table 2 --runs 1000",
)
