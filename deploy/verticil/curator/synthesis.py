"""`synthesize`: one owner of a whole table makes synthetic records of it, with one bound for all that is published.

In this order: the study is made, keys and ledger are opened, the table is read, the cost is charged, tables are counted and
get their noise, and everything else follows from these: model, network, records, release. The process may be killed anywhere.
What was charged is not charged again for the same table, study and seed, and gives the same bytes; a release appears whole or
not at all.

Categories and bins are the study's: public knowledge, and protected by nothing. `analyst.draft` proposes them from the table
at hand, for people to replace; a study that was drafted from the very table that it is run on tells of it what no noise
covers.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from verticil.curator.measuring import measurement
from verticil.curator.people import read_whose
from verticil.curator.profiles import measure_profiles, with_bins_of
from verticil.curator.reading import as_file
from verticil.curator.related import files_of
from verticil.curator.spending import UNLIMITED, Spending, charge
from verticil.curator.state import FOLDER, CuratorState, open_state
from verticil.curator.study import Method, changes, owners_study, with_columns_measured
from verticil.party.dataset.sources.source_table import ENDINGS
from verticil.shared.core.errors import GateFailed, Misuse
from verticil.shared.core.name_lists import shortened
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.numerics.model.network import Network
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.figures import delta_words
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.disk import check_place
from verticil.shared.storage.durable import rename, sync_directory
from verticil.shared.study.curator import counts_people
from verticil.shared.study.document import Study
from verticil.shared.study.profiled_columns import grid_study
from verticil.shared.study.tables import profiled, set_sizes, tables_of, tables_sigma
from verticil.shared.study.vocabulary import METHODS

if TYPE_CHECKING:
    import pandas as pd

    from verticil.curator.comparison import Compared
    from verticil.curator.reading import Table
    from verticil.miner.learning.learn import LearnResult
    from verticil.miner.learning.publication import DrawnRecords, PublishedModels
    from verticil.shared.core.arrays import Codes
    from verticil.shared.federation.identity.signing import SigningKey
    from verticil.shared.numerics.joint.estimate import JointEstimate
    from verticil.shared.numerics.joint.worth import Worth
    from verticil.shared.numerics.posterior.result import StructurePosterior
    from verticil.shared.release.content import ReleaseContent
    from verticil.shared.release.formats.posterior import PublishedPosterior

TABLES: Final = (".csv", ".parquet")
"""Ends of files that get the records alone, in small or capital letters."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Synthesized:
    """What a run yields.

    Attributes:
        records: the synthetic records, a column for each variable.
        network: structure, parameters, intervals.
        study: that was carried out.
        changes: how it differs from the one that was given, in words.
        n_records: people in the table.
        spending: what it cost, and what the data set has cost in all.
        warnings: what the owner should know.
        comparison: distances to the table itself, for each method; None: not asked for. For the owner alone.
        out: the folder with ``release`` and ``ca.crt``, or the file; None: nothing was written.
        posterior: with sampled graphs: how probable each is, and the networks that sets of records come from; else None.
        worth: what the records are worth; with `comparison` its distances; None: records come from no joint model.
    """

    records: pd.DataFrame
    network: Network
    study: Study
    changes: tuple[str, ...]
    n_records: int
    spending: Spending
    warnings: tuple[str, ...]
    comparison: tuple[Compared, ...] | None
    out: Path | None
    posterior: StructurePosterior | None = None
    worth: Worth | None = None

    @property
    def chains_agree(self) -> bool | None:
        """Whether the chains that sampled graphs do; None: none were sampled."""
        return None if self.posterior is None else self.posterior.sample.diagnostics.agree


