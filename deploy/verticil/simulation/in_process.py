"""`simulate`: a whole study in one process, with the code of the real nodes.

Parties and miner are the production ones, on folders that `provision` lays out; only the transport is another: messages go
through `InMemoryCoordinator` instead of gRPC, serialized and parsed on their way. Randomization, ledger, approval, alignment,
storage, learning, signing and release are what they are in a federation.

Whoever simulates holds all the tables. The release says ``simulation: true``.
"""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from verticil.shared.core.errors import Misuse, VerticilError, from_code
from verticil.shared.numerics.model.network import Network
from verticil.shared.study.document import Study

if TYPE_CHECKING:
    import datetime as dt

    import pandas as pd

    from verticil.evaluate.measures.fidelity import Comparison
    from verticil.shared.federation.transport.interface import Coordinator
    from verticil.shared.numerics.joint.worth import Worth
    from verticil.simulation.provision import Provisioned
from verticil.simulation.in_memory_peers import WrapPeer, raise_if_ended, run_peers, serving_miner, start_parties
from verticil.simulation.table_layout import Tables, lay_out


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Simulated:
    """What a simulated study yields.

    Attributes:
        network: structure, parameters, intervals.
        synthetic: the synthetic records, a column for each variable.
        n_common: people in all tables.
        epsilon_per_person: the sum over all columns that anybody else can come to read.
        costs: what a person loses to each reader, in words, where that differs; else empty.
        parameters: between peers, what covers the parameters, in words; empty with a miner.
        pairs: what the tables of the pairs say of the network, in words; empty where no pair was scored.
        comparison: distances to the real joint data, when asked for.
        release: folder of the signed release, when `out` was given.
        worth: what the records are worth, by the release, or by `comparison` where it was asked for; None: neither says it.
    """

    network: Network
    synthetic: pd.DataFrame
    n_common: int
    epsilon_per_person: float
    costs: tuple[str, ...]
    parameters: str
    pairs: str
    comparison: Comparison | None
    release: Path | None
    worth: Worth | None = None


def simulate(
    study: Study | Path | str,
    tables: Tables,
    *,
    out: Path | str | None = None,
    id_column: str | None = None,
    seed: int | None = None,
    compare: bool = False,
    unreviewed: bool = False,
    wrap: Callable[[str, Coordinator], Coordinator] | None = None,
    wrap_peer: WrapPeer | None = None,
    step: Callable[[str], None] = lambda _line: None,
) -> Simulated:
    """Run a study on tables at hand.

    Args:
        study: study.toml, or the study itself.
        tables: for each party its table (a CSV or Parquet file, a DataFrame, or how its node would read it), or one table with
            all columns; only in one table the id column may be absent: then a row is a person.
        out: folder to make for the release; the authority's certificate is put beside it as ``ca.crt``. None: no folder.
        id_column: name of the id column; None: that of the study's draft, else ``id``.
        seed: derive site secrets and linkage key from it, so that the same call gives the same release; None: random.
        compare: measure the distances to the real joint data (`verticil.evaluate.measures.fidelity`).
        unreviewed: run a draft that its author has not reviewed, too.
        wrap: for tests: put something between each party and the miner, given the party's name and its connection.
        wrap_peer: for tests: put something between two parties that meet, see `WrapPeer`.
        step: called with every change, in words.

    Returns:
        Network, synthetic records and figures.

    Raises:
        Misuse: UNREVIEWED; USAGE, the study has one party.
        VerticilError: whatever a node would refuse or fail with in a federation.

    A call from a notebook, where an event loop runs already, works too: the simulation has its own, in a thread of its own.
    """
    from verticil.party.operator.peer_commands import copy_release
    from verticil.shared.core.compiled import compiling_told
    from verticil.shared.study.draft_review import require_reviewed
    from verticil.shared.study.protocols import protocol_of
    from verticil.shared.study.reading import read_study

    document = study if isinstance(study, Study) else read_study(Path(study))
    if not unreviewed:
        require_reviewed(document)
    if len(document.parties) < 2:
        problem = f"study '{document.id}' has one party, '{''.join(document.parties)}', expected at least two"
        raise Misuse("USAGE", problem, hint="a study of one party is for verticil synthesize")
    target = Path(out) if out is not None else None
    if target is not None and target.exists():
        raise Misuse("FILE_EXISTS", f"{target}: exists already", hint="name another folder")
    with tempfile.TemporaryDirectory(prefix="verticil-simulation-") as temporary:
        place = Path(temporary)
        nodes = _provision(place, document, tables, id_column=id_column, seed=seed)
        folder = place / "release"
        carry_out = run_federation if protocol_of(document).coordinated else run_peers
        with compiling_told(lambda: step("compiling, once")):
            n_common = _in_own_loop(
                partial(
                    carry_out,
                    nodes,
                    document,
                    folder,
                    is_seeded=seed is not None,
                    wrap=wrap,
                    wrap_peer=wrap_peer,
                    step=step,
                )
            )
        result = _result(nodes, folder, document, n_common=n_common, compare=compare, seed=seed)
        if target is None:
            return result
        copy_release(folder, target, nodes.ca_certificate.read_bytes())
    return dataclasses.replace(result, release=target)


