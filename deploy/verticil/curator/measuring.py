"""Tables of the owner's columns with noise: all that is looked at from then on.

Counts of all pairs of columns, and of the three that the study names, get discrete Gaussian noise from a key of their own.
The key follows from the owner's secret and from everything that says what is measured: the people's codes, categories, the
tables, which columns are in order, how much noise, and the seed. So the same measurement gives the same numbers, whatever is
learned from it afterwards and how often, and no other measurement shares its noise.
"""

from __future__ import annotations

import hashlib
import json
from typing import Final

from verticil.curator.reading import Table
from verticil.miner.learning.exact_tables import counted_tables
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.local_dataset import unit_codes
from verticil.party.storage.secret import SiteSecret, secret_id
from verticil.shared.documents.json_document import Json
from verticil.shared.documents.record import write
from verticil.shared.mechanisms.gaussian import derived_key
from verticil.shared.numerics.joint.coarse import noised_in_sets
from verticil.shared.numerics.joint.noisy_tables import NoisyTables
from verticil.shared.privacy import events
from verticil.shared.release.curator import drawn_event
from verticil.shared.study.document import Study
from verticil.shared.study.tables import coarse_pairs, set_sigmas, table_sigmas, tables_of
from verticil.shared.study.vocabulary import METHODS

_PURPOSE: Final = b"verticil/curator/noise/v1"


def measurement(study: Study, table: Table, *, dataset: str, secret: SiteSecret) -> ColumnDraw:
    """Return what is measured, as the ledger tells measurements apart.

    Args:
        study: the owner's study.
        table: the people.
        dataset: name of the data set.
        secret: of the owner.
    """
    # What chooses its tables itself would, under other rules, choose others, and tell of more than it was charged for.
    tables = _choosing(study) if METHODS[study.structure.method].whole_table else tables_of(study)
    together = [[unit.variables, unit.impossible] for unit in study.units if unit.is_compound]
    measured = [table.sources, [digest.hex() for digest in table.codebooks], tables, *([together] if together else [])]
    unordered = [variable.name for variable in study.schema.variables if not variable.ordered]
    if unordered and coarse_pairs(study):  # runs follow from the order, which no codebook has
        measured.append({"unordered": unordered})
    codebook_document = json.dumps(measured, sort_keys=True)
    event = drawn_event(study)
    event_document = json.dumps([events.to_json(event), study.structure.seed])
    return ColumnDraw(
        variables=study.schema.names,
        dataset=dataset,
        sources=table.sources,
        codebook_digest=hashlib.sha256(codebook_document.encode()).digest(),
        transition_digest=hashlib.sha256(event_document.encode()).digest(),
        secret_id=secret_id(secret.value),
        fingerprint=table.fingerprint,
        event=event,
    )


def _choosing(study: Study) -> dict[str, Json]:
    """Return what PrivBayes chooses its tables by; its neighbours are the event's, and the rest follows from what it measured."""
    tau = study.privbayes.tau
    return write(study.structure) | ({} if tau is None else {"tau": tau})


def digest_of(column_draw: ColumnDraw) -> bytes:
    """Return the SHA-256 that names a measurement: 32 bytes."""
    return hashlib.sha256(column_draw.to_json().encode()).digest()


def noise_key(column_draw: ColumnDraw, secret: SiteSecret) -> bytes:
    """Return the key of a measurement's noise: 32 bytes, secret."""
    return derived_key(secret.value, _PURPOSE, digest_of(column_draw))


def measure_tables(study: Study, table: Table, column_draw: ColumnDraw, secret: SiteSecret) -> NoisyTables:
    """Count, and add the noise; the ledger has been charged for it.

    Args:
        study, table: as for `measurement`.
        column_draw: of them.
        secret: of the owner.
    """
    own = dict(zip(study.schema.names, table.codes, strict=True))
    columns = [unit_codes(study, index, own) for index in range(len(study.units))]
    exact, key = counted_tables(columns, study), noise_key(column_draw, secret)
    coarse_sigma = set_sigmas(study).coarse
    return noised_in_sets(exact, coarse_pairs(study), key, sigma=table_sigmas(study), coarse_sigma=coarse_sigma)
