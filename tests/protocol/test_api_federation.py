"""``verticil.api.connect`` against a miner's daemon, over mutual TLS: the same answers as the commands."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import datetime as dt
import io
import json
from pathlib import Path
from typing import Any

import pytest

import verticil.api as vt
from support import miner_daemon as daemons
from support.miner_service import make_study
from verticil.cli.main import main
from verticil.miner.config import load_miner
from verticil.shared.core.errors import Misuse

folder = daemons.folder


def said(*arguments: object) -> Any:
    with contextlib.redirect_stdout(io.StringIO()) as stream:
        assert main([*map(str, arguments), "--format", "json"]) == 0, stream.getvalue()
    return json.loads(stream.getvalue())


async def test_submit_status_studies_follow_and_cancel_are_the_commands(folder: Path) -> None:
    study = dataclasses.replace(make_study(study_id="hearts", minimum=1000), expires=dt.date(2099, 1, 1))
    told: list[str] = []
    async with daemons.Daemon(load_miner(folder / "miner.toml")) as port:
        place, certificate = folder / "served.toml", folder / "pki" / "anna.crt"
        place.write_text((folder / "federation.toml").read_text().replace("localhost:1", f"localhost:{port}"))
        options = ("--federation", place, "--certificate", certificate)

        def analyst() -> None:
            federation = vt.connect(place, certificate=certificate)
            assert (federation.name, federation.identity) == ("trial", "verticil://trial/analyst/anna")
            assert len(repr(federation).splitlines()) == 3
            submitted = federation.submit(study)
            assert submitted["id"] == "hearts"
            status = said("study", "status", "hearts", *options)
            assert federation.status("hearts") == federation.status(str(submitted["digest"])) == status
            assert federation.studies() == said("study", "list", *options)["studies"] == [status]
            with pytest.raises(Misuse, match="no study with this id") as unknown:
                federation.status("lungs")
            assert unknown.value.code == "STUDY_UNKNOWN"
            with pytest.raises(vt.VerticilError, match="is AWAITING_APPROVAL, expected PUBLISHED") as early:
                federation.fetch("hearts", out=folder / "early")
            assert early.value.code == "NOT_READY"
            assert not (folder / "early").exists()
            assert federation.cancel("hearts") == {"id": "hearts", "state": "withdrawn"}
            with pytest.raises(vt.VerticilError) as ended:
                federation.follow("hearts", progress=lambda words, _part: told.append(words))
            assert ended.value.code == "STUDY_WITHDRAWN"

        await asyncio.to_thread(analyst)
    assert told == ["withdrawn"]


def test_a_study_that_cannot_succeed_is_not_proposed_and_a_partys_certificate_proposes_none(folder: Path) -> None:
    federation = vt.connect(folder / "federation.toml", certificate=folder / "pki" / "anna.crt")
    hopeless = make_study(study_id="hearts", minimum=1)
    with pytest.raises(Misuse) as caught:
        federation.submit(hopeless)
    assert caught.value.code == "STUDY_INVALID"
    party = vt.connect(folder / "federation.toml", certificate=folder / "pki" / "north.crt")
    with pytest.raises(Misuse, match="this command needs an analyst's certificate"):
        party.studies()
