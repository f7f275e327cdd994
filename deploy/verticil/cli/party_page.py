"""``verticil party ui``: a local page for the people of a site, to read."""

from __future__ import annotations

import json
import signal
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from verticil.cli.output import Format, FormatOption, emit, text_console
from verticil.cli.party import ConfigOption, app

__all__ = ["app"]  # whose commands stand in several modules


@app.command("ui", epilog="Example: verticil party ui --config party.toml")
def ui(
    listen: Annotated[
        str | None,
        typer.Option(
            help="Loopback address, host:port; port 0 takes a free one. Default: \\[ui] listen, 127.0.0.1:8899."
        ),
    ] = None,
    config: ConfigOption = Path("party.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Show this site on a page that only this machine reaches, until Ctrl-C. It decides nothing and changes nothing.

    The address holds a token: whoever has it can read the page for as long as the command runs.
    """
    from verticil.party.config import PAGE_HINT, load_party
    from verticil.party.operator.page.server import PageServer
    from verticil.shared.config import loopback_address

    document = load_party(config)
    address = document.page if listen is None else loopback_address(listen, where="--listen", hint=PAGE_HINT)
    with PageServer(config, address) as server:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda _number, _frame: threading.Thread(target=server.shutdown).start())
        if form is Format.json:
            sys.stdout.write(json.dumps({"party": document.name, "url": server.url}) + "\n")
        else:
            text_console().print(f"{document.name}: open {server.url}", markup=False)
            text_console().print("whoever has this address can read the page; Ctrl-C ends it", style="dim")
        sys.stdout.flush()
        server.serve_forever()
    emit({"party": document.name, "stopped": True}, form=form)
