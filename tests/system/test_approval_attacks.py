"""What an analyst can read from approvals: studies made to single somebody out, against a real miner and a real party.

Rows of a related table are a part of the person: a study may ask for any number of them, in any order.

Both run as daemons over gRPC with mutual TLS, the party with ``approval = "rules"`` and, as the worst case, with every codebook
of the attack written down in its party.toml. The attacker has an analyst's certificate and keeps everything that it is shown of
its studies until the party has answered them: states, approvals, failures with their texts, and, for when, the version of each
study, which counts what the miner has heard. It is given two tables that differ in one person; nothing that it sees may differ.

`old_check` puts the check back that there was: whoever is in a category that was not declared, or in a combination that was
declared impossible, or whose id is another's, or of whose rows some are not laid, makes the table one that serves no study. Then
the same attacks read the value.
"""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from support.site_folder import task_of
from verticil.miner.config import load_miner
from verticil.miner.daemon import init_miner, run_miner
from verticil.party.config import load_party
from verticil.party.daemon import run_party
from verticil.party.dataset.related_rows import row_remarks
from verticil.party.dataset.source import check_records
from verticil.party.local_dataset import compounds_of, read_holding
from verticil.party.policy import approval_checks
from verticil.party.policy.rule_approval import approve_by_rule
from verticil.party.site import Site, init_state
from verticil.party.storage.database import Database
from verticil.party.storage.studies import PartyState
from verticil.shared.core.errors import DataFault
from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.pki import load_credentials, utc_now
from verticil.shared.federation.transport.client import Connection, GrpcControl
from verticil.shared.mechanisms.transition import quantize, symmetric
from verticil.shared.numerics.model.schema import Missing, Schema, Variable
from verticil.shared.related.tables import row_variables
from verticil.shared.study import canonical
from verticil.shared.study.document import Study
from verticil.shared.study.reading import read_study, read_study_text
from verticil.shared.study.states import State
from verticil.shared.study.typed_variables import bin_labels
from verticil.shared.study.unit import Unit
from verticil.wire.v1 import control_pb2

N = 300
VICTIM = 93
"""Their salary is the largest, their age the only one of its kind, their diagnosis the attacker's question."""
BASE = """
schema = 1
id = "base"
title = "A trial"
purpose = "test"
expires = 2099-12-31
[[party]]
name = "clinic"
[[party]]
name = "insurer"
[linkage]
minimum_common_records = 50
[[variable]]
party = "clinic"
name = "salary"
bins = [0, 50, 100]
[[variable]]
party = "clinic"
name = "age"
bins = [0, 93, 94, 120]
[[variable]]
party = "clinic"
name = "diagnosis"
categories = ["healthy", "ill"]
[[variable]]
party = "insurer"
name = "claims"
categories = ["0", "1"]
[randomization_default]
scheme = "symmetric"
epsilon = 1.0
"""
PARTY = """
schema = 1
name = "clinic"
federation = "federation.toml"
state_directory = "state"
[identity]
certificate = "pki/clinic.crt"
key = "pki/clinic.key"
[linkage]
key = "linkage.key"
[dataset.people]
path = "people.csv"
id = "id"
[dataset.people.tables.visits]
path = "visits.csv"
[policy]
approval = "rules"
max_rule_approvals_per_day = 100
max_epsilon_per_column = 3.0
max_epsilon_per_study = 6.0
max_epsilon_lifetime = 1000.0
minimum_common_records = 50
recipients = ["miner"]
[[policy.rule]]
name = "usual"
columns = ["salary", "age", "diagnosis"]
max_epsilon = 6.0
"""
RELATED = """
[[table]]
name = "visits"
party = "clinic"
max_rows = {most}
keep = "{keep}"
{order}
[[variable]]
party = "clinic"
table = "visits"
name = "day"
type = "integer"
bins = [0, 50, 100]
[[variable]]
party = "clinic"
table = "visits"
name = "ward"
categories = ["heart", "birth"]
"""
Transcript = Mapping[str, Sequence[str]]


def table(*, salary: int = 88, diagnosis: str = "healthy", person: str = "p0093") -> str:
    """Everybody earns at most 80 and is at most 90, but for one person."""
    rows = [f"p{i:04d},{20 + i * 7 % 61},{18 + i % 73},{'ill' if i % 9 == 0 else 'healthy'}" for i in range(N)]
    rows[VICTIM] = f"{person},{salary},93,{diagnosis}"
    return "\n".join(["id,salary,age,diagnosis", *rows]) + "\n"


