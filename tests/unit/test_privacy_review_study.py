"""Foreign studies that would break a reader or deceive the person who approves; matrices at the edge of what is finite."""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction

import pytest

from verticil.shared.core.errors import Misuse, PeerFault, Refusal
from verticil.shared.mechanisms import privacy
from verticil.shared.mechanisms.transition import SCALE, Transition, quantize, symmetric
from verticil.shared.numerics.model.schema import Missing
from verticil.shared.study import canonical, rules
from verticil.shared.study.approval import check_not_weaker, check_own_part


@pytest.mark.parametrize("escape", ["\\ud800", "x\\udfff"])
def test_half_a_surrogate_pair_is_a_clean_error(release_study, escape):
    """JSON can carry what UTF-8 cannot; canonical bytes of it do not exist."""
    document = json.loads(canonical.to_bytes(release_study))
    weight = next(item for item in document["variables"] if item["name"] == "weight")
    weight["missing"]["spellings"] = ["HERE"]
    text = json.dumps(document, separators=(",", ":"), sort_keys=True, ensure_ascii=False).replace("HERE", escape)
    with pytest.raises(PeerFault) as caught:
        canonical.from_bytes(text.encode())
    assert caught.value.code == "MESSAGE_INVALID"
    assert caught.value.message.isprintable()


@pytest.mark.parametrize("letter", ["\u200b", "\u2060", "\ufeff", "\u00ad", "\u200e", "\U000e0041", "\u061c"])
def test_a_category_that_only_looks_like_another_is_refused(release_study, letter):
    position = release_study.schema.index("smoker")
    smoker = release_study.schema[position]
    variables = list(release_study.schema.variables)
    variables[position] = dataclasses.replace(smoker, labels=("no", f"n{letter}o"))
    study = dataclasses.replace(
        release_study, schema=dataclasses.replace(release_study.schema, variables=tuple(variables))
    )
    with pytest.raises(PeerFault, match=r"is U\+"):
        canonical.from_bytes(canonical.to_bytes(study))
    titled = dataclasses.replace(release_study, title=f"hearts{letter}")
    with pytest.raises(Misuse, match=r"is U\+"):
        rules.check(titled, source="study")


def test_blank_and_empty_spellings_and_joined_letters_stay_allowed(release_study):
    position = release_study.schema.index("weight")
    variables = list(release_study.schema.variables)
    missing = Missing(category="unknown", spellings=("", " ", "می\u200cرود"))
    variables[position] = dataclasses.replace(variables[position], missing=missing)
    study = dataclasses.replace(
        release_study, schema=dataclasses.replace(release_study.schema, variables=tuple(variables))
    )
    assert canonical.from_bytes(canonical.to_bytes(study)) == study


# ---- gamma and the order of declarations


def unit(study, matrix: Transition):
    return dataclasses.replace(study.units[1], scheme="matrix", transition=matrix)


def two(stay: int) -> Transition:
    return Transition(weights=((stay, SCALE - stay), (SCALE - stay, stay)))


def test_one_unit_of_two_to_the_sixty_fourth_decides(release_study):
    """The comparison is of ratios of integers: as floats, both are 0.75 / 0.25."""
    proposed, weaker, stronger = two(3 * SCALE // 4), two(3 * SCALE // 4 + 1), two(3 * SCALE // 4 - 1)
    assert float(privacy.gamma(weaker)) == float(privacy.gamma(proposed)) == 3.0
    check_not_weaker(unit(release_study, stronger), unit(release_study, proposed))
    check_not_weaker(unit(release_study, proposed), unit(release_study, proposed))
    with pytest.raises(Refusal) as caught:
        check_not_weaker(unit(release_study, weaker), unit(release_study, proposed))
    assert caught.value.code == "DECLARATION_WEAKER"


def test_a_single_weight_is_finite_and_a_zero_is_not():
    smallest = two(SCALE - 1)
    assert privacy.gamma(smallest) == Fraction(SCALE - 1)
    assert privacy.epsilon(smallest) == pytest.approx(64 * math.log(2), abs=1e-12)
    assert privacy.gamma(two(SCALE)) is None
    swapped = Transition(weights=((0, SCALE), (SCALE, 0)))  # nothing stays, and everything is known
    assert privacy.epsilon(swapped) == math.inf
    one_zero = Transition(weights=((SCALE // 2, SCALE // 2, 0), (SCALE // 4, SCALE // 2, SCALE // 4), (0, 0, SCALE)))
    assert privacy.epsilon(one_zero) == math.inf


@pytest.mark.parametrize("n_states", [2, 3, 7, 50])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0, 20.0])
def test_epsilon_is_that_of_the_quantized_matrix(n_states, epsilon):
    """Recomputed as the largest log ratio within a column, in exact arithmetic."""
    matrix = quantize(symmetric(n_states, epsilon=epsilon))
    ratios = [Fraction(max(column), min(column)) for column in zip(*matrix.weights, strict=True)]
    assert privacy.gamma(matrix) == max(ratios)
    assert privacy.epsilon(matrix) == pytest.approx(epsilon, rel=1e-9)


def test_an_effective_study_may_strengthen_others_only(release_study):
    approved = release_study
    stronger = release_study.with_declaration(
        {2: dataclasses.replace(release_study.units[2], transition=quantize(symmetric(2, gamma=8)))}
    )
    check_own_part(approved, stronger, "clinic")
    for party, index, gamma in (("clinic", 2, 10), ("registry", 2, 8)):
        changed = release_study.with_declaration(
            {index: dataclasses.replace(release_study.units[index], transition=quantize(symmetric(2, gamma=gamma)))}
        )
        with pytest.raises(PeerFault) as caught:
            check_own_part(approved, changed, party)
        assert caught.value.code == "STUDY_MISMATCH"
