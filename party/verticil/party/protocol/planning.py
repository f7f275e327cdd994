"""What every protocol's planner gives: the next step of a study, and what `status` shows of it. And how a step ends that was not
done: each of the errors here leads to one thing, whatever the protocol (`verticil.party.protocol.engine`).

Everything else that goes wrong with a study is a `VerticilError`: it is tried again, or ends the study. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from verticil.party.storage.studies import WAITS
from verticil.shared.core.errors import VerticilError
from verticil.shared.study.states import State

REST: Final = "rest"
"""The step of every protocol with which nothing is done: it is others' turn, or the study has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The next step and what `status` shows for it.

    Attributes:
        step: of the protocol's own steps.
        stage: in words.
        state: that the study is in, where this party itself finds it out; None: the miner says it.
    """

    step: StrEnum
    stage: str
    state: State | None = None


def awaiting_approval(n_votes: int) -> str:
    """Return the stage of a study that this party's people have not approved.

    >>> awaiting_approval(0), awaiting_approval(1)
    ('waiting for approval', 'waiting for approval (1 so far)')
    """
    return f"{WAITS} ({n_votes} so far)" if n_votes else WAITS


class WaitedForError(Exception):
    """It cannot be done now. Its text says who is waited for, and for what."""


class PeerFailedError(Exception):
    """A peer has ended the study, or does what no peer may do.

    Attributes:
        error: names the peer.
    """

    def __init__(self, error: VerticilError) -> None:
        super().__init__(str(error))
        self.error = error


class AskedAgainError(Exception):
    """The table is another than the one that was approved: the study waits until people, or rules, approve it anew."""


class StoppedError(Exception):
    """The study was revoked or denied, and the transfer was broken off. Plan again."""


class LostError(Exception):
    """Something that was stored is not there any more. Plan again: it is made, or fetched, anew."""
