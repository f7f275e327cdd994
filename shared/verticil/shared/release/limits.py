"""How large a release may be: what its study announces, before anything of it has arrived.

A published table of a study has one row for each synthetic record and the declared labels; its documents grow with the
probabilities that the study allows. Whatever is larger was not made by an honest miner, however small it travels. Bounds are
generous: they keep a disk and a memory, they do not prove anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from verticil.shared.numerics.knowledge.columns import columns, node_cells
from verticil.shared.release.content import FILES, PROPOSAL, may_have_joint
from verticil.shared.release.formats import joint
from verticil.shared.release.formats import posterior as posterior_json
from verticil.shared.release.manifest import MANIFEST, SIGNATURE
from verticil.shared.release.posterior import posterior_files
from verticil.shared.release.related import related_files, related_limits
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.synthesis.record_checks import TABLES, table_bytes

if TYPE_CHECKING:
    pass
_DOCUMENT: Final = 8 * 2**20
_EACH_PROBABILITY: Final = 512
_EACH_BYTE_OF_THE_STUDY: Final = 64
_EACH_STATEMENT: Final = 2**13


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseLimits:
    """What is fetched at most.

    Attributes:
        files: the files that a release of the study can have -> bytes of each.
        total: bytes of all together that this machine takes.
    """

    files: Mapping[str, int]
    total: int


def release_limits(study: Study, n_common: int, *, total: int) -> ReleaseLimits:
    """Return the limits of one study's release.

    Args:
        study: the effective study.
        n_common: people in common.
        total: see `ReleaseLimits`.
    """
    size = len(canonical.to_bytes(study))
    document = _DOCUMENT + _EACH_PROBABILITY * _probabilities(study) + _EACH_BYTE_OF_THE_STUDY * size
    table = table_bytes(
        columns(study.knowledge, study.schema).published,
        study.release.synthetic_records or n_common,
        study.identifier,
    )
    signed = _DOCUMENT // 8 + _EACH_STATEMENT * (len(study.units) + len(study.parties)) + _EACH_BYTE_OF_THE_STUDY * size
    names = {*FILES, *((PROPOSAL,) if study.left_out else ()), *posterior_files(study), *related_files(study)}
    tables = {*TABLES, *(posterior_files(study).keys() - {posterior_json.FILE})}
    posterior_limits: dict[str, int] = {}
    if study.samples_graphs:
        posterior_limits = {posterior_json.FILE: _DOCUMENT + study.posterior.data_sets * document}
    joint_files: dict[str, int] = {}
    if may_have_joint(study):
        nodes = _EACH_PROBABILITY * _following(study)
        joint_files = {joint.FILE: joint.LIMIT + nodes, "model.json": document + joint.LIMIT}
    return ReleaseLimits(
        files={
            **{name: table if name in tables else document for name in names},
            **related_limits(study, study.release.synthetic_records or n_common),
            **posterior_limits,
            **joint_files,
            MANIFEST: signed,
            SIGNATURE: signed,
        },
        total=total,
    )


def _probabilities(study: Study) -> int:
    """Most probabilities that a network of the study has, with those that follow, and cells of the pairs that it names."""
    n_states = study.schema.n_states
    rule = study.structure
    n_cells = sum(math.prod(n_states[study.schema.index(name)] for name in pair) for pair in study.release.pairs)
    n_cells += _following(study)
    if (dag := study.given_dag) is not None:
        families = ((*parents, child) for child, parents in enumerate(dag.parents))
        return n_cells + sum(math.prod(n_states[v] for v in family) for family in families)
    largest = math.prod(sorted(n_states)[-rule.max_parents :]) if rule.max_parents else 1
    return n_cells + sum(min(rule.max_family_cells, states * largest) for states in n_states)


def _following(study: Study) -> int:
    """Cells of the nodes that follow from others, with room for their names."""
    return sum(cells + 100 for cells in node_cells(study.knowledge, study.schema).values())
