"""The publication gate in a study's documents: ``[publish] countersign = "none" | "quorum" | "all"``, with ``quorum = N``.

With a miner the parties can ask to see the release before anybody else does: it is published when so many of them have
countersigned its manifest. Between peers the key is refused: every party signs the release anyway, each assembles it from the
same statements, and no node holds it back from the others.
"""

from __future__ import annotations

from verticil.shared.config import Table
from verticil.shared.record import Json
from verticil.shared.study.document import PublishRule, Study
from verticil.shared.study.vocabulary import fail

_KINDS = ("none", "quorum", "all")


def publish_from(table: Table) -> PublishRule | None:
    """The rule in a document's ``publish`` table; an absent table, or ``none``, is no rule.

    Raises:
        Misuse: the table's code.
    """
    if not table.has("publish"):
        return None
    rule = table.table("publish")
    rule.only("countersign", "quorum")
    kind = rule.choice("countersign", _KINDS, "none")
    if rule.has("quorum") and kind != "quorum":
        rule.fail("quorum", f"stands beside countersign = '{kind}'", hint='set countersign = "quorum", or remove it')
    if kind == "none":
        return None
    return PublishRule(quorum=rule.value(int, "quorum") if kind == "quorum" else None)


def publish_to_json(rule: PublishRule) -> Json:
    """The rule as it stands in a study's canonical form."""
    return {"countersign": "all"} if rule.quorum is None else {"countersign": "quorum", "quorum": rule.quorum}


def check_publish(study: Study, *, source: str) -> None:
    """Check that the gate can be kept.

    Raises:
        Misuse: STUDY_INVALID.
    """
    if study.publish is None:
        return
    where = f"{source}: publish"
    quorum, n_parties = study.publish.quorum, len(study.parties)
    if quorum is not None and not 1 <= quorum <= n_parties:
        fail(f"{where}.quorum", f"got {quorum}, expected 1 to {n_parties}, the number of parties")
