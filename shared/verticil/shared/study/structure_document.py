"""Model I: the structure as a document that all nodes agree on. Who reads what by it is in `peer`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final, cast

from verticil.shared.core.errors import PeerFault
from verticil.shared.documents.json_document import Json
from verticil.shared.documents.record import Key, Sha256, decode, encode, tame
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.study.document import Study

NANONATS: Final = 10**9
"""Scores travel as whole numbers of 1e-9 nats."""

_LIMIT: Final = 4 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """The agreed structure.

    Attributes:
        dag: of the study's variables.
        search: how it was found, for the release; empty when the study gives it.
        body: the canonical bytes that its digest is of.
    """

    dag: Dag
    search: Mapping[str, Json]
    body: bytes

    @property
    def sha256(self) -> bytes:
        """Names the structure on the wire (32 bytes)."""
        return hashlib.sha256(self.body).digest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Said:
    """What the document says."""

    MARK: ClassVar = {"form": "verticil/structure/v1"}

    effective_digest: Annotated[Sha256, Key(name="effective_sha256")]
    parents: tuple[tuple[int, ...], ...]
    search: Mapping[str, object]


def given_structure(study: Study, effective_digest: bytes) -> Structure | None:
    """Return the structure that the study states; None where it is to be learned."""
    dag = study.given_dag
    if dag is None:
        return None
    body = structure_body(effective_digest, dag.parents, {"method": "given"})
    return parse_structure(body, study, effective_digest)


def structure_body(effective_digest: bytes, parents: Sequence[Sequence[int]], search: Mapping[str, Json]) -> bytes:
    """Return the canonical bytes of a structure.

    Args:
        effective_digest: of the effective study.
        parents: of each variable, ascending positions.
        search: JSON values that the release shows.
    """
    return encode(_Said(effective_digest=effective_digest, parents=tuple(map(tuple, parents)), search=search))


def parse_structure(body: bytes, study: Study, effective_digest: bytes) -> Structure:
    """Read a structure and check it against the study: a DAG that meets every constraint.

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    document = decode(_Said, body, source="structure", limit=_LIMIT)
    if document.effective_digest != effective_digest:
        raise PeerFault("MESSAGE_INVALID", "structure: effective_sha256: of another study")
    if (n_lists := len(document.parents)) != (d := len(study.schema)):
        raise PeerFault(
            "MESSAGE_INVALID", f"structure: parents: {n_lists} lists, expected one for each of {d} variables"
        )
    try:
        dag = Dag(parents=document.parents)
        if problem := structure_fault(dag, study):
            raise ValueError(problem)
    except ValueError as error:
        raise PeerFault("MESSAGE_INVALID", tame(f"structure: parents: {error}")) from None
    return Structure(dag=dag, search=cast("Mapping[str, Json]", document.search), body=body)


def structure_fault(dag: Dag, study: Study) -> str:
    """Why a graph is no structure of the study; empty: it is one."""
    rule = study.structure
    if any(len(parents) > rule.max_parents for parents in dag.parents):
        return f"a variable has more than {rule.max_parents} parents"
    if rule.parents is None and (violations := study.constraints().violations(dag)):
        return "; ".join(violations)
    sizes = study.schema.n_states
    if any(
        math.prod(sizes[v] for v in (child, *parents)) > rule.max_family_cells
        for child, parents in enumerate(dag.parents)
    ):
        return f"a variable and its parents have more than {rule.max_family_cells} cells"
    return ""
