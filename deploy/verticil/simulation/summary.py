"""The headline figures of a release, read from its model.json and asked of its study's protocol.

The distance of a release's synthetic records from the real joint data, where one person holds all the tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from verticil.shared.core.arrays import Codes
from verticil.shared.documents.view_models import inlined
from verticil.shared.release.formats import posterior
from verticil.shared.study.document import Study
from verticil.shared.study.protocol import Statement
from verticil.shared.study.protocols import protocol_of

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

    from verticil.evaluate.measures.fidelity import Comparison
    from verticil.shared.numerics.joint.worth import Worth
    from verticil.shared.numerics.model.schema import Variable
    from verticil.simulation.provision import Provisioned

_LISTED: Final = 10
"""Pairs that are named."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedFigures:
    """Whether shared parameters are exact, and the noise on what is shared besides columns; None: there is none."""

    exact_parameters: bool
    share: Mapping[str, float] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseSummary:
    """The headline figures of a release.

    Attributes:
        epsilon_per_column, epsilon_per_person: None: without bound.
        epsilon_range: of the finite ones; None: there is none.
        shared: None where the release says nothing of its protocol, as with a miner.
    """

    variables: int
    edges: int
    epsilon_per_column: Mapping[str, float | None]
    epsilon_range: tuple[float, float] | None
    epsilon_per_person: float | None
    shared: SharedFigures | None = inlined()


def release_summary(release: Path, study: Study) -> ReleaseSummary:
    """Return the headline figures of a verified release.

    Args:
        release: the folder.
        study: the study, as proposed.
    """
    model, statement = _document(release), _statement(release, study)
    columns = model["privacy"]["columns"]
    finite = sorted({round(column["epsilon"], 4) for column in columns if column["epsilon"] is not None})
    return ReleaseSummary(
        variables=len(model["variables"]),
        edges=len(model["structure"]["edges"]),
        epsilon_per_column={", ".join(column["variables"]): column["epsilon"] for column in columns},
        epsilon_range=(finite[0], finite[-1]) if finite else None,
        epsilon_per_person=model["privacy"]["epsilon_per_person"],
        shared=None
        if statement is None
        else SharedFigures(exact_parameters=statement.exact, share=model[statement.key].get("share")),
    )


def parameters_text(release: Path, study: Study) -> str:
    """Return what covers the parameters of a release, which no epsilon of a column does; empty with a miner.

    Args:
        release, study: as for `release_summary`.
    """
    statement = _statement(release, study)
    return "" if statement is None else statement.parameters


def costs_text(release: Path) -> tuple[str, ...]:
    """Return what a person loses to each reader, a line each, where that is not the sum over the columns for everybody.

    Args:
        release: the folder of a verified release.
    """
    accounts = _document(release)["privacy"]["accounts"]["list"]
    if len({(account["epsilon"], account["delta"]) for account in accounts}) < 2:
        return ()
    return tuple(
        ("no limit" if account["epsilon"] is None else f"{account['epsilon']:.6g}")
        + (f", delta {account['delta']:g}" if account["delta"] else "")
        + f": {account['reader']}"
        for account in accounts
    )


