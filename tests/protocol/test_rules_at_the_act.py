"""Every rule of a policy is asked again at the moment of every act, whatever happened since the approval.

One cell of the table is a protocol, an act and a change. A study is carried out until right before the act; then the change
happens; then the party goes on, alone. The act does not happen, nothing leaves and nothing is charged. The same without a change
does the act, so that no cell is passed by a party that would not act anyway.

A change happens before the party plans its next step, as when the daemon was restarted for it, or (``meanwhile``) after the step
was planned, as when another process of the site writes to the database or to a file while the daemon works.

The policy's keys are read from its own records: a key that is added later has to say how it is asked again, or why not. A cell
that cannot exist says why in `_reason`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from support import stepping
from support.stepping import REVIEWED, Alone, Done, Seen, Stepped
from verticil.party.limits.limits import Policy
from verticil.party.limits.masked import MaskedPolicy
from verticil.party.policy.decision_store import ApproverKey
from verticil.party.protocol.masked.round_charge import PARTIES, charge_linkage, charge_round, linkage_draws
from verticil.party.protocol.node.registry import party_protocol
from verticil.party.protocol.planning import StoppedError
from verticil.party.protocol.randomization import enter_in_ledger
from verticil.party.protocol.with_miner import countersigning
from verticil.party.site import Site
from verticil.shared.core.errors import VerticilError
from verticil.shared.privacy.accounts import NOTHING
from verticil.shared.study.states import State

NORTH: Final = "north"
OFFICER: Final = stepping.OFFICERS[0]

Shows = Callable[[Done, Seen], bool]

ACTS: Final[Mapping[str, Mapping[str, Shows]]] = {
    "central": {
        "link": lambda done, seen: "put_pseudonyms" in seen.calls,
        "draw": lambda done, seen: done.drawn,
        "charge": lambda done, seen: done.charged > 0,
        "send": lambda done, seen: done.charged > 1,
        REVIEWED: lambda done, seen: done.reviewed,
    },
    "peer": {
        "link": lambda done, seen: "get_pseudonyms" in seen.streams,
        "draw": lambda done, seen: done.drawn,
        "charge": lambda done, seen: "get_column" in seen.streams,
        "compute": lambda done, seen: done.statistics > 0,
        "send": lambda done, seen: "get_parameters" in seen.streams,
        "delete": lambda done, seen: "get_parameters" in seen.streams,
    },
    "exact": {
        "compute": lambda done, seen: done.statistics > 0,
        "send": lambda done, seen: "get_parameters" in seen.streams,
    },
    "masked": {
        "link": lambda done, seen: done.linked,
        "draw": lambda done, seen: done.drawn,
        "charge": lambda done, seen: done.charged > 0,
        "mask": lambda done, seen: done.masked,
        "open": lambda done, seen: done.shared,
        "delete": lambda done, seen: done.shared,
        REVIEWED: lambda done, seen: done.reviewed,
    },
}
"""Protocol -> act -> what shows that a party has done it, of a study that goes on; a copy is made right before that."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Change:
    """Something that happens between the approval and an act.

    Attributes:
        make: does it, given the folder of the party and the study's digest.
        codes: with one of which the study fails here; an empty one: it ends without a failure, or waits for people.
        protocols: in whose studies it can happen.
        until: the acts before which it is asked for; empty: all.
        meanwhile: it can happen while the daemon works, too.
        at: the time of day when the party goes on; None: now.
        account: it is a limit of what is charged: what costs nothing, or was charged before, may leave.
    """

    make: Callable[[Path, bytes], None]
    codes: tuple[str, ...] = ()
    protocols: tuple[str, ...] = tuple(ACTS)
    until: tuple[str, ...] = ()
    meanwhile: bool = False
    at: dt.datetime | None = None
    account: bool = False


def _opened(folder: Path) -> Site:
    return Site.open(stepping.load_party(folder / "party.toml"))


def _deny(folder: Path, digest: bytes) -> None:
    with _opened(folder) as site:
        site.voting.deny(site.state.study(digest), OFFICER, "no more", dt.datetime.now(dt.UTC))


def _revoke(folder: Path, digest: bytes) -> None:
    with _opened(folder) as site:
        site.voting.revoke(site.state.study(digest), OFFICER, "no more", dt.datetime.now(dt.UTC))


def _remove_approver(folder: Path, digest: bytes) -> None:
    (folder / "party.toml").write_text(stepping.party_toml(NORTH, folder, without=OFFICER))


def _replace_secret(folder: Path, digest: bytes) -> None:
    (folder / "state" / "site.secret").write_text(f"{'ab' * 32}\nformat = 2\n")


