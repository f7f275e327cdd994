"""The folder of a party with a small table, and what the miner tells it of studies."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from support.documents import FEDERATION, party_toml
from support.pages import Visitor, served
from verticil.party.config import load_party
from verticil.party.operator.approvers import add_approver
from verticil.party.operator.page.pages import Officer, site_server
from verticil.party.policy.decision_store import ApproverKey
from verticil.party.site import Site, init_state
from verticil.party.storage.studies import Task
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.states import State

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
N = 120
CANARY_ID, CANARY_VALUE = "canary-4711-id", "kanarienvogel-77"
PARTY = party_toml()


def write_site(
    folder: Path,
    party: str | None = None,
    *,
    people: int | None = None,
    federation: str = FEDERATION,
    secret: bytes = b"s" * 32,
) -> None:
    """Lay out a party's folder: federation.toml, a linkage key, the state; and party.toml and a table where they are asked for.

    Args:
        folder: of the party.
        party: text of party.toml.
        people: rows of people.csv, which has an id, an age below 100 and whether the person smokes.
        federation: text of federation.toml.
        secret: of the site.
    """
    (folder / "federation.toml").write_text(federation)
    if party is not None:
        (folder / "party.toml").write_text(party)
    (folder / "linkage.key").write_text("ab" * 32 + "\n")
    (folder / "linkage.key").chmod(0o600)
    if people is not None:
        rows = [f"p{i},{i % 100},{'yes' if i % 3 else 'no'}" for i in range(people)]
        (folder / "people.csv").write_text("\n".join(["id,age,smoker", *rows]) + "\n")
    init_state(folder / "state", site_secret=secret)


def make_site(folder: Path, text: str = PARTY) -> Path:
    """Set up the party 'clinic', whose table has a canary among its ids and in a column that no study asks for."""
    folder.mkdir(exist_ok=True)
    write_site(folder, text)
    rows = [f"p{i},{i % 100},{'yes' if i % 3 else 'no'},{CANARY_VALUE}" for i in range(N)]
    (folder / "people.csv").write_text("\n".join(["id,age,smoker,note", f"{CANARY_ID},50,no,x", *rows]) + "\n")
    return folder


def opened(folder: Path) -> Site:
    return Site.open(load_party(folder / "party.toml"))


def task_of(study: Study, *, state: State = State.AWAITING_APPROVAL, effective: bool = False, **facts: Any) -> Task:
    """What the miner tells a party of a study; nothing of it is done yet.

    Args:
        study: as proposed.
        state: of the study.
        effective: whether all parties approved, and what is carried out is what was proposed.
        facts: fields of `Task` that are not as for a study which waits.
    """
    digest, proposal = canonical.digest(study), canonical.to_bytes(study)
    waiting: dict[str, Any] = {
        "digest": digest, "version": 1, "state": int(state), "proposal": proposal,
        "effective": proposal if effective else b"", "effective_digest": digest if effective else b"",
        "approved": False, "pseudonyms_complete": False, "alignment_confirmed": False, "units_received": (), "failure": "",
    }  # fmt: skip
    return Task(**waiting | facts)


def offer(site: Site, study: Study, state: State = State.AWAITING_APPROVAL) -> bytes:
    """What the daemon does when the miner tells of a study, or of its new state."""
    site.state.remember(task_of(study, state=state), study.id, NOW)
    return canonical.digest(study)


OFFICERS = ("lena", "noor")
OFFICERS_PARTY = party_toml("approvers_needed = {needed}\n")


def site_of(folder: Path, study: Study, *, needed: int = 1) -> bytes:
    """A site with two approvers, whose keys lie beside party.toml, and a study that waits."""
    make_site(folder, OFFICERS_PARTY.format(needed=needed))
    for name in OFFICERS:
        add_approver(folder / "party.toml", name)
    with opened(folder) as site:
        return offer(site, study)


@contextmanager
def deciding(folder: Path, name: str = "lena") -> Iterator[Visitor]:
    officer = Officer(name=name, key=ApproverKey.load(folder / "approvers" / f"{name}.key"))
    server = site_server(folder / "party.toml", ("127.0.0.1", 0), officer=officer, clock=lambda: NOW)
    with served(server) as running:
        yield Visitor(running)
