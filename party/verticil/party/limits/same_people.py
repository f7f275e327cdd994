"""What a site says of its data sets' names: which of them are the same people, and which of them it counts apart.

A budget belongs to people, and the ledger writes it down under the name of a data set. A name can change, and two tables can be
about the same people. ``[policy] same_people`` says so:

    [policy.same_people]
    clinicdb = "people"     # clinicdb are the people of the data set that was called people: one account for both
    staff = "apart"         # staff are counted apart, whoever of them is in another table, too
    trial = "gone"          # the table of trial is no longer here

Names lead to names, and the last one names the account. What the tables themselves say stands in `verticil.party.people`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

APART: Final = "apart"
GONE: Final = "gone"
WORDS: Final = (APART, GONE)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamePeople:
    """What ``[policy] same_people`` says; without an argument nothing, of a ledger whose tables are not known.

    Attributes:
        datasets: names of the data sets of party.toml; None: they are not known, and no name in the ledger is asked for.
        joined: name -> the name of the same people; without a circle.
        apart: names that are counted apart.
        gone: names whose tables are no longer here.
    """

    datasets: frozenset[str] | None = None
    joined: Mapping[str, str] = field(default_factory=dict)
    apart: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()

    def account(self, name: str) -> str:
        """Return the name of the account of a data set: the last one of its chain.

        >>> SamePeople(joined={"people": "clinicdb", "clinicdb": "register"}).account("people")
        'register'
        """
        while name in self.joined:
            name = self.joined[name]
        return name

    def names(self, name: str) -> tuple[str, ...]:
        """Return every name of the account of a data set, that of the account first.

        >>> SamePeople(joined={"people": "clinicdb"}).names("people")
        ('clinicdb', 'people')
        """
        account = self.account(name)
        return (account, *sorted(other for other in self.joined if self.account(other) == account))

    def is_apart(self, name: str) -> bool:
        """Return whether the account of a data set is counted apart from every other one."""
        return not self.apart.isdisjoint(self.names(name))

    def is_explained(self, name: str) -> bool:
        """Return whether party.toml has a data set, or says what became of it."""
        if self.datasets is None or name in self.datasets or name in self.apart | self.gone:
            return True
        return any(other in self.datasets or other in self.apart | self.gone for other in self.names(name))

    def unknown(self, charged_names: Collection[str]) -> str | None:
        """Return a name of the table that leads nowhere: neither party.toml has it, nor the ledger it or a name of its account.

        A name that is gone may lead nowhere: room that was kept for it can be free again.

        Args:
            charged_names: names of the data sets that something was charged to.
        """
        if self.datasets is None:
            return None
        for name in dict.fromkeys([*self.joined, *sorted(self.apart)]):
            absent = set(self.names(name)) - self.datasets
            if absent and absent.isdisjoint(charged_names):
                return name
        return None


NOTHING_SAID: Final = SamePeople()


def circle_from(accounts: Mapping[str, str], name: str) -> bool:
    """Return whether the chain of a name comes back to itself."""
    names = {name}
    while (name := accounts.get(name, "")) and name not in names:
        names.add(name)
    return bool(name)
