"""``verticil pki``: the federation's certificate authority, and at each site the way to a certificate of it.

At the coordinator: `init`, `sign`, `list`, `revoke`; `issue` makes a node's keys beside the authority's, for trials. What a site
does is in `verticil.cli.pki_site`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from verticil.cli.output import Format, FormatOption, emit, plain_table, put, say
from verticil.cli.pki_site import HostOption, install, renew, request, seal
from verticil.shared.core.errors import Misuse, VerticilError
from verticil.shared.documents.toml_table import is_name
from verticil.shared.federation.identity.identity import Role

app = typer.Typer(no_args_is_help=True)


CaOption = Annotated[Path, typer.Option("--ca", help="Folder of the authority.")]
DaysOption = Annotated[int, typer.Option(min=1, max=825, help="Validity.")]


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
        typer.Option(
            help="NAME=host:port at which a party serves the others, or NAME=relay (Model I); may be repeated."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the authority and federation.toml.")] = Path("pki"),
    days: Annotated[int, typer.Option(min=1, max=3650, help="Validity of the authority.")] = 365,
    form: FormatOption = Format.text,
) -> None:
    """Make a certificate authority and federation.toml. Whoever has ca.key decides who is in the federation: keep it offline."""
    from verticil.pki.files import write_federation
    from verticil.shared.documents.config import load_federation
    from verticil.shared.federation.identity.authority import create_authority

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
    put(f"authority of federation [bold]{federation}[/] in {out}")
    put(f"CA SHA-256  {ca_sha256}")
    put(f"send every site {path}; tell it the SHA-256 by telephone; keep {out / 'ca.key'} to yourself")
    say("next, at each site: verticil pki request NAME --role ROLE --federation federation.toml")


def _peers(options: list[str]) -> dict[str, str]:
    peers: dict[str, str] = {}
    for option in options:
        name, equals, address = option.partition("=")
        if not equals or not is_name(name):
            raise Misuse("USAGE", f"--peer: got '{option[:200]}', expected NAME=host:port or NAME=relay")
        if name in peers:
            raise Misuse("USAGE", f"--peer: '{name}' is at '{peers[name]}' and at '{address}', expected one address")
        peers[name] = address
    return peers


@app.command("issue", epilog="Example: verticil pki issue hospital --role party --ca pki --out hospital/pki")
def issue(
    name: Annotated[str, typer.Argument(help="Name in the certificate; for a party its name in studies.")],
    role: Annotated[Role, typer.Option(help="Role of the holder.")],
    ca: CaOption = Path("pki"),
    out: Annotated[Path | None, typer.Option(help="Folder for the files; default: the authority's.")] = None,
    host: HostOption = None,
    days: DaysOption = 90,
    form: FormatOption = Format.text,
) -> None:
    """Issue a certificate with its keys (for trials: the holder's keys are made on this machine)."""
    from verticil.shared.federation.identity.authority import issue as issue_files
    from verticil.shared.federation.identity.pki import identity_of, read_certificates

    files = issue_files(ca, name, role, out or ca, hosts=tuple(host or ()), days=days)
    uri = identity_of(read_certificates(files.certificate)[0]).uri
    payload = {
        "identity": uri,
        "certificate": str(files.certificate),
        "key": str(files.key),
        "signing_key": str(files.signing_key),
    }
    if emit(payload, form=form):
        return
    put(f"issued [bold]{uri}[/], valid {days} days (for trials)")
    put(f"certificate {files.certificate}\nkeys        {files.key}, {files.signing_key} (readable by their owner only)")


@app.command("sign", epilog="Example: verticil pki sign clinic.req --ca pki --role party")
def sign(
    request: Annotated[Path, typer.Argument(metavar="REQUEST", help="NAME.req, as the site sent it.")],
    ca: CaOption = Path("pki"),
    role: Annotated[Role | None, typer.Option(help="The role that the request must ask for.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="File for the answer; default: NAME.signed beside the request.")
    ] = None,
    days: DaysOption = 90,
    replace: Annotated[
        bool, typer.Option("--replace", help="The site starts anew with other keys; its name is taken already.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask; the key hash was compared already.")] = False,
    form: FormatOption = Format.text,
) -> None:
    """Sign a site's request: shows name, role and key hash, and asks. A renewal by the holder of the old key needs no answer.

    A name that was revoked or has expired may come back with new keys: you are told so, and compare the key hash.
    """
    from verticil.pki.register import check_request, sign_request
    from verticil.pki.request import read_request
    from verticil.shared.federation.identity.authority import open_authority
    from verticil.shared.federation.identity.pki import utc_now

    authority, content = open_authority(ca), read_request(request)
    standing = check_request(authority, content, replace=replace, role=role, at=utc_now())
    renewal = standing.is_renewal
    target = out or request.with_suffix(".signed")
    if form is Format.text:
        put(f"name      [bold]{content.identity.name}[/]")
        put(f"role      [bold]{content.identity.role}[/]")
        say(f"hosts     {', '.join(content.hosts) or 'none: this node serves no calls'}")
        put(f"key hash  {content.key_hash}")
        if content.sealing:
            put(f"sealing   {content.sealing.hex()}")
        if renewal:
            say("renewal, signed with the key of the certificate in use")
        for note in standing.notes:
            say(note, style="yellow")
    if not (yes or renewal):
        if form is Format.json or not sys.stdin.isatty():
            raise Misuse(
                "USAGE",
                f"sign: key hash not confirmed: {content.key_hash}",
                hint="compare it with the site by telephone, then give --yes",
            )
        typer.confirm("does the site read you the same key hash by telephone?", abort=True)
    entry = sign_request(authority, content, target, days=days, replace=replace, role=role)
    payload = {
        "identity": str(entry.identity),
        "serials": [f"{serial:x}" for serial in entry.serials],
        "key_hash": content.key_hash,
        "renewal": renewal,
        "notes": list(standing.notes),
        "not_after": entry.not_after.isoformat(),
        "signed": str(target),
        **({"sealing_key": content.sealing.hex()} if content.sealing else {}),
    }
    if not emit(payload, form=form):
        put(f"signed until {entry.not_after:%Y-%m-%d}, serial {entry.serials[0]:x}")
        put(f"send {target} back; at the site: verticil pki install {target.name} --fingerprint SHA256")


@app.command("list", epilog="Example: verticil pki list --ca pki")
def list_issued(ca: CaOption = Path("pki"), form: FormatOption = Format.text) -> None:
    """List all certificates that the authority issued: name, role, serial, end, revoked or not."""
    from verticil.pki.register import entries
    from verticil.shared.federation.identity.pki import utc_now
    from verticil.shared.federation.membership.current import expiry_warning, expiry_words

    now = utc_now()
    rows = [
        {
            "name": entry.identity.name,
            "role": entry.identity.role.value,
            "serial": f"{entry.serials[0]:x}",
            "signing_serial": f"{entry.serials[-1]:x}",
            "not_after": entry.not_after.isoformat(),
            "expires": expiry_words(entry.not_after, now),
            "warning": expiry_warning(entry.not_after, now) is not None,
            "revoked_at": None if entry.revoked_at is None else entry.revoked_at.isoformat(),
        }
        for entry in entries(ca)
    ]
    if emit({"certificates": rows}, form=form):
        return
    table = plain_table("name", "role", "serial", "valid until", "", no_wrap=True)
    for row in rows:
        note = "revoked" if row["revoked_at"] else str(row["expires"]) if row["warning"] else ""
        table.add_row(
            str(row["name"]),
            str(row["role"]),
            str(row["serial"]),
            str(row["not_after"])[:10],
            note,
            style="dim" if note == "revoked" else "",
        )
    put(table)


@app.command("revoke", epilog="Example: verticil pki revoke clinic --ca pki --yes")
def revoke(
    target: Annotated[
        str, typer.Argument(metavar="SERIAL|NAME|FILE", help="Serial in hex, a node's name, or a certificate (.crt).")
    ],
    ca: CaOption = Path("pki"),
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    form: FormatOption = Format.text,
) -> None:
    """Put certificates on the signed deny-list. It cannot be taken back; the site joins anew with new keys."""
    from verticil.pki.register import revoke as revoke_certificates
    from verticil.shared.federation.identity.authority import open_authority

    authority = open_authority(ca)
    if not yes:
        if form is Format.json or not sys.stdin.isatty():
            raise Misuse("USAGE", f"revoke: not confirmed: '{target[:80]}'", hint="give --yes")
        typer.confirm(f"revoke {target} for good?", abort=True)
    path, matching, n_serials = revoke_certificates(authority, target)
    payload = {
        "deny_list": str(path),
        "serials": n_serials,
        "revoked": [
            {"identity": str(entry.identity), "serials": [f"{serial:x}" for serial in entry.serials]}
            for entry in matching
        ],
    }
    if emit(payload, form=form):
        return
    for entry in matching:
        put(f"revoked [bold]{entry.identity}[/], serial {entry.serials[0]:x}")
        again = f"verticil pki request {entry.identity.name} --role {entry.identity.role} --new-keys"
        say(f"if it is to come back, at the site: {again}")
    put(f"{n_serials} serials on the deny-list {path}")
    say("put it beside the ca.crt that the miner reads: it refuses them within a minute and informs the parties")
    say("without a miner: beside every party's ca.crt")


app.command("request", epilog="Example: verticil pki request clinic --role party --dir clinic/pki")(request)
app.command("install", epilog="Example: verticil pki install clinic.signed --dir clinic/pki --fingerprint 3f9a")(
    install
)
app.command("renew", epilog="Example: verticil pki renew clinic/pki/clinic.crt --new-keys")(renew)
app.command("seal", epilog="Example: verticil pki seal clinic/pki/clinic.crt")(seal)
