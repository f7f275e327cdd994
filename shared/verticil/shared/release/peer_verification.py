"""Checking what a release of Model I adds: every party's signed parameters, the structure, and that the model is made of them.

No party can be made to say what it did not: each statement carries its party's signature, all of them rest on the same common
list and the same structure, two readers of a column have read the same bytes, and the model is computed again from the
statements and compared number by number. What nobody can check from a release: that a party computed its parameters from its
true data.
"""

from __future__ import annotations

import datetime as dt

import numpy as np
from numpy.typing import NDArray

from verticil.shared.errors import GateFailed, PeerFault
from verticil.shared.formats.json_document import Node
from verticil.shared.formats.peer_statement import peer_statement
from verticil.shared.identity.identity import Role
from verticil.shared.model.graph import Dag
from verticil.shared.model.network import Network
from verticil.shared.release.evidence import Denied, signed_statement, signer
from verticil.shared.release.peer_assembly import check_statements, joint_model
from verticil.shared.release.statement import PartyStatement, parse_statement
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.structure_document import Structure, given_structure, parse_structure

_TABLES = ("probability", "estimate", "standard_error", "interval_low", "interval_high", "unstable")


def check_evidence(
    manifest: Node, study: Study, model: Network, *, authority: bytes, published: dt.datetime, denied: Denied
) -> int:
    """Check structure and statements of a manifest, and that `model` is what they make.

    Args:
        manifest: its root.
        study: the effective study, already checked against its digest.
        model: the network of model.json.
        authority: DER of the authority that all certificates must be of.
        published: time of publication.
        denied: the reader's deny-list.

    Returns:
        The number of statements.

    Raises:
        GateFailed: RELEASE_INVALID.
    """
    structure = _structure(manifest, study, authority=authority, published=published, denied=denied)
    nodes = manifest["statements"].items()
    if len(nodes) != len(study.parties):
        manifest["statements"].fail(f"{len(nodes)} statements, expected one of each of {', '.join(study.parties)}")
    statements = [
        _statement(node, study, party, authority=authority, published=published, denied=denied)
        for node, party in zip(nodes, study.parties, strict=True)
    ]
    try:
        check_statements(study, structure, statements)
    except PeerFault as error:
        manifest["statements"].fail(error.message)
    if (n_common := manifest["n_common"].integer()) != statements[0].n_common:
        manifest["n_common"].fail(f"got {n_common}, the parties state {statements[0].n_common}")
    if published != max(statement.computed_at for statement in statements):
        manifest["published_at"].fail("expected the time of the latest statement")
    _compare(model, joint_model(study, structure.dag, statements)[0])
    return len(statements)


def check_peer_figures(node: Node, study: Study, dag: Dag) -> None:
    """Check who read what, and the noise of the parameters, as a document states them.

    Raises:
        GateFailed: RELEASE_INVALID.
    """
    expected = peer_statement(study, dag).document()
    if not _equal(node.value, expected):
        node.fail("what it says of readers and noise is not what the study and the structure give")


def _structure(manifest: Node, study: Study, *, authority: bytes, published: dt.datetime, denied: Denied) -> Structure:
    effective = canonical.digest(study)
    node = manifest.get("structure")
    given = given_structure(study, effective)
    if given is not None:
        if node is not None:
            node.fail("a structure, where study.json gives it")
        return given
    if node is None:
        manifest.fail("'structure' is missing, expected the one that was learned")
    signed = signed_statement(node)
    signer(signed, authority, role=Role.MINER, at=published, where=node.where, anchored=False, denied=denied)
    try:
        return parse_structure(signed.body, study, effective)
    except PeerFault as error:
        node.fail(error.message)


def _statement(
    node: Node, study: Study, party: str, *, authority: bytes, published: dt.datetime, denied: Denied
) -> PartyStatement:
    signed = signed_statement(node)
    try:
        statement = parse_statement(signed.body, study)
    except PeerFault as error:
        node.fail(error.message)
    if statement.party != party:
        node.fail(f"a statement of '{statement.party}', expected that of '{party}'")
    if statement.computed_at > published:
        node.fail("later than the publication")
    signer(
        signed,
        authority,
        role=Role.PARTY,
        name=party,
        at=statement.computed_at,
        where=node.where,
        anchored=False,
        denied=denied,
    )
    return statement


def _compare(model: Network, stated: Network) -> None:
    if model.dag != stated.dag:
        raise GateFailed("RELEASE_INVALID", "model.json: its edges are not those of the structure")
    for got, expected in zip(model.families, stated.families, strict=True):
        for name in _TABLES:
            ours: NDArray[np.float64] = getattr(got, name)
            theirs: NDArray[np.float64] = getattr(expected, name)
            if not np.array_equal(ours, theirs, equal_nan=name != "unstable"):
                raise GateFailed(
                    "RELEASE_INVALID",
                    f"model.json: {name} of variable '{model.schema[got.child].name}' is not what its party states",
                )


def _equal(got: object, expected: object) -> bool:
    """Whether two JSON values are the same; numbers to nine digits, because another machine may have computed them."""
    if isinstance(expected, dict):
        return isinstance(got, dict) and got.keys() == expected.keys() and all(_equal(got[k], expected[k]) for k in got)
    if isinstance(expected, list):
        return isinstance(got, list) and len(got) == len(expected) and all(map(_equal, got, expected))
    if isinstance(expected, float):
        return (
            isinstance(got, int | float) and not isinstance(got, bool) and abs(got - expected) <= 1e-9 * abs(expected)
        )
    return type(got) is type(expected) and got == expected
