"""What a release warns of: constant columns, categories never seen, tables larger than the records are worth."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from verticil.shared.mechanisms.transition import identity, quantize, symmetric
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Family, Marginal, Network
from verticil.shared.numerics.model.schema import Missing, Schema, Variable
from verticil.shared.privacy.study_table import family_records
from verticil.shared.release.formats import model_json
from verticil.shared.release.report.page import render
from verticil.shared.release.wording import remarks


def marginal(variable: int, low: list[float]) -> Marginal:
    """A column of which `low` are the lower ends of the intervals."""
    share = np.array(low) + 0.01
    return Marginal(
        variable=variable,
        estimate=share,
        standard_error=np.full(len(low), 0.005),
        interval_low=np.array(low),
        interval_high=share + 0.01,
        model=share,
    )


@pytest.fixture
def study(release_content):
    """Three columns: no missing values, with `other`, with a missing category; the first is sent as it is."""
    variables = (
        Variable(name="sex", owner=release_content.study.parties[0], labels=("f", "m")),
        Variable(name="ward", owner=release_content.study.parties[0], labels=("a", "b", "c", "rest"), other="rest"),
        Variable(
            name="dose",
            owner=release_content.study.parties[1],
            labels=("low", "high", "unknown"),
            missing=Missing(category="unknown", spellings=("",)),
        ),
    )
    channels = [identity(2), symmetric(4, flip=0.1), symmetric(3, flip=0.1)]
    units = tuple(
        dataclasses.replace(
            release_content.study.units[0], variables=(v.name,), owner=v.owner, transition=quantize(channel)
        )
        for v, channel in zip(variables, channels, strict=True)
    )
    return dataclasses.replace(release_content.study, schema=Schema(variables=variables), units=units)


def network(study, *parents: tuple[int, ...]) -> Network:
    states = study.schema.n_states
    families = []
    for child, members in enumerate(parents):
        shape = (int(np.prod([states[p] for p in members], dtype=int)), states[child])
        table = np.full(shape, 1 / states[child])
        families.append(
            Family(
                child=child, parents=members, probability=table, estimate=table, standard_error=table,
                interval_low=table, interval_high=table, unstable=np.zeros(shape, dtype=np.bool_),
            )
        )  # fmt: skip
    return Network(schema=study.schema, dag=Dag(parents=parents), families=tuple(families))


FINE = ([0.3, 0.5], [0.2, 0.2, 0.2, 0.1], [0.2, 0.3, 0.1])


def said(study, lows, n=10_000, parents=((), (0,), (0, 1))) -> tuple[str, ...]:
    return remarks(study, network(study, *parents), [marginal(v, list(low)) for v, low in enumerate(lows)], n)


def test_nothing_is_said_where_nothing_is_wrong(study):
    assert said(study, FINE) == ()


def test_a_constant_column_is_told_from_one_that_was_never_observed(study):
    (constant,) = said(study, (FINE[0], [0.9, 0, 0, 0], FINE[2]))
    assert constant.startswith(
        "The column 'ward' looks constant: only 'a' can be told from absent. It can depend on nothing"
    )
    for position, low, label in ((1, [0, 0, 0, 0.95], "rest"), (2, [0, 0, 0.95], "unknown")):
        lows = [low if v == position else FINE[v] for v in range(3)]
        (unobserved,) = said(study, lows)
        assert f"only '{label}' can be told from absent: it looks as if it was never observed" in unobserved
        assert "Check its source and recoding at the party." in unobserved


def test_a_category_that_is_never_seen_is_named(study):
    (unseen,) = said(study, (FINE[0], [0.4, 0, 0.3, 0], FINE[2]))
    assert unseen == "Of the column 'ward', 'b', 'rest' cannot be told from absent."
    unknown = dataclasses.replace(marginal(1, [0.4, 0, 0.3, 0]), estimate=np.array([0.4, np.nan, 0.3, 0.2]))
    marginals = [marginal(0, FINE[0]), unknown, marginal(2, FINE[2])]
    assert remarks(study, network(study, (), (), ()), marginals, 10_000) == ()  # withheld is not absent


def test_a_table_of_more_cells_than_the_records_are_worth(study):
    """n (1 - 4 p)^2 (1 - 3 p)^2 with p = .1, in a table of 24 cells; the first column costs nothing."""
    worth = 0.6**2 * 0.7**2
    assert family_records(study, 2, (0, 1), 100) == pytest.approx(100 * worth, rel=1e-9)
    enough = int(np.ceil(24 / worth))
    assert said(study, FINE, n=enough) == ()
    (few,) = said(study, FINE, n=enough - 1)
    assert few == (
        f"The table of 'dose' with the parents 'sex', 'ward' has 24 cells, and there are {enough - 1} records, worth 24 "
        "unrandomized ones: most of its probabilities are guesses."
    )
    (alone,) = said(study, FINE, n=10, parents=((), (), ()))
    assert alone.startswith("The table of 'ward' has 4 cells, and there are 10 records, worth 4 unrandomized ones")


def test_of_columns_that_are_sent_as_they_are_no_noise_is_spoken_of(study):
    exact = tuple(
        dataclasses.replace(unit, transition=quantize(identity(unit.transition.n_states))) for unit in study.units
    )
    (few,) = said(dataclasses.replace(study, units=exact), FINE, n=23)
    assert few.endswith("has 24 cells, and there are 23 records: most of its probabilities are guesses.")


def test_a_compound_counts_once_and_what_a_peer_holds_raw_costs_nothing(study):
    joint = dataclasses.replace(
        study.units[1],
        variables=("sex", "ward"),
        transition=quantize(symmetric(8, flip=0.1)),
    )
    compound = dataclasses.replace(study, units=(joint, study.units[2]))
    assert family_records(compound, 2, (0, 1), 1) == pytest.approx(0.2**2 * 0.7**2, rel=1e-9)
    peer = dataclasses.replace(study, model="peer")
    assert family_records(peer, 2, (0, 1), 1) == pytest.approx(0.6**2, rel=1e-9)
    assert family_records(peer, 1, (0,), 1) == 1


def test_the_report_and_the_model_carry_the_warnings(release_content):
    few = dataclasses.replace(release_content, n_common=3)
    warned = remarks(few.study, few.network, few.marginals, 3)
    assert warned
    page = render(few)
    assert "<h3>Warnings</h3>" in page
    assert all(remark.replace("'", "&#39;") in page for remark in warned)
    context = model_json.ModelContext(
        study=few.study, study_digest="0", effective_digest="0", n_common=3, search={}, simulation=False, warnings=warned
    )  # fmt: skip
    assert json.loads(model_json.write(few.network, few.marginals, context))["warnings"] == list(warned)
    silent = dataclasses.replace(context, warnings=())
    assert "warnings" not in json.loads(model_json.write(few.network, few.marginals, silent))
