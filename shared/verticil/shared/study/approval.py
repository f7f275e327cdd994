"""A party's approval: what it says, how it becomes the effective study, and how the party checks the study that it gets later.

An approval binds to everything that gives it meaning: the digest of the proposal (categories in order, matrices, linkage,
expiry), the party's own declared units, the fingerprint of the data of each, and the smallest number of common records.
Its canonical JSON bytes are what the party signs. Any change of one of these needs a new approval.

The effective study is the proposal with every party's declared units in it. It is made by the miner and checked by each
party: in its own part and in everything shared it must be what the party approved; only the matrices of others may differ
from the proposal, and never towards weaker noise. Between peers each party makes it from the approvals of all. What a
declaration cannot change is what a unit holds: its variables, their order, and a compound's impossible combinations.

Where the proposal declares a quorum, the effective study may be that of a sub-model (`sub_model`): the party then compares it
with what it approved without the parties that are left out. Positions of units are then others than in the proposal.

This module signs nothing, stores nothing and decides nothing about policy.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from verticil.shared.core.errors import Misuse, PeerFault, Refusal
from verticil.shared.documents.record import OPTIONAL, Count, Key, Sha256, Within, decode
from verticil.shared.documents.toml_table import Table
from verticil.shared.mechanisms import privacy
from verticil.shared.study import rules
from verticil.shared.study.canonical import digest
from verticil.shared.study.document import LeftOut, Study
from verticil.shared.study.profiles import profiles_of, with_profiles
from verticil.shared.study.sub_model import narrow
from verticil.shared.study.tables import profiled
from verticil.shared.study.unit import Unit
from verticil.shared.study.vocabulary import MAX_SAFE, MAX_TEXT

_HEX_DIGEST: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


def _hex(raw: object, table: Table, name: str) -> str:
    text = table.typed(str, raw, name)
    if not _HEX_DIGEST.fullmatch(text):
        table.fail(name, "expected 64 lower-case hexadecimal digits")
    return text


def _quote_line(raw: object, table: Table, name: str) -> str:
    text = table.typed(str, raw, name)
    if not 1 <= len(text) <= MAX_TEXT or not text.isprintable():
        table.fail(name, f"expected a printed text of 1 to {MAX_TEXT} letters")
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredUnit:
    """One unit of the approving party.

    Attributes:
        index: its index in the study.
        unit: the unit as declared: the study's proposal, or stronger.
        fingerprint: stands for the data that would be sent, 64 hexadecimal digits; only the party itself can compare it.
    """

    index: Count
    unit: Annotated[Unit, Key(inline=True)]
    fingerprint: Annotated[str, Key(read=_hex)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredProfile:
    """The profile of one column of the approving party, whose bins the study leaves to be measured (`study.profiles`).

    Attributes:
        variable: its name.
        counts: of its histograms, with the party's noise.
    """

    variable: str
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """What a party approved; `record.encode` makes the bytes that it signs.

    Attributes:
        proposal_digest: SHA-256 of the proposal (32 bytes).
        party: the approving party.
        units: all units of that party, ascending by index.
        minimum_common_records: with fewer common people the party sends nothing.
        approver: who approved, in the party's own words.
        approved_at: UTC, to the second.
        expires: the last day (UTC) on which the approval holds.
        profiles: of the party's columns whose bins are measured, in the study's order.
        people_counted_apart: this party counts some of its data sets apart from others, whoever is in both: a person who is in
            several of its tables may be charged up to the limits of each.
    """

    MARK: ClassVar = {"form": "verticil/approval/v1"}

    proposal_digest: Annotated[Sha256, Key(name="proposal_sha256")]
    party: str
    units: tuple[DeclaredUnit, ...]
    minimum_common_records: Annotated[int, Within(1, MAX_SAFE)]
    approver: Annotated[str, Key(read=_quote_line)]
    approved_at: dt.datetime
    expires: dt.date
    people_counted_apart: Annotated[bool, OPTIONAL] = False
    profiles: Annotated[tuple[DeclaredProfile, ...], OPTIONAL] = ()

    def declarations(self) -> dict[int, Unit]:
        """Index -> declared unit."""
        return {declaration.index: declaration.unit for declaration in self.units}

    def declared_in(self, proposal: Study) -> Study:
        """Return the proposal with what this party declares: the bins that its profiles give, and its units.

        Raises:
            ValueError: the profiles are not those of the party's columns, or the units do not fit.
        """
        own = [proposal.schema[place] for place in profiled(proposal) if proposal.schema[place].owner == self.party]
        if [profile.variable for profile in self.profiles] != [variable.name for variable in own]:
            raise ValueError(
                f"profiles of {[profile.variable for profile in self.profiles]}, expected those of "
                f"{[variable.name for variable in own]}"
            )
        measured = with_profiles(proposal, {profile.variable: profile.counts for profile in self.profiles})
        return measured.with_declaration(self.declarations())


def check_not_weaker(declaration: Unit, proposal: Unit) -> None:
    """Check that a declaration is at least as strong as the study's proposal: gamma not larger.

    Raises:
        Refusal: DECLARATION_WEAKER.
    """
    ours, theirs = privacy.gamma(declaration.transition), privacy.gamma(proposal.transition)
    if theirs is not None and (ours is None or ours > theirs):
        actual_text = "infinite" if ours is None else f"{float(ours):.6g}"
        raise Refusal(
            "DECLARATION_WEAKER",
            f"{declaration.text}: declared gamma {actual_text}, expected at most the study's {float(theirs):.6g}",
            hint="declare stronger noise, or remove the declaration",
        )


def declared_units(units: Mapping[int, Unit], fingerprints: Mapping[int, str]) -> tuple[DeclaredUnit, ...]:
    """Return the units of an approval, ascending.

    Args:
        units: index -> unit as declared; every unit of the party.
        fingerprints: index -> fingerprint of the unit's data, 64 hexadecimal digits.

    Raises:
        ValueError: they are of different indices.
    """
    if units.keys() != fingerprints.keys():
        raise ValueError(f"units {sorted(units)} and fingerprints {sorted(fingerprints)} are not of the same indices")
    return tuple(DeclaredUnit(index=i, unit=units[i], fingerprint=fingerprints[i]) for i in sorted(units))


def parse_approval(body: bytes) -> Approval:
    """Read the bytes of an approval. They come from another node: everything is checked but the signature and the study.

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    return decode(Approval, body, source="approval")


