"""How large a release may be: what its study announces, before anything of it has arrived.

A published table of a study has one row for each synthetic record and the declared labels; its documents grow with the
probabilities that the study allows. Whatever is larger was not made by an honest miner, however small it travels. Bounds are
generous: they keep a disk and a memory, they do not prove anything.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from verticil.shared.release.bundle import MANIFEST, SIGNATURE
from verticil.shared.release.content import FILES, PROPOSAL
from verticil.shared.release.synthetic import TABLES, table_bytes
from verticil.shared.study import canonical
from verticil.shared.study.document import Study

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
    """The limits of one study's release.

    Args:
        study: the effective study.
        n_common: people in common.
        total: see `ReleaseLimits`.
    """
    size = len(canonical.to_bytes(study))
    document = _DOCUMENT + _EACH_PROBABILITY * _probabilities(study) + _EACH_BYTE_OF_THE_STUDY * size
    table = table_bytes(study.schema, study.release.synthetic_records or n_common)
    signed = _DOCUMENT // 8 + _EACH_STATEMENT * (len(study.units) + len(study.parties)) + _EACH_BYTE_OF_THE_STUDY * size
    names = {*FILES, *((PROPOSAL,) if study.left_out else ())}
    return ReleaseLimits(
        files={
            **{name: table if name in TABLES else document for name in names},
            MANIFEST: signed,
            SIGNATURE: signed,
        },
        total=total,
    )


def _probabilities(study: Study) -> int:
    """Most probabilities that a network of the study has, and cells of the pairs that it names."""
    n_states = study.schema.n_states
    rule = study.structure
    named = sum(math.prod(n_states[study.schema.index(name)] for name in pair) for pair in study.release.pairs)
    if (dag := study.given_dag) is not None:
        families = ((*parents, child) for child, parents in enumerate(dag.parents))
        return named + sum(math.prod(n_states[v] for v in family) for family in families)
    largest = math.prod(sorted(n_states)[-rule.max_parents :]) if rule.max_parents else 1
    return named + sum(min(rule.max_family_cells, states * largest) for states in n_states)
