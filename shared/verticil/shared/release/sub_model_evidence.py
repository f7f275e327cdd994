"""The evidence in a release that is a sub-model: that the study permits it, who fixed it, and who is not in it.

Such a release holds, besides the study as it was carried out, the study as it was proposed and approved (``proposal.json``) and
the miner's signed statement of who was left out (in the manifest). From these a reader sees offline that the proposal has the
digest that the receipts are of, that its quorum permits what remains, and that nothing else differs but noise, never weaker.

That the parties were missing is the miner's word. Between a party that was late and one that was shut out a reader cannot tell.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from pathlib import Path

from verticil.shared.errors import GateFailed, VerticilError
from verticil.shared.formats.json_document import Json, Node
from verticil.shared.identity.identity import Role
from verticil.shared.record import write
from verticil.shared.release.content import PROPOSAL
from verticil.shared.release.evidence import Denied, signed_statement, signer
from verticil.shared.study import canonical
from verticil.shared.study.approval import check_own_part
from verticil.shared.study.document import Study
from verticil.shared.study.sub_model import check_sub_model, parse_sub_model

_ANY_PARTY = ""


def parties_left_out(study: Study, statement: Json) -> dict[str, Json]:
    """What the manifest of a sub-model says of it.

    Args:
        study: the effective study.
        statement: the miner's, as signed statements stand in a manifest.
    """
    return {"parties_left_out": [write(item) for item in study.left_out], "sub_model": statement}


def check_sub_model_evidence(
    directory: Path,
    manifest: Node,
    documents: tuple[Node, ...],
    study: Study,
    *,
    authority: bytes,
    published: dt.datetime,
    denied: Denied,
) -> tuple[str, ...]:
    """Check all of it; a release of all parties must hold nothing of the kind.

    Args:
        directory: the release; its files are those of the manifest.
        manifest: `manifest.json`.
        documents: all that name the parties left out.
        study: the effective study.
        authority: certificate of the federation's authority.
        published: time of publication.
        denied: the reader's deny-list.

    Returns:
        The parties that were left out.

    Raises:
        GateFailed: RELEASE_INVALID.
    """
    expected = [write(item) for item in study.left_out] if study.left_out else None
    for document in documents:
        listed = document.get("parties_left_out")
        if (None if listed is None else listed.value) != expected:
            document.fail("its parties_left_out are not those of study.json")
    if (PROPOSAL in manifest["files"].keys()) != bool(study.left_out):  # noqa: SIM118 (a Node is no mapping)
        manifest["files"].fail(f"{PROPOSAL} belongs to a sub-model, and to no other release")
    if not study.left_out:
        return ()
    signed = signed_statement(manifest["sub_model"])
    where = "manifest.json: sub_model"
    try:
        found = parse_sub_model(signed.body)
        if found.decided_at > published:
            manifest["sub_model"].fail("decided later than the publication")
        signer(signed, authority, role=Role.MINER, at=found.decided_at, where=where, anchored=False, denied=denied)
        proposal_bytes = (directory / PROPOSAL).read_bytes()
        digest = hashlib.sha256(proposal_bytes).digest()
        if digest.hex() != manifest["study_digest"].text():
            raise GateFailed("RELEASE_INVALID", f"{PROPOSAL}: SHA-256 is {digest.hex()}, expected the study's digest")
        proposal = canonical.from_bytes(proposal_bytes, source=PROPOSAL, wire=False)
        effective_digest = bytes.fromhex(manifest["effective_digest"].text())
        check_sub_model(found, proposal_digest=digest, effective=study, effective_digest=effective_digest)
        check_own_part(proposal, study, _ANY_PARTY)
    except GateFailed:
        raise
    except (VerticilError, ValueError) as error:
        problem = error.message if isinstance(error, VerticilError) else "a digest is not one"
        raise GateFailed("RELEASE_INVALID", f"{where}: {problem}") from None
    return tuple(item.party for item in study.left_out)
