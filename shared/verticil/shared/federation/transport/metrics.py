"""Numbers for a monitoring system, in Prometheus' text form, on loopback and only where the configuration asks for it.

A node counts its calls as they end (`Metrics.ended`); everything else is read when it is asked for (`Metrics.read`), from the
same places that ``status`` reads. What a page can hold is fixed here and in the daemons: names of rpcs, error codes, states,
parties and data sets as labels; times, bytes, counts of calls and studies, and epsilons as values. No data value, no record id,
no study's name or title (bytes moved do tell about how large a table is): what a monitoring system stores, many read.

The page is served by prometheus_client in a thread of its own, so a busy event loop does not delay it. It has neither TLS nor a
login, which is why any address but loopback is refused; where it is wanted elsewhere, an authenticating proxy goes before it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from verticil.shared.core.errors import VerticilError
from verticil.shared.documents.config import cannot_listen, listen_address
from verticil.shared.documents.toml_table import Table

_log = logging.getLogger(__name__)

_SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0, 60.0)
"""Upper bounds of the histogram of calls: a health call takes a millisecond, a long poll a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gauge:
    """One number, or one for each combination of labels, as it is at this moment.

    Attributes:
        name: without the prefix ``verticil_``.
        help: what it says, with its unit.
        labels: names of the labels.
        values: by the labels' values, in the order of `labels`.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    values: Mapping[tuple[str, ...], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if any(len(key) != len(self.labels) for key in self.values):
            raise ValueError(f"{self.name}: every value needs {len(self.labels)} labels")


class Metrics:
    """What one node counts and tells. Safe to use from any thread."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._calls = Counter(
            "verticil_rpc",
            "Calls that ended, by rpc and error code (OK when there was none).",
            ("method", "code"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "verticil_rpc_seconds",
            "Seconds from a call's arrival to its end, waiting in a long poll included.",
            ("method",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._bytes = Counter(
            "verticil_rpc_bytes",
            "Bytes of messages, by rpc and direction (in, out).",
            ("method", "direction"),
            registry=self._registry,
        )

    def count_call(self, method: str, code: str, seconds: float) -> None:
        """Count a call.

        Args:
            method: the full name of the rpc.
            code: of the error that it ended with; ``OK``.
            seconds: it took, at least 0.
        """
        short = _short(method)
        self._calls.labels(short, code).inc()
        self._seconds.labels(short).observe(seconds)

    def count_bytes(self, method: str, direction: str, n_bytes: int) -> None:
        """Count the bytes of a message; `direction` is ``in`` or ``out``."""
        self._bytes.labels(_short(method), direction).inc(n_bytes)

    def read(self, gauges: Callable[[], Iterable[Gauge]]) -> None:
        """Have `gauges` called, in the page's thread, whenever the page is asked for. What cannot be read is left out."""
        self._registry.register(_Reader(gauges))

    def serve(self, address: tuple[str, int]) -> Page:
        """Serve the page.

        Args:
            address: host and port, from `metrics_address`; port 0 takes a free one.

        Raises:
            Misuse: CONFIG_INVALID, the address cannot be listened on.
        """
        host, port = address
        try:
            server, thread = start_http_server(port, addr=host, registry=self._registry)
        except OSError:
            raise cannot_listen("metrics.listen", host, port) from None
        page = Page(server, thread)
        _log.info("metrics on %s, port %d", host, page.port)
        return page


class Page:
    """A served page.

    Attributes:
        port: where.
    """

    def __init__(self, server: WSGIServer, thread: threading.Thread) -> None:
        self._server = server
        self._thread = thread
        self.port: int = server.server_port

    def close(self) -> None:
        """Stop serving, and return when the port is free again."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Reader(Collector):
    def __init__(self, gauges: Callable[[], Iterable[Gauge]]) -> None:
        self._gauges = gauges

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield nothing ahead of time: registering must not read a database."""
        return iter(())

    def collect(self) -> Iterator[GaugeMetricFamily]:
        try:
            gauges = tuple(self._gauges())
        except VerticilError:  # the state is busy or gone; the counters are still worth telling
            return
        for gauge in gauges:
            family = GaugeMetricFamily(f"verticil_{gauge.name}", gauge.help, labels=gauge.labels)
            for labels, value in gauge.values.items():
                family.add_metric(labels, value)
            yield family


def _short(method: str) -> str:
    """``Coordinator/Poll`` of ``/verticil.wire.v1.Coordinator/Poll``: the version is the wire's, not the reader's."""
    service, _, name = method.rpartition("/")
    return f"{service.rpartition('.')[2]}/{name}"


def metrics_address(table: Table) -> tuple[str, int] | None:
    """Return the address in the ``[metrics]`` table of a node's configuration: ``listen = "127.0.0.1:9464"``.

    Returns:
        Host and port; None where the table is absent, which serves nothing.

    Raises:
        Misuse: CONFIG_INVALID, not host:port, or not a loopback address.
    """
    return listen_address(table, hint="listen on 127.0.0.1 and put an authenticating proxy before it")
