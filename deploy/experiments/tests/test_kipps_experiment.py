"""The tables of ``reproduce kipps``: what is known of them holds, but where Adult is known to break it."""

from __future__ import annotations

import pandas as pd
import pytest

from verticil.curator.study import owners_study
from verticil.experiments.kipps import datasets
from verticil.shared.core.errors import DataFault
from verticil.shared.numerics.knowledge.support import support


def violations(data: datasets.DataSet) -> dict[str, int]:
    return support(data.knowledge, data.schema).violations(datasets.recoded(data, data.coded(data.frame).codes))


def test_adult_breaks_its_rules_three_times_and_its_function_never():
    data = datasets.adult()
    assert len(data.frame) == 32_561
    assert violations(data) == {"husband": 1, "wife": 2}
    coded = data.coded(data.frame)
    follows = data.columns.compute_columns(datasets.recoded(data, coded.codes))
    assert all((a == b).all() for a, b in zip(follows, coded.codes, strict=True))


def test_the_survey_has_published_shares_and_nothing_hard():
    data = datasets.diabetes()
    assert data.frame.shape == (31_710, 22)
    assert (data.frame["Diabetes_binary"] == "1").sum() == 4369
    assert [rule.probability for rule in data.knowledge.soft] == [0.04, 0.17, 0.25]
    ages = [value for rule in data.knowledge.soft for value in rule.when[0].values]
    assert ages == [str(age) for age in range(1, 14)]
    assert data.coded(data.frame).n_states == data.schema.n_states


def test_traffic_is_marked_as_simulated_and_keeps_every_rule():
    data = datasets.traffic(rows=5000)
    assert data.simulated
    assert "simulated" in data.name
    assert violations(data) == {}
    assert 0.1 < (data.frame["attack"] == "yes").mean() < 0.2
    changed = data.frame.assign(protocol="UDP")
    coded = data.coded(changed)
    assert support(data.knowledge, data.schema).violations(datasets.recoded(data, coded.codes))


@pytest.mark.parametrize("known", [True, False])
def test_an_owner_can_carry_out_each_study(known: bool):
    for data in (datasets.adult(), datasets.diabetes(), datasets.traffic(rows=100)):
        owned = owners_study(data.study(known=known), method="network", epsilon=3.0, delta=1e-5)
        follow = len(data.knowledge.functions)
        assert len(owned.schema) == len(data.everything) - follow * known


def unsw_table(**changes: object) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "id": [1, 2], "dur": [0.5, 0.00001], "proto": ["tcp", "igmp"], "service": ["http", "-"], "state": ["FIN", "ECO"],
            "spkts": [12, 1], "dpkts": [10, 0], "sbytes": [1500, 46], "dbytes": [900, 0], "sttl": [31, 254], "dttl": [29, 0],
            "label": [0, 1],
        }
    ).assign(**changes)  # fmt: skip
    return table.astype(str)


def test_unsw_is_read_with_its_bins_and_its_rules():
    data = datasets.unsw(unsw_table())
    assert not data.simulated
    assert data.frame["proto"].tolist() == ["tcp", "any proto"]
    assert violations(data) == {}
    assert violations(datasets.unsw(unsw_table(proto="udp"))) == {"services over tcp": 1, "TCP finishes": 1}


def test_a_table_that_is_not_unsws_is_refused():
    with pytest.raises(DataFault, match=r"DATA_CATEGORY_UNSEEN.*column 'dur' of the network table is not a number"):
        datasets.unsw(unsw_table(dur="x"))
    with pytest.raises(DataFault, match=r"DATA_COLUMN_MISSING.*no column 'dur'"):
        datasets.unsw(unsw_table().drop(columns="dur"))