def visits(*of_the_person: str) -> str:
    """Everybody has one or two visits, but for one person."""
    rows = [f"p{i:04d},{(7 * i + 20 * k) % 90},heart" for i in range(N) if i != VICTIM for k in range(1 + i % 2)]
    return "\n".join(["id,day,ward", *rows, *of_the_person]) + "\n"


# ---- the attacker's studies


def base(folder: Path) -> Study:
    path = folder / "base.toml"
    path.write_text(BASE)
    return read_study(path)


def named(study: Study, name: str) -> Study:
    return dataclasses.replace(study, id=name)


def with_bins(study: Study, name: str, edges: Sequence[float], **change: Any) -> Study:
    """`name` with other bins; ``outside = "error"`` as in studies of an earlier program."""

    def changed(variable: Variable) -> Variable:
        labels = bin_labels(edges)
        return dataclasses.replace(variable, bins=tuple(edges), labels=labels, **change)

    variables = tuple(changed(v) if v.name == name else v for v in study.schema.variables)
    units = tuple(
        dataclasses.replace(u, transition=quantize(symmetric(len(edges) - 1, epsilon=1.0)))
        if u.variables == (name,)
        else u
        for u in study.units
    )
    return dataclasses.replace(study, schema=Schema(variables=variables), units=units)


def maximum_by_bin_edges(study: Study) -> dict[str, Study]:
    """The largest salary lies below an edge or it does not: all halvings of the range at once."""
    return {
        f"below-{edge}-{outside}": with_bins(study, "salary", (0, 10, edge), outside=outside)
        for edge in range(84, 92)
        for outside in ("error", "clamp")
    }


def diagnosis_by_an_impossible_combination(study: Study) -> dict[str, Study]:
    """Nobody of 93 is ill, or nobody of 93 is healthy: one of the two is so, and the person is known to be 93."""

    def impossible(code: int) -> Study:
        pair = Unit(
            variables=("age", "diagnosis"), owner="clinic", scheme="symmetric", impossible=((1, code),),
            transition=quantize(symmetric(5, epsilon=1.0)),
        )  # fmt: skip
        return dataclasses.replace(study, units=(study.units[0], pair, study.units[-1]))

    return {"not-healthy": impossible(0), "not-ill": impossible(1)}


def same_id_by_normalise(study: Study) -> dict[str, Study]:
    """Are two ids equal but for letter case, blanks or letters?"""
    ways: list[tuple[str, ...]] = [(), ("trim",), ("nfkc", "trim", "casefold"), ("digits-only",)]
    return {
        f"way-{number}": dataclasses.replace(study, linkage=dataclasses.replace(study.linkage, normalise=way))
        for number, way in enumerate(ways)
    }


def records_by_their_number(study: Study) -> dict[str, Study]:
    """How many people are left when those of equal ids are left out, by the smallest number in common that is asked for."""
    folded = dataclasses.replace(study, linkage=dataclasses.replace(study.linkage, normalise=("casefold",)))
    return {
        f"at-least-{number}": dataclasses.replace(
            folded, linkage=dataclasses.replace(folded.linkage, minimum_common_records=number)
        )
        for number in range(N - 4, N + 2)
    }


def diagnosis_by_a_missing_category(study: Study) -> dict[str, Study]:
    """Without `other`, is there anybody with a diagnosis that is not listed? With it, and with `missing`, the answer is yes."""

    def listed(*labels: str, **change: Any) -> Study:
        variables = tuple(
            dataclasses.replace(v, labels=labels, **change) if v.name == "diagnosis" else v
            for v in study.schema.variables
        )
        return dataclasses.replace(study, schema=Schema(variables=variables))

    return {
        "all": listed("healthy", "ill"),
        "no-rare-one": listed("ill", "healthy"),
        "only-one-of-them": listed("healthy", "well"),
        "missing-is-ill": listed("healthy", "ill", missing=Missing(category="ill", spellings=("?",))),
        "other-is-ill": listed("healthy", "ill", other="ill"),
    }


