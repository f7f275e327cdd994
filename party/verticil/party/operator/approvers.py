"""The approvers of a site: making their keys and naming them in party.toml.

The private key is the person's and can be made anywhere (``verticil party approver keygen``); party.toml needs the public line
only. `add_approver` appends an ``[[approver]]`` table to party.toml, `remove_approver` takes one out; neither changes anything
else in it, and a running daemon follows. The votes of a key that is gone count for nothing from then on, also for studies under
way.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from verticil.party.config import PartyConfig, load_party
from verticil.party.policy.decision_store import ApproverKey
from verticil.party.policy.voting import key_place
from verticil.shared.core.errors import Misuse, VerticilError
from verticil.shared.documents.toml_table import quoted
from verticil.shared.federation.identity.signing import public_key_from, public_key_text
from verticil.shared.storage.disk import replace_file, write_fault


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeKey:
    """A key's file, and the public line that goes into party.toml."""

    key: str
    public_key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApproverView:
    """Who may approve, and with which key; None: it has none."""

    name: str
    public_key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approvers:
    """Who may approve at a party, and how many are needed."""

    party: str
    approvers_needed: int
    approvers: tuple[ApproverView, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedApprover:
    """A new approver.

    Attributes:
        key: file of the private key; None: it was made elsewhere.
        made: the key was made just now.
        approvers, approvers_needed: as party.toml says afterwards.
    """

    party: str
    approver: str
    public_key: str
    key: str | None
    made: bool
    approvers: tuple[str, ...]
    approvers_needed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedApprover:
    """An approver who was taken out, and whether those who are left are enough."""

    party: str
    removed: str
    approvers: tuple[str, ...]
    approvers_needed: int
    enough: bool


def make_key(path: Path, *, passphrase: str = "") -> MadeKey:
    """Make a key, its file encrypted where there is a passphrase, and say what goes into party.toml.

    Raises:
        Misuse: FILE_EXISTS, FILE_MISSING.
        DataFault: DISK_FULL.
    """
    return MadeKey(key=str(path), public_key=public_key_text(ApproverKey.create(path, passphrase=passphrase).public))


def add_approver(path: Path, name: str, *, key: Path | None = None, public_key: str | None = None) -> AddedApprover:
    """Name an approver in party.toml.

    Args:
        path: party.toml.
        name: who.
        key: file of the private key, made when absent; None: ``approvers/NAME.key`` beside party.toml.
        public_key: of a key that was made elsewhere; then no file is touched but party.toml.

    Raises:
        Misuse: CONFIG_INVALID, the name or the key is there already; USAGE; FILE_MISSING.
        DataFault: DISK_FULL, SECRET_MISSING.
    """
    config = load_party(path)
    if name in config.approver_keys:
        hint = f"to give them a new key: verticil party approver remove {name}, then add"
        raise Misuse("CONFIG_INVALID", f"{path.name}: approver: '{name}' has a key already", hint=hint)
    is_new = False
    if public_key is None:
        file = key if key is not None else key_place(path, name)
        if file is None:
            raise Misuse("USAGE", f"approver '{name}': no file is named after this, expected --key FILE")
        is_new = not file.exists()
        if is_new and key is None:
            file.parent.mkdir(mode=0o700, exist_ok=True)
        own = ApproverKey.create(file) if is_new else ApproverKey.load(file)
        public = own.public
    else:
        file, found = None, public_key_from(public_key)
        if found is None:
            raise Misuse("USAGE", "--public-key: expected the 44 letters that `verticil party approver keygen` prints")
        public = found
    text = f'\n[[approver]]\nname = {quoted(name)}\npublic_key = "{public_key_text(public)}"\n'
    whole = path.read_bytes()
    try:
        replace_config(path, whole + (b"" if whole.endswith(b"\n") else b"\n") + text.encode("utf-8"))
    except VerticilError:
        if is_new and file is not None:
            file.unlink()  # a key that is in no party.toml is nobody's
        raise
    after = load_party(path)
    return AddedApprover(
        party=after.name,
        approver=name,
        public_key=public_key_text(public),
        key=None if file is None else str(file),
        made=is_new,
        approvers=tuple(after.policy.approvers),
        approvers_needed=after.policy.approvers_needed,
    )


def remove_approver(path: Path, name: str) -> RemovedApprover:
    """Take an approver out of party.toml. The key's file stays where it is: it is the person's.

    Args:
        path: party.toml.
        name: who.

    Raises:
        Misuse: CONFIG_INVALID, nobody of this name has a key there; it is the last one, after whom whoever may run the command
            could approve; or the table is written in a way that only its author should change.
        DataFault: DISK_FULL.
    """
    config = load_party(path)
    where = f"{path.name}: approver"
    if name not in config.approver_keys:
        raise Misuse("CONFIG_INVALID", f"{where}: '{name}' has no key there", hint="verticil party approver list")
    if len(config.approver_keys) == 1:
        hint = "add another one first; without approvers every user who may run the command here approves for the site"
        raise Misuse("CONFIG_INVALID", f"{where}: '{name}' is the only one", hint=hint)
    text = path.read_bytes().decode("utf-8")
    remaining_text = next((rest for rest in _without_one_table(text) if _lacks(text, rest, name)), None)
    if remaining_text is None:
        raise Misuse("CONFIG_INVALID", f"{where}: the table of '{name}' is not found", hint="remove it with an editor")
    replace_config(path, remaining_text.encode("utf-8"))
    after = load_party(path)
    return RemovedApprover(
        party=after.name,
        removed=name,
        approvers=tuple(after.policy.approvers),
        approvers_needed=after.policy.approvers_needed,
        enough=len(after.policy.approvers) >= after.policy.approvers_needed,
    )


def _without_one_table(text: str) -> Iterator[str]:
    """Yield the text without one ``[[approver]]`` table, for each; comments after its last key stay."""
    lines = text.splitlines(keepends=True)
    headers = [i for i, line in enumerate(lines) if line.lstrip().startswith("[")]
    for start, end in zip(headers, [*headers[1:], len(lines)], strict=True):
        if re.fullmatch(r"\[\[\s*approver\s*\]\]\s*(#.*)?", lines[start].strip()):
            lines_in_use = [i for i in range(start, end) if lines[i].strip() and not lines[i].lstrip().startswith("#")]
            yield "".join(lines[:start] + lines[lines_in_use[-1] + 1 :])


def _lacks(before: str, after: str, name: str) -> bool:
    """Return whether `after` says what `before` says, but for this approver."""
    try:
        contents_before, contents_after = tomllib.loads(before), tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        return False
    tables: list[dict[str, object]] = contents_before["approver"]
    contents_before["approver"] = [table for table in tables if table.get("name") != name]
    return contents_before == contents_after


def approvers(config: PartyConfig) -> Approvers:
    """List who may approve, and with which key."""
    keys = config.approver_keys
    return Approvers(
        party=config.name,
        approvers_needed=config.policy.approvers_needed,
        approvers=tuple(
            ApproverView(name=name, public_key=public_key_text(keys[name]) if name in keys else None)
            for name in config.policy.approvers
        ),
    )


def replace_config(path: Path, whole: bytes) -> None:
    """Put another party.toml in its place, whole or not at all, and only if it can be read afterwards."""
    mode = path.stat().st_mode & 0o777
    trial = path.with_name(f".{path.name}.part")
    try:
        trial.write_bytes(whole)
        try:
            load_party(trial)
        except Misuse as error:
            raise Misuse(error.code, error.message.replace(trial.name, path.name), hint=error.hint) from None
        replace_file(path, whole, part=trial)
        os.chmod(path, mode)
    except OSError as error:
        raise write_fault(error, path) from None
    finally:
        trial.unlink(missing_ok=True)
