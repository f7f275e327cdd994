"""Model I: the structure as a document that all nodes agree on. Who reads what by it is in `peer`."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from verticil.shared.config import Table
from verticil.shared.errors import Misuse
from verticil.shared.model.graph import Dag
from verticil.shared.record import Json, canonical_json, parse, peer_fault
from verticil.shared.study.document import Study

NANONATS: Final = 10**9
"""Scores travel as whole numbers of 1e-9 nats."""

_FORM: Final = "verticil/structure/v1"
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


def given_structure(study: Study, effective_digest: bytes) -> Structure | None:
    """The structure that the study gives; None where it is to be learned."""
    dag = study.given_dag
    if dag is None:
        return None
    body = structure_body(effective_digest, dag.parents, {"method": "given"})
    return parse_structure(body, study, effective_digest)


def structure_body(effective_digest: bytes, parents: Sequence[Sequence[int]], search: Mapping[str, Json]) -> bytes:
    """The canonical bytes of a structure.

    Args:
        effective_digest: of the effective study.
        parents: of each variable, ascending positions.
        search: JSON values that the release shows.
    """
    return canonical_json(
        {
            "form": _FORM,
            "effective_sha256": effective_digest.hex(),
            "parents": [list(of_child) for of_child in parents],
            "search": dict(search),
        }
    )


def parse_structure(body: bytes, study: Study, effective_digest: bytes) -> Structure:
    """Read a structure and check it against the study: a DAG that meets every constraint.

    Raises:
        PeerFault: MESSAGE_INVALID.
    """
    try:
        table = parse(body, source="structure", limit=_LIMIT)
        table.choice("form", [_FORM])
        table.choice("effective_sha256", [effective_digest.hex()])
        rows = table.rows("parents")
        search = cast("Json", table.raw("search"))
        table.only("form", "effective_sha256", "parents", "search")
        if not isinstance(search, dict):
            table.fail("search", "expected an object")
        dag = _dag(table, rows, study)
    except Misuse as error:
        raise peer_fault(error) from None
    return Structure(dag=dag, search=search, body=body)


def _dag(table: Table, rows: Sequence[Sequence[object]], study: Study) -> Dag:
    if len(rows) != len(study.schema):
        table.fail("parents", f"{len(rows)} lists, expected one for each of {len(study.schema)} variables")
    for row in rows:
        if any(type(parent) is not int or not 0 <= parent < len(rows) for parent in row):
            table.fail("parents", "expected positions of variables")
    try:
        dag = Dag(parents=tuple(tuple(cast("Sequence[int]", row)) for row in rows))
    except ValueError as error:
        table.fail("parents", str(error))
    rule = study.structure
    if any(len(parents) > rule.max_parents for parents in dag.parents):
        table.fail("parents", f"a variable has more than {rule.max_parents} parents")
    if rule.parents is None and (broken := study.constraints().violations(dag)):
        table.fail("parents", "; ".join(broken))
    sizes = study.schema.n_states
    if any(
        math.prod(sizes[v] for v in (child, *parents)) > rule.max_family_cells
        for child, parents in enumerate(dag.parents)
    ):
        table.fail("parents", f"a variable and its parents have more than {rule.max_family_cells} cells")
    return dag