def rows_of_a_person(_: Study) -> dict[str, Study]:
    """Has anybody more rows than slots, or none, or one that has no place? By numbers of slots, ways to keep rows, and orders."""
    return {
        f"{most}-{keep}-{order or 'no-order'}": read_study_text(
            BASE.replace("epsilon = 1.0", "epsilon = 0.1")
            + RELATED.format(most=most, keep=keep, order=f'order = "{order}"' if order else ""),
            Path(),
        )
        for most in (1, 2, 3)
        for keep in ("first", "random")
        for order in ("day", "")
    }


@dataclass(frozen=True)
class Attack:
    """Studies, and two tables of people or of their visits that differ in one person."""

    studies: Callable[[Study], dict[str, Study]]
    tables: tuple[str, str] = (table(), table())
    rows: tuple[str, str] = (visits(), visits())

    @property
    def both(self) -> tuple[tuple[str, str], tuple[str, str]]:
        """People and visits, of the one and of the other site."""
        return (self.tables[0], self.rows[0]), (self.tables[1], self.rows[1])


ATTACKS = {
    "the largest salary by bin edges": Attack(maximum_by_bin_edges, (table(salary=88), table(salary=86))),
    "a diagnosis by an impossible combination": Attack(
        diagnosis_by_an_impossible_combination, (table(diagnosis="healthy"), table(diagnosis="ill"))
    ),
    "two ids that are equal but for case": Attack(same_id_by_normalise, (table(person="p0093"), table(person="P0092"))),
    "an id that is empty but for blanks": Attack(same_id_by_normalise, (table(person="p0093"), table(person=" "))),
    "people left out, by their number": Attack(records_by_their_number, (table(person="p0093"), table(person="P0092"))),
    "a diagnosis that is not declared": Attack(
        diagnosis_by_a_missing_category, (table(diagnosis="healthy"), table(diagnosis="rare"))
    ),
    "a diagnosis that is missing": Attack(
        diagnosis_by_a_missing_category, (table(diagnosis="healthy"), table(diagnosis=""))
    ),
    "rows beyond all slots": Attack(
        rows_of_a_person, rows=(visits("p0093,1,heart"), visits(*(f"p0093,{k},heart" for k in range(40))))
    ),
    "a person without rows": Attack(rows_of_a_person, rows=(visits("p0093,1,heart"), visits())),
    "rows of somebody unknown": Attack(
        rows_of_a_person, rows=(visits("p0093,1,heart"), visits("p0093,1,heart", "q0093,2,heart"))
    ),
    "a row without its place in the order": Attack(
        rows_of_a_person, rows=(visits("p0093,1,heart"), visits("p0093,,heart"))
    ),
    "a row with a ward that is not declared": Attack(
        rows_of_a_person, rows=(visits("p0093,1,heart"), visits("p0093,1,psychiatry"))
    ),
}  # fmt: skip


# ---- the site, and what the attacker sees


def codebook(studies: Mapping[str, Study]) -> str:
    """What a site would have to write down so that its rules approve all of these."""
    ways = {study.linkage.normalise for study in studies.values()}
    found = [f"[codebook]\nnormalise = {json.dumps([list(way) for way in sorted(ways)])}"]
    columns: dict[str, None] = {}
    pairs: dict[str, None] = {}
    asked: dict[str, None] = {}
    for study in studies.values():
        for position in study.schema.owned_by("clinic"):
            variable = study.schema[position]
            asked[source := _source(variable.name)] = None
            columns[_column(variable, source)] = None
        for unit in study.units:
            if unit.impossible:
                sources = [study.schema[study.schema.index(name)] for name in unit.variables]
                rows = [[v.labels[code] for v, code in zip(sources, codes, strict=True)] for codes in unit.impossible]
                lines = (f"sources = {json.dumps(list(unit.variables))}", f"impossible = {json.dumps(rows)}")
                pairs["\n".join(("[[codebook.jointly]]", *lines))] = None
    rule = f'[[policy.rule]]\nname = "all"\ncolumns = {json.dumps(list(asked))}\nmax_epsilon = 6.0'
    return "\n".join([*found, *columns, *pairs, rule]) + "\n"


def _source(name: str) -> str:
    """What the site calls a column: of a slot the local column with the slot, of a count what is counted."""
    return "rows of visits" if name == "visits.rows" else name.removesuffix(".gap")