def synthesize(
    table: Path | str | pd.DataFrame,
    study: Study | Path | str,
    *,
    tables: Mapping[str, Path | str | pd.DataFrame] | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    method: Method = "joint",
    seed: int | None = None,
    out: Path | str | None = None,
    state: Path | str | None = None,
    dataset: str | None = None,
    id_column: str | None = None,
    budget: Cost = UNLIMITED,
    compare: bool = False,
    accept_noise: bool = False,
    clock: Callable[[], dt.datetime] = utc_now,
    step: Callable[[str], None] = lambda _line: None,
    show: Callable[[str], None] | None = None,
) -> Synthesized:
    """Make synthetic records of a whole table.

    Args:
        table: a CSV or Parquet file, or a frame; each row is a person.
        study: study.toml, or the study itself; its variables are columns of the table.
        tables: the related tables of the study by name, with several rows a person.
        epsilon, delta: of everything that is published, for the replacement of one person with all of the person's rows;
            None: see `curator.study.owners_study`.
        method: see `curator.study.Method`; the noisy tables are the same for all.
        seed: another one is another measurement, and is charged; None: the study's.
        out: a folder to make, with the signed ``release`` and ``ca.crt``; or a file ending with .csv or .parquet for the records
            alone; None: nothing is written.
        state: folder of secret, ledger and keys; None: ``verticil-curator`` beside the table, of a frame in the working folder.
        dataset: the name by which the ledger adds up; None: the file's name without its ending, of a frame ``table``.
        id_column: column that names the person, for a table that has one; None: each row is taken for a person.
        budget: what all releases of the data set may cost together.
        compare: measure the distances of every method's records to the table. They are a function of the table without noise: for
            the owner, never to be passed on.
        accept_noise: go on although the noise hides the shares of single columns.
        clock: UTC now.
        step: called with what is being done.
        show: called with how far learning is and how long it will still take, often; None: nobody watches.

    Raises:
        Misuse: FILE_EXISTS, FILE_MISSING, STUDY_INVALID, STUDY_UNSUPPORTED, UNREVIEWED, USAGE.
        DataFault: the table cannot be used, DISK_FULL, or LEARNING_FAILED.
        Refusal: BUDGET_EXCEEDED.
    """
    from verticil.curator.comparison import compare_methods
    from verticil.curator.learning import learn_study, records_of
    from verticil.miner.learning.publication import DrawnRecords, publish_models
    from verticil.shared.core.compiled import compiling_told
    from verticil.shared.release.posterior import check_sets
    from verticil.shared.study.draft_review import require_reviewed
    from verticil.shared.study.reading import read_study

    if method not in get_args(Method):
        raise Misuse(
            "USAGE",
            f"the method '{method}' is none of synthesize, expected one of {', '.join(get_args(Method))}",
            hint="generators make records without a release: verticil synthesize --method kipps, with verticil-experiments",
        )
    document = study if isinstance(study, Study) else read_study(Path(study), by_owner=True)
    require_reviewed(document)
    own_study = owners_study(document, method=method, epsilon=epsilon, delta=delta, seed=seed)
    target = None if out is None else free_place(Path(out))
    if own_study.related and target is not None and is_table(target):
        raise Misuse(
            "USAGE",
            f"--out: got '{out}', one file, and study '{own_study.id}' has related tables, expected a folder",
            hint="the folder's release has a file for each table",
        )
    place = Path(table) if isinstance(table, str | Path) else Path("table")
    folder = Path(state) if state is not None else place.parent / FOLDER
    name = dataset or place.stem
    now = clock()
    with (
        as_file(table) as path,
        files_of({} if tables is None else tables, own_study) as related,
        open_state(folder, own_study.parties[0], now=now) as state_of_owner,
    ):
        step("reading the table")
        grid = grid_study(own_study, profiled(own_study))
        whose = read_whose(state_of_owner, path, grid, dataset=name, id_column=id_column, place=place, related=related)
        owner_state, people, name = whose.state, whose.table, whose.name
        own_study = with_columns_measured(own_study, people.n_records)
        check_sets(own_study, people.n_records)
        if not accept_noise:
            _check_noise(own_study, people.n_records)
        release = measurement(own_study, people, dataset=name, secret=owner_state.secret)
        spending = charge(owner_state, own_study, release, budget=budget, now=now)
        whose.remember()
        own_study, people, of_profiles = measure_profiles(own_study, people, release, owner_state.secret)
        with compiling_told(lambda: step("compiling, once")):
            result = learn_study(own_study, people, release, secret=owner_state.secret, step=step, show=show)
            step("drawing records")
            models = publish_models(result, own_study)
            codes, records = records_of(result, own_study, models)
        if target is not None:
            step(f"writing {target}")
            if is_table(target):
                write_records(records, target, own_study)
            else:
                drawn_records = DrawnRecords(codes=codes, table=records)
                content = _content(
                    own_study, result, models, drawn_records, people=people, signer=owner_state.signer, at=spending.at
                )
                _publish(target, content, owner_state)
        comparison = None
        if compare:
            declared, of_owner = with_bins_of(document, own_study), owner_state.secret
            comparison = compare_methods(declared, own_study, people, result, dataset=name, secret=of_owner, step=step)
    return Synthesized(
        records=records,
        network=result.network,
        study=own_study,
        changes=tuple(changes(document, own_study)),
        n_records=people.n_records,
        spending=spending,
        warnings=(*whose.remarks, *of_profiles, *_warnings(own_study, people, spending, result, models.posterior)),
        comparison=comparison,
        out=target,
        posterior=result.posterior,
        worth=None if models.joint is None else _worth_of(result.worth, comparison),
    )