@functools.lru_cache(maxsize=1024)
def held_approval(body: bytes) -> Approval:
    """Parse an approval that counts at this node. It stays in memory, because every column of its study needs it again."""
    return parse_approval(body)


def check_approval(approval: Approval, proposal: Study, party: str) -> None:
    """Check that an approval is one of `party` for this proposal, with all its units and no weaker noise.

    Args:
        approval: the approval.
        proposal: the study as submitted.
        party: who sent the approval, from its certificate.

    Raises:
        PeerFault: IDENTITY_REFUSED, it speaks for another party; STUDY_MISMATCH, it is for another study or other units.
        Refusal: DECLARATION_WEAKER.
    """
    if approval.party != party:
        raise PeerFault("IDENTITY_REFUSED", f"an approval of '{approval.party}' from '{party}', expected its own")
    where = f"approval of '{party}' for study '{proposal.id}'"
    if approval.proposal_digest != digest(proposal):
        raise PeerFault(
            "STUDY_MISMATCH",
            f"{where}: it is for the proposal {approval.proposal_digest.hex()[:12]}, expected {digest(proposal).hex()[:12]}",
            hint="the study changed; approve again",
        )
    own_units = proposal.units_of(party)
    if (approved_units := tuple(declaration.index for declaration in approval.units)) != own_units:
        raise PeerFault("STUDY_MISMATCH", f"{where}: it declares the units {approved_units}, expected {own_units}")
    _check_fitting(approval, proposal, where)
    try:
        declaration = approval.declared_in(proposal)
        rules.check(declaration, source=where)
    except ValueError as error:
        raise PeerFault("STUDY_MISMATCH", f"{where}: {error}") from None
    except Misuse as error:
        raise PeerFault("STUDY_MISMATCH", error.message, hint=error.hint) from None
    for index in own_units:
        check_not_weaker(declaration.units[index], proposal.units[index])


