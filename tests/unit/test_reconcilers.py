"""Each kind of event that a ledger can hold has somebody who says where proof of it lies outside of the site."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

import verticil.party.protocol.shipped.registrations  # noqa: F401  (the registry's entries)
from verticil.curator.reconciliation import EVIDENCE
from verticil.gan import accounting
from verticil.party.protocol.node.registry import PROTOCOLS
from verticil.party.protocol.reconciliation.reconciler import kinds_without_evidence
from verticil.shared.privacy import events
from verticil.shared.privacy.accounts import NOTHING
from verticil.shared.privacy.events import EventKind, PrivacyEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted(PrivacyEvent):
    """An event of a kind that nobody reconciles."""


def unreconciled() -> tuple[str, ...]:
    """The kinds that no protocol and no owner of a whole table speaks of."""
    evidence = [load().reconciler.evidence for load in PROTOCOLS]
    return kinds_without_evidence(events.kind_names(), [*evidence, EVIDENCE, accounting.EVIDENCE])


def test_every_kind_of_event_is_reconciled_and_a_planted_one_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(events.kind_names()) >= 9
    assert unreconciled() == ()
    planted = EventKind(
        name="planted", event=Planted, cost=lambda _: NOTHING, words=lambda _: "", of_study=lambda _study, _party: ()
    )
    monkeypatch.setattr(events, "_KINDS", {**events._KINDS, "planted": planted})
    assert unreconciled() == ("planted",)


def test_nobody_speaks_of_a_kind_that_is_not_there() -> None:
    for evidence in [*(load().reconciler.evidence for load in PROTOCOLS), EVIDENCE, accounting.EVIDENCE]:
        assert evidence.keys() <= set(events.kind_names())
