"""A mechanism that the product does not have, registered as the product's own are: charged, worded, stated and verified."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from support.documents import party_toml
from support.site_folder import task_of, write_site
from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.dataset.column_draws import ColumnDraw
from verticil.party.operator.page import page_model as view
from verticil.party.operator.page.pages import TEMPLATES
from verticil.party.operator.pending_studies import show
from verticil.party.operator.reports import ledger as listing
from verticil.party.operator.reports import ledger_of
from verticil.party.policy.planned_statistics import accounts_of, statistics_of
from verticil.party.site import Site
from verticil.shared.core.errors import GateFailed, Refusal
from verticil.shared.documents.json_document import Json
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.privacy import events
from verticil.shared.privacy.accounts import Cost
from verticil.shared.privacy.events import EventKind, PlannedEvent, PrivacyEvent, register
from verticil.shared.privacy.statement import PrivacyStatement
from verticil.shared.release.verification import VerifiedRelease, verify_release
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study
from verticil.simulation import simulate

NOW = dt.datetime(2026, 11, 21, 10, 0, tzinfo=dt.UTC)
WORDS = "how many people there are was told with geometric noise: epsilon 0.75, delta 1e-07"


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class NoisyNumber(PrivacyEvent):
    """The number of people with two-sided geometric noise of this scale, cut off where less than `tail` of it lies."""

    scale: float
    tail: float


def numbers(study: Study, party: str) -> Iterable[PlannedEvent]:
    """Every party of a study whose id says so tells the others how many people it has."""
    if study.id.startswith("counted"):
        yield PlannedEvent(
            event=NoisyNumber(scale=4 / 3, tail=1e-7, sensitivity=1.0),
            variables=tuple(variable.name for variable in study.schema.variables if variable.owner == party),
            readers=tuple(name for name in study.parties if name != party),
        )


KIND = EventKind(
    name="noisy-number",
    event=NoisyNumber,
    cost=lambda event: Cost(epsilon=1 / event.scale, delta=event.tail),
    words=lambda event: (
        f"how many people there are was told with geometric noise: epsilon {1 / event.scale:g}, delta {event.tail:g}"
    ),
    of_study=numbers,
)


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The registry of this test: what is registered in it is forgotten after it."""
    monkeypatch.setattr(events, "_KINDS", dict(events._KINDS))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    party = party_toml("max_delta_lifetime = 2e-7\n", per_study=3.0, lifetime=4.0, recipients=("miner", "registry"))
    write_site(tmp_path, party, people=150)
    return tmp_path


def counted(study: Study, name: str = "counted", epsilon: float = 1.0) -> Study:
    units = tuple(
        dataclasses.replace(
            unit, scheme="symmetric", transition=quantize(symmetric(unit.transition.n_states, epsilon=epsilon))
        )
        for unit in study.units
    )
    return dataclasses.replace(study, id=name, units=units)


def offered(site: Site, study: Study) -> bytes:
    digest = canonical.digest(study)
    site.state.remember(
        task_of(study, effective=True),
        study.id,
        NOW,
    )  # fmt: skip
    return digest


def told(site: Site, digest: bytes, study: Study) -> Cost:
    """What the mechanism does before its number leaves: its row, in the transaction in which the number is kept."""
    (event,) = statistics_of(study, "clinic", {"age": "people"})["people"]
    number = ColumnDraw(
        variables=("age",), dataset="people", sources=("age",), codebook_digest=digest, transition_digest=b"geometric",
        secret_id=b"", fingerprint=b"f" * 32, event=event,
    )  # fmt: skip
    return site.ledger.record_shared(
        number, policy=site.config.policy, study_digest=digest, study_id=study.id, recipient="registry",
        artifact_sha256=b"n" * 32, size=8, at=NOW,
    )  # fmt: skip