def effective_study(proposal: Study, approvals: Iterable[Approval], left_out: tuple[LeftOut, ...] = ()) -> Study:
    """Return the proposal with all parties' declarations. The order of the approvals does not matter.

    Args:
        proposal: as submitted.
        approvals: one of each party that is not left out.
        left_out: in the order of the study's parties.

    Raises:
        PeerFault: STUDY_MISMATCH, not exactly one approval of each party, or one that `check_approval` refuses.
        Refusal: DECLARATION_WEAKER.
        Misuse: STUDY_INVALID, there is no such sub-model.
    """
    absent = {item.party for item in left_out}
    effective = proposal
    parties: list[str] = []
    for approval in approvals:
        check_approval(approval, proposal, approval.party)
        effective = approval.declared_in(effective)
        parties.append(approval.party)
    present_parties = sorted(party for party in proposal.parties if party not in absent)
    if sorted(parties) != present_parties:
        raise PeerFault(
            "STUDY_MISMATCH",
            f"study '{proposal.id}': approvals of {', '.join(sorted(parties)) or 'nobody'}, "
            f"expected one of each of {', '.join(present_parties)}",
        )
    return narrow(effective, left_out)


def check_own_part(approved_study: Study, effective: Study, party: str) -> None:
    """Check the effective study that the miner sends, as a party does before it randomizes.

    Args:
        approved_study: the proposal with this party's own declared units in it (`Study.with_declaration`): what it approved.
        effective: the study as the miner tells it.
        party: this party.

    Raises:
        PeerFault: STUDY_MISMATCH, the party's own units differ, or anything but the matrices of others differs, or another
            party's noise is weaker than the proposal's.
    """
    where = f"study '{approved_study.id}'"
    hint = "the miner changed the study after it was approved; nothing was sent; ask the miner's operator"
    if effective.left_out:
        if party in {item.party for item in effective.left_out}:
            raise PeerFault(
                "STUDY_MISMATCH", f"{where}: the miner tells a sub-model without '{party}' to it", hint=hint
            )
        try:
            approved_study = narrow(approved_study, effective.left_out)
        except Misuse as error:
            raise PeerFault(
                "STUDY_MISMATCH", f"{where}: a sub-model that was not approved: {error.message}", hint=hint
            ) from None
    approved_study = _with_profiles_of_others(approved_study, effective, where=where, hint=hint)
    if len(effective.units) != len(approved_study.units):
        raise PeerFault(
            "STUDY_MISMATCH", f"{where}: {len(effective.units)} units, expected {len(approved_study.units)}", hint=hint
        )
    for index, (theirs, mine) in enumerate(zip(effective.units, approved_study.units, strict=True)):
        column = f"{where}: {mine.text}"
        if _holds(theirs) != _holds(mine):
            raise PeerFault(
                "STUDY_MISMATCH", f"{column}: unit {index} has other columns or categories than approved", hint=hint
            )
        if mine.owner == party and theirs != mine:
            raise PeerFault("STUDY_MISMATCH", f"{column}: the matrix is not the one that '{party}' approved", hint=hint)
        if mine.owner != party and theirs != mine:
            try:
                check_not_weaker(theirs, mine)
            except Refusal as error:
                raise PeerFault("STUDY_MISMATCH", f"{where}: {error.message}", hint=hint) from None
    if dataclasses.replace(effective, units=approved_study.units) != approved_study:
        part = next(
            field.name
            for field in dataclasses.fields(Study)
            if field.name != "units" and getattr(effective, field.name) != getattr(approved_study, field.name)
        )
        raise PeerFault("STUDY_MISMATCH", f"{where}: its '{part}' is not what was approved", hint=hint)


def _with_profiles_of_others(approved_study: Study, effective: Study, *, where: str, hint: str) -> Study:
    """Return what was approved with the bins that other parties' profiles give, as the effective study has them.

    What the party measured itself stands in what it approved.
    """
    counts = {
        name: profile
        for name, profile in profiles_of(effective).items()
        if name in approved_study.schema and not approved_study.schema[approved_study.schema.index(name)].profile
    }
    try:
        return with_profiles(approved_study, counts)
    except ValueError as error:
        raise PeerFault("STUDY_MISMATCH", f"{where}: {error}", hint=hint) from None


def _holds(unit: Unit) -> tuple[object, ...]:
    """Return what a declaration cannot change."""
    return unit.variables, unit.owner, unit.impossible


def _check_fitting(approval: Approval, proposal: Study, where: str) -> None:
    for declaration in approval.units:
        theirs = proposal.units[declaration.index]
        if _holds(declaration.unit) != _holds(theirs):
            raise PeerFault(
                "STUDY_MISMATCH", f"{where}: unit {declaration.index} is not that of '{theirs.variables[0]}'"
            )
