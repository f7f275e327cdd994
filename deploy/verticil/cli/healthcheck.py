"""``verticil healthcheck``: is the daemon of this configuration alive? For containers and service managers."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path
from typing import Annotated

import typer

from verticil.cli.output import Format, FormatOption, emit, put
from verticil.cli.party_site import site_of
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.config import toml_text


def healthcheck(
    config: Annotated[Path, typer.Option(help="miner.toml or party.toml of the daemon.")],
    form: FormatOption = Format.text,
) -> None:
    """Ask a daemon whether it serves: read its state folder, and call a miner over mutual TLS, too. Exit 0 when it does.

    What keeps it from its work is named, with its exit code: a full disk, an older ledger, a certificate that has ended.
    """
    try:
        document = tomllib.loads(toml_text(config))
    except tomllib.TOMLDecodeError:
        raise Misuse("CONFIG_INVALID", f"{config}: not UTF-8 TOML") from None
    role = "miner" if "listen" in document else "party"
    detail = asyncio.run(_ask_miner(config)) if role == "miner" else _look_at_party(config)
    if not emit({"role": role, "serving": True, "detail": detail}, form=form):
        put(f"{role} serving: {detail}")


async def _ask_miner(config: Path) -> str:
    from verticil.miner.config import load_miner
    from verticil.shared.core.health import judge
    from verticil.shared.federation.identity.pki import load_credentials
    from verticil.shared.federation.transport.client import Connection
    from verticil.shared.federation.transport.health import check_health

    miner = load_miner(config)
    judge(miner.state_directory)
    credentials = load_credentials(miner.certificate, miner.key, miner.federation)
    host, _, port = miner.listen.rpartition(":")
    address = "127.0.0.1" if host in {"0.0.0.0", "[::]", "::"} else host  # noqa: S104 - compared, not bound
    line = Connection(f"{address}:{port}", credentials, server_name=miner.federation.miner_endpoint.rpartition(":")[0])
    try:
        await check_health(line)
    finally:
        await line.close()
    return f"answers on port {port}"


def _look_at_party(config: Path) -> str:
    from verticil.party.operator.commands import probe

    return probe(site_of(config))
