"""By which names people call a study: its id, ``ANALYST/id``, its digest, or at least 8 hexadecimal digits that begin it.

An id belongs to the analyst who submitted it: two analysts may use the same one. Who submitted a study is what the miner says of
it. Between peers, and with a miner that does not say, no analyst is named, and an id stands alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from verticil.shared.core.errors import Misuse
from verticil.shared.core.name_lists import shortened

_PREFIX: Final = 8
_SHOWN: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What names a study.

    Attributes:
        digest: SHA-256 of the proposal.
        study_id: the analyst's name for it.
        submitter: the analyst; empty: not known, or none.
    """

    digest: bytes
    study_id: str
    submitter: str = ""

    @property
    def text(self) -> str:
        """For people, who can give it back in a command."""
        return f"{self.submitter}/{self.study_id}" if self.submitter else self.study_id


def fits(name: str, study: Named) -> bool:
    """Return whether `name` may mean `study`.

    >>> hearts = Named(digest=bytes.fromhex("ab" * 32), study_id="hearts", submitter="lee")
    >>> [fits(name, hearts) for name in ("hearts", "lee/hearts", "mia/hearts", "ABABABAB", "abab")]
    [True, True, False, True, False]
    """
    submitter, slash, study_id = name.rpartition("/")
    if slash:
        return (submitter, study_id) == (study.submitter, study.study_id)
    return study.study_id == name or (len(name) >= _PREFIX and study.digest.hex().startswith(name.lower()))


def choose(name: str, studies: Iterable[Named], *, caller: str = "") -> Named | None:
    """Return the study that `name` means; None: none does.

    A whole digest means one study. An analyst's own id means her study, whatever others use; of several studies that
    one analyst submitted under one id, the newest.

    Args:
        name: as a person gave it.
        studies: oldest first.
        caller: the analyst who asks; empty: somebody else does.

    Raises:
        Misuse: STUDY_UNKNOWN, it may mean several.
    """
    matches = [study for study in studies if fits(name, study)]
    whole = next((study for study in matches if study.digest.hex() == name.lower()), None)
    if whole is not None:
        return whole
    last_part = name.rpartition("/")[2]
    newest: dict[object, Named] = {
        (study.submitter, study.study_id) if study.study_id == last_part else study.digest: study for study in matches
    }
    own = newest.get((caller, name)) if caller else None
    if own is not None:
        return own
    if len(newest) > 1:
        raise ambiguous(name, [(study, "") for study in newest.values()])
    return next(iter(newest.values()), None)


def ambiguous(name: str, matches: Iterable[tuple[Named, str]]) -> Misuse:
    """Return the error of a name that several studies have.

    Args:
        name: as a person gave it.
        matches: the studies, and what else tells them apart.
    """
    pairs = list(matches)
    lines = [f"{study.text} {study.digest.hex()[:16]}{f' ({words})' if words else ''}" for study, words in pairs]
    is_told_apart = len({study.text for study, _ in pairs}) == len(pairs)
    return Misuse(
        "STUDY_UNKNOWN",
        f"study '{name[:100]}': {len(lines)} studies have this name, expected one",
        hint=f"give {'ANALYST/ID or ' if is_told_apart else ''}the digest of the one that you mean: {shortened(lines, _SHOWN)}",
    )
