"""Numbers inside bins by an estimated shape: the tilts, how they are drawn, what M sets say of it, and what is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import studies
from verticil.miner.learning.learn import learn
from verticil.shared.core.arrays import Floats
from verticil.shared.core.errors import Misuse
from verticil.shared.numerics.model.network import Network
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.numerics.posterior.statistics import Mean, Records
from verticil.shared.release.posterior import set_records
from verticil.shared.release.report.posterior import statistic_words
from verticil.shared.study import canonical
from verticil.shared.study.document import PosteriorRule, Study
from verticil.shared.study.posterior import check_posterior, estimated_within
from verticil.shared.synthesis.record_checks import first_misplaced
from verticil.shared.synthesis.synthesis import _tilt_places, decode, numbers_of
from verticil.shared.synthesis.within_bins import tilts, tilts_of

EDGES = (0.0, 10.0, 30.0, 60.0)
LABELS = ("[0,10)", "[10,30)", "[30,60)")
PEOPLE = (30, 20, 10)
SET = 6000
M = 100


def income(**fields: Any) -> Variable:
    return dataclasses.replace(Variable(name="income", owner="a", labels=LABELS, bins=EDGES), **fields)


def study_of(variable: Variable | None = None, **rule: Any) -> Study:
    """Two columns without a link between them: what is known of the shares is a Dirichlet distribution."""
    asked = PosteriorRule(steps=100, data_sets=M, within_bins="estimated")
    other = Variable(name="other", owner="a", labels=("no", "yes"))
    edges = (("income", "other"), ("other", "income"))
    return studies.study_of(
        (variable or income(), other),
        structure={"method": "posterior", "score": "bdeu", "forbidden": edges},
        release={"synthetic_records": SET},
        posterior=dataclasses.replace(asked, **rule),
    )


def people() -> list[np.ndarray]:
    return [np.repeat(np.arange(3), PEOPLE).astype(np.uint8), np.tile([0, 1], 30).astype(np.uint8)]


def test_a_tilt_is_the_slope_that_the_bins_beside_have() -> None:
    """A density that is a straight line is found again in bins of one width; nothing is steeper than to 0 at an edge."""
    edges = np.array([0.0, 2.0, 4.0, 6.0, 8.0])
    middles = (edges[1:] + edges[:-1]) / 2
    line = 1 + 0.2 * middles
    assert tilts(edges, line) == pytest.approx(0.2 * 2 / (2 * line))
    assert tilts(edges, np.full(4, 0.25)) == pytest.approx(0)
    assert tilts(edges, np.array([1.0, 0.01, 0.0, 0.5])) == pytest.approx([-0.495, -1.0, 0.0, 0.5])
    assert tilts(np.array([0.0, 1.0]), np.array([1.0])).tolist() == [0.0]
    unequal = tilts(np.array([0.0, 1.0, 3.0]), np.array([0.5, 0.5]))  # densities 1/2 and 1/4, middles 1/2 and 2
    assert unequal == pytest.approx([-1 / 6, -2 / 3])


@pytest.mark.parametrize("r", [-1.0, -0.4, 0.0, 0.7, 1.0])
def test_places_have_the_density_of_the_tilt(r: float) -> None:
    """Mean 1/2 + r/6 and the distribution function, at 5 standard errors of 40,000 places: false alarm below 1e-6."""
    drawn = _tilt_places(np.zeros(40_000, dtype=np.intp), np.array([[r]]), np.random.default_rng(2))
    assert ((drawn >= 0) & (drawn <= 1)).all()
    assert drawn.mean() == pytest.approx(0.5 + r / 6, abs=5 * np.sqrt(1 / 12 / 40_000))
    for t in (0.2, 0.5, 0.8):
        share = r * t * t + (1 - r) * t
        assert (drawn < t).mean() == pytest.approx(share, abs=5 * np.sqrt(0.25 / 40_000))


def test_whole_numbers_stay_in_their_bin_and_lean_as_decimals_do() -> None:
    """Five standard errors of the mean of 40,000: false alarm below 1e-6."""
    age = income(integer=True)
    codes = np.ones(40_000, dtype=np.uint8)
    drawn = numbers_of(age, codes, np.random.default_rng(2), np.array([[0.0, 0.9, 0.0]]))
    assert set(np.unique(drawn)) == set(range(10, 30))
    assert drawn.mean() == pytest.approx(10 + 20 * (0.5 + 0.9 / 6) - 0.5, abs=5 * 20 * np.sqrt(1 / 12 / 40_000))


def middle_means(study: Study, networks: tuple[Network, ...], shape: Network | None = None) -> Floats:
    """Of each set the mean of the numbers in the middle bin; the planted fault: all sets with the shape of one network."""
    found: list[float] = []
    for number, network in enumerate(networks, 1):
        if shape is None:
            table = set_records(network, study, SET, number)
        else:
            generator = np.random.default_rng(number)
            codes = generator.choice(3, size=SET, p=network.families[0].probability[0]).astype(np.uint8)
            table = decode(study.schema, [codes, 0 * codes], generator, tilts=tilts_of((shape,), study))
        inside = table["income"][(table["income"] >= 10) & (table["income"] < 30)]
        found.append(float(inside.mean()))
    return np.array(found)


def test_sets_differ_inside_bins_as_much_as_their_shape_is_unknown() -> None:
    """The variance between 100 sets of the mean of the numbers inside one bin.

    60 people, whose shares are Dirichlet(1/3 + counts) by BDeu: 200,000 draws of them, through the formula of the tilt, give the
    variance of the bin's mean, to which that of a set's own numbers comes. Were means normal, the ratio of what is found to it
    would be a chi-square of 99 over 99, outside .5 to 1.75 once in 10,000 times; the seeds are fixed. Planted: every set has the
    shape of the mean shares, and differs by its own numbers alone.
    """
    study = study_of()
    result = learn(people(), study)
    assert result.posterior is not None
    networks = result.posterior.networks
    assert len(networks) == M
    rows = tilts_of(networks, study)[0]
    assert np.array_equal(rows[7], tilts_of(networks[7:8], study)[0][0])
    assert not np.array_equal(rows[7], rows[8])
    shares = np.random.default_rng(1).dirichlet(np.array(PEOPLE) + 1 / 3, 200_000)
    density = shares / np.diff(EDGES)
    slope = (density[:, 2] - density[:, 0]) / (45 - 5)
    r = np.clip(slope * 20 / (2 * density[:, 1]), -1, 1)
    inside = 400 * (1 / 12 - r.mean() ** 2 / 36) / (SET * shares[:, 1].mean())
    expected = float((20 * r / 6).var() + inside)
    found = middle_means(study, networks).var(ddof=1)
    assert 0.5 < found / expected < 1.75
    planted = middle_means(study, networks, result.network).var(ddof=1)
    assert planted / expected < 0.25
    assert middle_means(study, networks).mean() == pytest.approx(
        20 + float((20 * r / 6).mean()), abs=5 * np.sqrt(expected / M)
    )


@pytest.mark.whole
def test_a_predicted_mean_has_the_shape_s_uncertainty() -> None:
    """The deviation of the predicted mean of a bin's numbers; declared, the bin has nothing but its own numbers' scatter."""
    asked = (("mean", "income"),)
    few = study_of(data_sets=1, statistics=asked)
    estimated = learn(people(), few).posterior
    declared = learn(people(), study_of(data_sets=1, statistics=asked, within_bins="declared")).posterior
    assert estimated is not None
    assert declared is not None
    one, other = estimated.predictive[0], declared.predictive[0]
    shares = np.array(PEOPLE) / sum(PEOPLE)
    assert other.mean == pytest.approx(
        float(shares @ [5, 20, 45]), abs=0.5
    )  # false alarm below 1e-4: .11 a standard error
    assert one.mean < other.mean - 0.5  # a falling density leans to the left in every bin
    assert one.draws.std() != pytest.approx(other.draws.std(), rel=1e-6)


def test_a_mean_is_of_those_who_have_a_number() -> None:
    numbers = np.array([1.0, 3.0, np.nan, 5.0])
    columns = [np.zeros(4, dtype=np.uint8), np.array([0, 0, 0, 1], dtype=np.uint8)]
    records = Records(columns=columns, n_states=(3, 2), numbers={0: numbers})
    assert Mean(variable=0)(records) == 3
    assert Mean(variable=0, given={1: 0})(records) == 2
    assert np.isnan(Mean(variable=0, given={1: 2})(records))
    assert statistic_words(("mean", "income")) == "mean of income"


def test_numbers_that_do_not_lie_as_the_shares_have_it_are_found(tmp_path: Path) -> None:
    """With the false alarms of a verification; numbers spread evenly in place of the falling density are refused."""
    missing = income(labels=(*LABELS, "29", "not said"))
    for variable in (income(), income(integer=True), missing):
        study = study_of(variable)
        codes = np.random.default_rng(3).choice(3, size=SET, p=np.array(PEOPLE) / 60).astype(np.uint8)
        if variable is missing:
            codes[:1500] = 3
        other, path = np.zeros(SET, dtype=np.uint8), tmp_path / "set.csv"
        found = {0: np.stack([tilts(np.array(EDGES), np.array(shares)) for shares in (PEOPLE, (10, 20, 30))])}
        for drawn, wrong in ((found, None), (None, 0), ({0: found[0][::-1]}, 0)):
            decode(study.schema, [codes, other], np.random.default_rng(4), tilts=drawn).to_csv(path, index=False)
            assert first_misplaced(path, study.schema, found, 5e-8) == wrong
    assert first_misplaced(tmp_path / "none.csv", study.schema, {}, 5e-8) is None
    assert np.array_equal(np.isnan(numbers_of(missing, codes, np.random.default_rng(1))), codes == 3)


def test_where_a_shape_can_be_estimated() -> None:
    study = study_of()
    assert estimated_within(study) == (0,)
    assert canonical.from_bytes(canonical.to_bytes(study)) == study
    assert tilts_of((), study_of(within_bins="declared")) == {}
    for variable in (income(means=(4.0, 18.0, 40.0)), income(representatives=(4.0, 18.0, 40.0))):
        with pytest.raises(Misuse, match="declares `means` or `representatives`"):
            check_posterior(study_of(variable), source="study")
    with pytest.raises(Misuse, match="got 'even', expected one of declared, estimated"):
        check_posterior(study_of(within_bins="even"), source="study")
    for words, message in (
        (("mean", "other"), "'other' has no bins, expected a variable with numbers"),
        (("mean", "income", "other"), "3 words, expected"),
        (("mean", "income", "income", LABELS[0]), "stands there twice"),
        (("mean",), "1 words, expected"),
    ):
        with pytest.raises(Misuse, match=message):
            check_posterior(study_of(statistics=(words,)), source="study")
    check_posterior(study_of(statistics=(("mean", "income", "other", "yes"),)), source="study")