def _in_own_loop(run: Callable[[], Coroutine[object, object, int]]) -> int:
    """Run the coroutine that `run` makes in an event loop of a fresh thread, and give its result or error."""
    pool = ThreadPoolExecutor(1, thread_name_prefix="verticil-simulation")
    outcome = pool.submit(lambda: asyncio.run(run()))
    pool.shutdown(wait=False)
    return outcome.result()


def _provision(place: Path, study: Study, tables: Tables, *, id_column: str | None, seed: int | None) -> Provisioned:
    from verticil.shared.study.protocols import protocol_of
    from verticil.simulation.provision import OPEN_LIMITS, provision

    protocol = protocol_of(study)
    sites = lay_out(place / "tables", study, tables, id_column=id_column)
    return provision(
        place / "federation",
        federation="simulation",
        sites=sites,
        limits=OPEN_LIMITS,
        endpoint="localhost:1" if protocol.coordinated or protocol.searches_scores(study) else None,
        listen="127.0.0.1:0",
        hosts=("localhost",),
        seed=seed,
        # Nobody dials these: parties of one process are joined by memory.
        peers=None
        if protocol.coordinated and not protocol.opens_tables
        else {site.name: f"localhost:{2 + number}" for number, site in enumerate(sites)},
        masked=protocol.opens_tables,
    )


async def run_federation(
    nodes: Provisioned,
    study: Study,
    release: Path,
    *,
    is_seeded: bool,
    wrap: Callable[[str, Coordinator], Coordinator] | None = None,
    wrap_peer: WrapPeer | None = None,
    clock: Callable[[], dt.datetime] | None = None,
    step: Callable[[str], None] = lambda _line: None,
) -> int:
    """Serve miner and parties of provisioned folders in this event loop until the study is published and fetched.

    Args:
        nodes: the nodes' folders.
        study: the proposal.
        release: folder to make.
        is_seeded: the secrets come from a seed; the manifest says so.
        wrap, wrap_peer, step: as for `simulate`.
        clock: UTC now, for tests; the machine's when absent.

    Returns:
        The number of common people.

    Raises:
        VerticilError: what ended the study or a node.
    """
    from verticil.shared.documents.config import load_federation
    from verticil.shared.federation.identity.pki import load_credentials, utc_now
    from verticil.shared.federation.transport.in_memory import InMemoryControl
    from verticil.shared.release.download import fetch_release
    from verticil.shared.study.canonical import to_bytes
    from verticil.shared.study.protocols import protocol_of
    from verticil.simulation.analyst import follow_study
    from verticil.wire.v1 import control_pb2

    now = clock if clock is not None else utc_now
    pki = nodes.analyst / "pki"
    analyst = load_credentials(
        pki / "analyst.crt", pki / "analyst.key", load_federation(nodes.analyst / "federation.toml")
    )
    stop = asyncio.Event()
    async with serving_miner(nodes, now, is_seeded=is_seeded) as node:
        control = InMemoryControl(node.control, analyst.identity)
        parties = start_parties(
            nodes,
            node,
            stop,
            between=protocol_of(study).opens_tables,
            is_seeded=is_seeded,
            wrap=wrap,
            wrap_peer=wrap_peer,
            clock=now,
        )
        try:
            digest = (await control.submit_study(control_pb2.SubmitStudyRequest(proposal=to_bytes(study)))).study_digest
            try:
                summary = await follow_study(control, digest, step=step, check=partial(raise_if_ended, parties))
            except VerticilError as error:
                raise _in_full(nodes, study, digest, error) from None
            await fetch_release(control, digest, release)
        finally:
            stop.set()
            node.changes.close()
            await asyncio.gather(*parties, return_exceptions=True)
            await control.close()
    return summary.n_common


def _in_full(nodes: Provisioned, study: Study, digest: bytes, error: VerticilError) -> VerticilError:
    """Return the error as the party that met it wrote it down: a real miner gets less, but who simulates owns the tables.

    The others wrote down, with the same code, that a party had reported it.
    """
    from verticil.miner.rules.blocking_parties import reporting_party
    from verticil.miner.storage.records import Failure
    from verticil.party.config import load_party
    from verticil.party.site import Site

    if (name := reporting_party(study, Failure(code=error.code, message=error.message, hint=error.hint))) is None:
        return error
    with Site.open(load_party(nodes.parties[name] / "party.toml")) as site:
        failure = site.state.study(digest).failure
    return (
        error if failure is None else from_code(failure.code, f"party '{name}': {failure.message}", hint=failure.hint)
    )


def _result(
    nodes: Provisioned, folder: Path, study: Study, *, n_common: int, compare: bool, seed: int | None
) -> Simulated:
    import pandas as pd

    from verticil.shared.release.formats import model_json
    from verticil.simulation.summary import (
        chains_text,
        compare_with_tables,
        costs_text,
        pairs_text,
        parameters_text,
        release_summary,
        worth_of,
    )

    comparison = compare_with_tables(nodes, folder, study, seed=seed) if compare else None
    total = release_summary(folder, study).epsilon_per_person
    return Simulated(
        network=model_json.read((folder / "model.json").read_bytes()),
        synthetic=pd.read_parquet(folder / "synthetic.parquet"),
        n_common=n_common,
        epsilon_per_person=float("inf") if total is None else total,
        costs=costs_text(folder),
        parameters=parameters_text(folder, study),
        pairs="\n".join(filter(None, (chains_text(folder), pairs_text(folder)))),
        comparison=comparison,
        release=None,
        worth=worth_of(folder, comparison),
    )
