"""Files that commands write: secrets (never overwritten, readable by their owner only) and TOML documents."""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path

from verticil.shared.core.errors import Misuse
from verticil.shared.storage.disk import create_file, write_fault


def quote_toml(text: str) -> str:
    """`text` as a TOML basic string.

    >>> quote_toml('a"b')
    '"a\\\\"b"'
    """
    return json.dumps(text, ensure_ascii=False)


def _write(path: Path, text: str, mode: int) -> Path:
    _make_folder(path.parent)
    create_file(path, text.encode("utf-8"), mode=mode, exists_hint="name another file, or remove this one first")
    return path


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise write_fault(error, path) from None


def write_secret(path: Path, text: str) -> Path:
    """Write a new file of mode 0600.

    Raises:
        Misuse: FILE_EXISTS, FILE_MISSING.
        DataFault: DISK_FULL; there is no file then.
    """
    return _write(path, text, 0o600)


def write_new(path: Path, text: str) -> Path:
    """Write a new document.

    Raises:
        Misuse: FILE_EXISTS, FILE_MISSING.
        DataFault: DISK_FULL; there is no file then.
    """
    return _write(path, text, 0o644)


def write_federation(
    path: Path,
    *,
    name: str,
    ca_certificate: str,
    ca_sha256: str,
    endpoint: str | None,
    peers: Mapping[str, str] | None = None,
    sealing: Mapping[str, str] | None = None,
    miner_sealing: str | None = None,
) -> Path:
    """Write federation.toml, the public document that is the same at every site.

    Args:
        path: the new file.
        name: of the federation.
        ca_certificate: path of the authority's certificate, relative to the file.
        ca_sha256: SHA-256 of that certificate.
        endpoint: host:port of the miner; None: there is none.
        peers: host:port of each party that serves its peers; "relay" for one that is reached through the miner.
        sealing: public sealing key of each party that has one, hexadecimal.
        miner_sealing: the miner's, where there is a miner and it has one.

    Raises:
        Misuse: FILE_EXISTS, FILE_MISSING.
        DataFault: DISK_FULL; there is no file then.
    """
    text = f"schema = 1\nname = {quote_toml(name)}\nca_certificate = {quote_toml(ca_certificate)}\n"
    text += f"ca_sha256 = {quote_toml(ca_sha256)}\n\n"
    if endpoint is not None:
        text += f"[miner]\nendpoint = {quote_toml(endpoint)}   # must be a SAN of the miner's certificate\n"
        text += f"sealing_key = {quote_toml(miner_sealing)}\n\n" if miner_sealing else "\n"
    if peers:
        text += "[peers]   # where each party serves the others\n"
        text += "".join(f"{party} = {quote_toml(address)}\n" for party, address in peers.items()) + "\n"
    if sealing:
        text += (
            "[sealing]   # public keys for what passes through the miner between parties; compare them by telephone\n"
        )
        text += "".join(f"{party} = {quote_toml(digits)}\n" for party, digits in sealing.items()) + "\n"
    return write_new(path, text + "[transport]\nidle_timeout_seconds = 120\nchunk_bytes = 524288\n")


def free_folder(name: str) -> Path:
    """`name` in this folder, with a number where it is taken."""
    number, path = 1, Path(name)
    while path.exists():
        number += 1
        path = Path(f"{name}-{number}")
    return path


@contextmanager
def removed_if_empty(folder: Path | None) -> Generator[None]:
    """Remove the folder where what is done in here fails before anything is in it."""
    try:
        yield
    except BaseException:
        if folder is not None and not any(folder.iterdir()):
            folder.rmdir()
        raise


def new_folder(path: Path) -> Path:
    """Make a folder for results; an empty one is taken as it is.

    Raises:
        Misuse: FILE_EXISTS when there is something in it.
    """
    if path.exists() and (not path.is_dir() or any(path.iterdir())):
        raise Misuse(
            "FILE_EXISTS",
            f"{path}: exists already and is not empty",
            hint="name another folder: nothing is overwritten",
        )
    _make_folder(path)
    return path
