"""What a party tells its site's monitoring system: connection, studies, columns, budget, disk, certificate.

The page is the site's own; no label on it names a study or a column.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from verticil.party.site import Site
from verticil.shared.federation.identity.pki import CredentialSource
from verticil.shared.federation.transport.metrics import Gauge
from verticil.shared.privacy.accounts import COLUMNS, PUBLIC, READERS
from verticil.shared.study.states import State

_RETRYING: Final = re.compile(r"trying again: ([A-Z_]+)")
"""How the stage of a study begins that waits to be tried again."""


def party_gauges(site: Site, credentials: CredentialSource, *, late: Callable[[], int]) -> Iterator[Gauge]:
    """Yield the numbers of this moment.

    Args:
        site: the opened state.
        credentials: the site's own, as they are by now.
        late: messages of open rounds of masked tables that were not ready for their slot.
    """
    heartbeat = site.state.heartbeat()
    if heartbeat is not None:
        at = dt.datetime.strptime(heartbeat.at, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=dt.UTC)
        yield Gauge(
            name="connected",
            help="1 while the party is connected; the label is the error code of the last problem.",
            labels=("problem",),
            values={(heartbeat.problem,): float(heartbeat.connected)},
        )
        yield Gauge(
            name="last_contact_seconds",
            help="When the daemon last wrote its heartbeat, in seconds since 1970.",
            values={(): at.timestamp()},
        )
    studies = site.state.studies()
    states = Counter(record.task.state for record in studies)
    retrying = Counter(
        study_record[1] for record in studies if (study_record := _RETRYING.match(record.stage)) is not None
    )
    failures = Counter(
        code for record in studies if (code := record.failure.code if record.failure else record.task.failure)
    )
    yield Gauge(
        name="studies",
        help="Number of studies in each state, by the last report.",
        labels=("state",),
        values={(state.words,): float(states[state]) for state in State},
    )
    yield Gauge(
        name="study_failures",
        help="Studies that have ended without a release for an error, by its code.",
        labels=("code",),
        values={(code,): float(count) for code, count in failures.items()},
    )
    yield Gauge(
        name="studies_retrying",
        help="Studies whose next step failed and is tried again, by the error code.",
        labels=("code",),
        values={(code,): float(count) for code, count in retrying.items()},
    )
    waiting, n_receipted = site.state.count_spooled()
    yield Gauge(
        name="columns",
        help="Randomized columns of studies that have not ended: waiting to be sent, or receipted by the miner.",
        labels=("state",),
        values={("waiting",): float(waiting), ("receipted",): float(n_receipted)},
    )
    yield Gauge(
        name="sends",
        help="Sends of columns that were begun: first ones, and of the same bytes again, which is free.",
        labels=("kind",),
        values={("first",): float(first := site.ledger.n_rows()), ("again",): float(site.ledger.attempts() - first)},
    )
    limit = site.config.policy.max_epsilon_lifetime
    spending: dict[tuple[str, ...], float] = {
        (dataset,): site.ledger.sum_charges(dataset).epsilon for dataset in site.config.datasets
    }
    yield Gauge(
        name="epsilon_lifetime",
        help="Epsilon charged to each person of the data set, over everything that was ever sent.",
        labels=("dataset",),
        values=spending,
    )
    if math.isfinite(limit):
        yield Gauge(
            name="epsilon_lifetime_limit",
            help="The site's own limit of verticil_epsilon_lifetime.",
            labels=("dataset",),
            values=dict.fromkeys(spending, limit),
        )
    yield from _accounts(site)
    yield Gauge(
        name="disk_free_bytes",
        help="Free bytes on the disk of the state directory.",
        values={(): float(shutil.disk_usage(site.config.state_directory).free)},
    )
    yield Gauge(
        name="masked_late_messages",
        help="Messages of the open rounds of masked tables that were not ready for their slot since this node started.",
        values={(): float(late())},
    )
    yield Gauge(
        name="certificate_not_after_seconds",
        help="When the TLS certificate ends, in seconds since 1970.",
        values={(): credentials.current().not_after.timestamp()},
    )


def _accounts(site: Site) -> Iterator[Gauge]:
    """Yield what was charged to each account of each data set, and the limits that party.toml states for it."""
    limits_of = site.config.policy.limits_of
    charges = {
        (dataset, reader): site.ledger.sum_charges(dataset, reader)
        for dataset in site.config.datasets
        for reader in READERS
        if reader in {COLUMNS, PUBLIC} or limits_of(reader) is not None
    }
    for what in ("epsilon", "delta"):
        sums: dict[tuple[str, ...], float] = {
            (dataset, reader.name): getattr(cost, what) for (dataset, reader), cost in charges.items()
        }
        limits: dict[tuple[str, ...], float] = {
            (dataset, reader.name): getattr(account.lifetime, what)
            for dataset, reader in charges
            if (account := limits_of(reader)) is not None
        }
        yield Gauge(
            name=f"account_{what}_lifetime",
            help=f"{what.capitalize()} charged to each person of the data set on the account of a reader (columns, public).",
            labels=("dataset", "account"),
            values=sums,
        )
        yield Gauge(
            name=f"account_{what}_lifetime_limit",
            help=f"The site's own limit of verticil_account_{what}_lifetime; an account without one has none stated.",
            labels=("dataset", "account"),
            values={place: limit for place, limit in limits.items() if math.isfinite(limit)},
        )