def _change_data(folder: Path, digest: bytes) -> None:
    (folder / "people.csv").write_text(stepping.table_of(NORTH, seed=1))


def _use_linkages(folder: Path, digest: bytes) -> None:
    """Other studies link the data set's people as often as the policy permits."""
    with _opened(folder) as site:
        record = site.state.study(digest)
        (release,) = linkage_draws(site, record.task.latest, digest)
        for number in range(
            site.config.policy.masked.linkages
        ):  # as of a ledger that was mended: the approval keeps a place
            site.ledger.write_row(
                release,
                version_tag=b"",
                charge=NOTHING,
                unit=None,
                study_digest=bytes([number]) * 32,
                study_id=f"other-{number}",
                recipient=PARTIES,
                artifact_sha256=b"",
                size=0,
                at=dt.datetime.now(dt.UTC),
            )


def _nothing(folder: Path, digest: bytes) -> None:
    pass


def _rewritten(**values: str) -> Callable[[Path, bytes], None]:
    def write(folder: Path, digest: bytes) -> None:
        (folder / "party.toml").write_text(stepping.party_toml(NORTH, folder, **values))

    return write


_READS: Final = ("link", "draw", "compute")
"""Acts before which the table is read."""
CHANGES: Final[Mapping[str, Change]] = {
    "denied": Change(make=_deny, codes=("",), meanwhile=True),
    "revoked": Change(make=_revoke, codes=("",), meanwhile=True),
    "expired": Change(make=_nothing, codes=("STUDY_EXPIRED", ""), at=dt.datetime(2100, 1, 1, tzinfo=dt.UTC)),
    "approver removed": Change(make=_remove_approver, codes=("APPROVAL_VOID", "POLICY_REFUSED"), meanwhile=True),
    "another secret": Change(make=_replace_secret, codes=("APPROVAL_VOID", "")),
    "data changed": Change(make=_change_data, codes=("APPROVAL_VOID", ""), until=_READS, meanwhile=True),
    "linkages used": Change(
        make=_use_linkages, codes=("BUDGET_EXCEEDED",), protocols=("masked",), until=("link",), meanwhile=True
    ),
    "key not confirmed": Change(make=_rewritten(unconfirmed="miner"), codes=("POLICY_REFUSED",), protocols=("masked",)),
    "key differs": Change(make=_rewritten(misspoken="miner"), codes=("POLICY_REFUSED",), protocols=("masked",)),
}
"""What can happen, besides a limit that is lowered."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Lowered:
    """A key of ``[policy]`` with a value that the approved study is against."""

    key: str
    value: str
    code: str = "POLICY_REFUSED"
    protocols: tuple[str, ...] = tuple(ACTS)
    until: tuple[str, ...] = ()
    account: bool = False


_COLUMNS: Final = ("central", "peer", "exact")
_BETWEEN: Final = ("peer",)
_BOUNDED: Final = ("central", "peer", "masked")
"""With noise on everything but one column: an account's sum is over what has a bound."""
_OVER: Final = "BUDGET_EXCEEDED"
_CHARGED: Final = ("draw", "charge", "mask", "compute")
"""Acts up to the charge: an account's limit is held against what is charged."""
LOWERED: Final[Mapping[str, tuple[Lowered, ...]]] = {
    "approvers_needed": (Lowered(key="approvers_needed", value="2", code="APPROVAL_VOID"),),
    "max_epsilon_per_column": (Lowered(key="max_epsilon_per_column", value="1.0", code=_OVER, protocols=_COLUMNS),),
    "max_epsilon_per_study": (Lowered(key="max_epsilon_per_study", value="1.0", code=_OVER),),
    "max_epsilon_lifetime": (
        Lowered(key="max_epsilon_lifetime", value="1.0", code=_OVER, protocols=_BOUNDED, until=_CHARGED, account=True),
    ),
    "allow_infinite": (Lowered(key="allow_infinite", value="[]", code="EPSILON_INFINITE", protocols=_COLUMNS),),
    "minimum_common_records": (Lowered(key="minimum_common_records", value="100000", code="LINKAGE_TOO_SMALL"),),
    "minimum_parties": (Lowered(key="minimum_parties", value="3"),),
    "max_categories": (Lowered(key="max_categories", value="2"),),
    "deny_columns": (Lowered(key="deny_columns", value='["smoker"]'),),
    "recipients": (Lowered(key="recipients", value='["west"]', protocols=_COLUMNS),),
    "breach": (Lowered(key="breach", value="{ prior = 0.1, posterior = 0.2 }"),),
    "allow_exact_parameters": (Lowered(key="allow_exact_parameters", value="false", protocols=("exact",)),),
    "max_share_epsilon": (Lowered(key="max_share_epsilon", value="1.0", code=_OVER, protocols=_BETWEEN),),
    "max_share_delta": (Lowered(key="max_share_delta", value="1e-9", code=_OVER, protocols=_BETWEEN),),
    "max_delta_lifetime": (
        Lowered(
            key="max_delta_lifetime",
            value="1e-9",
            code=_OVER,
            protocols=("peer", "masked"),
            until=_CHARGED,
            account=True,
        ),
    ),
    "public": (
        Lowered(key="max_public_epsilon", value="1.0", code=_OVER),
        Lowered(key="max_public_delta", value="1e-9", code=_OVER, protocols=("peer", "masked")),
        Lowered(
            key="max_public_epsilon_lifetime", value="1.0", code=_OVER, protocols=_BOUNDED, until=_CHARGED, account=True
        ),
        Lowered(
            key="max_public_delta_lifetime",
            value="1e-9",
            code=_OVER,
            protocols=("peer", "masked"),
            until=_CHARGED,
            account=True,
        ),
    ),
    "dealer": (
        Lowered(key="max_floor_epsilon_per_study", value="1.0", code=_OVER, protocols=("masked",)),
        Lowered(key="max_floor_delta_per_study", value="1e-9", code=_OVER, protocols=("masked",)),
        Lowered(
            key="max_floor_epsilon_lifetime",
            value="1.0",
            code=_OVER,
            protocols=("masked",),
            until=_CHARGED,
            account=True,
        ),
        Lowered(
            key="max_floor_delta_lifetime",
            value="1e-9",
            code=_OVER,
            protocols=("masked",),
            until=_CHARGED,
            account=True,
        ),
    ),
    "minimum_rows": (Lowered(key="minimum_rows", value="100000", until=_READS),),
    "max_days": (Lowered(key="max_days", value="1"),),
    "masked.allow": (Lowered(key="allow_masked", value="false", protocols=("masked",)),),
    "masked.most": (
        Lowered(key="max_masked_epsilon", value="1.0", code=_OVER, protocols=("masked",)),
        Lowered(key="max_masked_delta", value="1e-9", code=_OVER, protocols=("masked",)),
    ),
    "masked.floor": (Lowered(key="max_floor_epsilon_per_column", value="1.0", code=_OVER, protocols=("masked",)),),
    "masked.dealers": (Lowered(key="allowed_dealers", value="[]", protocols=("masked",)),),
    "masked.noise": (Lowered(key="noise_from", value="[]", protocols=("masked",)),),
    "masked.unchecked": (Lowered(key="allow_unchecked_partners", value="false", protocols=("masked",)),),
    "masked.raw": (Lowered(key="allow_raw_under_masks", value="[]", code="EPSILON_INFINITE", protocols=("masked",)),),
    "masked.linkages": (Lowered(key="max_linkages", value="0", code=_OVER, protocols=("masked",), until=("link",)),),
}
"""Field of `Policy`, or of its `MaskedPolicy` -> values that the studies are against."""
NOT_LOWERED: Final[Mapping[str, str]] = {
    "approval": "who approves is asked again by check_giver: the change 'approver removed', and tests/unit/test_masked_charge",
    "approvers": "the change 'approver removed'",
    "on_data_change": "'refuse' is the strictest: the change 'data changed', and tests/unit/test_ledger",
    "minimum_difference": "asked when the common people are accepted, of which there is one list: tests/protocol/test_record",
    "on_small_difference": "as minimum_difference",
    "max_common_sets": "as minimum_difference",
    "same_people": "whose account a data set has is asked at every charge: tests/unit/test_same_people",
    "max_open_studies": "decides what is kept before anybody has approved",
    "rules": "a rule that gave the approval is asked again by check_giver, as an approver is",
    "max_rule_approvals_per_day": "decides whether a rule approves, not what follows from an approval",
    "masked": "its own record: the fields masked.*",
    "masked.confirmed": "the change 'key not confirmed'",
    "masked.differing": "the change 'key differs'",
}


