"""`simulate`: a whole study in one process, with the code of the real nodes.

Parties and miner are the production ones, on folders that `provision` lays out; only the transport is another: messages go
through `InMemoryCoordinator` instead of gRPC, serialized and parsed on their way. Randomization, ledger, approval, alignment,
storage, learning, signing and release are what they are in a federation.

Whoever simulates holds all the tables. The release says ``simulation: true``.

A study between peers in one process: every party's own node, joined by memory in place of gRPC.

With a learned structure there is a miner too, which gets scores and holds no data; and where parties are reached through it.

The tables of a simulation, laid out as one file per party, so that the parties read them as they read any table.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import shutil
import tempfile
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from verticil.party.dataset.sources.open_source import header, missing_columns, read_parts
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.shared.core.errors import DataFault, Misuse, PeerFault, VerticilError, from_code
from verticil.shared.numerics.model.network import Network
from verticil.shared.study.document import Study
from verticil.tables.reading import check_is_file, guess_reading
from verticil.tables.settings import Settings, settings_of, with_columns

if TYPE_CHECKING:
    import datetime as dt

    import pandas as pd

    from verticil.evaluate.measures.fidelity import Comparison
    from verticil.miner.service.node import MinerNode
    from verticil.shared.federation.identity.identity import Identity
    from verticil.shared.federation.transport.interface import Coordinator, Peer, Service
    from verticil.simulation.provision import Provisioned, Site

Tables: TypeAlias = "Mapping[str, Path | str | pd.DataFrame | DatasetRule] | Path | str | pd.DataFrame"


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
        Misuse: UNREVIEWED.
        VerticilError: whatever a node would refuse or fail with in a federation.

    A call from a notebook, where an event loop runs already, works too: the simulation has its own, in a thread of its own.
    """
    from verticil.party.operator.peer_commands import copy_release
    from verticil.shared.study.protocols import protocol_of
    from verticil.shared.study.reading import read_study
    from verticil.shared.study.review import require_reviewed

    document = study if isinstance(study, Study) else read_study(Path(study))
    if not unreviewed:
        require_reviewed(document)
    target = Path(out) if out is not None else None
    if target is not None and target.exists():
        raise Misuse("FILE_EXISTS", f"{target}: exists already", hint="name another folder")
    with tempfile.TemporaryDirectory(prefix="verticil-simulation-") as temporary:
        place = Path(temporary)
        nodes = _provision(place, document, tables, id_column=id_column, seed=seed)
        folder = place / "release"
        carry_out = run_federation if protocol_of(document).coordinated else run_peers
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
        parties = _parties(
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
                summary = await follow_study(control, digest, step=step, check=partial(_check, parties))
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
    )

    total = release_summary(folder, study).epsilon_per_person
    return Simulated(
        network=model_json.read((folder / "model.json").read_bytes()),
        synthetic=pd.read_parquet(folder / "synthetic.parquet"),
        n_common=n_common,
        epsilon_per_person=float("inf") if total is None else total,
        costs=costs_text(folder),
        parameters=parameters_text(folder, study),
        pairs="\n".join(filter(None, (chains_text(folder), pairs_text(folder)))),
        comparison=compare_with_tables(nodes, folder, study, seed=seed) if compare else None,
        release=None,
    )


WrapPeer: TypeAlias = "Callable[[str, str, Peer], Peer]"
"""For tests: put something between a party (first) and a peer that it asks (second)."""

_LOOK_SECONDS: Final = 0.02


class _Memory:
    """`PeerNetwork` of one party, over the services of all."""

    def __init__(self, services: MutableMapping[str, Service], identity: Identity, wrap: WrapPeer | None) -> None:
        self._services = services
        self._identity = identity
        self._wrap = wrap

    def dial(self, name: str) -> Peer:
        from verticil.shared.federation.transport.in_memory import InMemoryPeer

        if (service := self._services.get(name)) is None:
            raise PeerFault("UNREACHABLE", f"'{name}' does not serve its peers yet")
        line = InMemoryPeer(service, self._identity)
        return self._wrap(self._identity.name, name, line) if self._wrap is not None else line

    @contextlib.asynccontextmanager
    async def serve(self, service: Service) -> AsyncGenerator[None]:
        self._services[self._identity.name] = service
        try:
            yield None
        finally:
            del self._services[self._identity.name]


