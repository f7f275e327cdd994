"""`generate`: synthetic records of a whole table by the generator of KIPPS, with one bound for all that is published.

In the order of `curator.synthesis`: the study is made, ledger and secret are opened, the table is read, the cost is charged, the
generator is trained, records are drawn. A generator has no network whose probabilities a release could show and a reader could
draw from again: what is published is records and a statement, and nothing of it is signed.

The noise follows from the owner's secret and from everything that the training depends on, the version of torch and the kind of
machine among it: sums that are rounded otherwise lead, step by step, to another generator, and two of them under the same noise
would tell more than one. So another torch is another measurement, and is charged.
"""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np

from verticil.curator.measuring import digest_of, noise_key
from verticil.curator.people import read_whose
from verticil.curator.reading import Table, as_file
from verticil.curator.spending import UNLIMITED, Spending, charge
from verticil.curator.state import FOLDER, CuratorState, open_state
from verticil.curator.study import owners_study
from verticil.curator.synthesis import delta_warning, free_place, is_table, write_records
from verticil.gan.accounting import GeneratorTraining, study_training
from verticil.gan.settings import AnySettings, AutoencoderSettings, Settings, generator_name, settings_text
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.storage.secret import secret_id
from verticil.shared.core.errors import Misuse
from verticil.shared.core.installation import install_experiments
from verticil.shared.documents.json_document import Json
from verticil.shared.documents.record import write
from verticil.shared.federation.identity.pki import utc_now
from verticil.shared.privacy import events
from verticil.shared.privacy.accounts import Cost
from verticil.shared.storage.database import disk_faults
from verticil.shared.storage.durable import rename
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.draft_review import require_reviewed
from verticil.shared.study.reading import read_study
from verticil.shared.synthesis.synthesis import decode_of_study

if TYPE_CHECKING:
    import datetime as dt

    import pandas as pd

    from verticil.gan.sampling import Generator, Sampled

