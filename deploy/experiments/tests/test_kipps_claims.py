"""What ``reproduce kipps`` prints of the paper's claims: theirs, ours, and "not found" with the reason; on planted figures."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import pytest

from verticil.experiments.kipps import claims, paper
from verticil.experiments.kipps.attacks import Guessed, Membership
from verticil.experiments.kipps.claims import AUTOENCODER, CLAIMS, PAPERS
from verticil.experiments.kipps.experiment import PARTS, Row
from verticil.experiments.kipps.measures import CLASSIFIERS, Fidelity, Learned
from verticil.reproduce.kipps_methods import WAYS

FIDELITY = Fidelity(
    pmse=0.1, most=0.25, chance=0.01, logistic_ratio=1.0, chi_square=0.0, chi_square_distance=0.1, ks=None, ks_statistic=None,
    overlap=0.6, overlap_signed=0.5, difference=2.0, median_difference=1.0, determined=1.0, distance=0.1, violations=0.0,
)  # fmt: skip
ORDER = ("DPCTGAN", "DPWGAN", "PATE-GAN", "TVAE")


def rows(overlaps: Mapping[str, float], data: str = "Adult") -> list[Row]:
    """A row for each way that has an overlap; `no_noise` is the paper's generator without noise."""
    return [
        Row(
            data=data, way=f"{PAPERS}, no noise" if name == "no_noise" else name, records=10, seconds=1.0,
            fidelity=dataclasses.replace(FIDELITY, overlap=value),
        )
        for name, value in overlaps.items()
    ]  # fmt: skip


def verdict(words: str, found: list[Row]) -> claims.Verdict:
    (one,) = [one for one in claims.verdicts(found, PARTS) if words in one.claim]
    return one


def test_every_claim_is_of_ways_that_are_run_and_prints_the_papers_figures():
    names = {way.name for way in WAYS}
    assert {name for claim in CLAIMS for name in claim.theirs} | {AUTOENCODER, f"{PAPERS}, no noise"} <= names
    assert {claim.part for claim in CLAIMS} == set(PARTS)
    for claim in CLAIMS:  # the paper's own figures have the order that it states
        own, others = claim.theirs[PAPERS], [value for name, value in claim.theirs.items() if name != PAPERS]
        worst = max(others) if claim.larger else min(others)
        assert (own > worst if claim.larger else own < worst) or (claim.ties and own == worst), claim.words
    assert paper.TABLE_1["KIPPS"].overlap == 5.688


def test_an_order_that_is_not_found_names_who_is_in_the_way_and_whether_noise_is_the_reason():
    beside = {"DPCTGAN": 0.4, "DPWGAN": 0.3, "PATE-GAN": 0.2, "TVAE": 0.1}
    found = verdict("overlap", rows({"KIPPS": 0.5, **beside}))
    assert (found.found, found.text) == (True, "found")
    assert found.theirs == "KIPPS 5.688 · DPCTGAN 5.593 · DPWGAN 2.108 · PATE-GAN 5.688 · TVAE 1.249"
    assert found.ours == (
        "KIPPS .500 · DPCTGAN .400 · DPWGAN .300 · PATE-GAN .200 · TVAE .100 (mean of Adult; theirs of five tables)"
    )
    assert verdict("overlap", rows({"KIPPS": 0.4, **beside})).found is True  # a tie is what the paper has
    behind = verdict("overlap", rows({"KIPPS": 0.35, "no_noise": 0.38, **beside}))
    assert behind.text == "not found: DPCTGAN is not lower; noise is not the reason: without any, KIPPS has .380"
    noisy = verdict("overlap", rows({"KIPPS": 0.25, "no_noise": 0.48, **beside}))
    assert noisy.text == "not found: DPCTGAN, DPWGAN are not lower; noise is the reason: without any, KIPPS has .480"


def test_a_quick_run_judges_nothing():
    found = claims.verdicts(rows({"KIPPS": 0.5, "DPCTGAN": 0.4}), PARTS, quick=True)
    assert {one.text for one in found} == {"not asked: a quick run has too few records and steps"}
    assert len(found) == len(CLAIMS)


def test_means_are_of_the_tables_on_which_every_way_was_measured():
    """Of another table one way has no figure; the autoencoder is printed and is no rival."""
    beside = {"DPCTGAN": 0.4, "DPWGAN": 0.3, "PATE-GAN": 0.2, "TVAE": 0.1}
    all_ways = rows({"KIPPS": 0.5, **beside})
    own = dataclasses.replace(all_ways[0], way=AUTOENCODER, fidelity=dataclasses.replace(FIDELITY, overlap=0.9))
    found = verdict("overlap", [*all_ways, own, *rows({"KIPPS": 0.1, "DPCTGAN": 0.9}, "Survey")])
    assert found.found is True
    assert found.ours.endswith(f"· {AUTOENCODER} .900 (mean of Adult; theirs of five tables)")
    lacking = verdict("overlap", all_ways[:-1])
    assert lacking.text == "not asked: no table has a figure of all of these ways"
    assert (verdict("Kolmogorov", all_ways).found, verdict("Kolmogorov", all_ways).ours) == (None, "–")


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (0.52, "not found: the attack does not tell it from DPCTGAN by two standard errors"),
        (0.70, "found"),
        (0.40, "not found: DPCTGAN is not higher"),
    ],
)
def test_an_attack_has_to_tell_two_ways_apart_by_two_standard_errors(other: float, text: str):
    def row(way: str, accuracy: float) -> Row:
        guessed = Guessed(accuracy=accuracy, auc=0.5)
        attacked = Membership(outputs=guessed, records=guessed, attacked=200, shadows=1, error=0.035)
        return Row(data="Adult", way=way, records=10, seconds=1.0, membership=attacked)

    planted = [row(PAPERS, 0.5), row("DPCTGAN", other), row("TVAE", 0.8)]
    assert verdict("membership", planted).text == text


def test_a_part_that_was_not_run_has_no_verdict():
    learned = Learned(accuracy=dict.fromkeys(CLASSIFIERS, 0.7), f1=dict.fromkeys(CLASSIFIERS, 0.5), majority=0.75)
    planted = [Row(data="Adult", way=PAPERS, records=10, seconds=1.0, learned=learned)]
    assert [one.claim for one in claims.verdicts(planted, ["figure 2"])] == [
        "classifiers' mean accuracy on Adult is higher (6.3)"
    ]
