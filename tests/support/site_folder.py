"""The folder of a party with a small table, and what the miner tells it of studies."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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


def make_site(folder: Path, text: str = PARTY) -> Path:
    """Set up the party 'clinic', whose table has a canary among its ids and in a column that no study asks for."""
    folder.mkdir(exist_ok=True)
    (folder / "federation.toml").write_text(FEDERATION)
    (folder / "party.toml").write_text(text)
    (folder / "linkage.key").write_text("ab" * 32 + "\n")
    (folder / "linkage.key").chmod(0o600)
    rows = [f"p{i},{i % 100},{'yes' if i % 3 else 'no'},{CANARY_VALUE}" for i in range(N)]
    (folder / "people.csv").write_text("\n".join(["id,age,smoker,note", f"{CANARY_ID},50,no,x", *rows]) + "\n")
    init_state(folder / "state", site_secret=b"s" * 32)
    return folder


def opened(folder: Path) -> Site:
    return Site.open(load_party(folder / "party.toml"))


def offer(site: Site, study: Study, state: State = State.AWAITING_APPROVAL) -> bytes:
    """What the daemon does when the miner tells of a study, or of its new state."""
    digest = canonical.digest(study)
    task = Task(
        digest=digest, version=1, state=int(state), proposal=canonical.to_bytes(study), effective=b"", effective_digest=b"",
        approved=False, pseudonyms_complete=False, alignment_confirmed=False, units_received=(), failure="",
    )  # fmt: skip
    site.state.remember(task, study.id, NOW)
    return digest


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
