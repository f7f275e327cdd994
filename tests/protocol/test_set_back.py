"""A site that is set back forgets nothing that was drawn, whatever the protocol: others prove it, and the ledger is mended.

Each cell is a real study of a real federation: the site's database is older than its log, both are older, or it comes from a
backup; the same with everybody away, then back.
"""

from __future__ import annotations

import asyncio

import pytest

from support.set_back import LOSSES, SetBack, charges, rows
from verticil.shared.errors import Refusal

MODELS = {
    "central": ("central", ""),
    "central with noisy tables": ("central", "[tables]\nepsilon = 1.0\ndelta = 1e-6\n"),
    "peer": ("peer", ""),
    "peer with noise": ("peer", "[share]\nepsilon = 2.0\ndelta = 1e-6\n"),
    "masked": ("masked", "[tables]\nepsilon = 3.0\ndelta = 1e-6\n"),
}


@pytest.fixture(scope="module", params=MODELS)
def federation(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SetBack:
    made = SetBack(tmp_path_factory.mktemp("federation"), *MODELS[request.param])
    asyncio.run(made.carry_out())
    return made


@pytest.mark.parametrize("loss", LOSSES)
async def test_what_was_drawn_is_charged_again_in_full_and_once(federation: SetBack, loss: str) -> None:
    expected = charges(federation.before)
    assert expected
    folder = federation.lose(loss)
    with pytest.raises(Refusal, match="LEDGER_OLDER"):
        async with federation.running(folder, accept_older=False) as running:
            await running.until(lambda: False)
    if loss != "database":
        assert rows(folder) == ()
    for _ in range(2):
        async with federation.running(folder, accept_older=True) as running:
            await running.until(lambda: charges(running.rows()) == expected)
    assert len(rows(folder)) == len(federation.before)
