"""How each number of a release was made, in words: where its bins come from, its points, and how values lie inside bins."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from verticil.shared.documents.written_values.on_scale import value_text
from verticil.shared.numerics.estimation.profiles import Profile
from verticil.shared.numerics.model.schema import Variable
from verticil.shared.study.document import Study
from verticil.shared.study.posterior import estimated_within
from verticil.shared.study.profiles import deviation_of_counts, measured_profiles, share_outside
from verticil.shared.study.vocabulary import PUBLIC, TABLE

_DECLARED: Final = {
    TABLE: "taken from the table by a draft, which no noise covers",
    PUBLIC: "public knowledge, as the study's author states",
    None: "declared by the study",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberWords:
    """How the values of one column of numbers or moments were made.

    Attributes:
        bins: how many, and where they come from.
        points: values that are categories of their own, as they are written.
        inside: how values lie inside a bin.
    """

    bins: str
    points: tuple[str, ...]
    inside: str


def number_words(study: Study) -> dict[str, NumberWords]:
    """Return how each column with bins is made, by name, for the carried out study."""
    profiles, estimated = measured_profiles(study), estimated_within(study)
    deviation = deviation_of_counts(study) or 0.0
    orders = () if study.knowledge is None else study.knowledge.orders
    in_order = {name for order in orders for name in (order.lower, order.upper)}
    found: dict[str, NumberWords] = {}
    for place, variable in enumerate(study.schema.variables):
        if variable.bins is None:
            continue
        profile = profiles.get(place)
        inside = (
            "so that the stated order holds"
            if variable.name in in_order
            else "as the posterior estimates them"
            if place in estimated
            else _inside(variable, profile, linked=study.release.within_bins == "linked")
        )
        found[variable.name] = NumberWords(
            bins=f"{variable.n_bins}, {_bins(variable, profile, deviation)}",
            points=tuple(value_text(variable.kind, point) for point in variable.points),
            inside=inside,
        )
    return found


def _bins(variable: Variable, profile: Profile | None, deviation: float) -> str:
    if variable.bounds is None:
        return _DECLARED.get(variable.origin, _DECLARED[None])
    low, high = (value_text(variable.kind, bound) for bound in variable.bounds)
    bounds = f"the bounds {low} and {high}"
    if not variable.profile:
        return f"to be measured with noise between {bounds}"
    if profile is None:
        return f"that follow from {bounds} alone, because the noise hid where people are"
    outside = share_outside(variable, profile, deviation)
    further = f"; about {100 * outside:.2g} % of the people lie outside" if outside else ""
    return f"measured with noise by '{variable.owner}' between {bounds}{further}"


def _inside(variable: Variable, profile: Profile | None, *, linked: bool) -> str:
    if variable.representatives is not None:
        return "at the declared value of each bin"
    if variable.means is not None:
        return "evenly around the declared mean of each bin"
    shape = (
        "by the noisy histogram"
        if profile is not None
        else "by a smooth curve through the bins"
        if linked
        else "evenly"
    )
    return f"{shape}, linked with other numbers" if linked else shape
