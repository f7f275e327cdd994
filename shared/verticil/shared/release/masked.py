"""The release of Model III: the miner signs it, and it names the round's plan and the opened tables that all of it follows from.

The plan's digest is a function of the study and the number of people, so whoever has the release computes it again: it is what
every contributor computed before its hello. The digest of the opened tables is for the parties, who have them: before they
countersign they compare.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from verticil.shared.core.arrays import Counts
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.json_document import Json, JsonNode
from verticil.shared.masked.arithmetic.opening import Alarm, margin_alarms
from verticil.shared.numerics.model.network import Network
from verticil.shared.privacy.statement import PrivacyStatement
from verticil.shared.release import wording
from verticil.shared.release.content import OpenedTables, ReleaseContent
from verticil.shared.release.protocol import Checked, ReleaseProtocol, Section, own_template
from verticil.shared.release.signatures import Trust
from verticil.shared.study.document import Study
from verticil.shared.study.masked import plan_of
from verticil.shared.study.protocols import coarse_deviations, table_deviations
from verticil.shared.study.tables import coarse_pairs, tables_of

_SHA256: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)


def _plan_sha256(study: Study, n_people: int, study_digest: str) -> str:
    return plan_of(study, n_people, proposal=bytes.fromhex(study_digest)).digest.hex()


def opened_tables(study: Study, tables: Sequence[Counts], n_people: int) -> OpenedTables:
    """Return what a release says of opened tables.

    Args:
        study: the effective study.
        tables: in the order of `tables_of`, then of `coarse_pairs`, whole numbers.
        n_people: n.
    """
    counts = [np.asarray(table, dtype=np.int64) for table in tables]
    n_fine = len(tables_of(study))

    def words(alarm: Alarm, axes: Sequence[tuple[int, ...]], runs: str) -> str:
        def of(table: int) -> str:
            return f"the table of {' and '.join(study.units[unit].text for unit in axes[table])}{runs}"

        if alarm.table is None:
            return f"all margins together{runs} are nearer to each other than the noise on the tables lets them be"
        if alarm.other is None:
            return f"{of(alarm.table)}: its total is too far from the number of people"
        margin = " and ".join(study.units[unit].text for unit in alarm.units)
        return f"{of(alarm.table)} and {of(alarm.other)} are too far from each other in {margin}"

    alarms = [
        words(alarm, axes, runs)
        for axes, some, deviations, runs in (
            (tables_of(study), counts[:n_fine], table_deviations(study), ""),
            (coarse_pairs(study), counts[n_fine:], coarse_deviations(study), " in ranges of neighbouring categories"),
        )
        if axes
        for alarm in margin_alarms(axes, some, deviations, n_people)
    ]
    data = b"".join(np.ascontiguousarray(table, dtype="<i8").tobytes() for table in counts)
    return OpenedTables(sha256=hashlib.sha256(data).digest(), alarms=tuple(alarms))


class MaskedRelease(ReleaseProtocol):
    """The plan of the round, and what was opened."""

    def opened(self, study: Study, tables: Sequence[Counts], n_people: int) -> OpenedTables:
        """Return the opened tables; see `ReleaseProtocol.opened`."""
        return opened_tables(study, tables, n_people)

    def evidence(self, content: ReleaseContent) -> dict[str, Json]:
        """Return both digests, and where the tables do not fit together; a simulation that opened none has nothing."""
        if (tables := content.opened) is None:
            return {}
        plan = _plan_sha256(content.study, content.n_common, content.study_digest)
        entry: dict[str, Json] = {
            "plan_sha256": plan,
            "tables_sha256": tables.sha256.hex(),
            "alarms": list(tables.alarms),
        }
        return {"opened": entry}

    def check(
        self, manifest: JsonNode, study: Study, model: Network, trust: Trust, *, publisher: str, published: dt.datetime
    ) -> Checked:
        """Check that the plan is the study's."""
        entry = manifest.get("opened")
        if entry is None:
            if not manifest["simulation"].boolean():
                manifest.fail("opened: missing, expected the plan and the tables that the release follows from")
            return Checked()
        node = entry["plan_sha256"]
        try:
            target = _plan_sha256(study, manifest["n_common"].integer(), manifest["study_digest"].text())
        except (Misuse, ValueError) as error:
            node.fail(f"the study has no plan for so many people: {error}")
        if node.text() != target:
            node.fail(f"got {node.text()!r}, the study and the number of people give {target}")
        if not _SHA256.fullmatch(sha256 := entry["tables_sha256"].text()):
            entry["tables_sha256"].fail("expected the 64 hexadecimal digits of a SHA-256")
        return Checked(opened=sha256, alarms=entry["alarms"].texts())

    def section(self, content: ReleaseContent, statement: PrivacyStatement) -> Section:
        """Return the noise on the tables; who could read randomized columns, and of whom."""
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