KIPPS: Final = "kipps"
"""The method's name: a generator and no network, so no release."""
STATEMENT: Final = (
    "One organisation held the whole table. It trained a generator with noise on every sum of gradients and on every count that "
    "was used, so that the records are (epsilon, delta) differentially private for the replacement of one person's row. The "
    "number of people is public and not covered. That the noise was drawn rests on the organisation's word. There is no network "
    "here that the records could be checked against, and nothing is signed."
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Generated:
    """What a run yields.

    Attributes:
        records: the synthetic records, a column for each variable, and for each that follows from others.
        study: whose columns, categories and knowledge were used.
        event: what was drawn.
        n_records: people in the table.
        spending: what it cost, and what the data set has cost in all.
        sampled: how many records were drawn for these, and how many of them broke which rule.
        out: the folder or the file; None: nothing was written.
        generator: name of the generator, of `settings.GENERATORS`.
        warnings: what the owner should know.
    """

    records: pd.DataFrame
    study: Study
    event: GeneratorTraining
    n_records: int
    spending: Spending
    sampled: Sampled
    out: Path | None
    generator: str
    warnings: tuple[str, ...]


def generate(
    table: Path | str | pd.DataFrame,
    study: Study | Path | str,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    seed: int | None = None,
    out: Path | str | None = None,
    state: Path | str | None = None,
    dataset: str | None = None,
    id_column: str | None = None,
    budget: Cost = UNLIMITED,
    settings: AnySettings | None = None,
    clock: Callable[[], dt.datetime] = utc_now,
    step: Callable[[str], None] = lambda _line: None,
) -> Generated:
    """Make synthetic records of a whole table by a generator.

    Args:
        table, study, epsilon, delta, seed, state, dataset, id_column, budget, clock, step: as for `curator.synthesize`.
        out: a folder to make, with records, study and statement; or a file ending with .csv or .parquet for the records alone;
            None: nothing is written.
        settings: of the training, and with them which generator; None: the usual ones of the adversarial generator.

    Raises:
        Misuse: FILE_EXISTS, FILE_MISSING, STUDY_INVALID, STUDY_UNSUPPORTED, UNREVIEWED; USAGE, torch is not installed.
        DataFault: the table cannot be used; LEARNING_FAILED, too few records keep the rules; STATE_CORRUPT.
        Refusal: BUDGET_EXCEEDED.
    """
    given = study if isinstance(study, Study) else read_study(Path(study), by_owner=True)
    require_reviewed(given)
    if find_spec("torch") is None:
        raise Misuse(
            "USAGE",
            f"the method '{KIPPS}' needs torch, which is not installed; nothing was read or charged",
            hint=install_experiments("gan"),
        )
    from verticil.gan.sampling import sample

    owned = owners_study(given, method=KIPPS, epsilon=epsilon, delta=delta, seed=seed)
    target = None if out is None else free_place(Path(out))
    place = Path(table) if isinstance(table, str | Path) else Path("table")
    folder = Path(state) if state is not None else place.parent / FOLDER
    name, numbers, now = dataset or place.stem, settings or Settings(), clock()
    with as_file(table) as path, open_state(folder, owned.parties[0], now=now) as state_of_owner:
        step("reading the table")
        whose = read_whose(state_of_owner, path, owned, dataset=name, id_column=id_column, place=place)
        desk, people, name = whose.state, whose.table, whose.name
        event = study_training(owned, steps=numbers.steps, rate=numbers.rate(people.n_records))
        column_draw = _training(owned, people, event, numbers, dataset=name, desk=desk)
        spending = charge(desk, owned, column_draw, budget=budget, now=now)
        whose.remember()
        step("training the generator")
        trained = _trained(
            owned,
            people,
            event,
            numbers,
            key=noise_key(column_draw, desk.secret),
            checkpoint=_checkpoint(folder, column_draw),
        )
        step("drawing records")
        wanted = owned.release.synthetic_records or people.n_records
        sampled = sample(trained, owned.support(), wanted, seed=owned.release.seed)
        records = decode_of_study(owned, sampled.codes, np.random.Generator(np.random.Philox(owned.release.seed)))
        found = Generated(
            records=records,
            study=owned,
            event=event,
            n_records=people.n_records,
            spending=spending,
            sampled=sampled,
            out=target,
            generator=generator_name(numbers),
            warnings=(*whose.remarks, *people.remarks, *delta_warning(people, spending)),
        )
        if target is not None:
            step(f"writing {target}")
            if is_table(target):
                write_records(records, target, owned)
            else:
                _publish(target, found)
    return found


def _trained(
    study: Study,
    table: Table,
    event: GeneratorTraining,
    settings: AnySettings,
    *,
    key: bytes,
    checkpoint: Path,
) -> Generator:
    """Train the generator that the settings are of, or go on from its checkpoint."""
    from verticil.gan import autoencoder, training

    if isinstance(settings, AutoencoderSettings):
        return autoencoder.train(
            table.codes, study.schema, study.knowledge, event, key=key, settings=settings, checkpoint=checkpoint
        )
    return training.train(
        table.codes, study.schema, study.knowledge, event, key=key, settings=settings, checkpoint=checkpoint
    )


def _training(
    study: Study, table: Table, event: GeneratorTraining, settings: AnySettings, *, dataset: str, desk: CuratorState
) -> ColumnDraw:
    """The training as the ledger tells measurements apart: everything that it depends on."""
    import torch  # pyright: ignore[reportMissingImports]

    known = None if study.knowledge is None else write(study.knowledge)
    named = [KIPPS, table.sources, [digest.hex() for digest in table.codebooks], known]
    machine = [version("torch"), version("numpy"), platform.machine(), torch.backends.cpu.get_cpu_capability()]
    drawn = [events.to_json(event), settings_text(settings), study.structure.seed, machine]
    return ColumnDraw(
        variables=study.schema.names,
        dataset=dataset,
        sources=table.sources,
        codebook_digest=hashlib.sha256(json.dumps(named, sort_keys=True).encode()).digest(),
        transition_digest=hashlib.sha256(json.dumps(drawn, sort_keys=True).encode()).digest(),
        secret_id=secret_id(desk.secret.value),
        fingerprint=table.fingerprint,
        event=event,
    )


def _checkpoint(folder: Path, column_draw: ColumnDraw) -> Path:
    """Where a training goes on after it was killed; it stays, so that the same again trains nothing."""
    place = folder / "generators"
    with disk_faults(place):
        place.mkdir(mode=0o700, exist_ok=True)
    return place / f"{digest_of(column_draw).hex()}.pt"


def _publish(target: Path, found: Generated) -> None:
    """Records, study and statement appear in their folder together."""
    staging = target.absolute().with_name(f".{target.name}.partial")
    with disk_faults(target):
        shutil.rmtree(staging, ignore_errors=True)  # of a run that was killed
        staging.mkdir()
        for name in ("synthetic.csv", "synthetic.parquet"):
            write_records(found.records, staging / name, found.study)
        (staging / "study.json").write_bytes(canonical.to_bytes(found.study))
        files = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(staging.iterdir())}
        statement = {
            "statement": STATEMENT,
            "method": KIPPS,
            "generator": found.generator,
            "people": found.n_records,
            "records": len(found.records),
            "epsilon": found.spending.cost.epsilon,
            "delta": found.spending.cost.delta,
            "relation": found.event.relation,
            "event": events.document(found.event),
            "charged_at": f"{found.spending.at:%Y-%m-%dT%H:%M:%SZ}",
            "rules": violations(found.sampled),
            "versions": {"python": platform.python_version(), **{name: version(name) for name in ("numpy", "torch")}},
            "sha256": files,
        }
        (staging / "statement.json").write_text(json.dumps(statement, indent=2) + "\n", encoding="utf-8")
        rename(staging, target)


def violations(sampled: Sampled) -> dict[str, Json]:
    """What of the drawn records broke the rules: of the generator's own, which are no data."""
    return {
        "drawn": sampled.drawn,
        "left_out": sampled.left_out,
        "left_out_share": sampled.left_out / max(sampled.drawn, 1),
        "broken": dict(sampled.violated),
        "broken_after": 0,
    }
