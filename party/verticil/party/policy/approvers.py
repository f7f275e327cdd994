"""Who may approve at this site, as party.toml says now.

A running daemon follows this part of party.toml, and no other: an approver who is added counts at once, and one who is removed
counts no more from the next step on, also for studies under way. Everything else in the file is read when the daemon starts. A
file that cannot be read (an editor has saved half of it) leaves the former people in force and is a warning, once for each
state of it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from verticil.party.config import PartyConfig, load_party
from verticil.shared.disk import FollowedFiles
from verticil.shared.errors import VerticilError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """Who may approve.

    Attributes:
        names: the approvers; empty where nobody is named.
        keys: public key of each that has one.
        needed: how many different ones a study needs.
    """

    names: tuple[str, ...]
    keys: Mapping[str, bytes]
    needed: int


def _people(config: PartyConfig) -> People:
    return People(names=config.policy.approvers, keys=config.approver_keys, needed=config.policy.approvers_needed)


class FollowedPeople:
    """The people of one party.toml. Safe in several threads.

    Args:
        config: as it was read.
    """

    def __init__(self, config: PartyConfig) -> None:
        self._path = config.path
        self._name = config.name
        self._now = _people(config)
        self._files = FollowedFiles((config.path,), every_seconds=0.0)

    def now(self) -> People:
        """As party.toml has them now."""
        if self._files.changed():
            try:
                config = load_party(self._path)
            except VerticilError as error:
                _log.warning("the approvers cannot be read anew, the former ones stay: %s", error)
                return self._now
            people = _people(config)
            if config.name == self._name and people != self._now:
                self._now = people
                _log.info("approvers: %s; %d needed", ", ".join(people.names) or "nobody is named", people.needed)
        return self._now
