"""What the miner tells a monitoring system of itself, besides its calls: studies, columns, learning, parties, disk, certificates.

No label names a study.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from verticil.miner.rules.leases import Leases
from verticil.miner.rules.message_rounds import MessageRounds
from verticil.miner.rules.session import Session
from verticil.miner.service.relay import Relay
from verticil.shared.federation.identity.pki import CredentialSource
from verticil.shared.federation.transport.metrics import Gauge
from verticil.shared.study.states import State, is_final

_PROGRESS: Final = re.compile(r"([a-z]+) (\d+) %")
"""What the scheduler says of learning that is under way."""


def miner_gauges(
    session: Session,
    leases: Leases,
    relay: Relay,
    directory: Path,
    credentials: CredentialSource,
    *,
    rounds: MessageRounds,
    detail: Callable[[bytes], str],
) -> Iterator[Gauge]:
    """Yield the numbers of this moment.

    Args:
        session: the studies.
        leases: who is online. Only parties of studies that have not ended are listed.
        relay: sealed envelopes on their way.
        directory: state directory, for the disk.
        credentials: the miner's own, as they are by now.
        rounds: of the studies that have some.
        detail: of a study, what its learning does; see `Scheduler.detail`.
    """
    states: Counter[State] = Counter()
    parties: set[str] = set()
    columns, failures, retries, percents = Counter[str](), Counter[str](), 0, dict[tuple[str, ...], float]()
    for digest in session.catalogue.digests():
        record = session.record(digest)
        states[state := session.state(record)] += 1
        retries += record.attempts
        if record.failure is not None:
            failures[record.failure.code] += 1
        if not is_final(state):
            parties.update(session.proposal(record).parties)
            columns.update(
                stored=len(record.columns),
                damaged=len(record.damaged),
                arriving=len(session.catalogue.uploads.of_study(digest)),
            )
            if (match := _PROGRESS.fullmatch(detail(digest))) is not None:
                stage, percent = (match[1],), float(match[2])
                percents[stage] = min(percents.get(stage, percent), percent)
    yield Gauge(
        name="studies",
        help="Studies by state.",
        labels=("state",),
        values={(state.words,): float(states[state]) for state in State},
    )
    yield Gauge(
        name="party_online",
        help="1 while the party's lease runs, for every party of a study that has not ended.",
        labels=("party",),
        values={(party,): float(leases.online(party)) for party in sorted(parties)},
    )
    yield Gauge(
        name="columns",
        help="Columns of studies that have not ended: arriving, stored, or damaged on this disk and asked for again.",
        labels=("state",),
        values={(state,): float(columns[state]) for state in ("arriving", "stored", "damaged")},
    )
    yield Gauge(
        name="upload_bytes_outstanding",
        help="Bytes that are still to come of all lists and columns that were begun.",
        values={(): float(session.catalogue.uploads.outstanding_bytes())},
    )
    yield Gauge(
        name="learning_percent",
        help="Progress of learning by stage (such as searching); with several studies, of the one that is least far.",
        labels=("stage",),
        values=percents,
    )
    yield Gauge(
        name="learning_retries",
        help="Number of times that learning was repeated because a process died or columns were damaged; all studies.",
        values={(): float(retries)},
    )
    yield Gauge(
        name="study_failures",
        help="Studies that have failed, by error code.",
        labels=("code",),
        values={(code,): float(count) for code, count in failures.items()},
    )
    yield Gauge(
        name="disk_free_bytes",
        help="Free bytes on the disk of the state directory.",
        values={(): float(shutil.disk_usage(directory).free)},
    )
    yield Gauge(
        name="relay_bytes",
        help="Memory that sealed envelopes between parties take; at the limit their senders wait.",
        values={(): float(relay.held_bytes)},
    )
    yield Gauge(
        name="relay_bytes_limit",
        help="The limit of verticil_relay_bytes ([limits] max_relay_bytes); 0: nothing is relayed.",
        values={(): float(relay.max_bytes)},
    )
    open_rounds, waiting = rounds.progress(), dict[tuple[str, ...], float]()
    for progress in open_rounds:
        for party in progress.waiting_for:
            waiting[party,] = max(waiting.get((party,), 0.0), (session.clock() - progress.since).total_seconds())
    yield Gauge(
        name="masked_messages",
        help="Messages of the open rounds of masked tables, as the miner sees them: done, and expected in all.",
        labels=("state",),
        values={
            ("done",): float(sum(progress.done for progress in open_rounds)),
            ("expected",): float(sum(progress.expected for progress in open_rounds)),
        },
    )
    yield Gauge(
        name="masked_bytes",
        help="Bytes of messages of the open rounds of masked tables that the miner has made or got.",
        values={(): float(sum(progress.size for progress in open_rounds))},
    )
    yield Gauge(
        name="masked_waiting_seconds",
        help="Since when nothing has come to an open round of masked tables that waits for a party; the longest of its rounds.",
        labels=("party",),
        values=waiting,
    )
    yield Gauge(
        name="masked_late_messages",
        help="Messages of the open rounds of masked tables that were not ready for their slot since this node started.",
        values={(): float(rounds.late())},
    )
    yield Gauge(
        name="certificate_not_after_seconds",
        help="When the TLS certificate ends, in seconds since 1970.",
        values={(): credentials.current().not_after.timestamp()},
    )
