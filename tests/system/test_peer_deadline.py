"""Feature 32 between peers: a party that stays away ends the study with its name and what was waited for, never in silence."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from verticil.shared.core.errors import PeerFault, VerticilError
from verticil.shared.study.reading import read_study
from verticil.simulation import peers
from verticil.simulation.in_memory_peers import run_peers
from verticil.simulation.provision import OPEN_LIMITS, csv_site, provision


async def test_feature_32_a_peer_that_stays_away_is_named_at_the_deadline(
    tmp_path: Path, peer_study_text: str, write_tables_of_peers: Callable[..., dict[str, Path]]
) -> None:
    tables = write_tables_of_peers(tmp_path / "tables", 200)
    (tmp_path / "study.toml").write_text(
        peer_study_text.replace("[release]", '[quorum]\ndeadline = "12h"\n\n[release]').replace(
            "minimum_common_records = 1000", "minimum_common_records = 10"
        )
    )
    made = provision(
        tmp_path / "federation",
        federation="trial",
        sites=[csv_site(name, path) for name, path in tables.items()],
        limits=OPEN_LIMITS,
        endpoint=None,
        listen="127.0.0.1:0",
        hosts=("localhost",),
        seed=1,
        peers={name: f"localhost:{2 + number}" for number, name in enumerate(tables)},
    )
    start = dt.datetime.now(dt.UTC).replace(microsecond=0) + dt.timedelta(hours=1)
    asked: list[str] = []

    class Away:
        """The tax office's line is dead."""

        def __getattr__(self, name: str) -> Any:
            async def dead(*_: object) -> None:
                asked.append(name)
                raise PeerFault("UNREACHABLE", "tax_office: nobody there")

            return dead

        async def close(self) -> None:
            pass

    def clock() -> dt.datetime:  # within the day for which the certificates of a provisioned federation hold
        return start + (dt.timedelta(hours=13) if len(asked) > 4 else dt.timedelta())

    def between(who: str, whom: str, line: Any) -> Any:
        return Away() if "tax_office" in {who, whom} else line

    with pytest.raises(VerticilError) as caught:
        await asyncio.wait_for(
            run_peers(
                made,
                read_study(tmp_path / "study.toml"),
                tmp_path / "release",
                is_seeded=True,
                wrap_peer=between,
                clock=clock,
            ),
            PATIENCE_SECONDS,
        )
    assert caught.value.code == "DEADLINE_PASSED"
    assert "tax_office" in caught.value.message
    assert f"{start + dt.timedelta(hours=12):%Y-%m-%dT%H:%M:%SZ}" in caught.value.message


def test_what_ended_a_study_is_told_though_it_was_read_before_it_was_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clinic is read first, meets its deadline, and tells the insurer, which is read then."""

    def at(code: str | None) -> SimpleNamespace:
        failure = None if code is None else SimpleNamespace(code=code, message="it ended", hint="")
        return SimpleNamespace(stage="linked", state="linked" if failure is None else "failed", failure=failure)

    told = at("STUDY_WITHDRAWN")
    looks = iter([{"clinic": at(None), "insurer": told}, {"clinic": at("DEADLINE_PASSED"), "insurer": told}])
    monkeypatch.setattr(peers, "_studies", lambda _parties, _digest: next(looks))
    with pytest.raises(VerticilError) as caught:
        peers.standing({}, "")
    assert caught.value.code == "DEADLINE_PASSED"
