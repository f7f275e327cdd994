"""What is extended by one line: things of one kind (protocols, say), each under the name by which a study asks for it.

The product registers its own at one place for each kind; what a plug-in or a test adds goes through the same `register`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Generic, TypeVar

from verticil.shared.core.errors import Misuse

Item = TypeVar("Item")


class Registry(Generic[Item]):
    """Things of one kind by name, in the order in which they were registered.

    Args:
        kind: what they are, for messages.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._items: dict[str, Item] = {}

    def register(self, name: str, item: Item) -> None:
        """Add one.

        Raises:
            ValueError: the name is taken.
        """
        if name in self._items:
            raise ValueError(f"{self._kind} '{name}' is registered already")
        self._items[name] = item

    def named(self, name: str) -> Item:
        """Return the item of this name.

        Raises:
            Misuse: STUDY_UNSUPPORTED, there is none.
        """
        item = self._items.get(name)
        if item is None:
            names = ", ".join(self._items)
            raise Misuse("STUDY_UNSUPPORTED", f"{self._kind} '{name}': not in this program", hint=f"it has: {names}")
        return item

    @property
    def names(self) -> tuple[str, ...]:
        """All names of the registry."""
        return tuple(self._items)

    def __iter__(self) -> Iterator[Item]:
        return iter(tuple(self._items.values()))
