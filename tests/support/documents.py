"""Small configurations and studies as people write them."""

from __future__ import annotations

import json
from collections.abc import Iterable

FEDERATION = f"""
schema = 1
name = "trial"
ca_certificate = "ca.crt"
ca_sha256 = "{"0" * 64}"
[miner]
endpoint = "localhost:1"
"""
PEOPLE = '[dataset.people]\npath = "people.csv"\nid = "id"\n'


def party_toml(
    policy: str = "",
    *,
    per_column: float = 3.0,
    per_study: float = 6.0,
    lifetime: float = 8.0,
    datasets: str = PEOPLE,
    recipients: Iterable[str] = ("miner",),
) -> str:
    """The party 'clinic' with one table; `policy` are lines of its [policy], before the limits."""
    return f"""
schema = 1
name = "clinic"
federation = "federation.toml"
state_directory = "state"
[identity]
certificate = "clinic.crt"
key = "clinic.key"
[linkage]
key = "linkage.key"
{datasets}[policy]
{policy}max_epsilon_per_column = {per_column}
max_epsilon_per_study = {per_study}
max_epsilon_lifetime = {lifetime}
minimum_common_records = 50
recipients = {json.dumps(list(recipients))}
"""


def study_toml(
    *columns: str,
    name: str = "small",
    parties: Iterable[str] = (),
    minimum: int | None = None,
    epsilon: float | None = None,
    keys: str = "",
) -> str:
    """A study of these columns, each as 'PARTY.COLUMN: CATEGORY CATEGORY ..' or 'PARTY.COLUMN: KEY = VALUE'.

    Args:
        columns: in the study's order.
        name: the study's id.
        parties: in the study's order; if empty, as the columns name them.
        minimum: of common records; if None, the document does not say it.
        epsilon: of the symmetric default; if None, there is no default.
        keys: lines at the document's top.
    """
    split = [(*column.partition(":")[0].split("."), column.partition(":")[2].strip()) for column in columns]
    text = f'schema = 1\nid = "{name}"\npurpose = "test"\nexpires = 2099-12-31\n{keys}'
    for party in parties or dict.fromkeys(party for party, _, _ in split):
        text += f'[[party]]\nname = "{party}"\n'
    if minimum is not None:
        text += f"[linkage]\nminimum_common_records = {minimum}\n"
    for party, column, what in split:
        said = what if "=" in what else f"categories = {json.dumps(what.split())}"
        text += f'[[variable]]\nparty = "{party}"\nname = "{column}"\n{said}\n'
    if epsilon is not None:
        text += f'[randomization_default]\nscheme = "symmetric"\nepsilon = {epsilon}\n'
    return text
