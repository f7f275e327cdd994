"""A `party.toml` that says everything a party may say, and its federation."""

from __future__ import annotations

FEDERATION = """
schema = 1
name = "adult-demo"
ca_certificate = "ca.crt"
ca_sha256 = "0000000000000000000000000000000000000000000000000000000000000000"
[miner]
endpoint = "miner.example.org:8443"
"""
EXAMPLE = """
schema = 1
name = "census_bureau"
federation = "federation.toml"
state_directory = "state"

[identity]
certificate = "pki/census_bureau.crt"
key = "pki/census_bureau.key"

[linkage]
key = "secrets/linkage.key"

[dataset.people]
path = "census_bureau.csv"
format = "csv"
delimiter = ","
encoding = "utf-8"
id = "id"

[dataset.people.columns.sex]
source = "SEX"
recode = { "M" = "Male", "F" = "Female" }

[[randomization]]
variables = ["race"]
scheme = "symmetric"
epsilon = 1.5

[policy]
approval = "manual"
approvers = ["officer@census_bureau"]
approvers_needed = 1
max_epsilon_per_column = 3.0
max_epsilon_per_study = 20.0
max_epsilon_lifetime = 40.0
allow_infinite = []
minimum_common_records = 1000
minimum_parties = 2
max_categories = 50
deny_columns = []
recipients = ["miner"]

[peer]
listen = "0.0.0.0:8444"
advertise = "census.example.org:8444"
"""
