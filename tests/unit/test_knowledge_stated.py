"""What a study states is said wherever it is decided or read, and is a part of what an approval binds to."""

from __future__ import annotations

import dataclasses
import datetime as dt
import html
import json
from pathlib import Path

import pytest

from support.releases import content_of
from verticil.cli.main import main
from verticil.party.policy.comparison import changes
from verticil.shared.core.errors import PeerFault
from verticil.shared.numerics.knowledge.rules import Condition, Knowledge, Rule
from verticil.shared.numerics.knowledge.words import EXPLAINED, HEADING, describe_knowledge
from verticil.shared.release.report.page import render
from verticil.shared.study import canonical
from verticil.shared.study.approval import Approval, check_approval, check_own_part, declared_units
from verticil.shared.study.document import Study

EXAMPLE = Path(__file__).parents[1] / "vectors" / "study_example.toml"
RULE = """
[[knowledge.rule]]
kind = "forbidden"
name = "<b>young & rich</b>"
all = { age = { below = 25 }, income = ">50K" }
"""


def knowing(study: Study, smokes: str) -> Study:
    young = Condition(variable="age", values=("[0,18)",))
    rule = Rule(name="<children>", when=(young,), then=(Condition(variable="smoker", values=(smokes,)),))
    return dataclasses.replace(study, knowledge=Knowledge(rules=(rule,)))


def test_the_report_has_a_section_of_it_and_none_where_nothing_is_stated(release_content):
    assert HEADING not in render(release_content)
    study = knowing(release_content.study, "no")
    page = render(content_of(study))
    section = page.split('<section aria-labelledby="stated">', 1)[1].split("</section>", 1)[0]
    assert HEADING in section
    assert html.escape(EXPLAINED) in section
    assert "&lt;children&gt;: where age is below 18, smoker is &#39;no&#39;." in section


def test_study_check_says_it(tmp_path, capsys):
    path = tmp_path / "study.toml"
    path.write_text(EXAMPLE.read_text(encoding="utf-8") + RULE, encoding="utf-8")
    assert main(["study", "check", str(path)]) == 0
    shown = capsys.readouterr().out
    assert HEADING in shown
    assert "<b>young & rich</b>: never together: age is below 25 and income is '>50K'." in shown
    main(["study", "check", str(path), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["stated"][0].startswith("<b>young")
    main(["study", "check", str(EXAMPLE), "--format", "json"])
    assert json.loads(capsys.readouterr().out)["stated"] == []


def test_a_change_is_named_changes_the_digest_and_voids_the_approval(release_study):
    one, other = knowing(release_study, "no"), knowing(release_study, "yes")
    assert len({canonical.digest(study) for study in (release_study, one, other)}) == 3
    assert changes(release_study, one) == (f"stated: {describe_knowledge(one.knowledge, one.schema)[0]}",)
    assert changes(one, other) == (
        "not stated any more: <children>: where age is below 18, smoker is 'no'.",
        "stated: <children>: where age is below 18, smoker is 'yes'.",
    )
    indices = one.units_of("clinic")
    given = Approval(
        proposal_digest=canonical.digest(one),
        party="clinic",
        units=declared_units({i: one.units[i] for i in indices}, {i: f"{i:064x}" for i in indices}),
        minimum_common_records=100,
        approver="officer",
        approved_at=dt.datetime(2026, 11, 21, tzinfo=dt.UTC),
        expires=one.expires,
    )
    check_approval(given, one, "clinic")
    for changed in (other, release_study):
        with pytest.raises(PeerFault) as caught:
            check_approval(given, changed, "clinic")
        assert caught.value.code == "STUDY_MISMATCH"
        with pytest.raises(PeerFault, match="its 'knowledge' is not what was approved"):
            check_own_part(one, changed, "clinic")
