"""Model I: one release out of the signed statements of all parties.

Everything in it follows from the study, the structure and the statements, so every party that has the same statements assembles
the same bytes, and each can sign what all the others sign. Nothing is taken from the machine that assembles: the time of
publication is that of the latest statement, records are drawn with the study's seed, and software whose version decides bytes
is named in every statement and must be the same.

This checks that the statements belong together; whose signatures they carry is the caller's to check (and `verification`'s).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from verticil.shared.core.errors import PeerFault
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Marginal, Network
from verticil.shared.numerics.model.rounding import round_network
from verticil.shared.release.content import ReleaseContent, SignedStatement
from verticil.shared.release.records import draw_release_records
from verticil.shared.release.statement import (
    PartyStatement,
    parse_statement,
)
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.peer import reads
from verticil.shared.study.structure_document import Structure
from verticil.shared.synthesis.marginals import model_shares


def assemble(
    study: Study,
    proposal_digest: bytes,
    structure: Structure,
    signed: Sequence[SignedStatement],
    *,
    simulation: bool,
    seed_derived: bool,
    structure_signed: SignedStatement | None = None,
    folder: Path | None = None,
) -> ReleaseContent:
    """Assemble the release.

    Args:
        study: the effective study.
        proposal_digest: of the study as loaded, 32 bytes.
        structure: given or learned.
        signed: the statement of every party, in any order; signatures are checked already.
        simulation: everything ran on one machine.
        seed_derived: the sites' secrets came from a seed.
        structure_signed: the miner's statement of the structure, where it was learned.
        folder: for records that do not fit into memory; None: the system's for temporary files.

    Returns:
        What is published.

    Raises:
        PeerFault: MESSAGE_INVALID, a statement is not one of this study; STUDY_MISMATCH, they do not belong together.
        ValueError: a learned structure without its signature, or a given one with a signature.
    """
    if (structure_signed is None) != (study.structure.parents is not None):
        raise ValueError("a learned structure, and only a learned one, has a signature")
    if structure_signed is not None and structure_signed.body != structure.body:
        raise ValueError("the signature is one of another structure")
    entries, statements = _in_order(study, signed)
    check_statements(study, structure, statements)
    network, marginals, exact = joint_model(study, structure.dag, statements)
    n_common = statements[0].n_common
    codes, synthetic = draw_release_records(network, study, n_common, folder=folder)
    return ReleaseContent(
        study=study,
        study_digest=proposal_digest.hex(),
        effective_digest=canonical.digest(study).hex(),
        network=network,
        marginals=marginals,
        synthetic=synthetic,
        codes=codes,
        n_common=n_common,
        receipts=(),
        statements=entries,
        structure=structure_signed,
        provenance={"model_marginals": "exact" if exact else "sampled", "software": statements[0].software},
        search=structure.search,
        simulation=simulation,
        seed_derived=seed_derived,
        published_at=max(statement.computed_at for statement in statements),
    )


def check_statements(study: Study, structure: Structure, statements: Sequence[PartyStatement]) -> None:
    """Check that the statements of all parties, in the study's order, belong to the structure and to each other.

    Raises:
        PeerFault: STUDY_MISMATCH, both sides shown.
    """
    first = statements[0]
    hashes: dict[int, tuple[str, bytes]] = {}
    for statement in statements:
        for what, actual, target in (
            ("number of common people", str(statement.n_common), str(first.n_common)),
            ("common list", statement.common_sha256.hex(), first.common_sha256.hex()),
            ("software", statement.software, first.software),
        ):
            if actual != target:
                _differ(f"{what}: '{statement.party}' states {actual}, '{first.party}' states {target}")
        if statement.structure_sha256 != structure.sha256:
            _differ(
                f"structure: '{statement.party}' states {statement.structure_sha256.hex()}, "
                f"expected {structure.sha256.hex()}"
            )
        for family in statement.families:
            if family.parents != (expected_parents := structure.dag.parents[family.child]):
                _differ(
                    f"parents of variable {family.child}: '{statement.party}' states {family.parents}, "
                    f"the structure has {expected_parents}"
                )
        reads_needed = expected_reads(study, statement.party, structure.dag)
        if (read := tuple(column.unit for column in statement.received)) != reads_needed:
            _differ(f"units that '{statement.party}' read: got {read}, the structure asks for {reads_needed}")
        for column in statement.received:
            reader, digest = hashes.setdefault(column.unit, (statement.party, column.artifact_sha256))
            if digest != column.artifact_sha256:
                _differ(
                    f"unit {column.unit} of '{column.owner}': '{statement.party}' read "
                    f"{column.artifact_sha256.hex()}, '{reader}' read {digest.hex()}"
                )


def expected_reads(study: Study, party: str, dag: Dag) -> tuple[int, ...]:
    """Return the units that a party has read in the end, ascending: for families, and before that for scores."""
    scored_units = () if study.structure.parents is not None else reads(study, party, None)
    return tuple(sorted({*scored_units, *reads(study, party, dag)}))


def joint_model(
    study: Study, dag: Dag, statements: Sequence[PartyStatement]
) -> tuple[Network, tuple[Marginal, ...], bool]:
    """Return the network of all statements, with all variables' shares, and whether the network's own shares are exact."""
    families: dict[int, Family] = {family.child: family for s in statements for family in s.families}
    stated: dict[int, Marginal] = {marginal.variable: marginal for s in statements for marginal in s.marginals}
    variables = range(len(study.schema))
    network = round_network(Network(schema=study.schema, dag=dag, families=tuple(families[v] for v in variables)))
    shares, exact = model_shares(network, study.support())
    marginals = tuple(dataclasses.replace(stated[v], model=shares[v]) for v in variables)
    return network, marginals, exact


def _in_order(
    study: Study, signed: Sequence[SignedStatement]
) -> tuple[tuple[SignedStatement, ...], tuple[PartyStatement, ...]]:
    """Return the statements in the order of the study's parties, each of whom has made exactly one."""
    parsed = [(item, parse_statement(item.body, study)) for item in signed]
    by_party = {statement.party: (item, statement) for item, statement in parsed}
    if len(parsed) != len(by_party) or set(by_party) != set(study.parties):
        raise PeerFault(
            "MESSAGE_INVALID",
            f"statements of {', '.join(sorted(s.party for _, s in parsed))}, expected one of each of "
            f"{', '.join(study.parties)}",
        )
    pairs = [by_party[party] for party in study.parties]
    return tuple(item for item, _ in pairs), tuple(statement for _, statement in pairs)


def _differ(problem: str) -> NoReturn:
    raise PeerFault("STUDY_MISMATCH", problem, hint="the parties did not compute from the same; load the study anew")
