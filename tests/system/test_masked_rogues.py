"""Model III with a node that lies, between real processes over mutual TLS: the table of lies, and how each of them ends.

A lie ends in a named refusal at whom it is told to, in a wait that names who is waited for, or in nothing: the release is
published. Whatever it is, no node dies, nobody is charged more than one round, nobody is charged for a round of which nothing
has left, and no message leaves twice with other bytes. The program of a node is `lies_in_a_round.py`; that of the honest ones,
too, which notes what it lets leave.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from support.sameness import charged
from verticil.party.config import load_party
from verticil.party.operator import commands
from verticil.party.site import Site
from verticil.shared.masked.round.schedule import CHARGED
from verticil.shared.privacy.masked import MaskedTables
from verticil.wire.v1 import common_pb2, control_pb2

PROGRAM = Path(__file__).with_name("lies_in_a_round.py")
PARTIES = ("clinic", "insurer", "tax_office")
NODES = ("miner", *PARTIES)
PATIENCE_SECONDS = 240
FLOOR = 18.0
"""What a round of these columns costs: one of each party, six of epsilon each for a dealer with a partner."""
PUBLISHED = "published"


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a lie ends.

    Attributes:
        liar: who lies; empty: all nodes do the same.
        code: of the failure at `victim`; empty: it waits; PUBLISHED: nothing comes of it.
        says: words of the failure, or of what is waited for, which is the same ten seconds later; " … " stands between several.
        victim: who hears the lie.
        before: nothing that depends on rows has left, and nobody is charged.
        relay: parties reach each other through the miner.
        studies: how many are submitted, one after the other; the lie is in the last one.
        logs: words in the log of `victim`.
    """

    liar: str = "insurer"
    code: str = "MESSAGE_INVALID"
    says: str = ""
    victim: str = "clinic"
    before: bool = False
    relay: bool = False
    studies: int = 1
    logs: str = ""


ENDINGS = {
    "masked rows of random words": Ending(says="from 'insurer' to … it does not fit what was committed to"),
    "rows beyond one, committed to": Ending(says="'insurer'"),
    "a dealer's products of random words": Ending(victim="miner", says="add up to are no tables"),
    "a share of random words": Ending(victim="miner", says="add up to are no tables"),
    "opened tables of other counts": Ending(liar="miner", says="'opened' from 'miner'"),
    "messages of the round before": Ending(says="signed as another message", before=True, studies=2),
    "rows for another party": Ending(says="from 'insurer'"),
    "another slot": Ending(says="'hello' from … signed as another message", before=True),
    "a pair of columns twice": Ending(liar="miner", says="signed as another message", before=True),
    "partner and dealer of one operator": Ending(liar="miner", says="signed as another message", before=True),
    "a pair that its partner deals": Ending(says="'hello' from … signed as another message", before=True),
    "another sigma": Ending(says="'hello' from … signed as another message", before=True),
    "an effective study of a lower floor": Ending(liar="miner", code="STUDY_MISMATCH", before=True),
    "an effective study of less noise": Ending(liar="miner", code="STUDY_MISMATCH", before=True),
    "rows for one of two": Ending(code="", says="masking: … insurer", victim="tax_office"),
    "tables for one of two": Ending(liar="miner", code="", says="opening: … miner", victim="tax_office"),
    "gone with another's rows": Ending(code="", says="insurer"),
    "every message asked for twice": Ending(code=PUBLISHED),
    "a relay that loses and reorders": Ending(liar="miner", code=PUBLISHED, relay=True),
    "slots of a millisecond": Ending(liar="", code=PUBLISHED, logs="was not done within a slot"),
}


