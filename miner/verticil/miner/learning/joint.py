"""The joint model of a study whose columns the miner has, and whether a study asks for one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from verticil.miner.learning.exact_tables import orders_of
from verticil.miner.learning.search.protocol import Interruption
from verticil.shared.core.arrays import Codes
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.estimate import JointEstimate, estimate
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.model.network import Network
from verticil.shared.related.structure import divisions
from verticil.shared.study.document import Study
from verticil.shared.synthesis.synthesis import sample_codes


def asks_for_joint(study: Study) -> bool:
    """Return whether a joint model is to be estimated: the study asks for it, or leaves open what records come from."""
    return study.records_from == "joint" or study.leaves_source_open


def joint_of_columns(
    columns: Sequence[Codes],
    study: Study,
    network: Network,
    *,
    progress: Callable[[float], None],
    interruption: Interruption,
) -> JointEstimate:
    """Estimate the joint model of all pairs of columns, from records of the network and of a mixture.

    Args:
        columns: released codes of every unit, see `learn.learn`.
        study: the effective study.
        network: that was learned from them; half of the records that are weighed are its own.
        progress: is told the share that is done.
        interruption: how it is stopped, and gone on with; its checkpoint is of the same columns, study and network.
    """
    units = [study.column_unit(index) for index in range(len(study.units))]
    widths = [unit.channel.codes_per_record for unit in units]
    record_codes = [
        column.reshape(-1, width) if width > 1 else column for column, width in zip(columns, widths, strict=True)
    ]
    counted = from_columns(record_codes, units, study.schema.n_states, check=interruption.check)
    tables = dataclasses.replace(counted, orders=orders_of(study))

    support = study.support()
    by = rake(network, support)

    def records(n: int, generator: np.random.Generator) -> list[Codes]:
        return sample_codes(network, n, generator=generator, support=by)

    def report_progress(_piece: str, n_done: int, most: int) -> None:
        progress(min(n_done / most, 1.0))

    return estimate(
        tables,
        seed=study.structure.seed,
        records=None if study.related else records,  # a network knows nothing of slots
        allowed=support.holds if support.restricts else None,
        zeros=support.zeros,
        progress=report_progress,
        check=interruption.check,
        keep=interruption.keep,
        checkpoint=interruption.checkpoint,
        divisions=divisions(study.related, study.schema),
    )
