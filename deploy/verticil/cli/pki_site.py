"""A site's half of ``verticil pki``: ask for a certificate, install the answer, renew it. No private key leaves the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from verticil.cli.connection import FederationOption
from verticil.cli.output import Format, FormatOption, emit, put, say
from verticil.shared.core.errors import Misuse
from verticil.shared.federation.identity.identity import Role

HostOption = Annotated[
    list[str] | None,
    typer.Option(help="DNS name or IP address of a miner, or of a party that serves its peers; may be repeated."),
]
FolderOption = Annotated[Path, typer.Option("--dir", help="Folder of the keys and certificate of this node alone.")]
NEXT_OF_A_NODE: Final = "verticil doctor party.toml (or miner.toml)"
NEXT: Final = {
    Role.ANALYST: "verticil study submit study.toml --certificate {}",
    Role.CONSUMER: "verticil release fetch STUDY --out release --certificate {}",
}
"""The command that a new member without a node types first, with its certificate."""


def request(
    name: Annotated[str, typer.Argument(help="Name in the certificate; for a party its name in studies.")],
    role: Annotated[Role, typer.Option(help="Role of this node.")],
    folder: FolderOption = Path("pki"),
    federation: FederationOption = Path("federation.toml"),
    host: HostOption = None,
    new_keys: Annotated[
        bool, typer.Option("--new-keys", help="Start anew although keys lie here; those stay until the answer is here.")
    ] = False,
    form: FormatOption = Format.text,
) -> None:
    """Make this node's keys (they stay here, mode 0600) and the request that the coordinator signs.

    With --new-keys a node joins anew that was revoked or has lost a key; nothing of the old keys is deleted.
    """
    from verticil.pki.request import create_request
    from verticil.shared.documents.config import load_federation
    from verticil.shared.federation.identity.identity import Identity

    document = load_federation(federation)
    try:
        identity = Identity(federation=document.name, role=role, name=name)
    except ValueError as error:
        raise Misuse("CONFIG_INVALID", str(error)) from None
    if identity.role is Role.MINER and not host and not (new_keys and (folder / f"{name}.crt").exists()):
        raise Misuse("USAGE", "--host: missing, and a miner needs at least one", hint="name the host that parties dial")
    path, new_request = create_request(folder, identity, hosts=tuple(host or ()), new_keys=new_keys)
    payload = {"identity": str(identity), "request": str(path), "key_hash": new_request.key_hash, "keys": str(folder)}
    if new_request.sealing:
        payload["sealing_key"] = new_request.sealing.hex()
    if emit(payload, form=form):
        return
    put(f"keys of [bold]{identity}[/] in {folder}: they stay on this machine")
    put(f"key hash  {new_request.key_hash}")
    put(f"send {path} to the coordinator, and read out the key hash when asked")


def install(
    answer: Annotated[Path, typer.Argument(metavar="SIGNED", help="NAME.signed, as the coordinator sent it.")],
    fingerprint: Annotated[
        str, typer.Option(help="SHA-256 of the authority's certificate, as the authority read it to you by telephone.")
    ],
    folder: FolderOption = Path("pki"),
    federation: FederationOption = Path("federation.toml"),
    form: FormatOption = Format.text,
) -> None:
    """Verify the coordinator's answer and put it in place, at once and whole. A running node takes it up by itself."""
    from verticil.shared.documents.config import load_federation
    from verticil.shared.federation.membership.installation import install as install_answer

    result = install_answer(answer, folder, fingerprint=fingerprint, federation=load_federation(federation))
    payload = {
        "identity": str(result.identity),
        "certificate": str(result.certificate),
        "not_after": result.not_after.isoformat(),
        "ca_certificate": str(result.authority),
        "new_keys": result.new_keys,
    }
    if emit(payload, form=form):
        return
    put(f"[bold]{result.identity}[/], valid until {result.not_after:%Y-%m-%d}: {result.certificate}")
    put(f"authority: {result.authority}")
    say(f"next: {NEXT.get(result.identity.role, NEXT_OF_A_NODE).format(result.certificate)}")


def renew(
    certificate: Annotated[
        Path, typer.Argument(metavar="CERTIFICATE", help="This node's NAME.crt; its keys lie beside it.")
    ],
    new_keys: Annotated[
        bool, typer.Option("--new-keys", help="Make new keys; those in use stay until the answer is here.")
    ] = False,
    host: HostOption = None,
    form: FormatOption = Format.text,
) -> None:
    """Make the request that renews a certificate, signed with the key in use: the coordinator only signs it."""
    from verticil.pki.request import create_renewal

    path, renewal = create_renewal(certificate, new_keys=new_keys, hosts=None if host is None else tuple(host))
    payload = {
        "identity": str(renewal.identity),
        "request": str(path),
        "key_hash": renewal.key_hash,
        "new_keys": new_keys,
    }
    if emit(payload, form=form):
        return
    put(f"renewal of [bold]{renewal.identity}[/]: send {path} to the coordinator")
    say("when the answer is here: verticil pki install NAME.signed --fingerprint SHA256")


def seal(
    certificate: Annotated[
        Path, typer.Argument(metavar="CERTIFICATE", help="This party's NAME.crt; its keys lie beside it.")
    ],
    new: Annotated[
        bool, typer.Option("--new", help="Make another key; the one in use stays until it is pinned.")
    ] = False,
    form: FormatOption = Format.text,
) -> None:
    """Show the public half of a party's or the miner's sealing key, as federation.toml pins it; make the key if there is none."""
    from verticil.shared.federation.identity.pki import identity_of, read_certificates
    from verticil.shared.federation.membership.installation import make_sealing_key, public_sealing_key

    identity = identity_of(read_certificates(certificate)[0])
    path, is_new = make_sealing_key(certificate.with_suffix(".seal"), new=new)
    public = public_sealing_key(path)
    if emit({"identity": str(identity), "sealing_key": public, "file": str(path), "new": is_new}, form=form):
        return
    put(f"{'made' if is_new else 'found'} {path}: it stays on this machine")
    where, key = ("[miner]", "sealing_key") if identity.role is Role.MINER else ("[sealing]", identity.name)
    say(f"every site's federation.toml has under {where}, compared by telephone:")
    say(f'{key} = "{public}"')