def _check_noise(study: Study, n: int) -> None:
    """Refuse to publish records whose single columns drown in the noise, before anything is charged.

    Raises:
        GateFailed: USELESS. It follows from the study and the number of people, which is public here.
    """
    from verticil.analyst.prediction import drowned_shares, predict_study

    # Whatever records are drawn from, it is the noise on the tables that hides single columns.
    of_tables = dataclasses.replace(study, release=dataclasses.replace(study.release, sample_from="joint"))
    if not counts_people(study) and (finding := drowned_shares(study, n, predict_study(of_tables, n))) is not None:
        raise GateFailed("USELESS", f"study '{study.id}': {finding.message}", hint=f"{finding.hint}; or --accept-noise")


def _worth_of(worth: Worth | None, comparison: Sequence[Compared] | None) -> Worth | None:
    """Return what records of the joint model are worth, by the distances to the table itself where these were measured."""
    rows = {row.method: row.distances for row in comparison or ()}
    if worth is None or "joint" not in rows:
        return worth
    from verticil.curator.comparison import INDEPENDENT
    from verticil.shared.numerics.joint.worth import measured

    one_way, two_way, *_ = (distance.mean for distance in rows["joint"])
    return measured(one_way, two_way, rows[INDEPENDENT][1].mean, worth)


def is_table(place: Path) -> bool:
    """Return whether a place, by its ending, is that of a file with the records alone."""
    return place.suffix.lower() in TABLES


def free_place(out: Path) -> Path:
    """Return the place for what is written, where it can be; an empty folder is none in the way.

    Raises:
        Misuse: USAGE, it has the ending of a table that is not written; FILE_EXISTS; FILE_MISSING, nothing can be made there.
        DataFault: DISK_FULL, FILES_EXHAUSTED.
    """
    if out.suffix.lower() in ENDINGS and not is_table(out):
        raise Misuse(
            "USAGE",
            f"{out}: records are not written as {out.suffix}, expected a folder, or a name that ends with {' or '.join(TABLES)}",
            hint="name another place with --out",
        )
    if out.exists() and not (out.is_dir() and not any(out.iterdir()) and not is_table(out)):
        raise Misuse(
            "FILE_EXISTS", f"{out}: exists already", hint="name another one with --out: nothing is overwritten"
        )
    check_place(out)
    return out


def write_records(records: pd.DataFrame, target: Path, study: Study) -> None:
    """Write records of a study as the file's ending says."""
    from verticil.shared.numerics.knowledge.columns import columns
    from verticil.shared.release.formats.table_files import write_table

    published = columns(study.knowledge, study.schema).published
    write_table(records, target, schema=published, identifier=study.identifier)


def _publish(target: Path, content: ReleaseContent, owner_state: CuratorState) -> None:
    """Write, sign and verify beside the place, then let it appear there whole."""
    from verticil.shared.release.folder.writing import write_release
    from verticil.shared.release.manifest import sign_release, write_bytes
    from verticil.shared.release.verification import verify_release

    staging = target.absolute().with_name(f".{target.name}.partial")
    shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
    with disk_faults(target):
        try:
            staging.mkdir()
            release = write_release(staging / "release", content)
            sign_release(release, owner_state.signer, ca_certificate=owner_state.authority)
            write_bytes(staging / "ca.crt", owner_state.authority)
            verify_release(release, ca_certificate=owner_state.authority)
            rename(staging, target)
            sync_directory(target.absolute().parent)
        finally:
            shutil.rmtree(staging, ignore_errors=True)


def copies_of_one(people: Sequence[Codes], records: Sequence[Codes]) -> int:
    """Return how many records equal, in all columns, the row of a person whom no other person equals.

    Args:
        people: (n,) codes of each column.
        records: the same of synthetic records.

    >>> import numpy as np
    >>> rows = lambda *columns: [np.array(column, dtype=np.uint8) for column in columns]
    >>> copies_of_one(rows([0, 0, 1], [1, 1, 0]), rows([1, 1, 0], [0, 0, 1]))  # (0, 1) is of two people
    2
    """
    import numpy as np

    rows, counts = np.unique(np.stack(people, axis=1), axis=0, return_counts=True)
    single = {row.tobytes() for row in rows[counts == 1]}
    record_rows = np.ascontiguousarray(np.stack(records, axis=1).astype(rows.dtype))
    return sum(row.tobytes() in single for row in record_rows)


