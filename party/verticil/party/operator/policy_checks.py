"""Statements of a site's policy that no study can meet, or that protect nothing: slips of the pen that `party check` names.

A running daemon does not read these again, and a name may be meant for a table or a party that comes later. So only the number of
approvers is a fault; everything else is a warning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from verticil.party.config import PartyConfig
from verticil.party.dataset.source import Remark
from verticil.shared.core.errors import Misuse
from verticil.shared.documents.toml_table import near_hint
from verticil.shared.study.document import Study
from verticil.shared.study.protocol import MINER


def check_approvers(config: PartyConfig) -> None:
    """Check that the approvers who have to approve are there.

    Raises:
        Misuse: CONFIG_INVALID, party.toml asks for more approvals than it names approvers.
    """
    policy = config.policy
    n_needed, n_named = policy.approvers_needed, len(set(policy.approvers))
    if policy.approval != "auto" and n_needed > max(n_named, 1):  # without names one person approves for the site
        raise Misuse(
            "CONFIG_INVALID",
            f"{config.path.name}: policy.approvers_needed: got {n_needed}, expected at most {max(n_named, 1)}:"
            f" {n_named} approvers are named",
            hint="name another approver: verticil party approver add NAME",
        )


def list_unknown_columns(config: PartyConfig, names: Collection[str]) -> Iterator[Remark]:
    """Yield a warning for each name in `deny_columns` that is no column here.

    Args:
        config: party.toml.
        names: all columns of this party's tables, and the names that party.toml gives them.
    """
    for name in config.policy.deny_columns:
        if name not in names:
            hint = near_hint(name, names) or "correct it in party.toml if it is not meant for a later table"
            yield _remark(f"deny_columns: '{name}' is no column of this party's tables", hint)


def list_unknown_recipients(config: PartyConfig, study: Study | None) -> Iterator[Remark]:
    """Yield a warning for each recipient who is neither the miner nor a known party: no study can ask for them.

    Args:
        config: party.toml.
        study: a study whose parties are known, too.
    """
    federation = config.federation
    parties = () if study is None else study.parties
    known = dict.fromkeys((MINER, config.name, *federation.peers, *federation.sealing, *parties))
    lists = [("recipients", config.policy.recipients)]
    lists += [(f"rule '{rule.name}', recipients", rule.recipients) for rule in config.policy.rules]
    for where, recipients in lists:
        for name in recipients:
            if name not in known:
                hint = near_hint(name, known) or "correct it in party.toml if it is not meant for a later party"
                yield _remark(f"{where}: '{name}' is neither the miner nor a party in federation.toml", hint)


def list_small_table(config: PartyConfig, dataset: str, n_rows: int) -> Iterator[Remark]:
    """Yield a warning where a table has fewer rows than the site asks of itself.

    Args:
        config: party.toml.
        dataset: the table's name.
        n_rows: rows of it.
    """
    if n_rows < (least := config.policy.minimum_rows):
        message = f"data set '{dataset}': fewer rows than minimum_rows = {least}, so no study can have this table"
        yield _remark(message, "is the table whole? The limit is policy.minimum_rows in party.toml")


def _remark(message: str, hint: str) -> Remark:
    return Remark(code="CONFIG_INVALID", message=message, hint=hint)