def _document(release: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((release / "model.json").read_bytes())
    return content


def _statement(release: Path, study: Study) -> Statement | None:
    """Return what the release says of its study's protocol."""
    from verticil.shared.release.formats import model_json

    dag = model_json.read((release / "model.json").read_bytes()).dag
    return protocol_of(study).statement(study, dag)


def chains_text(release: Path) -> str:
    """Say what the chains that sampled graphs, and what they predict, are worth; empty: nothing, or the study samples none.

    Args:
        release: the folder of a verified release.
    """
    path = release / posterior.FILE
    if not path.exists():
        return ""
    from verticil.shared.release.formats import model_json
    from verticil.shared.release.posterior import posterior_remarks

    schema = model_json.read((release / "model.json").read_bytes()).schema
    graphs = posterior.read(path.read_bytes(), schema)
    lines = list(posterior_remarks(graphs, schema.names))
    if not graphs.agreement.agree:
        far = f"an edge's probability differs by up to {graphs.agreement.edge_difference:.2g}"
        lines.insert(0, f"the chains that sampled graphs do not agree: {far}; take edges and sets for no posterior")
    return "\n".join(lines)


def pairs_text(release: Path) -> str:
    """Return what the tables of the pairs say of the network; empty where no pair was scored.

    Args:
        release: the folder.
    """
    check = _document(release)["structure"]["search"].get("pair_check")
    if check is None:
        return ""
    lines: list[str] = []
    if "worst_pair" in check:
        lines.append(
            f"worst of {check['significant_pairs']} significant pairs: {' x '.join(check['worst_pair'])}, "
            f"{check['distance']:.3f} from its estimated table; noise explains {check['distance_that_noise_explains']:.3f}"
        )
    if missing := check["left_nearly_independent"]:
        pairs = ", ".join(f"{a} x {b} ({nats:.2f} nats)" for a, b, nats in missing[:_LISTED])
        more = f" and {len(missing) - _LISTED} more, in model.json" if missing[_LISTED:] else ""
        lines.append(f"linked, but nearly independent in the network: {pairs}{more}")
    return "\n".join(lines)


def worth_of(release: Path, comparison: Comparison | None) -> Worth | None:
    """Return what a release's records are worth: as it says itself, with the distances of a comparison where there is one.

    Args:
        release: the folder.
        comparison: with the tables; None: nobody compared.
    """
    from verticil.shared.numerics.joint.worth import measured, read_worth

    own = read_worth(_document(release))
    if comparison is None or len(comparison.synthetic) < 2:
        return own
    one_way, two_way, *_ = (distance.mean for distance in comparison.synthetic)
    return measured(one_way, two_way, comparison.independent[1].mean, own)


def compare_with_tables(nodes: Provisioned, release: Path, study: Study, *, seed: int | None) -> Comparison:
    """Compare a release with the tables from which it was made.

    Args:
        nodes: the nodes' folders; each party's table is read as the party reads it.
        release: folder with synthetic.parquet.
        study: the study.
        seed: of the bootstrap; None: 0.
    """
    import numpy as np
    import pandas as pd

    from verticil.evaluate.measures.fidelity import compare
    from verticil.shared.numerics.knowledge.columns import columns

    real = real_codes(nodes, study)
    table = pd.read_parquet(release / "synthetic.parquet")
    layout = columns(study.knowledge, study.schema)
    synthetic = layout.read([synthetic_codes(table[item.name], item) for item in layout.published.variables])
    return compare(real, synthetic, study.schema.n_states, generator=np.random.default_rng(seed or 0))


def real_codes(nodes: Provisioned, study: Study) -> list[Codes]:
    """Return the columns of the common people, in one common order."""
    import numpy as np

    from verticil.party.config import load_party
    from verticil.party.dataset.macs import Macs
    from verticil.party.local_dataset import read_people
    from verticil.party.storage.secret import read_secret

    tables = {}
    for name, folder in nodes.parties.items():
        config = load_party(folder / "party.toml")
        secret = read_secret(config.state_directory)
        tables[name] = read_people(config, study, site_secret=secret, linked_by=Macs(bytes(32), size=16))
    links = {name: people.links.view("V16").reshape(-1).tolist() for name, people in tables.items()}
    common = set.intersection(*map(set, links.values()))
    order = {
        name: np.array([row for row, link in enumerate(party_links) if link in common], dtype=np.int64)
        for name, party_links in links.items()
    }
    return [tables[variable.owner].codes[variable.name][order[variable.owner]] for variable in study.schema.variables]


def synthetic_codes(column: pd.Series, variable: Variable) -> NDArray[np.uint16]:
    """Return the codes of a column of synthetic.parquet: labels by name, values of a binned variable by bin."""
    import numpy as np
    import pandas as pd

    if variable.kind is not None:
        from verticil.shared.synthesis.typed_columns import codes_of

        places, distinct = pd.factorize(column, use_na_sentinel=True)
        return np.asarray(codes_of(variable, [*distinct.tolist(), None])[places], dtype=np.uint16)
    code = {label: position for position, label in enumerate(variable.labels)}
    if not variable.bins:
        return np.asarray(column.map(code), dtype=np.uint16)
    edges = np.asarray(variable.bins)

    def of(value: object) -> int:
        own_code = variable.n_bins if value is None or value is pd.NA or str(value) == "nan" else code.get(str(value))
        return own_code if own_code is not None else int(np.searchsorted(edges, float(str(value)), side="right")) - 1

    places, distinct = pd.factorize(column, use_na_sentinel=False)
    return np.array([of(value) for value in distinct], dtype=np.uint16)[places]