def _content(
    study: Study,
    result: LearnResult,
    models: PublishedModels,
    records: DrawnRecords,
    *,
    people: Table,
    signer: SigningKey,
    at: dt.datetime,
) -> ReleaseContent:
    from verticil.miner.learning.publication import Origin, content_of
    from verticil.shared.documents.record import encode
    from verticil.shared.privacy import events
    from verticil.shared.release.content import COPIES
    from verticil.shared.release.curator import Measurement, drawn_event
    from verticil.shared.study import canonical

    digest = canonical.digest(study)
    measurement = Measurement(
        party=study.parties[0],
        effective_sha256=digest,
        n_records=result.n_records,
        event=events.to_json(drawn_event(study)),
        charged_at=at,
    )
    origin = Origin(
        study_digest=digest,
        n_common=result.n_records,
        published_at=at,
        statements=(signer.sign(encode(measurement)),),
        search={} if study.tables else {COPIES: copies_of_one(people.codes, records.codes)},
        states_strengths=bool(result.edge_strength),
    )
    return content_of(result, models, records, study, origin)


def _total(cost: Cost) -> str:
    if math.isinf(cost.epsilon):
        return "more than any epsilon bounds"
    return f"epsilon {cost.epsilon:.4g}, delta {cost.delta:.4g}"


def delta_warning(people: Table, spending: Spending) -> Iterator[str]:
    """Yield a warning of a delta that is large for so many people, as ``study check`` gives it."""
    if (words := delta_words(people.n_records, spending.cost.delta)) is not None:
        yield "; ".join(words)


def _consequence(joint: JointEstimate) -> str:
    """Say what follows from a fit that did not reach its tables."""
    percent, nearer = round(100 * joint.alpha), joint.tables_nearer
    words = f"; {percent} % of what it shows of how columns go together is kept" if 0 < percent < 100 else ""
    if nearer is not None:
        words += f"; the tables themselves, negative counts as 0, are estimated to be {nearer:.1f} times nearer to the people"
    return words


def _warnings(
    study: Study, people: Table, spending: Spending, result: LearnResult, posterior: PublishedPosterior | None
) -> Iterator[str]:
    from verticil.shared.release.posterior import posterior_remarks

    yield from people.remarks
    yield from delta_warning(people, spending)
    if study.records_from == "network" and result.pair_check is not None and result.pair_check.missing:
        pairs = [" x ".join(study.schema.names[place] for place in pair) for *pair, _ in result.pair_check.missing]
        yield (
            f"{len(pairs)} pairs that the tables link are nearly independent in the network, and so in its records: "
            f"{shortened(pairs)}; --method joint keeps them"
        )
    if result.joint is not None and not result.joint.reached:
        yield f"the joint model fits its noisy tables less closely than expected{_consequence(result.joint)}"
    if spending.others:
        yield (
            f"another run on this table: with this one it has cost each person {_total(spending.total)} in all; before: "
            f"{'; '.join(spending.others)}"
        )
    if result.posterior is not None and not result.posterior.sample.diagnostics.agree:
        yield (
            "the chains that sampled graphs do not agree: take the probabilities of edges and the sets for no posterior; ask for "
            "more steps, fewer parents (max_parents), or prior = 'penalty'"
        )
    if posterior is not None:
        yield from posterior_remarks(posterior, study.schema.names)
    if study.tables is None:
        yield "no differential privacy: what is published follows from the records as they are, and no epsilon bounds it"
    if study.tables is None or METHODS[study.structure.method].whole_table:
        return
    sigma = tables_sigma(study)
    noisy = [names for names, cells in _relations(study) if sigma > people.n_records / cells]
    if noisy:
        yield (
            f"noise of {sigma:.3g} people on each count is more than the average count of {len(noisy)} of "
            f"{set_sizes(study).pairs} tables, as of {' x '.join(noisy[0])}: declare fewer categories, or allow a larger epsilon"
        )


def _relations(study: Study) -> Iterator[tuple[tuple[str, ...], int]]:
    """Yield names and number of cells of each table of pairs and triples."""
    for members in tables_of(study)[: set_sizes(study).pairs]:
        units = [study.units[index] for index in members]
        yield tuple(name for unit in units for name in unit.variables), math.prod(u.transition.n_states for u in units)
