"""The information of families, against that of the whole table; the F score, against the paper's."""

from __future__ import annotations

import numpy as np
import pytest

from verticil.experiments.hittmeir.joint_information import JointInformation
from verticil.experiments.hittmeir.measures import f_score
from verticil.shared.numerics.estimation.contingency import family_table
from verticil.shared.numerics.estimation.information import plug_in_information


@pytest.mark.parametrize("parents", [(0,), (0, 2), (0, 2, 3), (0, 2, 3, 4)])
def test_joint_information_is_that_of_the_table(parents: tuple[int, ...]) -> None:
    """Against the information of the whole contingency table, rows the parents' configurations."""
    generator = np.random.default_rng(6)
    n_states = (3, 4, 5, 30, 200)
    columns = [generator.integers(0, k, 700).astype(np.uint8) for k in n_states]
    columns[1] = ((columns[0] + columns[2] + (generator.random(700) < 0.2)) % 4).astype(np.uint8)
    information = JointInformation(columns, n_states)
    axes = (*parents, 1)
    counts = family_table([columns[v] for v in axes], [n_states[v] for v in axes])
    assert information(1, parents) == pytest.approx(plug_in_information(counts.reshape(-1, 4)), abs=1e-9)


def test_f_score_is_that_of_the_paper() -> None:
    """Table VII, original records: five confusion matrices whose average F2 is printed as 66.5."""
    printed = [(55626, 1224, 26, 86), (56840, 10, 33, 79), (56845, 5, 25, 87), (56848, 2, 32, 80), (56836, 14, 26, 86)]
    scores = [f_score(np.array(cells).reshape(2, 2)) for cells in printed]
    assert 100 * float(np.mean(scores)) == pytest.approx(66.5, abs=0.05)
    assert f_score(np.array([[5, 0], [0, 0]])) == 0.0
