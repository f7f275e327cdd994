"""No sequence of studies makes the ledger's sums less than what the accountant says of everything that was sent.

Studies of any model draw columns and tables of the same people for the same readers, under two names of their data set, as an
operator renames it, joins the names or counts them apart, and as the data change. What was sent is written down here beside the
ledger: each noise once for each reader who can come to know of it, and the accountant is asked about that.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.documents import FEDERATION, party_toml
from verticil.party.config import load_party
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.limits.limits import Policy
from verticil.party.limits.same_people import SamePeople
from verticil.party.policy.ledger import Ledger
from verticil.party.storage.database import Database
from verticil.shared.core.errors import Refusal
from verticil.shared.privacy.accountant import cost_of, together
from verticil.shared.privacy.accounts import MINER_ALONE, OTHERS, READERS, Cost, Reader, ReaderLimits
from verticil.shared.privacy.events import DiscreteGaussianCounts, GaussianCounts, PrivacyEvent, RandomizedColumn
from verticil.shared.privacy.masked import MaskedTables

NOW = dt.datetime(2026, 11, 23, 10, 0, tzinfo=dt.UTC)
APART = SamePeople(apart=frozenset({"people"}))
JOINED = SamePeople(joined={"clinicdb": "people"})
TURNED = SamePeople(joined={"people": "clinicdb"})
STATISTICS: dict[str, PrivacyEvent] = {
    "share": GaussianCounts(epsilon=0.5, delta=1e-7, tables=3),
    "tables": DiscreteGaussianCounts(sigma=30.0, tables=6, delta=1e-7, reader=OTHERS),
    "masked": MaskedTables(
        sigma=40.0, tables=6, delta=1e-7, contributors=3, tolerate=1, missing=1, checks=1, sensitivity=math.sqrt(6)
    ),
    "dealer": MaskedTables(
        sigma=40.0, tables=6, delta=1e-7, contributors=3, tolerate=1, missing=2, checks=1, sensitivity=math.sqrt(6),
        reader="dealer",
    ),
}  # fmt: skip


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A column of a study goes out.

    Attributes:
        study: which one; of a sub-model its units stand at other positions.
        name: of the data set, as party.toml calls it then.
        column, epsilon, reader: what is drawn of which, for whom.
        version: of the data.
        said: what party.toml says of names then.
    """

    study: int
    name: str
    column: str
    epsilon: float
    reader: str
    version: int
    said: SamePeople


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """Statistics of a study go out; arguments as for `Send`."""

    study: int
    name: str
    kind: str
    said: SamePeople


names = st.sampled_from(["people", "clinicdb"])
said = st.sampled_from([APART, JOINED, TURNED])
sends = st.builds(
    Send, study=st.integers(0, 3), name=names, column=st.sampled_from(["age", "sex"]), epsilon=st.sampled_from([0.5, 2.0]),
    reader=st.sampled_from(["columns", MINER_ALONE, "dealer"]), version=st.integers(0, 1), said=said,
)  # fmt: skip
shares = st.builds(Share, study=st.integers(0, 3), name=names, kind=st.sampled_from(sorted(STATISTICS)), said=said)


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Policy:
    folder = tmp_path_factory.mktemp("policy")
    (folder / "federation.toml").write_text(FEDERATION)
    (folder / "party.toml").write_text(party_toml(per_study=99.0, lifetime=999.0))
    most = Cost(epsilon=999.0, delta=1e-3)
    accounts = ReaderLimits(study=most, lifetime=most)
    return dataclasses.replace(
        load_party(folder / "party.toml").policy, on_data_change="fresh", max_delta_lifetime=1e-3, public=accounts,
        dealer=accounts, masked=dataclasses.replace(load_party(folder / "party.toml").policy.masked, allow=True, most=most),
    )  # fmt: skip


def accounted(noises: Iterable[tuple[object, int, PrivacyEvent]], reader: Reader) -> Cost:
    """What the accountant says of noises that a reader sees, each in the study that drew it first; the sum over studies."""
    seen: dict[object, tuple[int, PrivacyEvent]] = {}
    for noise, study, event in noises:
        if reader.sees(event.reader):
            seen.setdefault(noise, (study, event))
    of_study: dict[int, list[PrivacyEvent]] = {}
    for study, event in seen.values():
        of_study.setdefault(study, []).append(event)
    sums = [together(events) for events in of_study.values()]
    epsilon, delta = (math.fsum(getattr(item, part) for item in sums) for part in ("epsilon", "delta"))
    return Cost(epsilon=epsilon, delta=delta)


@settings(max_examples=15)
@given(acts=st.lists(sends | shares, max_size=12))
def test_no_sequence_of_studies_is_charged_less_than_what_was_sent(policy: Policy, acts: list[Send | Share]) -> None:
    sent: list[tuple[str, object, int, PrivacyEvent]] = []
    with tempfile.TemporaryDirectory() as folder, Database(Path(folder), create=True) as database:
        for number, act in enumerate(acts):
            ledger, study = Ledger(database, act.said), bytes([act.study]) * 32
            how = {
                "policy": policy,
                "study_digest": study,
                "study_id": f"s{act.study}",
                "recipient": "miner",
                "size": 1,
            }
            event = (
                RandomizedColumn(epsilon=act.epsilon, reader=act.reader)
                if isinstance(act, Send)
                else STATISTICS[act.kind]
            )
            release = ColumnDraw(
                variables=("x",), dataset=ledger.account(act.name), sources=(act.column if isinstance(act, Send) else "all",),
                codebook_digest=b"c" * 32 if isinstance(act, Send) else study + act.kind.encode(),
                transition_digest=repr(cost_of(event)).encode(), secret_id=b"s",
                fingerprint=bytes([act.version]) if isinstance(act, Send) else b"", event=event,
            )  # fmt: skip
            try:
                if isinstance(act, Share):
                    ledger.record_shared(release, artifact_sha256=bytes([number]), at=NOW, **how)  # type: ignore[arg-type]
                    noise: object = (act.kind, act.study, release.dataset)
                else:
                    release = ledger.as_drawn(release)
                    (assessed,) = ledger.assess([release], policy, study_digest=study)
                    ledger.record(
                        release, version_tag=assessed.version_tag, unit=number % 3, artifact_sha256=bytes([number]), at=NOW,
                        **how,  # type: ignore[arg-type]
                    )  # fmt: skip
                    noise = (*release.values(assessed.version_tag)[:5], assessed.version_tag)
            except Refusal as refused:
                if refused.code not in {"APPROVAL_VOID", "DATA_CHANGED"}:
                    raise
            else:
                sent.append((release.dataset, noise, act.study, event))
            check(Ledger(database, act.said), sent, act.said)
        for told in (APART, JOINED, TURNED):
            check(Ledger(database, told), sent, told)


def check(ledger: Ledger, sent: list[tuple[str, object, int, PrivacyEvent]], told: SamePeople) -> None:
    for reader in READERS:
        for account in {told.account(name) for name in ("people", "clinicdb")}:
            own = [(noise, study, event) for name, noise, study, event in sent if told.account(name) == account]
            least = accounted(own, reader)
            spent = ledger.sum_charges(account, reader)
            assert spent.epsilon >= least.epsilon * (1 - 1e-9)
            assert spent.delta >= least.delta * (1 - 1e-9)
            assert all(ledger.sum_charges(name, reader) == spent for name in told.names(account))