def test_an_added_event_is_worded_for_approval_reserved_charged_and_listed(
    folder: Path, release_study: Study, kinds: None, capsys: pytest.CaptureFixture[str]
) -> None:
    register(KIND)
    study, config = counted(release_study), load_party(folder / "party.toml")
    with Site.open(config) as site:
        digest = offered(site, study)
        page = TEMPLATES.render("study", view.study(site, site.state.study(digest), NOW), root="./", shown_at="")
        assert WORDS in page
        assert site.voting.approve(site.state.study(digest), "officer", NOW).complete
    facts = show(config, "counted", at=NOW)
    (event,) = facts.further_events or ()
    assert (event.words, event.recipients, event.epsilon, event.delta) == (WORDS, ("registry",), 0.75, 1e-7)
    (cost,) = facts.cost
    assert (cost.epsilon, cost.delta) == (pytest.approx(2.75), 1e-7)
    assert main(["party", "show", "counted", "--config", str(config.path)]) == 0
    assert WORDS in " ".join(capsys.readouterr().out.split())

    with Site.open(config) as site:
        record = site.state.study(digest)
        releases = site.column_draws(study, site.read(record))
        statistics = statistics_of(study, "clinic", accounts_of(releases, site.ledger.account))
        site.ledger.reserve(digest, releases, config.policy, shared=statistics)
        assert site.ledger.sum_reserved()["people"] == Cost(epsilon=pytest.approx(2.75), delta=1e-7)
        assert told(site, digest, study) == Cost(epsilon=0.75, delta=1e-7)
        assert told(site, digest, study) == Cost(epsilon=0.0)  # the same number again
        assert site.ledger.sum_reserved()["people"] == Cost(epsilon=pytest.approx(2.0), delta=0.0)
        assert site.ledger.sum_charges("people") == Cost(epsilon=0.75, delta=1e-7)
        assert site.ledger.rows()[0].event == NoisyNumber(scale=4 / 3, tail=1e-7, sensitivity=1.0)
    (row,) = listing(config).rows
    assert row.noise is not None
    assert (row.noise.event, row.noise.words, row.charged, row.noise.delta_charged) == (
        "noisy-number",
        WORDS,
        0.75,
        1e-7,
    )
    assert main(["party", "ledger", "--config", str(config.path)]) == 0
    assert WORDS in " ".join(capsys.readouterr().out.split())


def test_an_added_event_is_held_against_every_limit(folder: Path, release_study: Study, kinds: None) -> None:
    register(KIND)
    config = load_party(folder / "party.toml")
    with Site.open(config) as site:
        beyond = counted(release_study, epsilon=1.2)  # 2.4 by columns alone, of 3
        with pytest.raises(Refusal, match=r"columns and shared parameters sums to 3\.15, expected at most 3"):
            site.voting.approve(site.state.study(offered(site, beyond)), "officer", NOW)
        for number in range(2):
            study = counted(release_study, f"counted-{number}", epsilon=0.1)
            assert told(site, offered(site, study), study) == Cost(epsilon=0.75, delta=1e-7)
        third = counted(release_study, "counted-2", epsilon=0.1)
        with pytest.raises(Refusal, match=r"data set 'people': delta 1e-07 on top of what was charged before"):
            site.voting.approve(site.state.study(offered(site, third)), "officer", NOW)
        with pytest.raises(Refusal, match="max_delta_lifetime"):
            told(site, canonical.digest(third), third)
        assert len(site.ledger.rows()) == 2


