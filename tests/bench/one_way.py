"""What tables of single columns buy beside those of pairs: ``python tests/bench/one_way.py [--only letter] [--parts 0 .3]``.

One owner's noise on all tables, add/remove, delta 1e-9. A row has a part of the budget for the tables of single columns
(`[tables] one_way_part`), the mean distance of single columns by their estimate and by the records, that of pairs with its
standard error over the seeds, and what is predicted. `analyst.prediction.best_one_way_part` takes a part that is predicted to
bring pairs 15 % nearer at least, and at most .3: with less of a gain, or a larger part, pairs were farther on some tables.
"""

from __future__ import annotations

import argparse
import dataclasses
import math
import statistics

import joint
import joint_data
import numpy as np
from joint_data import Data, Truth

from verticil.shared.core.arrays import AnyCodes, Floats
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.noise import noised
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.numerics.joint.one_way import one_way_shares
from verticil.shared.numerics.joint.prediction import predict

TABLES = {
    "letter": joint_data.letter,
    "magic": joint_data.magic,
    "ma2019": joint_data.ma2019,
    "cmc": joint_data.cmc,
    "adult": joint_data.adult,
}
PARTS = (0.0, 0.1, 0.2, 0.3, 0.5, 0.7)


def opened(data: Data, sigma: float, own: float, seed: int) -> NoisyTables:
    """The tables of pairs with noise of sigma, and those of single columns with their own; infinite: none of these."""
    n_states = data.schema.n_states
    units = joint.units_of(joint.channels_of(n_states, None))
    alone = range(len(units)) if math.isfinite(own) else ()
    exact = dataclasses.replace(
        from_columns(data.columns, units, n_states, alone=alone), n_records=None, relation="add-remove"
    )
    sigmas = [sigma if len(table.units) > 1 else own for table in exact.tables]
    return noised(exact, sigmas, np.random.default_rng([seed, 14]).bytes(32))


def single_columns(shares: list[Floats], data: Data) -> float:
    """The mean total variation distance of single columns to the people's."""
    return statistics.fmean(
        float(np.abs(own - true).sum()) / 2 for own, true in zip(shares, shares_of(data.columns, data), strict=True)
    )


def shares_of(columns: list[AnyCodes], data: Data) -> list[Floats]:
    """The shares of each column's categories."""
    return [np.bincount(column, minlength=k) / data.n for column, k in zip(columns, data.schema.n_states, strict=True)]


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description="what tables of single columns buy")
    parser.add_argument("--only", nargs="*", default=list(TABLES), choices=list(TABLES))
    parser.add_argument("--epsilon", nargs="*", type=float, default=[0.2, 1.0])
    parser.add_argument("--parts", nargs="*", type=float, default=list(PARTS))
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    for name in options.only:
        data = TABLES[name]()
        truth, n_states = Truth(data.schema.n_states, data.columns), data.schema.n_states
        d, channels = len(n_states), joint.channels_of(n_states, None)
        for epsilon in options.epsilon:
            whole = joint.sigma_for(epsilon, math.comb(d, 2), "add-remove")
            for part in options.parts:
                sigma = whole / math.sqrt(1 - part)
                own = whole * math.sqrt(d / math.comb(d, 2) / part) if part else math.inf
                rows = []
                for seed in range(1, options.seeds + 1):
                    tables = opened(data, sigma, own, seed)
                    records = joint.drawn(joint.estimated(tables, seed).model, data.n, seed)
                    raw = single_columns(list(one_way_shares(tables)), data)
                    rows.append((raw, single_columns(shares_of(records, data), data), *truth.to_records(records)))
                raw, made, two, three = (joint.mean_error(column) for column in zip(*rows, strict=True))
                said = predict(channels, data.n, sigma=sigma, one_way_sigma=own)
                foretold = "-" if said is None else f"{said.two_way:.4f}"
                print(
                    f"{name} {epsilon:g} part {part:g}: single columns estimated {raw}, of records {made}; "
                    f"pairs {two}, predicted {foretold}; triples {three}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