class Rogues:
    """A federation in which one node lies."""

    def __init__(self, nodes: Any, lie: str, ending: Ending) -> None:
        self.nodes, self._lie, self._ending = nodes, lie, ending
        nodes.program = (str(PROGRAM),)

    def start(self) -> None:
        for node in NODES:
            lies = self._ending.liar in {"", node}
            self.nodes.environment |= {"SENT": str(self._sent(node)), "LIE": self._lie if lies else ""}
            if node == "miner":
                self.nodes.start_miner("--seed-derived")
                self.nodes.point_to(self.nodes.port)
                self._be_impatient()
            else:
                self.nodes.start_party(node)

    def _be_impatient(self) -> None:
        """A lost envelope is missed after ten seconds, and not after two minutes."""
        for file in Path(self.nodes.made.root).glob("*/federation.toml"):
            text = file.read_text(encoding="utf-8")
            file.write_text(text.replace("idle_timeout_seconds = 120", "idle_timeout_seconds = 10"), encoding="utf-8")

    def _sent(self, node: str) -> Path:
        return Path(self.nodes.made.root) / f"{node}.sent"

    def left(self, node: str) -> list[tuple[int, str, str, str]]:
        """What a node let leave: index, kind, recipient, SHA-256."""
        lines = (line.split() for line in self._sent(node).read_text(encoding="ascii").splitlines())
        return [(int(index), kind, recipient, sha256) for index, kind, recipient, sha256 in lines]

    def status(self, party: str, digest: bytes) -> Any:
        found = commands.status(load_party(self.nodes.made.parties[party] / "party.toml")).studies
        return next((study for study in found if study.digest == digest.hex()), None)

    def ended(self, digest: bytes) -> tuple[str, str]:
        """With what the study has ended for the victim, or what it waits for: code and words; ("", "") while it goes on.

        Another party may hear the lie first: then the victim knows the code, and the miner has the words.
        """
        ending = self._ending
        found = None if ending.victim == "miner" else self.status(ending.victim, digest)
        ended_elsewhere = found is not None and found.failure is None and found.stage.startswith("failed")
        if ending.victim == "miner" or ending.code == PUBLISHED or ended_elsewhere:
            request = control_pb2.GetStudyRequest(study_digest=digest)
            study = self.nodes.control(lambda control: control.get_study(request)).study
            if study.state == common_pb2.STUDY_STATE_PUBLISHED:
                return PUBLISHED, ""
            return study.failure.code, study.failure.message
        if found is None:
            return "", ""
        if found.failure is not None:
            return found.failure.code, found.failure.message
        return "", found.stage

    def publish_first(self) -> None:
        digest = self.nodes.submit()
        self.nodes.publish(digest)

    def _is_so(self, code: str, words: str) -> bool:
        says = self._ending.says.split(" … ")
        return code == self._ending.code and bool(code or words) and all(part in words for part in says)

    def see_the_end(self, digest: bytes) -> None:
        ending, end = self._ending, time.monotonic() + PATIENCE_SECONDS
        while True:
            code, words = self.ended(digest)
            if self._is_so(code, words):
                if code:
                    return
                time.sleep(10)
                if self._is_so(*self.ended(digest)):
                    return
            assert code in {"", ending.code} or not ending.code, (code, words)
            assert not code, (code, words)
            assert time.monotonic() < end, (code, words, self.nodes.log(ending.victim)[-2000:])
            time.sleep(0.2)


@pytest.mark.faults
@pytest.mark.timeout(900)
@pytest.mark.parametrize("lie", ENDINGS)
def test_a_lie_in_a_round_ends_in_a_named_refusal_a_wait_or_nothing(
    lie: str, make_nodes: Callable[..., Any], masked_study_text: str
) -> None:
    ending = ENDINGS[lie]
    nodes = make_nodes(masked=True, n=1300, seed=5, relay=ending.relay, study=_small(masked_study_text))
    rogues = Rogues(nodes, lie, ending)
    rogues.start()
    for number in range(1, ending.studies):
        rogues.publish_first()
        nodes.study = _renamed(nodes.study, f"study-{number}")
    digest = nodes.submit()
    rogues.see_the_end(digest)
    assert ending.logs in nodes.log(ending.victim)
    expected = {0, 3} if lie.startswith("gone") else {0}
    assert set(nodes.stop().values()) <= expected
    assert not any("Traceback" in nodes.log(node) or "INTERNAL" in nodes.log(node) for node in NODES)
    for node in NODES:
        kept: dict[int, set[str]] = {}
        for index, _, _, sha256 in rogues.left(node):
            kept.setdefault(index, set()).add(sha256)
        assert ending.studies > 1 or node == ending.liar or all(len(found) == 1 for found in kept.values())
    spent, rounds = charged(nodes.made.parties), ending.studies - ending.before
    for party in PARTIES:
        if party == ending.liar:
            continue
        with Site.open(load_party(nodes.made.parties[party] / "party.toml")) as site:
            assert len(site.ledger.rounds(digest, MaskedTables)) <= 1 - ending.before
            if not site.ledger.rounds(digest, MaskedTables):
                assert ending.before or not any(kind in CHARGED for _, kind, _, _ in rogues.left(party))
        assert spent[party] <= FLOOR * rounds + 1e-6


def _small(text: str) -> str:
    """The study with one column of each party."""
    head, *variables = text.split("[[variable]]")
    tail = variables[-1][variables[-1].index("[tables]") :]
    named = [item for item in variables if any(f'name = "{name}"' in item for name in ("smoker", "claims", "income"))]
    return "[[variable]]".join([head, *(item.split("[tables]")[0] for item in named)]) + tail.replace(
        "epsilon = 4.0", "epsilon = 1.0"
    )


def _renamed(study: Any, name: str) -> Any:
    return type(study)(**{**{key: getattr(study, key) for key in study.__slots__}, "id": name})
