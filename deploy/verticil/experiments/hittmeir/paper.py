"""The experiments together: which tables and figures there are, and what they gave."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from verticil.experiments.hittmeir import attacks, classifiers, correlations, published
from verticil.experiments.hittmeir.attacks import SCENARIOS, Attack
from verticil.experiments.hittmeir.classifiers import Score
from verticil.experiments.hittmeir.correlations import Correlations
from verticil.experiments.hittmeir.datasets import DataSet, Texts, adult, card, cmc, simulated_card
from verticil.experiments.hittmeir.published import Printed
from verticil.experiments.hittmeir.runtime import Runtime, runtimes
from verticil.experiments.hittmeir.scale import Scale, Step
from verticil.experiments.hittmeir.synthesizer import Custom, Method, warm_up

TITLES: Final[Mapping[str, str]] = {
    "figure 1": "Figure 1: correlations, Adult Census",
    "table 2": "Table II: run time, Contraceptive Method Choice",
    "table 3": "Table III: run time, Adult Census",
    "table 4": "Table IV: run time, Credit Card Fraud",
    "table 5": "Table V: utility, Contraceptive Method Choice",
    "table 6": "Table VI: utility, Adult Census",
    "table 7": "Table VII: utility, Credit Card Fraud",
    "table 9": "Table IX: attribute disclosure, Contraceptive Method Choice",
    "table 10": "Table X: attribute disclosure, Adult Census",
    "table 11": "Table XI: utility of the custom network, Contraceptive Method Choice",
    "table 12": "Table XII: utility of the custom network, Adult Census",
}
PARTS: Final = tuple(TITLES)
"""Every part that can be asked for."""

_OF_CARD: Final = frozenset({"table 4", "table 7"})
_OF_CMC: Final = frozenset({"table 2", "table 5", "table 9", "table 11"})
_CUSTOM: Final[Mapping[str, tuple[str, str]]] = {
    "table 11": ("table 9", "table 5"),
    "table 12": ("table 10", "table 6"),
}
"""Of each table of custom networks the one with its scenario, and the one whose row it repeats."""
_CUSTOM_K: Final = 4
_WITHOUT: Final[Mapping[str, tuple[str, ...]]] = dict.fromkeys(
    ("table 6", "table 12"), ("marital-status", "relationship")
)
"""Predictors that the paper's classifiers do not seem to have had (`published.GUESSED`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What the asked parts gave, by name of the part.

    Attributes:
        runtimes: Tables II to IV.
        scores: Tables V to VII, XI and XII.
        randomized: of Tables V and VI the rows that the paper has not.
        attacks: Tables IX and X.
        correlations: Figure 1; None where it was not asked for.
        simulated: parts whose records were made up.
    """

    runtimes: Mapping[str, tuple[Runtime, ...]]
    scores: Mapping[str, tuple[Score, ...]]
    randomized: Mapping[str, tuple[Score, ...]]
    attacks: Mapping[str, tuple[Attack, ...]]
    correlations: Correlations | None
    simulated: frozenset[str]


def run(wanted: Collection[str], *, scale: Scale, seed: int, tell: Step, credit_card: Texts | None = None) -> Found:
    """Run the asked parts.

    Args:
        wanted: some of `PARTS`.
        scale: how large.
        seed: of everything random.
        tell: is told what is being done.
        credit_card: the credit-card table; None: one of its shape is made up.

    Raises:
        DataFault: the credit-card table is not one.
    """
    warm_up()
    of_runtime: dict[str, tuple[Runtime, ...]] = {}
    of_scores: dict[str, tuple[Score, ...]] = {}
    of_randomized: dict[str, tuple[Score, ...]] = {}
    of_attacks: dict[str, tuple[Attack, ...]] = {}
    of_figure: Correlations | None = None
    kept: dict[str, DataSet] = {}
    asked = [part for part in PARTS if part in wanted]
    for place, part in enumerate(asked, 1):
        step = _counted(tell, place, len(asked))
        kind = part if part in _OF_CARD else "cmc" if part in _OF_CMC else "adult"
        if kind not in kept:
            kept[kind] = _data_set(kind, credit_card, scale=scale, seed=seed)
        data = kept[kind]
        if part == "figure 1":
            of_figure = correlations.correlations(data, scale=scale, seed=seed, step=step)
        elif part in {"table 2", "table 3", "table 4"}:
            of_runtime[part] = runtimes(data, scale=scale, seed=seed, step=step)
        elif part in {"table 5", "table 6"}:
            without = _WITHOUT.get(part, ())
            of_scores[part] = classifiers.accuracies(data, scale=scale, seed=seed, step=step, without=without)
            of_randomized[part] = classifiers.randomized_accuracies(
                data, scale=scale, seed=seed, step=step, without=without
            )
        elif part == "table 7":
            of_scores[part] = classifiers.card_scores(data, scale=scale, seed=seed, step=step)
        elif part in SCENARIOS:
            of_attacks[part] = attacks.attacks(data, SCENARIOS[part], scale=scale, seed=seed, step=step)
        else:
            scenario, ordinary = _CUSTOM[part]
            custom = Custom(target=SCENARIOS[scenario].target, sensitive=SCENARIOS[scenario].sensitive)
            known = of_scores.get(ordinary, ())
            of_scores[part] = classifiers.custom_accuracies(
                data, custom, scale=scale, seed=seed, step=step, without=_WITHOUT.get(part, ()), known=known
            )
    return Found(
        runtimes=of_runtime,
        scores=of_scores,
        randomized=of_randomized,
        attacks=of_attacks,
        correlations=of_figure,
        simulated=frozenset(_OF_CARD & set(wanted)) if credit_card is None else frozenset(),
    )


def _counted(tell: Step, place: int, parts: int) -> Step:
    return lambda text: tell(f"{place} of {parts}: {text}")


def theirs_of_score(part: str, row: Score) -> Printed | None:
    """The paper's row beside one of ours; None where it has none."""
    if row.epsilon is not None or row.without != _WITHOUT.get(part, ()):
        return None
    if part in _CUSTOM:
        name = ("DSc" if row.trained_on == "custom" else "DS") if row.k == _CUSTOM_K else ""
    elif row.method is None:
        name = "Original"
    else:
        name = f"{row.k}: DS" + " GA" * (row.method is Method.genetic)
    return published.UTILITY[part].get(name)


def theirs_of_attack(part: str, row: Attack) -> Printed | None:
    """The same for an attack."""
    names = {"original": "Original", "ordinary": "DS", "custom": "DSc"}
    return None if row.epsilon is not None else published.ATTACKS[part][names[row.published]]


def _data_set(kind: str, credit_card: Texts | None, *, scale: Scale, seed: int) -> DataSet:
    if kind in _OF_CARD:
        if credit_card is not None:
            return card(credit_card)
        if kind == "table 7":
            return simulated_card(rows=scale.simulated_rows, frauds=scale.simulated_frauds, seed=seed)
        return simulated_card(seed=seed) if scale.rows is None else simulated_card(rows=4 * scale.rows, seed=seed)
    return adult() if kind == "adult" else cmc()
