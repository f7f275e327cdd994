"""The sub-model of a study: what it becomes when a declared quorum goes on without a party that stays away.

Which absences can be left out, and which cannot
- A party that had not approved at the deadline, or had denied: nothing of it had left its site.
- One that had approved, and had sent no (whole) linkage tags: it was not asked yet which people all parties have in common. Under
  ``dh-psi`` it cannot be left out there: every list has to go through every party's key, so the round ends with its first gap.
- Once the common list is fixed, no party is left out, and a missing part ends the study by name (DEADLINE_PASSED): a second
  common list, of fewer parties, would differ from the first by just the people whom the absent party does not have, and every
  party would learn who they are. For the same reason there is one sub-model of a study at most, and never beside the full one.

What is approved. `quorum.min` is part of the proposal, so the signer of its digest says yes to every sub-model with at least so
many parties that it is in itself. Each remaining party checks the sub-model all the same as if it were proposed anew: its policy
(`minimum_parties` and the others), its own columns, the number of common people.

What a sub-model is. The effective study without the left-out parties, their variables and units, and with their names
(`Study.left_out`). Of what is stated of all records everything goes that names such a variable, with the columns that follow from
one: the rest stays as true as it was (`knowledge.columns.narrow_knowledge`). Nothing else changes. Where the study's
``structure`` says anything about a variable of theirs (a required or forbidden edge, a tier, a custom network, given parents)
there is none: what the analyst meant would not be what is learned.

How it is fixed. At one moment, before any common list, by the miner, who signs a statement of it: proposal, effective study,
who was left out and why, and when. The statement is kept with the effective study in one transaction, sent to the parties,
and goes into the release's manifest. It is the miner's word that the party was missing; no other node can know.

Pure functions of values; no clock, no files.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Collection
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.documents.record import Key, Sha256, decode
from verticil.shared.numerics.knowledge.columns import narrow_knowledge
from verticil.shared.numerics.model.schema import Schema
from verticil.shared.study import rules
from verticil.shared.study.document import LeftOut, Study

_WORDS: Final = {
    "approval": "had not approved it",
    "denial": "had denied it",
    "linkage": "had sent no linkage tags",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SubModel:
    """What the miner states of a sub-model; `record.encode` makes the bytes that it signs.

    Attributes:
        proposal_digest: of the study as submitted.
        effective_digest: of the sub-model's effective study.
        left_out: as in that study.
        decided_at: UTC, whole seconds.
    """

    MARK: ClassVar = {"form": "verticil/sub-model/v1"}

    proposal_digest: Annotated[Sha256, Key(name="proposal_sha256")]
    effective_digest: Annotated[Sha256, Key(name="effective_sha256")]
    left_out: tuple[LeftOut, ...]
    decided_at: dt.datetime


def left_out_words(item: LeftOut) -> str:
    """Describe a left-out party for people.

    >>> left_out_words(LeftOut(party="bank", missing="approval"))
    "party 'bank' (at the deadline it had not approved it)"
    """
    return f"party '{item.party}' (at the deadline it {_WORDS[item.missing]})"


def obstacle(study: Study, absent: Collection[str]) -> str | None:
    """Why a study cannot go on without these parties; None: it can.

    Args:
        study: as proposed.
        absent: parties of it, at least one.
    """
    if study.quorum is None or study.quorum.minimum is None:
        return "the study declares no quorum.min"
    remaining = len(study.parties) - len(absent)
    if remaining < study.quorum.minimum:
        return f"{remaining} parties would remain, fewer than quorum.min = {study.quorum.minimum}"
    owners = {variable.name: variable.owner for variable in study.schema.variables if variable.owner in absent}
    for key, names in _names_by_place(study):
        for name in names:
            if name in owners:
                table = {"pairs": "release", "three_way": "tables"}.get(key, "structure")
                return f"{table}.{key} names '{name}', a column of party '{owners[name]}'"
    return None


def _names_by_place(study: Study) -> list[tuple[str, list[str]]]:
    """Return what the study says of variables by name, beside declaring them."""
    rule = study.structure
    names_by_place = [
        ("required", [name for edge in rule.required for name in edge]),
        ("forbidden", [name for edge in rule.forbidden for name in edge]),
        ("tiers", [name for tier in rule.tiers for name in tier]),
        ("parents", [child for child, _ in rule.parents or ()]),
        ("pairs", [name for pair in study.release.pairs for name in pair]),
        ("three_way", [name for names in ([] if study.tables is None else study.tables.three_way) for name in names]),
    ]
    if (custom := rule.custom) is not None:
        names_by_place.append(("custom", [custom.target, *custom.sensitive, *(custom.hide_from or ())]))
    return names_by_place


def narrow(study: Study, left_out: tuple[LeftOut, ...]) -> Study:
    """Return the study without these parties.

    Args:
        study: as proposed, or with the declarations of parties.
        left_out: parties of it, in its order; none: the study as it is.

    Raises:
        Misuse: STUDY_INVALID, there is no such sub-model (`obstacle` says why), or it breaks a rule for studies.
    """
    if not left_out:
        return study
    absent = {item.party for item in left_out}
    where = f"study '{study.id}' without {', '.join(sorted(absent))}"
    if study.left_out or [party for party in study.parties if party in absent] != [item.party for item in left_out]:
        raise Misuse("STUDY_INVALID", f"{where}: these are not parties of it, each once and in its order")
    if (why := obstacle(study, absent)) is not None:
        raise Misuse("STUDY_INVALID", f"{where}: there is no such sub-model: {why}")
    schema = Schema(variables=tuple(item for item in study.schema.variables if item.owner not in absent))
    priors = tuple(item for item in study.parameters.prior_tables if item[0] in schema.names)
    smaller_study = dataclasses.replace(
        study,
        parties=tuple(party for party in study.parties if party not in absent),
        schema=schema,
        parameters=dataclasses.replace(study.parameters, prior_tables=priors),
        units=tuple(unit for unit in study.units if unit.owner not in absent),
        knowledge=study.knowledge and narrow_knowledge(study.knowledge, study.schema, schema.names),
        related=tuple(table for table in study.related if table.party not in absent),
        left_out=left_out,
    )
    rules.check(smaller_study, source=where)
    return smaller_study


def parse_sub_model(body: bytes) -> SubModel:
    """Read a statement; the signature is checked by the caller.

    >>> from verticil.shared.documents.record import encode
    >>> at = dt.datetime(2026, 11, 21, 10, tzinfo=dt.UTC)
    >>> told = SubModel(proposal_digest=bytes(32), effective_digest=bytes(32), decided_at=at,
    ...     left_out=(LeftOut(party="bank", missing="linkage"),))
    >>> parse_sub_model(encode(told)) == told
    True

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    return decode(SubModel, body, source="statement of a sub-model")


def check_sub_model(sub_model: SubModel, *, proposal_digest: bytes, effective: Study, effective_digest: bytes) -> None:
    """Check that a statement is of this effective study.

    Raises:
        PeerFault: STUDY_MISMATCH.
    """
    digests = (sub_model.proposal_digest, sub_model.effective_digest, sub_model.left_out)
    if digests != (proposal_digest, effective_digest, effective.left_out) or not sub_model.left_out:
        raise PeerFault(
            "STUDY_MISMATCH",
            f"study '{effective.id}': the miner's statement of the sub-model is about another one than is told with it",
            hint="nothing was sent for it",
        )
