"""miner.toml: what the operator of the miner decides.

Reads the file strictly (unknown keys are errors that name the nearest known one), checks every bound once, and resolves paths
against the file's folder. It opens neither certificates nor keys: that is the daemon's first act, with its own errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from verticil.shared.documents.config import (
    Federation,
    check_address,
    listen_address,
    load_federation,
    path_in,
    read_toml,
    socket_address,
)
from verticil.shared.documents.toml_table import Table
from verticil.shared.federation.transport.metrics import metrics_address

_MEBIBYTE: Final = 1_048_576
PAGE_HINT: Final = "from another machine: ssh -L 8898:127.0.0.1:8898 HOST, and open the printed address"
DEFAULT_PAGE: Final = ("127.0.0.1", 8898)
"""Where an analyst's own pages are served, unless they say where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLimits:
    """What the miner accepts before it says RESOURCE_EXHAUSTED.

    Attributes:
        max_bytes_per_study: bytes on disk that one study may take: pseudonyms, artifacts in transit and stored columns.
        max_concurrent_uploads: streams that are received at the same time; others wait.
        disk_reserve_bytes: free space that no upload may touch.
        max_relay_bytes: memory for sealed envelopes on their way from party to party; 0: nothing is relayed.
        max_open_studies_per_analyst: studies of one analyst that have not ended.
        max_daily_studies_per_analyst: studies that one analyst submits within 24 hours.
    """

    max_bytes_per_study: int = 4_294_967_296
    max_concurrent_uploads: int = 8
    disk_reserve_bytes: int = 1_073_741_824
    max_relay_bytes: int = 268_435_456
    max_open_studies_per_analyst: int = 20
    max_daily_studies_per_analyst: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Workers:
    """The processes that learn.

    Attributes:
        processes: studies that are learned at the same time.
        memory_bytes: data memory of one process; beyond it the study fails instead of the machine.
    """

    processes: int = 1
    memory_bytes: int = 2_147_483_648


@dataclass(frozen=True, slots=True, kw_only=True)
class MinerConfig:
    """miner.toml, resolved.

    Attributes:
        name: the miner's name in the federation, the last part of its identity.
        federation: the federation document.
        state_directory: catalogue, columns, releases and the numba cache.
        listen: host:port to bind; port 0 takes a free one.
        certificate: PEM chain, the TLS leaf first.
        key: private key of the leaf.
        signing_key: Ed25519 key that signs receipts and releases.
        sealing_key: X25519 key that opens what is carried here in files, and messages of masked tables; only there where that is
            done.
        limits: quotas.
        workers: learning processes.
        randomized_days: days after publication until the randomized columns are deleted; 0 deletes them at once.
        metrics: where the page for a monitoring system is served; None: nowhere.
        page: where the daemon serves the pages for the miner's operator (`verticil miner ui`); None: nowhere.
        page_certificates: over TLS, also for analysts by their certificates.
    """

    name: str
    federation: Federation
    state_directory: Path
    listen: str
    certificate: Path
    key: Path
    signing_key: Path
    sealing_key: Path
    limits: ServiceLimits
    workers: Workers
    randomized_days: int
    metrics: tuple[str, int] | None = None
    page: tuple[str, int] | None = None
    page_certificates: bool = False


_LIMITS: Final = {
    "max_bytes_per_study": (_MEBIBYTE, 2**50),
    "max_concurrent_uploads": (1, 1024),
    "disk_reserve_bytes": (0, 2**50),
    "max_relay_bytes": (0, 2**40),
    "max_open_studies_per_analyst": (1, 1_000_000),
    "max_daily_studies_per_analyst": (1, 1_000_000),
}
"""The least and the most of each of `ServiceLimits`."""
_WORKERS: Final = {"processes": (1, 256), "memory_bytes": (512 * _MEBIBYTE, 2**50)}
"""The least and the most of each of `Workers`."""


def _number_within(table: Table, key: str, default: int, low: int, high: int) -> int:
    number = table.value(int, key, default)
    if not low <= number <= high:
        table.fail(key, f"got {number}, expected {low} to {high}")
    return number


def _all_bounded(table: Table, default: object, bounds: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Read the numbers of a table; `default` has those that are left out."""
    return {key: _number_within(table, key, getattr(default, key), low, high) for key, (low, high) in bounds.items()}


def _check_distinct(table: Table, config: MinerConfig) -> None:
    """Refuse one address, with a port of its own, for two of the three that the miner listens on."""
    owners: dict[tuple[str, int], str] = {}
    listen = socket_address(config.listen, where="listen")
    for key, address in (("listen", listen), ("ui.listen", config.page), ("metrics.listen", config.metrics)):
        if address is not None and address[1] and (other := owners.setdefault(address, key)) != key:
            table.fail(key, f"the same address as '{other}', expected another port")


def load_miner(path: Path) -> MinerConfig:
    """Read miner.toml and the federation document that it names.

    Raises:
        Misuse: CONFIG_INVALID or FILE_MISSING, naming file, key, expected and got.
    """
    table = read_toml(path)
    base = path.parent
    identity = table.table("identity")
    limits = table.table("limits", optional=True)
    workers = table.table("workers", optional=True)
    retention = table.table("retention", optional=True)
    page = table.table("ui", optional=True)
    page_certificates = page.value(bool, "certificates", False)
    certificate = path_in(identity, "certificate", base)
    config = MinerConfig(
        name=table.value(str, "name"),
        federation=load_federation(path_in(table, "federation", base)),
        state_directory=path_in(table, "state_directory", base, "state"),
        listen=table.value(str, "listen"),
        certificate=certificate,
        key=path_in(identity, "key", base),
        signing_key=(
            path_in(identity, "signing_key", base) if identity.has("signing_key") else certificate.with_suffix(".sign")
        ),
        sealing_key=certificate.with_suffix(".seal"),
        limits=ServiceLimits(**_all_bounded(limits, ServiceLimits(), _LIMITS)),
        workers=Workers(**_all_bounded(workers, Workers(), _WORKERS)),
        randomized_days=_number_within(retention, "randomized_days", 30, 0, 36_500),
        metrics=metrics_address(table.table("metrics", optional=True)),
        page=listen_address(page, hint=PAGE_HINT, has_tls=page_certificates),
        page_certificates=page_certificates,
    )
    check_address(table, "listen", config.listen, example="0.0.0.0:8443")
    _check_distinct(table, config)
    if not config.name or "/" in config.name:
        table.fail("name", f"got '{config.name}', expected a name without '/'")
    for part in (identity, limits, workers, retention, table):
        part.finish()
    return config
