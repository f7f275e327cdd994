"""What the miner tells a monitoring system of itself, besides its calls: studies, parties, disk, relay, certificates."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from verticil.miner.rules.session import Session
from verticil.miner.service.presence import Presence
from verticil.miner.service.relay import Relay
from verticil.shared.identity.pki import CredentialSource
from verticil.shared.study.states import State, is_final
from verticil.shared.transport.serving.metrics import Gauge

__all__ = ["miner_gauges"]


def miner_gauges(
    session: Session, presence: Presence, relay: Relay, directory: Path, credentials: CredentialSource
) -> Iterator[Gauge]:
    """The numbers of this moment.

    Args:
        session: the studies.
        presence: who is there. Only parties of studies that have not ended are told.
        relay: sealed envelopes on their way.
        directory: state directory, for the disk.
        credentials: the miner's own, as they are by now.
    """
    states: Counter[State] = Counter()
    parties: set[str] = set()
    for digest in session.catalogue.digests():
        record = session.record(digest)
        states[state := session.state(record)] += 1
        if not is_final(state):
            parties.update(session.proposal(record).parties)
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
        values={(party,): float(presence.online(party)) for party in sorted(parties)},
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
    yield Gauge(
        name="certificate_not_after_seconds",
        help="When the TLS certificate ends, in seconds since 1970.",
        values={(): credentials.current().not_after.timestamp()},
    )