def _every_change() -> dict[str, Change]:
    found = dict(CHANGES)
    for limits in LOWERED.values():
        for item in limits:
            changed = _rewritten(changed={item.key: item.value})
            found[f"{item.key} lowered"] = Change(
                make=changed,
                codes=(item.code,),
                protocols=item.protocols,
                until=item.until,
                account=item.account,
                meanwhile=True,
            )
    return found


EVERY: Final = _every_change()
CELLS: Final = [(protocol, act, change) for protocol, acts in ACTS.items() for act in acts for change in EVERY]


def _reason(protocol: str, act: str, change: str) -> str:
    """Why a cell cannot exist; empty: it is one."""
    said = EVERY[change]
    if protocol not in said.protocols:
        return "no such rule speaks of a study of this protocol"
    if said.until and act not in said.until:
        return "it is asked of what is read, or linked, once: what leaves now was drawn from what was approved then"
    if change == "data changed" and act == REVIEWED:
        return "the release follows from what was sent"
    if change == "approvers_needed lowered" and (protocol, act) == ("central", REVIEWED):
        return "a release is countersigned by one person, who has to be an approver now"
    return ""


def _in_tiers(has_cell: Callable[[tuple[str, str, str]], bool] = lambda cell: True) -> list[Any]:
    """The cells, or some. Of a limit that is lowered one is quick, for each limit another act and protocol, and so is each that a
    planted fault names; the others are slow."""
    named = (Path(__file__).parents[1] / "mutation" / "faults.toml").read_text(encoding="utf-8")
    cells = [cell for cell in CELLS if not _reason(*cell) and has_cell(cell)]
    of_limit = {change: [cell for cell in cells if cell[2] == change] for change in EVERY.keys() - CHANGES.keys()}
    quick = {same[number % len(same)] for number, same in enumerate(of_limit[name] for name in sorted(of_limit))}
    quick |= {cell for cell in cells if f"[{'-'.join(cell)}]" in named}
    return [
        pytest.param(*cell, marks=[] if cell[2] in CHANGES or cell in quick else pytest.mark.slow) for cell in cells
    ]


