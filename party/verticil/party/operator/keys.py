"""The sealing keys that federation.toml pins, in words that people compare by telephone, behind ``verticil party keys``.

Whoever writes federation.toml could pin a key of their own in a party's place. So a key counts for masked studies (who may deal,
whose noise is counted: `verticil.party.limits.masked`) when a person here has heard its words from whoever has the key.
`confirm_key` writes them into ``[policy.confirmed_keys]`` of party.toml; a running daemon follows.
"""

from __future__ import annotations

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from verticil.party.config import PartyConfig, load_party, pinned_keys
from verticil.party.operator.approvers import replace_config
from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.federation.identity.key_words import key_words, says

_TABLE: Final = "[policy.confirmed_keys]"


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedKey:
    """A pinned key.

    Attributes:
        name: of a party, or ``miner``.
        words: of the key.
        standing: ``own``: to be read to the others; ``confirmed``; ``differs``: another one was confirmed; ``not confirmed``.
    """

    name: str
    words: str
    standing: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedKeys:
    """The keys that federation.toml pins, as a party sees them."""

    party: str
    keys: tuple[PinnedKey, ...]


def keys(config: PartyConfig) -> PinnedKeys:
    """List the keys that are pinned, and which of them a person here confirmed."""
    rule = config.policy.masked

    def standing(name: str) -> str:
        if name == config.name:
            return "own"
        return "differs" if name in rule.differing else "confirmed" if name in rule.confirmed else "not confirmed"

    return PinnedKeys(
        party=config.name,
        keys=tuple(
            PinnedKey(name=name, words=key_words(name, public), standing=standing(name))
            for name, public in pinned_keys(config.federation).items()
        ),
    )


def confirm_key(path: Path, name: str, words: str) -> PinnedKeys:
    """Write down that a person compared a pinned key.

    Args:
        path: party.toml.
        name: of whoever has the key.
        words: that they said; or the 64 hexadecimal digits.

    Raises:
        Misuse: CONFIG_INVALID, no key of this name is pinned, it is this party's own, or party.toml is written in a way that only
            its author should change.
        PeerFault: IDENTITY_REFUSED, the pinned key has other words.
        DataFault: DISK_FULL.
    """
    config = load_party(path)
    key_pins = pinned_keys(config.federation)
    if name not in key_pins or name == config.name:
        problem = "this party's own key" if name == config.name else "federation.toml pins no sealing key of that name"
        hint = f"pinned are {', '.join(key_pins) or 'none'}; verticil pki seal NAME.crt shows a key at its site"
        raise Misuse("CONFIG_INVALID", f"'{name[:80]}': {problem}", hint=hint)
    if not says(words, name, key_pins[name]):
        raise PeerFault(
            "IDENTITY_REFUSED",
            f"the sealing key that federation.toml pins for '{name}' has other words",
            hint="have them read once more; if they differ still, somebody put another key into federation.toml: do not use it",
        )
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    new_line = f"{json.dumps(name)} = {json.dumps(key_words(name, key_pins[name]))}"
    if _TABLE in lines:
        start = lines.index(_TABLE)
        end = next((i for i in range(start + 1, len(lines)) if lines[i].lstrip().startswith("[")), len(lines))
        own = re.compile(rf'\s*"?{re.escape(name)}"?\s*=')
        other_lines = [line for line in lines[start + 1 : end] if not own.match(line)]
        lines[start + 1 : end] = [new_line, *other_lines]
    else:
        lines += ["", _TABLE, new_line]
    whole = "\n".join(lines) + "\n"
    if not _adds(text, whole, name, key_words(name, key_pins[name])):
        hint = f"write it with an editor, under {_TABLE}: {new_line}"
        raise Misuse("CONFIG_INVALID", f"{path.name}: policy.confirmed_keys: cannot be added to", hint=hint)
    replace_config(path, whole.encode("utf-8"))
    return keys(load_party(path))


def _adds(before: str, after: str, name: str, words: str) -> bool:
    """Return whether `after` says what `before` says, and these words of this name."""
    try:
        contents_before, contents_after = tomllib.loads(before), tomllib.loads(after)
    except tomllib.TOMLDecodeError:
        return False
    contents_before["policy"].setdefault("confirmed_keys", {})[name] = words
    return contents_before == contents_after
