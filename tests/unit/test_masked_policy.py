"""Masked studies and a site's policy: who may deal, whose noise counts, what is told; what `party init` writes admits one."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from support.documents import FEDERATION, PEOPLE, party_toml
from support.studies import numbered, study_of
from verticil.cli.main import main
from verticil.party.config import load_party
from verticil.party.dataset.column_draws import Column
from verticil.party.limits.limits import Policy, find_objections
from verticil.party.operator.commands import init_party
from verticil.party.operator.keys import confirm_key, keys
from verticil.party.operator.limits import _masked_document, _read_masked
from verticil.shared.core.errors import Misuse, PeerFault
from verticil.shared.documents.toml_table import Table
from verticil.shared.federation.identity.key_words import key_words, proquint
from verticil.shared.mechanisms.transition import identity, quantize
from verticil.shared.privacy.accounts import DEALER, PUBLIC, READERS
from verticil.shared.privacy.masked import dealer_event
from verticil.shared.privacy.masked_figures import four_figures
from verticil.shared.privacy.statement import privacy_statement
from verticil.shared.study.document import MaskedRule, Study, TablesRule

PARTIES = ("clinic", "insurer", "registry")
PINNED = {name: bytes([place]) * 32 for place, name in enumerate((*PARTIES, "miner"), start=1)}


def masked(columns: int = 13, parties: tuple[str, ...] = PARTIES, *, epsilon: float = 1.0, **said: Any) -> Study:
    """So many columns, one after the other, of these parties, each with a floor of 6."""
    variables = tuple(
        dataclasses.replace(variable, owner=owner)
        for variable, owner in zip(numbered([3] * columns), itertools.cycle(parties), strict=False)
    )
    return study_of(
        variables,
        epsilon=6.0,
        model="masked",
        tables=TablesRule(epsilon=epsilon, delta=1e-9),
        masked=MaskedRule(**said),
    )


def federation(folder: Path, pinned: dict[str, bytes]) -> None:
    parties = {name: key for name, key in pinned.items() if name != "miner"}
    lines = [f'{name} = "{key.hex()}"' for name, key in parties.items()]
    miner = f'sealing_key = "{pinned["miner"].hex()}"\n' if "miner" in pinned else ""
    (folder / "federation.toml").write_text("\n".join([FEDERATION + miner + "[sealing]", *lines]) + "\n")


def initialised(folder: Path, *, allow: bool = True, confirmed: tuple[str, ...] = PARTIES[1:]) -> Path:
    """The party.toml that `party init` writes, with ``allow_masked`` set and keys confirmed."""
    federation(folder, PINNED)
    path = init_party(folder, name="clinic")
    text = path.read_text()
    assert "allow_masked = false " in text
    path.write_text(text.replace("allow_masked = false ", f"allow_masked = {str(allow).lower()} "))
    for name in confirmed:
        confirm_key(path, name, key_words(name, PINNED[name]))
    return path


def against(policy: Policy, study: Study, party: str = "clinic") -> list[str]:
    names = [study.schema[position].name for position in study.schema.owned_by(party)]
    columns = {name: Column(dataset="people", source=name) for name in names}
    return [f"{item.message} ({item.hint})" for item in find_objections(policy, study, party, columns)]


def changed(policy: Policy, **said: Any) -> Policy:
    return dataclasses.replace(policy, masked=dataclasses.replace(policy.masked, **said))


def test_what_party_init_writes_admits_a_masked_study_of_13_columns_once_it_is_allowed(tmp_path: Path) -> None:
    study = masked()
    assert len(study.units) == 13
    policy = load_party(initialised(tmp_path)).policy
    assert against(policy, study) == []
    (told,) = against(changed(policy, allow=False), study)
    assert "policy.allow_masked is false" in told
    only = masked(14, ("clinic", *("insurer", "registry") * 2))  # whoever has most of them
    assert against(policy, only) == []


def test_everything_else_that_a_policy_may_say_refuses_by_name(tmp_path: Path) -> None:
    policy, study = load_party(initialised(tmp_path)).policy, masked()

    def one(policy: Policy, study: Study = study) -> str:
        (told,) = against(policy, study)
        return told

    assert "tables: epsilon 2 for everybody, expected at most 1" in one(policy, masked(epsilon=2.0))
    assert "policy.max_masked_epsilon" in one(policy, masked(epsilon=2.0))
    loose = dataclasses.replace(study, tables=TablesRule(epsilon=1.0, delta=1e-8))
    assert "tables: delta 1e-08 for everybody, expected at most 1e-09" in one(policy, loose)
    assert "states no limit of epsilon and delta" in one(changed(policy, most=None))
    few = against(changed(policy, floor=5.0), study)
    assert len(few) == 5  # the clinic's columns
    assert "epsilon 6, expected at most 5" in few[0]
    assert "policy.max_floor_epsilon_per_column" in few[0]
    assert policy.dealer is not None
    for what, limit, key in (
        ("epsilon", 31.4, "max_floor_epsilon_per_study"),
        ("delta", 1e-10, "max_floor_delta_per_study"),
    ):
        narrow = dataclasses.replace(policy.dealer, study=dataclasses.replace(policy.dealer.study, **{what: limit}))
        assert f"policy.{key}" in one(dataclasses.replace(policy, dealer=narrow))
    enough = dataclasses.replace(policy.dealer, study=dataclasses.replace(policy.dealer.study, epsilon=31.44))
    assert against(dataclasses.replace(policy, dealer=enough), study) == []  # 5 columns of 6, and 1.4373 beside them
    dealt = one(changed(policy, dealers=("insurer",)))
    assert "'registry' would deal the masks of this party and 'insurer', and is not named there" in dealt
    assert "policy.allowed_dealers" in dealt
    uncounted = one(changed(policy, noise=("registry",)))
    assert "the noise of 'insurer' would be counted, and it is not named there" in uncounted
    assert "policy.noise_from" in uncounted
    unchecked = masked(unchecked=("registry",))
    assert "the rows of registry would go unchecked" in one(policy, unchecked)
    assert against(changed(policy, unchecked=True), unchecked) == []
    assert against(policy, masked(unchecked=("clinic",))) == []  # the others judge it
    by_miner = one(policy, masked(dealer="miner"))
    assert (
        "'miner' would deal the masks of this party and 'insurer', 'registry', and has no pinned key that" in by_miner
    )
    (counts,) = against(policy, masked(count_miner=True))
    assert "the noise of 'miner' would be counted, and it has no pinned key" in counts


def test_the_miner_must_be_allowed_to_deal_where_a_table_has_columns_of_three_parties(tmp_path: Path) -> None:
    policy, study = load_party(initialised(tmp_path)).policy, masked(3)
    three = dataclasses.replace(study.tables, three_way=(("v0", "v1", "v2"),))
    triple = dataclasses.replace(study, tables=three)
    assert against(policy, study) == []
    (told,) = against(policy, triple)
    assert "'miner' would deal the masks of this party and 'insurer', 'registry'" in told
    assert "has no pinned key that a person here confirmed" in told
    four = four_figures(triple, party="clinic")
    assert four is not None
    assert "miner with insurer (columns of clinic: epsilon 6 over 1)" in four.words[2]
    assert "miner with clinic" not in four.words[2]
    plan = next(item for item in four_figures(triple).floor if item.names == ("miner", "clinic"))
    assert (plan.owners, plan.columns) == (("insurer", "registry"), 2)


def test_raw_columns_are_masked_by_name_only(tmp_path: Path) -> None:
    policy, study = load_party(initialised(tmp_path)).policy, masked()
    first, *rest = study.units
    raw = dataclasses.replace(first, scheme="none", transition=quantize(identity(3)))
    study = dataclasses.replace(study, units=(raw, *rest))
    (told,) = against(dataclasses.replace(policy, allow_infinite=("v0",)), study)
    assert "has infinite epsilon and is not in policy.allow_raw_under_masks" in told
    assert against(changed(policy, raw=("v0",)), study) == []
    found = four_figures(study)
    assert found is not None
    assert math.isinf(found.floor[0].epsilon)
    assert ": no bound over" in found.words[2]


def test_a_party_whose_own_noise_is_not_counted_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load_party(initialised(tmp_path)).policy
    monkeypatch.setattr("verticil.party.limits.masked.noise_contributors", lambda study: ("insurer", "registry"))
    (told,) = against(policy, masked())
    assert "the noise of this party is not counted" in told


# ---- keys that a person confirmed


def test_a_key_counts_when_its_words_were_confirmed_and_no_more_when_another_is_pinned(tmp_path: Path) -> None:
    path = initialised(tmp_path, confirmed=("registry",))
    told = against(load_party(path).policy, masked())
    assert len(told) == 2
    assert all("'insurer'" in text and "no pinned key that a person here confirmed" in text for text in told)
    assert all("verticil party confirm-key NAME WORDS" in text for text in told)
    with pytest.raises(PeerFault, match="pins for 'insurer' has other words") as wrong:
        confirm_key(path, "insurer", key_words("insurer", PINNED["registry"]))
    assert wrong.value.code == "IDENTITY_REFUSED"
    standing = {key.name: key.standing for key in confirm_key(path, "insurer", PINNED["insurer"].hex()).keys}
    assert standing == {"clinic": "own", "insurer": "confirmed", "registry": "confirmed", "miner": "not confirmed"}
    assert against(load_party(path).policy, masked()) == []
    federation(tmp_path, {**PINNED, "insurer": b"x" * 32})
    assert {key.standing for key in keys(load_party(path)).keys if key.name == "insurer"} == {"differs"}
    told = against(load_party(path).policy, masked())
    assert all("has another pinned key than the one that was confirmed" in text for text in told)
    for name, problem in (("nobody", "pins no sealing key of that name"), ("clinic", "this party's own key")):
        with pytest.raises(Misuse, match=problem):
            confirm_key(path, name, "words")


def test_the_commands_show_and_confirm_keys_and_leave_the_rest_of_party_toml_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = initialised(tmp_path, confirmed=())
    before = path.read_text()
    assert main(["party", "keys", "--config", str(path)]) == 0
    assert key_words("insurer", PINNED["insurer"]) in capsys.readouterr().out
    words = key_words("insurer", PINNED["insurer"]).upper().split("-")
    assert main(["party", "confirm-key", "insurer", *words, "--config", str(path)]) == 0
    assert path.read_text().startswith(before)
    once = path.read_text()
    confirm_key(path, "insurer", key_words("insurer", PINNED["insurer"]))
    assert path.read_text() == once  # no second line
    path.write_text(before.replace("\nallow_masked", "\nconfirmed_keys = { }\nallow_masked", 1))
    with pytest.raises(Misuse, match="cannot be added to"):
        confirm_key(path, "insurer", key_words("insurer", PINNED["insurer"]))


def test_words_are_of_a_name_and_a_key_and_as_the_proposal_writes_them() -> None:
    numbers = [0x7F00, 0x0001, 0x3F54, 0xDCC1, 0x0C18, 0x8C4F]  # 127.0.0.1, 63.84.220.193, and of 12.110.110.204's kind
    assert "-".join(map(proquint, numbers[:4])) == "lusab-babad-gutih-tugad"
    assert len({proquint(number) for number in range(2**16)}) == 2**16
    said = {key_words(name, PINNED[other]) for name in PINNED for other in PINNED}
    assert len(said) == len(PINNED) ** 2


# ---- what is read from files


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ("max_masked_epsilon = 1.0\n", "max_masked_delta: missing, expected a number beside max_masked_epsilon"),
        ("max_masked_delta = 1e-9\n", "max_masked_epsilon: missing, expected a number beside max_masked_delta"),
        ("max_floor_epsilon_per_column = -1.0\n", "max_floor_epsilon_per_column: got -1"),
        ("max_linkages = -1\n", "max_linkages: got -1"),
        ("confirmed_keys = { insurer = 1 }\n", "insurer"),
        ("allow_maskd = true\n", "allow_maskd"),
    ],
)
def test_limits_that_do_not_go_together_are_refused(lines: str, problem: str, tmp_path: Path) -> None:
    federation(tmp_path, PINNED)
    (tmp_path / "party.toml").write_text(party_toml(lines, datasets=PEOPLE))
    with pytest.raises(Misuse, match=problem):
        load_party(tmp_path / "party.toml")


def test_published_limits_say_what_a_masked_study_may_ask(tmp_path: Path) -> None:
    policy = load_party(initialised(tmp_path, confirmed=("registry",))).policy
    said = json.loads(json.dumps({"masked": _masked_document(policy.masked)}))
    read = dataclasses.replace(policy, masked=_read_masked(Table(said, source="limits"), "clinic"))
    assert len(against(read, masked())) == 2
    assert [text.split(",")[0] for text in against(read, masked())] == [
        text.split(",")[0] for text in against(policy, masked())
    ]
    with pytest.raises(Misuse, match="masked: missing"):
        _read_masked(Table({}, source="limits"), "clinic")


# ---- the four figures


def test_the_four_figures_name_who_is_covered_and_who_would_have_to_collude() -> None:
    found = four_figures(masked(), party="clinic", before=3.5)
    assert found is not None
    everybody, before, floor, checked = found.words
    assert "epsilon 1, delta 1e-09 for each person, of all 78 tables together" in everybody
    assert "clinic and miner; insurer and miner; registry and miner" in everybody
    assert before.endswith("epsilon 3.5")
    assert (
        "insurer with registry (columns of clinic: epsilon 30 over 5); beside it the tables tell such two epsilon 1.44"
        in floor
    )
    assert "delta 1e-09, while nobody else leaves noise out" in floor
    assert "checked by its partners" in checked
    unchecked = four_figures(masked(unchecked=("insurer",)))
    assert unchecked is not None
    assert unchecked.words[3].startswith("not checked: the rows of insurer.")
    assert unchecked.document()["unchecked"] == ["insurer"]  # type: ignore[index, call-overload]
    assert four_figures(dataclasses.replace(masked(), model="central")) is None


def test_a_release_states_each_total_by_reader() -> None:
    statement = privacy_statement(masked())
    costs = {account.reader: account.cost for account in statement.accounts}
    assert list(costs) == list(READERS)
    assert costs[PUBLIC].epsilon == 1.0
    assert costs[DEALER].epsilon == pytest.approx(78 + 1.4377, abs=1e-3)
    assert statement.epsilon_per_person == pytest.approx(78.0)
    assert statement.together == costs[DEALER]


def test_what_two_know_of_the_noise_is_counted_with_what_is_tolerated(monkeypatch: pytest.MonkeyPatch) -> None:
    def beside(study: Study) -> tuple[float | None, int]:
        found = four_figures(study)
        assert found is not None
        return None if found.beside is None else round(found.beside.epsilon, 2), found.others

    four = (*PARTIES, "school")
    assert beside(masked()) == (1.44, 0)
    assert beside(masked(parties=four)) == (1.24, 0)
    assert beside(masked(parties=four, tolerate=2)) == (1.0, 0)  # sigma is larger, and both are tolerated
    assert beside(masked(parties=four, dealer="miner")) == (1.0, 0)  # the miner draws nothing
    assert beside(masked(parties=four, dealer="miner", tolerate=2)) == (1.0, 1)
    assert beside(masked(dealer="miner", count_miner=True)) == (1.24, 0)
    monkeypatch.setattr("verticil.shared.privacy.masked.noise_contributors", lambda study: ("insurer", "registry"))
    assert dealer_event(masked()) is None  # all noise is theirs: tables are a function of the randomized columns
