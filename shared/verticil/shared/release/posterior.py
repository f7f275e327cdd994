"""Sampled graphs in a release: the sets of records that come from M networks of the posterior, and what is held against them.

Martins, Gonçalves & Galletti, section 2.3: a set of synthetic records for each network, all of them of as many records as the
release has, so that how the sets differ says how unsure an estimate from one of them is. The release's own records are those
networks' in equal parts, network by network in turn: record i (from 0) is of network i mod M. So each set, and each part of the
records, can be held against the one network that it is said to be drawn from.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import DataFault, GateFailed, Misuse
from verticil.shared.documents.json_document import Json
from verticil.shared.numerics.knowledge.raking import rake
from verticil.shared.numerics.knowledge.support import Support
from verticil.shared.numerics.model.graph import Dag
from verticil.shared.numerics.model.network import Network
from verticil.shared.release.formats.posterior import (
    FILE,
    LEAST_DRAWS,
    LEAST_MOVE,
    MAX_GRAPHS,
    MOST_R_HAT,
    PublishedPosterior,
)
from verticil.shared.study.document import Study
from verticil.shared.study.posterior import check_set_cells, drawn_categories
from verticil.shared.study.structure_document import structure_fault
from verticil.shared.synthesis.record_checks import (
    FALSE_ALARMS,
    TABLES,
    first_misplaced,
    read_both,
    read_records,
    unlikely_family,
)
from verticil.shared.synthesis.synthesis import decode_of_study, sample_codes
from verticil.shared.synthesis.within_bins import tilts_of

if TYPE_CHECKING:
    import pandas as pd

_SETS: Final = (
    "Synthetic records from network {} of posterior.json: one set of {}, to be analysed one by one and combined."
)


def set_file(number: int) -> str:
    """Return the file with the records of network `number`, from 1."""
    return f"set-{number}.csv"


def posterior_files(study: Study) -> Mapping[str, str]:
    """Return the further files of a release of a study that samples graphs, with what each is; of another study nothing."""
    if not study.samples_graphs:
        return {}
    m = study.posterior.data_sets
    return {
        FILE: "How probable every edge and every graph is, how well the chains agree, and the networks that records come from.",
        **{set_file(number): _SETS.format(number, m) for number in range(1, m + 1)},
    }


def check_sets(study: Study, n_records: int) -> None:
    """Check that the sets of a study that samples graphs are not too large, before any work is done for them.

    Args:
        study: the effective study.
        n_records: people in common.

    Raises:
        DataFault: LEARNING_FAILED.
    """
    if study.samples_graphs:
        try:
            check_set_cells(
                study, study.release.synthetic_records or n_records, where=f"study '{study.id}': posterior.data_sets"
            )
        except Misuse as error:
            raise DataFault("LEARNING_FAILED", error.message, hint=error.hint) from None


def posterior_remarks(posterior: PublishedPosterior, names: Sequence[str]) -> tuple[str, ...]:
    """Return the sentences on a posterior besides whether its chains agree.

    Args:
        posterior: the posterior.
        names: of the variables.
    """
    sentences: list[str] = []
    if posterior.agreement.prior_speaks:
        sentences.append(
            f"the prior speaks: what was learned from moves no arrow's probability by {LEAST_MOVE} or more, so the graphs are "
            "those that were probable before any data; a larger epsilon or more people would tell something"
        )
    sentences += (
        f"column '{names[v]}' has one value in all released records: they tell nothing of its arrows, whose probabilities are "
        "those of the prior and the score"
        for v in posterior.constant
    )
    return (*sentences, *_statistic_remarks(posterior))


def _statistic_remarks(posterior: PublishedPosterior) -> Iterator[str]:
    for number, item in enumerate(posterior.predictive, 1):
        if item.is_enough:
            continue
        if math.isnan(item.effective):
            sentence = "it is defined on too few sets to say what its draws are worth"
        else:
            worth = f"{item.effective:,.0f} independent ones, {item.tail:,.0f} in the tails"
            r_hat = f"{item.r_hat:.3f}" if math.isfinite(item.r_hat) else "not defined"
            sentence = f"its draws are worth {worth} ({LEAST_DRAWS} are asked for), "
            sentence += f"with an R-hat of {r_hat} (at most {MOST_R_HAT})"
        yield f"statistic {number}, {item.words[0]} of {item.words[1]}: {sentence}; more steps help"


def set_records(network: Network, study: Study, n: int, number: int) -> pd.DataFrame:
    """Return the set of a network, number `number` from 1: the same for the same network and study.

    Raises:
        ValueError: the network is too wide for the way of drawing.
    """
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence((study.release.seed, number))))
    support = rake(network, study.support())
    codes = sample_codes(network, n, generator=generator, method=study.release.sampling, support=support)
    return decode_of_study(study, codes, generator, tilts_of((network,), study))


def posterior_fault(study: Study, posterior: PublishedPosterior, dag: Dag) -> str:
    """Why a posterior cannot be one of the study, whose model.json has the graph `dag`; empty: it can."""
    if len(posterior.networks) != study.posterior.data_sets:
        return f"{len(posterior.networks)} networks, expected {study.posterior.data_sets}"
    if posterior.consensus != dag:
        return "the consensus is not the graph of model.json"
    if tuple(item.words for item in posterior.predictive) != study.posterior.statistics:
        return "the statistics are not those that the study names"
    n_graphs, shares = len(posterior.graphs), sum(share for _, share in posterior.graphs)
    if n_graphs > MAX_GRAPHS or shares > 1 + 1e-9:
        return f"{n_graphs} graphs with shares of {shares:g} together, expected at most {MAX_GRAPHS}, and 1"
    for graph in dict.fromkeys(
        (*(network.dag for network in posterior.networks), *(g for g, _ in posterior.graphs), dag)
    ):
        if problem := structure_fault(graph, study):
            return f"a graph that the study does not permit: {problem}"
    return _missing_fault(study, posterior)


def _missing_fault(study: Study, posterior: PublishedPosterior) -> str:
    fixed_codes = drawn_categories(study)
    if {place for place, _ in posterior.missing or ()} != set(fixed_codes) or (posterior.missing is None) != (
        not fixed_codes
    ):
        return "the variables whose missing values were drawn are not those of the study"
    for number, network in enumerate(posterior.networks, 1):
        for place, code in fixed_codes.items():
            if network.families[place].probability[:, code].any():
                return f"network {number} has missing values of '{study.schema.names[place]}', and the study draws them"
    return ""


def sets_fault(folder: Path, study: Study, posterior: PublishedPosterior, n_records: int) -> str:
    """Return the records that were not drawn from the network that they are said to be drawn from; empty: all were.

    Args:
        folder: the release.
        study: its study.
        posterior: of posterior.json.
        n_records: of each set, and of the release's own records.

    Raises:
        GateFailed: RELEASE_INVALID, a table is none of the study's.
    """
    schema, knowledge, networks, support = study.schema, study.knowledge, posterior.networks, study.support()
    m, level = len(networks), FALSE_ALARMS / (4 * len(networks))
    for number, network in enumerate(networks, 1):
        codes = read_records(folder / set_file(number), schema, n_records, knowledge, identifier=study.identifier)
        if problem := _not_drawn(set_file(number), codes, network, number, level=level, support=support):
            return problem
    if study.records_from != "posterior":
        return _not_within(folder, study, networks, level=level)
    text, problem = read_both(folder, schema, n_records, knowledge, identifier=study.identifier)
    if problem:
        return problem
    for place, network in enumerate(networks):
        part = [column[place::m] for column in text]
        if problem := _not_drawn(TABLES[0], part, network, place + 1, level=level, support=support):
            return problem
    return _not_within(folder, study, networks, level=level)


def _not_within(folder: Path, study: Study, networks: Sequence[Network], *, level: float) -> str:
    sources: dict[str, tuple[Network, ...]] = {
        set_file(number): (network,) for number, network in enumerate(networks, 1)
    }
    if study.records_from == "posterior":
        sources[TABLES[0]] = tuple(networks)
    for name, of in sources.items():
        if (place := first_misplaced(folder / name, study.schema, tilts_of(of, study), level)) is not None:
            column = study.schema.names[place]
            return f"{name}: column '{column}': numbers do not lie in their bins as the shares of the bins have it"
    return ""


def _not_drawn(
    name: str, codes: Sequence[Codes], network: Network, number: int, *, level: float, support: Support
) -> str:
    if (family := unlikely_family(network, codes, level, rake(network, support))) is None:
        return ""
    return (
        f"{name}: column '{network.schema.names[family]}': the records were not drawn from network {number} of {FILE}"
    )


def check_posterior_file(
    folder: Path, data: bytes | None, study: Study, dag: Dag, n_records: int, *, nodes: Sequence[Json] = ()
) -> PublishedPosterior | None:
    """Check what a release has of a posterior; None: its study samples no graphs.

    Args:
        folder: the release.
        data: posterior.json; None: the manifest does not list it.
        study: its study.
        dag: the graph of its model.json.
        n_records: of its synthetic records.
        nodes: of columns that follow from others, in its model.json.

    Raises:
        GateFailed: RELEASE_INVALID.
    """
    from verticil.shared.release.formats import posterior as format_

    if (data is not None) != study.samples_graphs:
        raise GateFailed(
            "RELEASE_INVALID", f"{folder}: by study.json {FILE} {'is missing' if data is None else 'cannot be there'}"
        )
    if data is None:
        return None
    posterior = format_.read(data, study.schema, nodes)
    if problem := posterior_fault(study, posterior, dag):
        raise GateFailed("RELEASE_INVALID", f"{FILE}: {problem}")
    if problem := sets_fault(folder, study, posterior, n_records):
        raise GateFailed("RELEASE_INVALID", f"{folder}: {problem}", hint="do not use these records")
    return posterior
