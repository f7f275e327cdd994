"""What several commands of a site show of a study: its columns, what is asked of them, their noise and their cost; no value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from verticil.party.config import PartyConfig
from verticil.party.dataset.local_dataset import origins
from verticil.party.policy import approval
from verticil.party.policy.questions import impossible_words, normalise_words, variable_words
from verticil.party.site import Site
from verticil.party.storage.studies import StudyRecord
from verticil.shared.channels import privacy
from verticil.shared.channels.subset import Subset
from verticil.shared.privacy.accountant import compose, cost_of, finite
from verticil.shared.privacy.events import PrivacyEvent, further, kind_of, planned, words
from verticil.shared.study.document import Study
from verticil.shared.study.protocols import protocol_of, sent_units

Facts = dict[str, object]

COUNTS_TELL: Final = (
    "counts are for this site's people alone: a denial, or a word to others, for a reason that is seen in them tells something"
    " about the table; verticil party check --no-counts does without"
)
"""What stands before counts of a table, wherever they are shown."""


def named(record: StudyRecord) -> Facts:
    """Which study, and who submitted it by the miner's word, which nobody here can check; None: it names nobody."""
    return {
        "study": record.study_id,
        "digest": record.digest.hex(),
        "submitter_by_miner": record.task.submitter or None,
    }


def number(value: float) -> float | None:
    """None for infinity, which JSON does not have."""
    return value if math.isfinite(value) else None


def columns(config: PartyConfig, study: Study, charges: Mapping[int, float]) -> list[Facts]:
    """This party's units: from which local columns, how randomized, who reads them, what is charged."""
    sources = {variable: place.source for variable, place in origins(config, study).items()}
    rows: list[Facts] = []
    for index in study.units_of(config.name):
        unit = study.units[index]
        row: Facts = {
            "variables": list(unit.variables),
            "sources": [sources[variable] for variable in unit.variables],
            "scheme": unit.scheme,
            "categories": unit.transition.n_states,
            "epsilon": number(privacy.epsilon(unit.transition)),
            "kept": privacy.kept(unit.transition)[0],
        }
        if unit.two_level is not None:
            row["two_level"] = unit.two_level.text
        if unit.impossible:
            row["impossible_combinations"] = len(unit.impossible)
        if isinstance(unit.transition, Subset):
            row["subset_size"] = unit.transition.size
        if (readers := protocol_of(study).read_by(study, index)) is not None:
            row["read_by"] = list(readers)
        if index in charges:
            row["charge_now"] = number(charges[index])
        rows.append(row)
    return rows


def cost(config: PartyConfig, site: Site, study: Study) -> list[Facts]:
    """For each data set: epsilon and delta of the study, the lifetime sums before and at most after it, and their limits."""
    places = origins(config, study)
    events: dict[str, list[PrivacyEvent]] = {
        places[study.units[index].variables[0]].dataset: [] for index in study.units_of(config.name)
    }
    for item in planned(study, config.name):
        for dataset in dict.fromkeys(places[name].dataset for name in item.variables):
            events[dataset].append(item.event)
    return [
        {
            "dataset": name,
            "epsilon": number(compose(costs := [cost_of(event) for event in drawn]).epsilon),
            "lifetime_before": (spent := site.ledger.spent(name)).epsilon,
            "lifetime_after_at_most": spent.epsilon + finite(costs).epsilon,
            "lifetime_limit": number(config.policy.max_epsilon_lifetime),
            "delta": (delta := compose(costs).delta),
            "delta_before": spent.delta,
            "delta_after_at_most": spent.delta + delta,
            "delta_limit": number(config.policy.max_delta_lifetime),
        }
        for name, drawn in events.items()
    ]


def further_events(study: Study, party: str) -> list[Facts]:
    """What a study draws of this party's data besides what its columns and its share noise say: each event in words."""
    return [
        {
            "event": kind_of(item.event).name,
            "words": words(item.event),
            "columns": list(item.variables),
            "recipients": list(item.readers),
            "epsilon": number(cost_of(item.event).epsilon),
            "delta": cost_of(item.event).delta,
        }
        for item in further(study, party)
    ]


def asked(config: PartyConfig, study: Study) -> Facts:
    """What a study asks of this party's tables, in words: how each of its columns is encoded, and how ids are compared."""
    sources = {variable: place.source for variable, place in origins(config, study).items()}
    rows: list[Facts] = []
    for index in study.units_of(config.name):
        for name in study.units[index].variables:
            words = variable_words(study.schema[study.schema.index(name)])
            rows.append({"columns": [name], "sources": [sources[name]], "words": list(words)})
        if words := impossible_words(study, index):
            names = study.units[index].variables
            rows.append({"columns": list(names), "sources": [sources[name] for name in names], "words": list(words)})
    return {"asked": rows, "normalise_words": normalise_words(study.linkage.normalise)}


def total(found: approval.Review) -> float:
    """Epsilon of one person: of the units that are sent."""
    sent = sent_units(found.study)
    return privacy.total_epsilon(release.epsilon for index, release in found.releases.items() if index in sent)


def share(study: Study) -> Facts:
    """What this party tells its peers besides columns; nothing in a study with a miner."""
    rule = study.share
    if rule is None:
        return {}
    return {
        "share": {
            "exact": rule.epsilon is None,
            "scores": study.structure.parents is None,
            "epsilon": rule.epsilon,
            "delta": rule.delta,
            "minimum_count": rule.minimum_count,
        }
    }