@pytest.fixture(scope="module")
def stops(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[Stepped, Mapping[str, Path]]]:
    """By protocol: the federation, and north's folder from right before each act."""
    made: dict[str, tuple[Stepped, Mapping[str, Path]]] = {}

    def of(protocol: str) -> tuple[Stepped, Mapping[str, Path]]:
        if protocol not in made:
            federation = Stepped(tmp_path_factory.mktemp(protocol) / "all", protocol)
            made[protocol] = (federation, federation.stops(ACTS[protocol]))
        return made[protocol]

    return of


def _go_on(
    federation: Stepped,
    copy: Path,
    folder: Path,
    act: str,
    change: Change,
    *,
    meanwhile: bool = False,
) -> Alone:
    """Open a copy, let the change happen, and let the party go on."""
    shutil.copytree(copy / NORTH, folder)
    beside = None
    if act == "compute":  # it asks peers first whether they have its parameters
        beside = folder.with_name("south")
        shutil.copytree(copy / "south", beside)
    make = lambda: change.make(folder, federation.digest)  # noqa: E731
    if not meanwhile:
        make()
    alone = Alone(
        folder,
        NORTH,
        federation.digest,
        coordinated=federation.coordinated,
        said=list(federation.said[NORTH]),
        at=change.at or federation.tick(),
        beside=beside,
    )
    asyncio.run(_acted(alone, act, make if meanwhile else None))
    return alone


async def _acted(alone: Alone, act: str, meanwhile: Callable[[], None] | None) -> None:
    if act == "delete":
        await alone.ask_for_deletion()
    await alone.go_on(meanwhile)
    if act == REVIEWED:
        party = alone.party
        key = ApproverKey.load(party.folder / f"{OFFICER}.key")
        try:
            party.site.voting.require_approver(alone.record, OFFICER, key)
            compare = party_protocol(alone.record.task.proposal_study).compare
            countersigning.countersign(
                party.site, alone.record, party.node.signing_key, OFFICER, alone.tick(), compare=compare
            )
        except (VerticilError, StoppedError) as error:
            alone.errors.append(getattr(error, "code", ""))
        alone.done.append(alone.look())


def _has_acted(alone: Alone, protocol: str, act: str) -> bool:
    """Whether a party alone did an act."""
    first, seen = alone.done[0], alone.seen
    left = [call for call in seen.calls if call in {"put_pseudonyms", "begin_upload", "put_chunks", "put_masked"}]
    if act == "link":
        return "put_pseudonyms" in left or "get_pseudonyms" in seen.streams or any(item.linked for item in alone.done)
    if act == "draw":
        return any(item.drawn for item in alone.done)
    if act == "compute":
        return "get_parameters" in seen.streams or any(item.statistics > first.statistics for item in alone.done)
    if act in {"charge", "send"}:
        streams = {"get_column", "get_parameters"} & set(seen.streams)
        return "begin_upload" in left or bool(streams) or any(item.charged > first.charged for item in alone.done)
    if act == "mask":
        return any(item.masked for item in alone.done)
    if act == "open":
        return any(item.shared for item in alone.done)
    if act == "delete":
        return alone.deletions > 0
    return any(item.countersigned for item in alone.done)


