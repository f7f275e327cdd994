"""What typical tables are like, and how well a prediction knows its own estimator: ``python tests/bench/dependence.py``.

Of each table: the evenness of its columns (log of the sum of square roots of shares, over log of categories), and how much more
its pairs hang together than `Tuning.strength` says of typical ones. A second line for each total epsilon (``--epsilon .2 1 5``,
add/remove, delta 1e-9; none: no line): the distance of records in pairs that is predicted, over what was measured, when the
table's own shares and the dependence of each pair stand for the typical ones. What is left is the fault of the formula; what
`study check` is off beside it, is what a study cannot know of the people. None of the tables is in `joint_dense`.

Numbers of more than 16 values are cut into 20 ranges of equal width. The dependence that chance alone gives is taken out.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
from unittest import mock

import joint
import joint_data
import numpy as np
from joint_data import Data, Truth

from verticil.shared.numerics.joint import prediction
from verticil.shared.numerics.joint.count import from_columns
from verticil.shared.numerics.joint.tuning import TUNING

KEEL = (
    "marketing", "mushroom", "german", "penbased", "satimage", "segment", "spambase", "phoneme", "texture", "optdigits", "ring",
    "twonorm", "chess", "splice", "banana",
)  # fmt: skip


def keel(name: str) -> Data:
    """A table of KEEL, columns of one value left out."""
    columns, states = [], []
    for texts in joint_data.keel(name).values():
        values = np.array([str(text).strip() for text in texts])
        labels, codes = np.unique(values, return_inverse=True)
        try:
            numbers = values.astype(float) if len(labels) > 16 else None
        except ValueError:
            numbers = None
        if numbers is not None:
            width = (numbers.max() - numbers.min()) / joint_data.BINS
            codes = np.clip((numbers - numbers.min()) / width, 0, joint_data.BINS - 1).astype(int)
            labels = np.arange(joint_data.BINS)
        if len(labels) > 1:
            columns.append(codes.reshape(-1).astype(np.uint16))
            states.append(len(labels))
    names = tuple(f"v{place}" for place in range(len(states)))
    return Data(name=name, schema=joint_data.schema_of(names, tuple(states)), columns=columns)


def own_prediction(data: Data, truth: Truth, distances: dict[tuple[int, int], float], sigma: float) -> float:
    """The prediction of pairs with the table's own shares and dependence in the place of typical ones."""
    n_states, d = data.schema.n_states, len(data.schema.n_states)
    n_others = sum(1 / k for k in n_states) * (d - 1) / d
    cells = (sum(n_states) ** 2 - sum(k * k for k in n_states)) / 2 / data.n
    exact = TUNING.exact_miss * cells**TUNING.crowding / data.n
    columns = []
    for place, k in enumerate(n_states):
        shares = truth.margin(place)
        variance = np.full(k, (sigma / data.n) ** 2 / (TUNING.positive_cells * n_others))
        columns.append(
            prediction._Column(
                shares=shares,
                roots=float(np.sqrt(shares).sum()),
                scatter=np.zeros(k),
                noise=np.ones(k),
                missed=prediction._missed(shares, variance),
                alike=1,
            )
        )
    found = []
    for (a, c), distance in distances.items():
        growth = math.sqrt(max(columns[a].roots * columns[c].roots - 1, 1e-9))
        tuning = mock.patch.object(prediction, "TUNING", joint.dataclasses.replace(TUNING, strength=distance / growth))
        one = mock.patch.multiple(prediction, _NODES=np.array([0.5]), _NODE_WEIGHTS=np.ones(1))  # no lognormal number
        with tuning, one:
            found.append(float(prediction._pair(columns[a], columns[c], data.n, sigma, exact)[0]))
    return statistics.fmean(found)


def main() -> None:
    """Print both lines of each table, and the geometric mean of the dependence."""
    parser = argparse.ArgumentParser(description="what typical tables are like")
    parser.add_argument("--only", nargs="*", default=list(KEEL), choices=KEEL)
    parser.add_argument("--epsilon", nargs="*", type=float, default=[])
    options = parser.parse_args()
    ratios = []
    for name in options.only:
        data = keel(name)
        n_states, rng = data.schema.n_states, np.random.default_rng(1)
        truth = Truth(n_states, data.columns)
        product = truth.independent()
        chance = Truth(n_states, [rng.permutation(column) for column in data.columns])
        distances, typical = {}, []
        roots = [float(np.sqrt(truth.margin(place)).sum()) for place in range(len(n_states))]
        for pair in itertools.combinations(range(len(n_states)), 2):
            own, alone = (0.5 * float(np.abs(each.tables[pair] - product[pair]).sum()) for each in (truth, chance))
            distances[pair] = math.sqrt(max(own**2 - alone**2, 0.0))
            evenly = math.prod(n_states[place] for place in pair) ** TUNING.evenness
            typical.append(TUNING.strength * math.sqrt(evenly - 1))
        ratios.append(statistics.fmean(distances.values()) / statistics.fmean(typical))
        even = statistics.fmean(math.log(root) / math.log(k) for root, k in zip(roots, n_states, strict=True))
        print(
            f"{name}: {data.n} x {len(n_states)}, evenness {even:.2f}, dependence {ratios[-1]:.2f} of typical",
            flush=True,
        )
        for epsilon in options.epsilon:
            sigma = joint.sigma_for(epsilon, math.comb(len(n_states), 2), "add-remove")
            exact = from_columns(data.columns, joint.units_of(joint.channels_of(n_states, None)), n_states)
            model = joint.estimated(joint.noised(exact, sigma, "add-remove", 1), 1).model
            two, _ = truth.to_records(joint.drawn(model, data.n, 1))
            said = own_prediction(data, truth, distances, sigma)
            print(f"    epsilon {epsilon:g}: {two:.4f}, predicted {said / two:.2f} times", flush=True)
    print(f"geometric mean of the dependence: {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