async def run_peers(
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
    """Serve the parties of provisioned folders in this event loop until every one of them has published.

    Args:
        nodes, study, is_seeded, wrap, clock, step: as for `run_federation`, which returns and raises the same.
        release: folder to make: the parties' releases are equal, and this is one of them.
        wrap_peer: see `WrapPeer`.
    """
    from verticil.shared.documents.config import RELAY
    from verticil.shared.federation.identity.pki import utc_now
    from verticil.shared.study.protocols import protocol_of
    from verticil.simulation.peers import load_everywhere, take_home, until_published

    now = clock if clock is not None else utc_now
    digest = await asyncio.to_thread(load_everywhere, nodes.parties, study, at=now(), unreviewed=True)
    stop = asyncio.Event()
    async with contextlib.AsyncExitStack() as stack:
        miner = None
        if protocol_of(study).searches_scores(study) or RELAY in nodes.peers.values():
            miner = await stack.enter_async_context(serving_miner(nodes, now))
        tasks = _parties(
            nodes, miner, stop, between=True, is_seeded=is_seeded, wrap=wrap, wrap_peer=wrap_peer, clock=now
        )
        check = partial(_check, tasks)
        try:
            await until_published(nodes.parties, digest, step=step, check=check, look_seconds=_LOOK_SECONDS)
        finally:
            stop.set()
            if miner is not None:
                miner.changes.close()
            await asyncio.gather(*tasks, return_exceptions=True)
    place = release.parent / "taken"
    folders, verification = await asyncio.to_thread(
        take_home, nodes.parties, digest, place, ca_certificate=nodes.ca_certificate.read_bytes()
    )
    next(iter(folders.values())).rename(release)
    shutil.rmtree(place)
    return verification.common_records


@contextlib.asynccontextmanager
async def serving_miner(
    nodes: Provisioned, clock: Callable[[], dt.datetime], *, is_seeded: bool = False
) -> AsyncGenerator[MinerNode]:
    """Serve the miner of provisioned folders, in this event loop, until the context ends.

    `is_seeded`: the manifest says so.
    """
    from verticil.miner.config import load_miner
    from verticil.miner.scheduler.learning import InlineLearning
    from verticil.miner.service.node import MinerNode, sealing_of
    from verticil.shared.federation.identity.pki import load_credentials
    from verticil.shared.federation.identity.signing import SigningKey

    config = load_miner(nodes.miner / "miner.toml")
    credentials = load_credentials(config.certificate, config.key, config.federation)
    async with MinerNode(
        config.state_directory,
        identity=credentials.identity,
        authority=credentials.ca_pem,
        signer=SigningKey.load(config.signing_key, config.certificate),
        executor=InlineLearning(clock=clock),
        limits=config.limits,
        randomized_days=config.randomized_days,
        sealing=sealing_of(config),
        simulation=True,
        seed_derived=is_seeded,
        clock=clock,
    ) as node:
        yield node


def _parties(
    nodes: Provisioned,
    miner: MinerNode | None,
    stop: asyncio.Event,
    *,
    between: bool,
    is_seeded: bool,
    wrap: Callable[[str, Coordinator], Coordinator] | None,
    wrap_peer: WrapPeer | None = None,
    clock: Callable[[], dt.datetime],
) -> list[asyncio.Task[None]]:
    """Start the nodes of the parties; `between`: they reach each other, too."""
    from verticil.party.config import load_party
    from verticil.party.daemon import run_party
    from verticil.shared.federation.identity.pki import load_credentials
    from verticil.shared.federation.transport.in_memory import InMemoryCoordinator

    services: dict[str, Service] = {}
    tasks: list[asyncio.Task[None]] = []
    for name, folder in nodes.parties.items():
        party = load_party(folder / "party.toml")
        identity = load_credentials(party.certificate, party.key, party.federation).identity

        def dial(name: str = name, identity: Identity = identity) -> Coordinator:
            if miner is None:
                raise PeerFault("UNREACHABLE", "this federation has no miner")
            line = InMemoryCoordinator(miner.coordinator, identity)
            return wrap(name, line) if wrap is not None else line

        work = run_party(
            party,
            dial if miner else None,
            peers=_Memory(services, identity, wrap_peer) if between else None,
            stop=stop,
            simulation=True,
            seed_derived=is_seeded,
            clock=clock,
        )
        tasks.append(asyncio.create_task(work, name=name))
    return tasks


def _check(parties: list[asyncio.Task[None]]) -> None:
    for task in parties:
        if task.done():
            task.result()  # raises what ended the party


def lay_out(folder: Path, study: Study, tables: Tables, *, id_column: str | None) -> list[Site]:
    """Write one file per party.

    Args:
        folder: where tables are written that are not files already.
        study: says whose column is whose.
        tables: as for `simulate`.
        id_column: name of the id column; None: that of the study's draft, else ``id``.

    Raises:
        Misuse: USAGE when a party has no table or a table no party.
        DataFault: DATA_FILE_MISSING; the one table cannot be read or lacks a column.
    """
    folder.mkdir(parents=True, exist_ok=True)
    settings = {name: settings_of(study, name) for name in study.parties}
    if id_column is None:
        id_column = next((item.id_column for item in settings.values() if item.id_column), "id")
    if isinstance(tables, Mapping):
        for name in tables:
            if name not in study.parties:
                raise Misuse(
                    "USAGE", f"table of '{name}': no such party", hint=f"the parties are {', '.join(study.parties)}"
                )
        if missing := [name for name in study.parties if name not in tables]:
            raise Misuse("USAGE", f"no table for {', '.join(missing)}", hint="give each party a table: PARTY=FILE")
        return [_site(study, name, tables[name], folder, id_column) for name in study.parties]
    whole = _read(tables, sheet=next((item.sheet for item in settings.values() if item.sheet), ""))
    if id_column not in whole.columns:
        whole = whole.assign(**{id_column: [f"{row:012d}" for row in range(len(whole))]})
    sites: list[Site] = []
    for name in study.parties:
        columns = [_column(settings[name], study.schema[place].name) for place in study.schema.owned_by(name)]
        if absent := [column for column in columns if column not in whole.columns]:
            raise DataFault(
                "DATA_COLUMN_MISSING",
                f"{tables.name if isinstance(tables, Path) else 'table'}: no column {', '.join(map(repr, absent))}; "
                f"the table has {len(whole.columns)} columns",
                hint="is the first row a header with the study's names, and is the delimiter right?",
            )
        sites.append(_site(study, name, whole[[id_column, *columns]], folder, id_column))
    return sites


def _column(settings: Settings, variable: str) -> str:
    """Return the column of a variable."""
    return settings.columns[variable].source if variable in settings.columns else variable


def _read(table: Path | str | pd.DataFrame, *, sheet: str = "") -> pd.DataFrame:
    import pandas as pd

    if isinstance(table, pd.DataFrame):
        return table
    path = Path(table)
    check_is_file(path)
    rule = guess_reading(path, sheet=sheet).rule
    names = header(rule)
    if (fault := missing_columns(rule, names, names)) is not None:
        raise fault
    parts = [{name: column.texts() for name, column in part.columns.items()} for part in read_parts(rule, names)]
    return pd.DataFrame({name: [text for part in parts for text in part.get(name, ())] for name in names}, dtype=str)


def _site(
    study: Study, name: str, table: Path | str | pd.DataFrame | DatasetRule, folder: Path, id_column: str
) -> Site:
    # Nothing is refused for its epsilon here: a simulation asks what a study would yield.
    own_names = tuple(study.schema[position].name for position in study.schema.owned_by(name))
    if isinstance(table, DatasetRule):
        rule = table
    elif isinstance(table, str | Path):
        check_is_file(path := Path(table))
        rule = dataclasses.replace(guess_reading(path, sheet=settings_of(study, name).sheet).rule, id=id_column)
    else:
        path = folder / f"{name}.parquet"
        table.to_parquet(path, index=False)
        rule = DatasetRule(path=path, format="parquet", id=id_column)
    from verticil.simulation.provision import Site

    rule = with_columns(study, name, rule)
    return Site(name=name, table=rule, allow_infinite=own_names)