@pytest.mark.parametrize(("protocol", "act"), [(protocol, act) for protocol, acts in ACTS.items() for act in acts])
def test_without_a_change_the_act_happens(stops, tmp_path: Path, protocol: str, act: str) -> None:
    federation, copies = stops(protocol)
    change = Change(make=_revoke) if act == "delete" else Change(make=_nothing)
    alone = _go_on(federation, copies[act], tmp_path / NORTH, act, change)
    try:
        if act == "delete":
            assert alone.deletions == 0  # while anything of it lies here
            if federation.coordinated:  # the miner's next task says so
                alone.party.site.state.move(federation.digest, State.WITHDRAWN, "")
            asyncio.run(alone.ask_for_deletion())
        assert _has_acted(alone, protocol, act), (alone.seen, alone.done, alone.record.failure, alone.record.stage)
    finally:
        alone.close()


def _check(alone: Alone, protocol: str, act: str, change: Change) -> None:
    assert not _has_acted(alone, protocol, act), (alone.seen, alone.done)
    assert {item.charged for item in alone.done} == {alone.done[0].charged}
    if not change.account:
        assert not alone.seen.streams, alone.seen
        quiet = {"poll", "get_alignment", "list_masked"}
        assert not [call for call in alone.seen.calls if call not in quiet and not call.startswith("report")]
    failure = alone.record.failure
    codes = {failure.code if failure is not None else "", *alone.errors}
    if change.codes:
        assert codes & set(change.codes), (failure, alone.errors, alone.record.stage)


@pytest.mark.parametrize(("protocol", "act", "change"), _in_tiers())
def test_after_the_change_the_act_does_not_happen(stops, tmp_path: Path, protocol: str, act: str, change: str) -> None:
    federation, copies = stops(protocol)
    alone = _go_on(federation, copies[act], tmp_path / NORTH, act, EVERY[change])
    try:
        _check(alone, protocol, act, EVERY[change])
    finally:
        alone.close()


@pytest.mark.parametrize(
    ("protocol", "act", "change"),
    _in_tiers(lambda cell: EVERY[cell[2]].meanwhile and cell[1] not in {REVIEWED, "delete"}),
)
def test_what_happens_after_the_step_was_planned_stops_it_too(
    stops, tmp_path: Path, protocol: str, act: str, change: str
) -> None:
    federation, copies = stops(protocol)
    alone = _go_on(federation, copies[act], tmp_path / NORTH, act, EVERY[change], meanwhile=True)
    try:
        _check(alone, protocol, act, EVERY[change])
    finally:
        alone.close()


def test_the_table_has_a_line_for_every_key_of_the_policy() -> None:
    fields = [item.name for item in dataclasses.fields(Policy)]
    fields += [f"masked.{item.name}" for item in dataclasses.fields(MaskedPolicy)]
    assert sorted([*LOWERED, *NOT_LOWERED]) == sorted(fields)


DOORS: Final[Mapping[str, tuple[str, str]]] = {
    "enter_in_ledger": ("central", "charge"),
    "charge_linkage": ("masked", "link"),
    "charge_round": ("masked", "charge"),
}
"""What writes a row, and a protocol and an act before which it is called."""


@pytest.mark.parametrize("change", ["denied", "revoked"])
@pytest.mark.parametrize("door", DOORS)
def test_a_decision_between_the_last_look_and_the_row_stops_the_act(
    stops, tmp_path: Path, door: str, change: str
) -> None:
    protocol, act = DOORS[door]
    federation, copies = stops(protocol)
    folder, at = tmp_path / NORTH, dt.datetime.now(dt.UTC)
    shutil.copytree(copies[act] / NORTH, folder)
    with _opened(folder) as site:
        record = site.state.study(federation.digest)
        spooled = site.state.artifacts(record.digest, record.task.effective_digest)
        rows = site.ledger.rows()
        EVERY[change].make(folder, federation.digest)
        charges: Mapping[str, Callable[[], None]] = {
            "enter_in_ledger": lambda: enter_in_ledger(site, record, next(iter(spooled.values())), "miner", at),
            "charge_linkage": lambda: charge_linkage(site, record, at),
            "charge_round": lambda: charge_round(site, record, bytes(32), at),
        }
        with pytest.raises(StoppedError):
            charges[door]()
        assert site.ledger.rows() == rows
