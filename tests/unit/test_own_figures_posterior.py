"""A release of sampled graphs is compared with what a party sent: honest ones pass, networks of somebody else do not."""

from __future__ import annotations

import dataclasses
import datetime as dt
from pathlib import Path

import numpy as np
import pytest

from support.studies import numbered, study_of
from verticil.miner.learning.learn import LearnResult, learn
from verticil.miner.learning.publication import published_posterior
from verticil.party.protocol.central.review import check_own_figures
from verticil.shared.core.arrays import Codes
from verticil.shared.core.errors import GateFailed
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.folder.writing import write_release
from verticil.shared.release.formats.posterior import PublishedPosterior
from verticil.shared.release.posterior import sets_fault
from verticil.shared.release.records import draw_release_records
from verticil.shared.study import canonical
from verticil.shared.study.document import PosteriorRule, ReleaseRule, Study

N = 2000
EPSILON = 2.0


def made(seed: int, **release: object) -> tuple[Study, list[Codes], LearnResult]:
    """Two parties with two columns each, the second like the first and the third like the second, and what is learned."""
    variables = [*numbered((2, 3), "one"), *numbered((3, 2), "two")]
    variables = [dataclasses.replace(variable, name=f"v{place}") for place, variable in enumerate(variables)]
    base = study_of(variables, epsilon=EPSILON, structure={"method": "posterior", "score": "bdeu"})
    study = dataclasses.replace(
        base,
        posterior=PosteriorRule(steps=400, data_sets=4),
        release=ReleaseRule(seed=seed, **release),  # type: ignore[arg-type]  # the fields are the tests' to choose
    )
    draw = np.random.default_rng(seed)
    columns = [draw.choice(2, N, p=(0.7, 0.3))]
    for k in (3, 3, 2):
        columns.append(np.where(draw.random(N) < 0.5, columns[-1] % k, draw.integers(0, k, N)))
    sent: list[Codes] = []
    for column, k in zip(columns, study.schema.n_states, strict=True):
        ends = np.cumsum(quantize(symmetric(k, epsilon=EPSILON)).probabilities, axis=1)
        sent.append((draw.random(N)[:, None] > ends[column]).sum(axis=1).astype(np.uint8))
    return study, sent, learn(sent, study)


def refusal(
    folder: Path, study: Study, sent: list[Codes], result: LearnResult, posterior: PublishedPosterior
) -> tuple[str, str]:
    """What the parties say; empty: nothing."""
    codes, frame = draw_release_records(result.network, study, N, sampled=posterior.networks)
    digest = canonical.digest(study).hex()
    content = ReleaseContent(
        study=study, study_digest=digest, effective_digest=digest, network=result.network, marginals=result.marginals,
        synthetic=frame, codes=codes, n_common=N, receipts=(), provenance={}, search={}, simulation=True, seed_derived=False,
        published_at=dt.datetime(2026, 1, 1, tzinfo=dt.UTC), posterior=posterior,
    )  # fmt: skip
    write_release(folder, content)
    assert sets_fault(folder, study, posterior, N) == ""
    said = []
    for party in ("one", "two"):
        try:
            check_own_figures(folder, study, party, {unit: sent[unit] for unit in study.units_of(party)})
            said.append("")
        except GateFailed as error:
            said.append(error.message)
    return said[0], said[1]


@pytest.mark.whole
@pytest.mark.parametrize("source", [None, "network"])
def test_honest_ones_pass_and_networks_of_others_do_not(tmp_path: Path, source: str | None) -> None:
    """Three releases: by the bound a false alarm has a probability below 1e-5. Then one network with shares turned round."""
    for seed in range(3):
        study, sent, result = made(seed, sample_from=source)
        posterior = published_posterior(result.posterior, study)
        assert posterior is not None
        assert refusal(tmp_path / f"honest-{seed}", study, sent, result, posterior) == ("", "")
    network = posterior.networks[2]
    family = network.families[0]
    turned = dataclasses.replace(family, probability=family.probability[:, ::-1])
    planted = dataclasses.replace(network, families=(turned, *network.families[1:]))
    networks = (*posterior.networks[:2], planted, *posterior.networks[3:])
    one, _ = refusal(tmp_path / "planted", study, sent, result, dataclasses.replace(posterior, networks=networks))
    assert "column 'v0': in network 3 of posterior.json its shares are not those of what this party sent" in one
