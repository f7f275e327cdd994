"""What a party tells its site's monitoring system: connection, studies, budget, disk, certificate. The page is the site's own."""

from __future__ import annotations

import datetime as dt
import math
import shutil
from collections import Counter
from collections.abc import Iterator

from verticil.party.control.site import Site
from verticil.shared.identity.pki import CredentialSource
from verticil.shared.study.states import State
from verticil.shared.transport.serving.metrics import Gauge

__all__ = ["party_gauges"]


def party_gauges(site: Site, credentials: CredentialSource) -> Iterator[Gauge]:
    """The numbers of this moment.

    Args:
        site: the opened state.
        credentials: the site's own, as they are by now.
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
    states = Counter(record.task.state for record in site.state.studies())
    yield Gauge(
        name="studies",
        help="Studies by state, as last told.",
        labels=("state",),
        values={(state.words,): float(states[state]) for state in State},
    )
    limit = site.config.policy.max_epsilon_lifetime
    spent: dict[tuple[str, ...], float] = {(dataset,): site.ledger.spent(dataset) for dataset in site.config.datasets}
    yield Gauge(
        name="epsilon_lifetime",
        help="Epsilon charged to each person of the data set, over everything that was ever sent.",
        labels=("dataset",),
        values=spent,
    )
    if math.isfinite(limit):
        yield Gauge(
            name="epsilon_lifetime_limit",
            help="The site's own limit of verticil_epsilon_lifetime.",
            labels=("dataset",),
            values=dict.fromkeys(spent, limit),
        )
    yield Gauge(
        name="disk_free_bytes",
        help="Free bytes on the disk of the state directory.",
        values={(): float(shutil.disk_usage(site.config.state_directory).free)},
    )
    yield Gauge(
        name="certificate_not_after_seconds",
        help="When the TLS certificate ends, in seconds since 1970.",
        values={(): credentials.current().not_after.timestamp()},
    )