def test_an_event_whose_kind_is_gone_is_refused_by_name_and_counts_still(
    folder: Path, release_study: Study, kinds: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    register(KIND)
    config, study = load_party(folder / "party.toml"), counted(release_study)
    with Site.open(config) as site:
        told(site, offered(site, study), study)
        events._KINDS.pop("noisy-number")
        assert site.ledger.sum_charges("people") == Cost(epsilon=0.75, delta=1e-7)
        with pytest.raises(Refusal, match="privacy event 'noisy-number': no kind of this name is known here"):
            _ = site.ledger.rows()[0].event
        (shown,) = ledger_of(site).rows
        assert shown.noise is not None
        assert (shown.noise.event, shown.charged, shown.noise.delta_charged) == ("noisy-number", 0.75, 1e-7)
        assert "no installed package knows: epsilon 0.75, delta 1e-07, as it was charged" in shown.noise.words
        statistics = {"people": [NoisyNumber(scale=1.0, tail=0.0)]}
        with pytest.raises(Refusal, match="privacy event 'NoisyNumber'"):
            site.ledger.assess([], config.policy, shared=statistics)


@pytest.mark.whole
def test_a_release_states_an_added_event_and_verifies_only_with_its_own_figures(
    tmp_path: Path,
    study_text: str,
    write_federation_tables: Callable[..., dict[str, Path]],
    kinds: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (path := tmp_path / "study.toml").write_text(study_text)
    study = dataclasses.replace(read_study(path), id="counted")
    tables = write_federation_tables(tmp_path / "tables", 1500)

    def published(kind: EventKind[NoisyNumber], name: str) -> Path:
        monkeypatch.setitem(events._KINDS, kind.name, kind)
        (tmp_path / name).mkdir()
        simulate(study, tables, seed=3, out=tmp_path / name / "release")
        return tmp_path / name

    def verify(place: Path) -> object:
        return verify_release(place / "release", ca_certificate=(place / "ca.crt").read_bytes())

    register(KIND)
    honest = published(KIND, "honest")
    assert verify(honest)
    report = (honest / "release" / "report.html").read_text(encoding="utf-8")
    assert report.count(WORDS) == len(study.parties)

    def less(study: Study, party: str) -> Iterable[PlannedEvent]:
        for item in numbers(study, party):
            assert isinstance(item.event, NoisyNumber)
            yield dataclasses.replace(item, event=dataclasses.replace(item.event, tail=1e-9))

    for name, bypass in (
        ("less", less),
        ("nothing", lambda *_: ()),
    ):  # who publishes states less than was drawn, or nothing
        place = published(dataclasses.replace(KIND, of_study=bypass), name)
        assert verify(place)
        monkeypatch.setitem(events._KINDS, KIND.name, KIND)
        with pytest.raises(GateFailed, match="events: what it says was drawn of people's data is not what"):
            verify(place)
    events._KINDS.pop(KIND.name)
    with pytest.raises(GateFailed, match="events"):
        verify(honest)


@pytest.mark.whole
def test_a_release_says_what_the_study_costs_each_reader_and_no_less(
    tmp_path: Path,
    study_text: str,
    write_federation_tables: Callable[..., dict[str, Path]],
    kinds: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (path := tmp_path / "study.toml").write_text(study_text)
    study = dataclasses.replace(read_study(path), id="counted")
    tables = write_federation_tables(tmp_path / "tables", 1500)
    register(KIND)
    honest = PrivacyStatement.accounts_document

    def published(name: str) -> Path:
        (tmp_path / name).mkdir()
        simulate(study, tables, seed=3, out=tmp_path / name / "release")
        return tmp_path / name

    def verify(place: Path) -> VerifiedRelease:
        return verify_release(place / "release", ca_certificate=(place / "ca.crt").read_bytes())

    place = published("honest")
    verified = verify(place)
    (columns, everybody) = verified.accounts
    assert columns.cost == everybody.cost
    assert columns.cost.delta == len(study.parties) * 1e-7
    assert main(["release", "verify", str(place / "release"), "--ca", str(place / "ca.crt")]) == 0
    shown = capsys.readouterr().out
    assert "one person, all of it, for everybody, by what is published: epsilon" in shown
    assert ", delta 2e-07" in shown
    report = (place / "release" / "report.html").read_text(encoding="utf-8")
    assert "for the miner, and for everybody who has this release" in report
    assert report.count("δ = 2 × 10⁻⁷") >= 2  # on the first screen and in the section on privacy

    def less(key: str, factor: float) -> Callable[[PrivacyStatement], Json]:
        def stated(statement: PrivacyStatement) -> Json:
            said = honest.fget(statement)  # type: ignore[attr-defined]
            return {**said, "list": [{**item, key: item[key] * factor} for item in said["list"]]}

        return stated

    for name, document in (("epsilon", less("epsilon", 0.99)), ("delta", less("delta", 0.5))):
        monkeypatch.setattr(PrivacyStatement, "accounts_document", property(document))
        place = published(name)
        assert verify(place)  # signed, and all of one piece for who has the same bypass
        monkeypatch.setattr(PrivacyStatement, "accounts_document", honest)
        with pytest.raises(GateFailed, match="accounts: what it says that the study costs each person is not what"):
            verify(place)
