"""What keeps people from having two accounts: the names in the ledger, and the people that tables have in common.

A charge is refused (SAME_PEOPLE)
- as long as the ledger has a name that party.toml no longer has, and `same_people` does not say what became of it: its people
  may be in any table, under another name;
- as long as more than a third of the smaller one's people are in another data set that has an account of its own, unless
  `same_people` says that they are the same people, or that they are counted apart.

The answer rests on party.toml, the ledger, and the tables as they were last read, and on nothing that a study says but whose
columns it asks for. It is the site's alone: others read that the policy refuses the study
(`verticil.party.protocol.outgoing_errors`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from verticil.party.limits.same_people import APART, GONE, SamePeople
from verticil.party.people.sketch import LIMIT
from verticil.party.people.sketches import Shares
from verticil.party.storage.database import Database
from verticil.party.storage.studies import UNDER_WAY
from verticil.shared.core.errors import Misuse, Refusal
from verticil.shared.study.states import State

_CHARGED: Final = (
    "SELECT dataset FROM ledger UNION SELECT p.dataset FROM reserved p JOIN study s ON s.digest = p.study_digest"  # noqa: S608
    f" WHERE {UNDER_WAY}"  # constant text
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Two data sets with accounts of their own and many people in common.

    Attributes:
        one, other: their names.
        share: of the smaller one's people who are in the other, above a third.
        is_charged: something was charged to one of them, or is reserved.
    """

    one: str
    other: str
    share: float
    is_charged: bool

    @property
    def words(self) -> str:
        """What the site's people are told; the share in tenths."""
        return (
            f"data set '{self.one}' and data set '{self.other}' are about the same people: {self.share:.1f} of the smaller one's"
            " are in the other, and each has an account of its own"
        )

    @property
    def hint(self) -> str:
        """What to write into party.toml."""
        return (
            f'join them with [policy] same_people = {{ {self.one} = "{self.other}" }}; or count them apart, each with a whole'
            f' budget, with "{APART}" in place of "{self.other}"'
        )


class PeopleGuard:
    """What the ledger and the sketches of a site say of its accounts.

    Args:
        database: the site's.
        same_people: what party.toml says.
    """

    def __init__(self, database: Database, same_people: SamePeople) -> None:
        self._database = database
        self._same = same_people
        self._shares = Shares(database)

    def digest(self, dataset: str) -> bytes | None:
        """Return what names the people of an account, as its tables were last read; None: none of them was read."""
        return self._shares.digest(self._same.names(dataset))

    def names(self, dataset: str) -> tuple[str, ...]:
        """Return every name of the account of a data set."""
        return self._same.names(dataset)

    def list_charged(self) -> frozenset[str]:
        """Return the names that something was charged to, or is reserved for."""
        return frozenset(self._database.read(str, _CHARGED, (int(State.PUBLISHED),)))

    def check(self, datasets: Collection[str]) -> None:
        """Refuse to charge data sets whose people may have another account.

        Raises:
            Refusal: SAME_PEOPLE, by the names of both.
            Misuse: CONFIG_INVALID, `same_people` has a name that leads nowhere.
        """
        charged_names = self.list_charged()
        self.check_names(charged_names)
        for overlap in self._overlaps(datasets, charged_names | {*datasets} | self._shares.for_studies()):
            raise Refusal("SAME_PEOPLE", overlap.words, hint=overlap.hint)

    def check_names(self, charged_names: Collection[str] | None = None) -> None:
        """Refuse names in the ledger that nothing explains, and names of party.toml that lead nowhere; raises as `check`."""
        charged_names = self.list_charged() if charged_names is None else charged_names
        if (unknown := self._same.unknown(charged_names)) is not None:
            raise Misuse(
                "CONFIG_INVALID",
                f"party.toml: policy.same_people.{unknown}: expected a data set of this file, or a name in the ledger"
                f" ({', '.join(sorted(charged_names)) or 'which is empty'})",
                hint="`verticil party ledger` shows the names",
            )
        for name in sorted(charged_names):
            if not self._same.is_explained(name):
                raise Refusal(
                    "SAME_PEOPLE",
                    f"data set '{name}': something was charged to it, and party.toml has no such data set any more",
                    hint=f'say under [policy] what became of it: same_people = {{ NAME = "{name}" }} if [dataset.NAME] are the'
                    f' same people; {{ {name} = "{GONE}" }} if its table is no longer here',
                )

    def every_overlap(self, datasets: Collection[str]) -> Iterator[Overlap]:
        """Yield data sets of the same people that have accounts of their own, whether something was charged to them or not.

        Args:
            datasets: of party.toml.
        """
        charged_names = self.list_charged() | self._shares.for_studies()
        yield from self._overlaps(datasets, charged_names | {*datasets}, is_charged=charged_names)

    def _overlaps(
        self, datasets: Collection[str], others: Collection[str], *, is_charged: Collection[str] = ()
    ) -> Iterator[Overlap]:
        """Yield the data sets that have people of some others, and no common account with them."""
        accounts = {self._same.account(name) for name in others}
        own_accounts = {self._same.account(name) for name in is_charged}
        for one in sorted({name for dataset in datasets for name in self._same.names(dataset)}):
            for other, share in sorted(self._shares.of(one).items()):
                mine, theirs = self._same.account(one), self._same.account(other)
                if share <= LIMIT or mine == theirs or theirs not in accounts:
                    continue
                if not (self._same.is_apart(one) or self._same.is_apart(other)):
                    yield Overlap(
                        one=one, other=other, share=share, is_charged=mine in own_accounts or theirs in own_accounts
                    )
