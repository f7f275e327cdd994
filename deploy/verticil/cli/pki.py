"""``verticil pki``: a certificate authority for trials, all keys made in one place.

In production every site makes its own key and only its certificate request travels; that flow is not in this version, which
is why these commands say "for trials".
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from verticil.cli.output import Format, FormatOption, emit, text_console
from verticil.shared.errors import Misuse, VerticilError
from verticil.shared.transport.identity import is_name

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True)


class RoleChoice(StrEnum):
    """Roles a certificate can carry."""

    party = "party"
    miner = "miner"
    analyst = "analyst"


@app.command(
    "init", epilog="Example: verticil pki init --federation hearts-2027 --endpoint miner.example.org:8443 --out pki"
)
def init(
    federation: Annotated[str, typer.Option(help="Name of the federation, first part of every identity.")],
    endpoint: Annotated[
        str | None,
        typer.Option(help="host:port at which parties reach the miner; 127.0.0.1:8443 unless there are peers."),
    ] = None,
    peer: Annotated[
        list[str] | None,
        typer.Option(help="NAME=host:port at which a party serves the others (Model I); may be repeated."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the authority and federation.toml.")] = Path("pki"),
    days: Annotated[int, typer.Option(min=1, max=3650, help="Validity of the authority.")] = 365,
    form: FormatOption = Format.text,
) -> None:
    """Make a certificate authority and federation.toml (for trials: every key is made on this machine)."""
    from verticil.cli.files import write_federation
    from verticil.shared.config import load_federation
    from verticil.shared.transport.authority import create_authority

    peers = _peers(peer or [])
    if endpoint is None and not peers:
        endpoint = "127.0.0.1:8443"
    ca_sha256 = create_authority(out, federation, days=days)
    try:
        path = write_federation(
            out / "federation.toml",
            name=federation,
            ca_certificate="ca.crt",
            ca_sha256=ca_sha256,
            endpoint=endpoint,
            peers=peers,
        )
    except VerticilError:
        for name in ("ca.key", "ca.crt"):  # nobody has them yet, and with them here the command could not be repeated
            (out / name).unlink(missing_ok=True)
        raise
    try:
        load_federation(path)
    except VerticilError:
        for name in ("ca.key", "ca.crt", "federation.toml"):
            (out / name).unlink()
        raise
    payload = {
        "federation": federation,
        "ca_certificate": str(out / "ca.crt"),
        "ca_sha256": ca_sha256,
        "federation_toml": str(path),
    }
    if emit(payload, form=form):
        return
    console = text_console()
    console.print(f"authority of federation [bold]{federation}[/] in {out} (for trials)")
    console.print(f"CA SHA-256  {ca_sha256}")
    console.print(f"give every site {path} and {out / 'ca.crt'}; keep {out / 'ca.key'} to yourself")


def _peers(options: list[str]) -> dict[str, str]:
    peers: dict[str, str] = {}
    for option in options:
        name, equals, address = option.partition("=")
        if not equals or not is_name(name):
            raise Misuse("USAGE", f"--peer: got '{option[:200]}', expected NAME=host:port")
        if name in peers:
            raise Misuse("USAGE", f"--peer: '{name}' is at '{peers[name]}' and at '{address}', expected one address")
        peers[name] = address
    return peers


@app.command("issue", epilog="Example: verticil pki issue hospital --role party --ca pki --out hospital/pki")
def issue(
    name: Annotated[str, typer.Argument(help="Name in the certificate; for a party its name in studies.")],
    role: Annotated[RoleChoice, typer.Option(help="What the holder may do.")],
    ca: Annotated[Path, typer.Option(help="Folder of the authority.")] = Path("pki"),
    out: Annotated[Path | None, typer.Option(help="Folder for the files; default: the authority's.")] = None,
    host: Annotated[
        list[str] | None,
        typer.Option(help="DNS name or IP address of a miner, or of a party that serves its peers; may be repeated."),
    ] = None,
    days: Annotated[int, typer.Option(min=1, max=825, help="Validity.")] = 90,
    form: FormatOption = Format.text,
) -> None:
    """Issue a certificate with its keys (for trials: the holder's keys are made on this machine)."""
    from verticil.shared.transport.authority import issue as issue_files
    from verticil.shared.transport.identity import Role
    from verticil.shared.transport.pki import identity_of, read_certificates

    issued = issue_files(ca, name, Role(role.value), out or ca, hosts=tuple(host or ()), days=days)
    uri = identity_of(read_certificates(issued.certificate)[0]).uri
    payload = {
        "identity": uri,
        "certificate": str(issued.certificate),
        "key": str(issued.key),
        "signing_key": str(issued.signing_key),
    }
    if emit(payload, form=form):
        return
    console = text_console()
    console.print(f"issued [bold]{uri}[/], valid {days} days (for trials)")
    console.print(
        f"certificate {issued.certificate}\nkeys        {issued.key}, {issued.signing_key} (readable by their owner only)"
    )
