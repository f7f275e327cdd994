"""What ``reproduce kipps`` measures: attacks find what is planted and nothing else, rules bind attackers, a copy is like itself.

Bounds of four standard errors: a false alarm in one of 16,000 cases each.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from verticil.evaluate.measures.coded import CodedTable
from verticil.experiments.kipps import attacks, datasets, measures
from verticil.experiments.kipps.experiment import OTHERS, PARTS, REAL, parts_of

DATA = datasets.traffic(rows=3000)


def parts() -> tuple[CodedTable, CodedTable, CodedTable]:
    members, others, fresh = (DATA.coded(frame) for frame in DATA.split(1000, 500, seed=1))
    return members.rows(range(500)), others, fresh


def test_the_parts_of_a_table_share_nobody():
    frame = DATA.frame.assign(person=np.arange(len(DATA.frame)))
    split = dataclasses.replace(DATA, frame=frame).split(2000, 500, seed=3)
    people = [set(part["person"]) for part in split]
    assert [len(of) for of in people] == [2000, 500, 500]
    assert len(set.union(*people)) == 3000


def test_membership_of_a_copy_is_found_out_and_of_other_people_is_not():
    told: list[str] = []
    asked = {"people": 300, "shadows": 2, "seed": 5, "tell": told.append}
    copy = attacks.membership(DATA, lambda frame, _seed: frame, **asked)
    assert told[0] == "membership, the attacked copy"
    assert len(told) == 3
    assert copy.error == pytest.approx(0.5 / 600**0.5)
    assert copy.records.accuracy > 0.75  # three flows in four are like another one in every category and bin
    assert copy.records.auc > 0.75
    assert copy.outputs.accuracy < copy.records.accuracy

    def nobody(frame, seed):
        rows = np.random.default_rng([seed, 1]).integers(0, len(DATA.frame), len(frame))
        return datasets.traffic(rows=len(DATA.frame), seed=2).frame.iloc[rows]

    blind = attacks.membership(DATA, nobody, **asked)
    for found in (blind.outputs, blind.records):
        assert abs(found.accuracy - 0.5) < 4 * blind.error
    again = attacks.membership(DATA, lambda frame, _seed: frame, **asked)
    assert again == copy
    with pytest.raises(ValueError, match="people for the attacker"):
        attacks.membership(DATA, nobody, people=1400, shadows=1, seed=1, tell=told.append)


def test_an_attribute_is_disclosed_by_a_copy_and_not_by_other_peoples_records():
    members, others, fresh = parts()
    copy = attacks.attribute(DATA, members, members, others, seed=1)
    assert copy.beyond > 0.15
    assert copy.beyond > 4 * copy.error
    other = attacks.attribute(DATA, fresh, members, others, seed=1)
    assert abs(other.beyond) < 4 * other.error
    assert other.most_common == pytest.approx(
        np.mean(members.codes[0] == np.bincount(fresh.codes[0]).argmax()), abs=1e-12
    )


def test_who_knows_the_rules_guesses_nothing_that_they_make_impossible():
    """`ended` of a flow: none but of TCP, where it is one of the others; by the words of the rules, and not by their tables."""
    data = dataclasses.replace(DATA, sensitive="ended")
    members, others, fresh = parts()
    allowed = attacks.possible(data, members, "ended")
    labels = data.schema[data.schema.index("ended")].labels
    tcp = members.codes[members.column("protocol")] == 0
    assert (
        allowed
        == np.where(tcp[:, None], [[label != "none" for label in labels]], [[label == "none" for label in labels]])
    ).all()
    scores = np.random.default_rng(1).random(allowed.shape)
    guessed = attacks.guesses(scores, allowed)
    assert allowed[np.arange(len(guessed)), guessed].all()
    assert (guessed == np.where(allowed, scores, 0).argmax(axis=1)).all()
    # Published records that say nothing of it: the rules alone give all flows that are not TCP.
    blank = fresh.rows(np.flatnonzero(fresh.codes[fresh.column("protocol")] == 0))
    found = attacks.attribute(data, blank, members, others, seed=1)
    assert found.without_rules < found.members
    assert found.rules_alone >= 1 - tcp.mean()


def test_a_person_whom_the_rules_leave_nothing_may_have_anything():
    data = datasets.unsw(_unsw())
    assert attacks.possible(data, data.coded(data.frame), "proto").all(axis=1).tolist() == [False, True]


def _unsw():
    import pandas as pd

    row = {
        "dur": 1,
        "proto": "tcp",
        "state": "CON",
        "spkts": 1,
        "dpkts": 1,
        "sbytes": 1,
        "dbytes": 1,
        "sttl": 1,
        "dttl": 1,
        "label": 0,
    }
    return pd.DataFrame([row | {"service": "http"}, row | {"service": "snmp", "state": "FIN"}]).astype(str)


def test_other_real_records_are_as_like_as_chance_allows_and_a_shuffled_table_is_not():
    members, _, fresh = parts()
    floor = measures.fidelity(DATA, members, fresh, seed=1, permutations=20)
    assert floor.most == 0.25
    assert abs(floor.pmse - floor.chance) < 0.02
    assert 0 <= floor.overlap <= 1
    assert floor.overlap_signed <= 1
    assert floor.violations == 0
    draw = np.random.default_rng(3)
    apart = dataclasses.replace(
        fresh,
        codes=tuple(map(draw.permutation, fresh.codes)),
        values=tuple(v if v is None else draw.permutation(v) for v in fresh.values),
    )
    found = measures.fidelity(DATA, members, apart, seed=1, permutations=20)
    assert found.pmse > 2 * found.chance
    assert found.overlap < floor.overlap
    assert found.violations > 0.5
    assert found.chi_square_distance == pytest.approx(floor.chi_square_distance)  # columns by themselves are the same
    assert found.ks == pytest.approx(floor.ks)


def test_classifiers_learn_from_real_records_what_they_cannot_learn_from_a_constant():
    members, others, _ = parts()
    real = measures.learned(DATA, members, others, seed=1, classifiers=("DT", "RF"))
    assert real.mean > real.majority + 0.02
    target = members.column(DATA.target)
    none = dataclasses.replace(
        members, codes=tuple(np.zeros_like(c) if place == target else c for place, c in enumerate(members.codes))
    )
    nothing = measures.learned(DATA, none, others, seed=1, classifiers=("DT", "RF"))
    assert nothing.mean == pytest.approx(nothing.majority)
    assert nothing.mean_f1 < real.mean_f1


def test_yardsticks_are_asked_for_what_they_show():
    assert parts_of(OTHERS, PARTS) == ("table 1",)
    assert parts_of(REAL, ("table 1", "figure 4")) == ("figure 4",)