def _column(variable: Variable, source: str) -> str:
    lines = ["[[codebook.column]]", f'source = "{source}"']
    if variable.kind is not None:
        lines.append(f'type = "{variable.kind}"')
    if variable.points:
        lines.append(f"points = {json.dumps(list(variable.points))}")
    elif variable.bins is not None:
        lines.append(f"bins = {json.dumps(list(variable.bins))}")
    else:
        lines.append(f"categories = {json.dumps(list(variable.labels))}")
    if variable.other is not None:
        lines.append(f'other = "{variable.other}"')
    if variable.missing is not None:
        spellings = json.dumps(list(variable.missing.spellings))
        lines.append(f'missing = {{ category = "{variable.missing.category}", spellings = {spellings} }}')
    return "\n".join(lines)


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("pki")
    (root / "sha256").write_text(create_authority(root / "ca", "trial"))
    for name, role in (("miner", Role.MINER), ("clinic", Role.PARTY), ("anna", Role.ANALYST)):
        issue(root / "ca", name, role, root / "pki", hosts=("localhost",) if role is Role.MINER else ())
    return root


def federation(pki: Path, folder: Path, port: int) -> Path:
    path = folder / "federation.toml"
    path.write_text(
        f'schema = 1\nname = "trial"\nca_certificate = "{pki / "ca" / "ca.crt"}"\nca_sha256 = "{(pki / "sha256").read_text()}"\n'
        f'[miner]\nendpoint = "localhost:{port}"\n'
    )
    return path


def site(pki: Path, folder: Path, tables: tuple[str, str], rules: str, *, port: int = 1) -> Path:
    """The clinic's folder, with people and their visits; its secret is always the same, so nothing differs but the tables."""
    folder.mkdir(parents=True)
    (folder / "pki").symlink_to(pki / "pki")
    federation(pki, folder, port)
    (folder / "linkage.key").write_text("ab" * 32 + "\n")
    (folder / "linkage.key").chmod(0o600)
    for name, text in zip(("people.csv", "visits.csv"), tables, strict=True):
        (folder / name).write_text(text)
    (folder / "party.toml").write_text(PARTY + rules)
    init_state(folder / "state", site_secret=b"s" * 32)
    return folder


async def transcript(
    pki: Path, folder: Path, tables: tuple[str, str], studies: Mapping[str, Study], rules: str
) -> Transcript:
    """Everything that an analyst is shown of its studies until the clinic has answered all; the insurer never does."""
    (folder / "miner").mkdir(parents=True)
    (folder / "miner" / "pki").symlink_to(pki / "pki")
    init_miner(folder / "miner", name="miner", federation=federation(pki, folder / "miner", 1), listen="127.0.0.1:0")
    serving: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    miner = asyncio.create_task(
        run_miner(load_miner(folder / "miner" / "miner.toml"), stop=stop, on_start=serving.set_result)
    )
    await asyncio.wait([miner, serving], return_when=asyncio.FIRST_COMPLETED)
    if miner.done():
        miner.result()
    port = serving.result()
    config = load_party(site(pki, folder / "clinic", tables, rules, port=port) / "party.toml")
    credentials = load_credentials(pki / "pki" / "anna.crt", pki / "pki" / "anna.key", config.federation)
    analyst = GrpcControl(Connection(f"127.0.0.1:{port}", credentials, server_name="localhost"))
    digests: dict[str, bytes] = {}
    for name, study in studies.items():
        proposal = canonical.to_bytes(named(study, name))
        digests[name] = (await analyst.submit_study(control_pb2.SubmitStudyRequest(proposal=proposal))).study_digest
    party = asyncio.create_task(run_party(config, stop=stop))
    shown: dict[str, list[str]] = {}
    try:
        for name, digest in digests.items():
            shown[name] = await _watched(analyst, config.state_directory, digest, party)
    finally:
        stop.set()
        await asyncio.gather(party, miner, return_exceptions=True)
    return shown


async def _watched(analyst: GrpcControl, state: Path, digest: bytes, party: asyncio.Task[None]) -> list[str]:
    """What is shown of one study when the party has nothing left to do for it."""

    def settled() -> bool:
        with Database(state) as database:
            studies = PartyState(database)
            return studies.knows(digest) and studies.study(digest).stage.startswith(("waiting", "failed"))

    async with asyncio.timeout(PATIENCE_SECONDS):
        while not await asyncio.to_thread(settled):
            if party.done():
                party.result()
            await asyncio.sleep(0.02)
        study = (await analyst.get_study(control_pb2.GetStudyRequest(study_digest=digest))).study
        while _unanswered(study):
            await asyncio.sleep(0.02)
            study = (await analyst.get_study(control_pb2.GetStudyRequest(study_digest=digest))).study
    for standing in study.parties:
        standing.lease_age_seconds = 0
    return [State(study.state).name, str(study)]


