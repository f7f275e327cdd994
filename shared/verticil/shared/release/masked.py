"""The release of Model III: the miner signs it, and it names the round's plan and the opened tables that all of it follows from.

The plan's digest is a function of the study and the number of people, so whoever has the release computes it again: it is what
every contributor computed before its hello. The digest of the opened tables is for the parties, who have them: before they
countersign they compare.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import Final

from verticil.shared.errors import Misuse
from verticil.shared.json_document import Json, Node
from verticil.shared.model.network import Network
from verticil.shared.privacy.statement import PrivacyStatement
from verticil.shared.release.content import ReleaseContent
from verticil.shared.release.evidence import Trust
from verticil.shared.release.protocol import Checked, ReleaseProtocol, Section, own_template
from verticil.shared.release.report import wording
from verticil.shared.study.document import Study
from verticil.shared.study.masked import plan_of

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


def _plan_sha256(study: Study, n_people: int, study_digest: str) -> str:
    return plan_of(study, n_people, proposal=bytes.fromhex(study_digest)).digest.hex()


class MaskedRelease(ReleaseProtocol):
    """The plan of the round, and what was opened."""

    def evidence(self, content: ReleaseContent) -> dict[str, Json]:
        """Both digests; a simulation that opened no tables has none."""
        if not content.opened:
            return {}
        plan = _plan_sha256(content.study, content.n_common, content.study_digest)
        return {"opened": {"plan_sha256": plan, "tables_sha256": content.opened.hex()}}

    def check(
        self, manifest: Node, study: Study, model: Network, trust: Trust, *, publisher: str, published: dt.datetime
    ) -> Checked:
        """Check that the plan is the study's."""
        opened = manifest.get("opened")
        if opened is None:
            if not manifest["simulation"].boolean():
                manifest.fail("opened: missing, expected the plan and the tables that the release follows from")
            return Checked()
        node = opened["plan_sha256"]
        try:
            expected = _plan_sha256(study, manifest["n_common"].integer(), manifest["study_digest"].text())
        except (Misuse, ValueError) as error:
            node.fail(f"the study has no plan for so many people: {error}")
        if node.text() != expected:
            node.fail(f"got {node.text()!r}, the study and the number of people give {expected}")
        if not _SHA256.fullmatch(opened["tables_sha256"].text()):
            opened["tables_sha256"].fail("expected the 64 hexadecimal digits of a SHA-256")
        return Checked()

    def section(self, content: ReleaseContent, statement: PrivacyStatement) -> Section:
        """The noise on the tables; who could read randomized columns, and of whom."""
        note = (
            f"{wording.count(statement.n_sent, 'column')}; only for a dealer that works with its partner, see section 2"
        )
        return Section(
            figures=(("The floor, over all columns (ε)", wording.epsilon(statement.epsilon_per_person), note),),
            share="that the opened tables give, with the randomization taken out on average",
            noisy=True,
            no_pairs="No pair was compared: the network has no arrow, and the study names no pair.",
            evidence="the digests of the round's plan and of the opened tables",
        )

    def template(self) -> str:
        """Everything is computed from opened tables."""
        return own_template("masked.html.j2")
