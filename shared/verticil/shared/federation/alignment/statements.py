"""What parties sign while they align: canonical bodies that the checking side writes anew and compares.

Nothing is read out of a body where the checker knows every figure already, from the list that came with it or from its own
computation: the body is right when it is exactly the one that follows from them. Only a miner whose parties link among
themselves (Model III) has nothing else, and reads what they say (`parse_common`). `check_common` is what stands between the
miner and a party's randomization: every party of the study has signed the same common list.

Does not: say who computes what (`verticil.party.dataset.blinding`, `verticil.miner.storage.linkage`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar

import rfc8785

from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.documents.record import Count, Sha256, decode
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import verify_signed
from verticil.wire.v1 import common_pb2


def sender(parties: Sequence[str], owner: int, hop: int) -> str:
    """Return who blinds the list of `owner` as its `hop`-th station, and puts it at the miner.

    >>> [sender(("a", "b", "c"), 1, hop) for hop in range(3)], receiver(("a", "b", "c"), 1, 2)
    (['b', 'c', 'a'], 'b')
    """
    return parties[(owner + hop) % len(parties)]


def receiver(parties: Sequence[str], owner: int, hop: int) -> str:
    """Return who may have it then: the next station, and after the last one the owner."""
    return sender(parties, owner, hop + 1)


def common_body(*, mode: str, study: bytes, party: str, n_common: int, common_sha256: bytes) -> bytes:
    """Return the body with which a party states that it takes this for the common list.

    Args:
        mode: of linkage.
        study: SHA-256 of the proposal.
        party: who states it.
        n_common: people in common.
        common_sha256: names the list and its order.

    Raises:
        PeerFault: MESSAGE_INVALID, a number that no list has.
    """
    return _body(
        {
            "form": "verticil/common/v1",
            "mode": mode,
            "study": study.hex(),
            "party": party,
            "n_common": n_common,
            "common_sha256": common_sha256.hex(),
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What `common_body` says; attributes as its arguments."""

    MARK: ClassVar = {"form": "verticil/common/v1"}

    mode: str
    study: Sha256
    party: str
    n_common: Count
    common_sha256: Sha256


def parse_common(body: bytes) -> Common:
    """Read a statement of `common_body`; the signature is checked by the caller.

    >>> said = common_body(mode="dh-psi", study=bytes(32), party="clinic", n_common=7, common_sha256=bytes(32))
    >>> parse_common(said).n_common
    7

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    return decode(Common, body, source="statement of the common list")


def blinded_body(*, study: bytes, owner: str, hop: int, party: str, size: int, sha256: bytes) -> bytes:
    """Return the body with which a party states what it made of the list of `owner` at this hop.

    Args:
        study: SHA-256 of the proposal.
        owner: whose records.
        hop: station.
        party: who made it.
        size: bytes of the list.
        sha256: of the list.

    Raises:
        PeerFault: MESSAGE_INVALID, a number that no list has.
    """
    return _body(
        {
            "form": "verticil/blinded/v1",
            "study": study.hex(),
            "owner": owner,
            "hop": hop,
            "party": party,
            "size": size,
            "sha256": sha256.hex(),
        }
    )


def _body(fields: dict[str, str | int]) -> bytes:
    try:
        return rfc8785.dumps(fields)
    except rfc8785.IntegerDomainError:  # the checking side has the number from the other one
        raise PeerFault(
            "MESSAGE_INVALID", f"{fields['form']}: a number above 2**53 - 1, expected the size of a list"
        ) from None


def check_statement(
    signed: common_pb2.Signed,
    body: bytes,
    *,
    authority: bytes,
    party: str,
    at: datetime,
    what: str,
    deny_list: Mapping[int, datetime] | None = None,
) -> None:
    """Check that `party` signed exactly `body`, with a certificate that is not in `deny_list`.

    Raises:
        PeerFault: MESSAGE_INVALID, naming the party.
    """
    try:
        verify_signed(signed, authority, role=Role.PARTY, name=party, at=at, deny_list=deny_list)
    except VerticilError as error:
        raise PeerFault("MESSAGE_INVALID", f"{what}: not signed by party '{party}' ({error.code})") from None
    if signed.body != body:
        raise PeerFault("MESSAGE_INVALID", f"{what}: party '{party}' signed something else than what was sent")


def check_common(
    statements: Iterable[common_pb2.Signed],
    *,
    parties: Sequence[str],
    mode: str,
    study: bytes,
    n_common: int,
    common_sha256: bytes,
    authority: bytes,
    at: datetime,
    deny_list: Mapping[int, datetime] | None = None,
) -> None:
    """Check that every party has signed this common list, with a certificate that is not in `deny_list`.

    Raises:
        PeerFault: ALIGNMENT_MISMATCH, naming the first party whose statement is missing or is about another list.
    """
    signed_statements = list(statements)
    for party in parties:
        body = common_body(mode=mode, study=study, party=party, n_common=n_common, common_sha256=common_sha256)
        signed = next((item for item in signed_statements if item.body == body), None)
        if signed is None:
            raise PeerFault(
                "ALIGNMENT_MISMATCH",
                f"alignment: there is no statement of party '{party}' for the common list that was sent here",
                hint="nothing was randomized; the miner sent the parties different lists, or that party has another one",
            )
        try:
            check_statement(
                signed, body, authority=authority, party=party, at=at, what="common list", deny_list=deny_list
            )
        except PeerFault as error:
            raise PeerFault(
                "ALIGNMENT_MISMATCH", f"alignment: {error.message}", hint="nothing was randomized"
            ) from None