def _unanswered(study: control_pb2.StudySummary) -> bool:
    """Whether the clinic waits for its people and the miner has not heard yet what its policy says of the study."""
    clinic = next(standing for standing in study.parties if standing.party == "clinic")
    return clinic.waiting_for == "approval" and not clinic.HasField("objections")


async def seen(pki: Path, folder: Path, attack: Attack, *, only: slice = slice(None)) -> tuple[Transcript, Transcript]:
    """The transcripts of the two tables at a site whose rules approve every study of the attack."""
    studies = dict(itertools.islice(attack.studies(base(folder)).items(), only.start, only.stop))
    found = [
        await transcript(pki, folder / str(number), tables, studies, codebook(studies))
        for number, tables in enumerate(attack.both)
    ]
    return found[0], found[1]


# ---- the attacks


@pytest.fixture
def old_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader that was: a table that does not fit a study raises, and the study fails or waits."""

    def fits(config: Any, study: Study, **rest: Any) -> Any:
        slots = {name for related in study.related for name in related.names}
        own = [study.schema[position] for position in study.schema.owned_by(config.name)]
        variables = [variable for variable in own if variable.name not in slots]
        compounds = list(compounds_of(study, config.name).values())
        clamped = {variable.name for variable in variables if variable.outside == "clamp"}
        report = check_records(config.datasets["people"], variables, study.linkage.normalise, compounds)
        for remark in report.remarks:
            if remark.code != "DATA_VALUE_OUTSIDE" or not clamped.issuperset(["salary"]):
                raise DataFault(remark.code, "does not fit")
        people, ways = config.datasets["people"], study.linkage.normalise
        for remark in row_remarks(people, study.related, study.schema, ways, folder=config.state_directory):
            raise DataFault(remark.code, "does not fit")
        for related in study.related:
            rows = check_records(people.tables["visits"], row_variables(related, study.schema), ways, ())
            if any(remark.code != "DATA_ID_DUPLICATE" for remark in rows.remarks):
                raise DataFault("DATA_VALUE_OUTSIDE", "does not fit")
        holding = read_holding(config, study, **rest)
        if holding.n_records < study.linkage.minimum_common_records:
            raise DataFault("DATA_ID_DUPLICATE", "too few")
        return holding

    monkeypatch.setattr(approval_checks, "read_holding", fits)


def approved(found: Transcript) -> set[str]:
    """Studies that the clinic has approved."""
    return {name for name, (_, text) in found.items() if "approved: true" in text}


@pytest.mark.slow
@pytest.mark.parametrize("what", ATTACKS)
async def test_no_attack_on_approvals_tells_two_tables_apart(pki: Path, tmp_path: Path, what: str) -> None:
    first, second = await seen(pki, tmp_path, ATTACKS[what])
    assert first == second
    assert approved(first) == set(first)  # they were answered, all of them, and with yes


@pytest.mark.slow
@pytest.mark.parametrize("what", ATTACKS)
async def test_with_the_old_check_put_back_every_attack_tells_the_tables_apart(
    pki: Path, tmp_path: Path, what: str, old_check: None
) -> None:
    first, second = await seen(pki, tmp_path, ATTACKS[what])
    assert approved(first) != approved(second)


@pytest.mark.slow
async def test_with_the_old_check_put_back_the_largest_salary_is_read(
    pki: Path, tmp_path: Path, old_check: None
) -> None:
    attack = ATTACKS["the largest salary by bin edges"]
    for found, salary in zip(await seen(pki, tmp_path, attack), (88, 86), strict=True):
        edges = [int(name.split("-")[1]) for name in approved(found) if name.endswith("error")]
        assert min(edges) == salary + 1


async def test_a_diagnosis_is_not_told_by_an_impossible_combination(pki: Path, tmp_path: Path) -> None:
    """The part of the suite that always runs."""
    first, second = await seen(pki, tmp_path, ATTACKS["a diagnosis by an impossible combination"])
    assert first == second
    assert approved(first) == {"not-ill", "not-healthy"}


async def test_with_the_old_check_put_back_a_diagnosis_is_told(pki: Path, tmp_path: Path, old_check: None) -> None:
    attack = ATTACKS["a diagnosis by an impossible combination"]
    first, second = await seen(pki, tmp_path, attack)
    assert (approved(first), approved(second)) == ({"not-ill"}, {"not-healthy"})


async def test_rules_that_cover_no_such_study_let_all_of_them_wait(pki: Path, tmp_path: Path, old_check: None) -> None:
    """The codebook alone, even with the old check: what the site did not write down is not looked up in its table."""
    attack = ATTACKS["a diagnosis by an impossible combination"]
    studies = attack.studies(base(tmp_path))
    usual = codebook({"base": base(tmp_path)})
    first, second = [
        await transcript(pki, tmp_path / str(number), tables, studies, usual)
        for number, tables in enumerate(attack.both)
    ]
    assert first == second
    assert approved(first) == set()


# ---- time


ROUNDS = 41
FALSE_ALARM = 1e-6


def alarm(differences: Sequence[float]) -> bool:
    """Whether one of two tables takes longer, by a two-sided sign test that is wrong of equal ones with `FALSE_ALARM` at most."""
    longer = sum(difference > 0 for difference in differences)
    tail = max(longer, len(differences) - longer)
    chance = sum(math.comb(len(differences), k) for k in range(tail, len(differences) + 1)) / 2 ** len(differences)
    return 2 * chance <= FALSE_ALARM


def cpu_seconds(folder: Path, number: int, study: Study) -> float:
    """The CPU time of this thread for the review of a study by rule, from the study to the approval."""
    with Site.open(load_party(folder / "party.toml")) as opened:
        fresh = named(study, f"study-{number}")
        digest = canonical.digest(fresh)
        task = task_of(fresh)
        opened.state.remember(task, fresh.id, utc_now())
        record = opened.state.study(digest)
        before = time.thread_time()
        assert approve_by_rule(opened.voting, record, utc_now()) is not None
        return time.thread_time() - before


@pytest.fixture(params=["impossible combination", "undeclared category", "bin edge"])
def paired(request: pytest.FixtureRequest, pki: Path, tmp_path: Path) -> tuple[tuple[Path, Path], Study]:
    """Two sites whose tables differ in one person, and a study that singles this person out."""
    attacks = {
        "impossible combination": (ATTACKS["a diagnosis by an impossible combination"], "not-ill"),
        "undeclared category": (ATTACKS["a diagnosis that is not declared"], "all"),
        "bin edge": (ATTACKS["the largest salary by bin edges"], "below-87-clamp"),
    }
    attack, name = attacks[request.param]
    study = attack.studies(base(tmp_path))[name]
    first, second = (
        site(pki, tmp_path / str(number), tables, codebook({name: study})) for number, tables in enumerate(attack.both)
    )
    return (first, second), study


def differences(sites: tuple[Path, Path], study: Study) -> list[float]:
    """Paired, in turns, so that whatever else the machine does meets both."""
    found: list[float] = []
    for number in range(ROUNDS + 2):
        order = (0, 1) if number % 2 else (1, 0)
        spent = {place: cpu_seconds(sites[place], number, study) for place in order}
        found.append(spent[0] - spent[1])
    return found[2:]  # the first ones import and compile


@pytest.mark.slow
def test_how_long_a_review_takes_tells_nothing(paired: tuple[tuple[Path, Path], Study]) -> None:
    """By the CPU time of the review; of equal tables the test is wrong once in a million runs."""
    assert not alarm(differences(*paired))


@pytest.mark.slow
def test_a_review_that_looks_longer_at_one_person_is_noticed(
    paired: tuple[tuple[Path, Path], Study], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted fault: twenty milliseconds more for one of the two tables."""
    sites, study = paired
    later = sites[1].resolve()

    def slower(config: Any, study: Study, **rest: Any) -> Any:
        until = time.thread_time() + (0.02 if config.path.parent.resolve() == later else 0.0)
        while time.thread_time() < until:
            pass
        return read_holding(config, study, **rest)

    monkeypatch.setattr(approval_checks, "read_holding", slower)
    assert alarm(differences(sites, study))


def test_the_sign_test_raises_no_alarm_about_a_fair_coin() -> None:
    """Exactly: the chance of all outcomes that raise one, under equal odds."""
    raising = [k for k in range(ROUNDS + 1) if alarm([1.0] * k + [-1.0] * (ROUNDS - k))]
    assert 0 < sum(math.comb(ROUNDS, k) for k in raising) / 2**ROUNDS <= FALSE_ALARM
