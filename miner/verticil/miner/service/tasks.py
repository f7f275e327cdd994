"""What runs beside the node in the miner's daemon: a package that has such a task registers it when it is imported."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from verticil.shared.core.registry import Registry

if TYPE_CHECKING:
    from verticil.miner.config import MinerConfig
    from verticil.miner.service.node import MinerNode
    from verticil.miner.storage.audit import MinerAudit

Task: TypeAlias = "Callable[[MinerConfig, MinerNode, MinerAudit], Coroutine[Any, Any, None]]"
"""Runs until it is cancelled, beside a node that serves."""

TASKS: Final[Registry[Task]] = Registry("task of the daemon")
"""By name, for logs and debuggers."""
