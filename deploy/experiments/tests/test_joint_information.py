"""The information of families, against that of the whole table."""

from __future__ import annotations

import numpy as np
import pytest

from verticil.experiments.hittmeir.joint_information import JointInformation
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
