"""One folder per node of a federation on one machine: everything that the node needs, and nothing of the others.

The authority is ephemeral and marked (a day's validity): under it, and only under it, ``approval = "auto"`` is accepted. Its own
key is thrown away here. Demonstration, simulation and the containers of deploy/compose.yaml start from the same folders. Run as a
program (``python3 -m verticil.simulation.provision --out DIR --endpoint HOST:PORT``) it is the one-shot key service of
deploy/compose.yaml; a federation that is provisioned already is left as it is.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import secrets
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from verticil.miner.storage.store import NOISE_SEED
from verticil.party.config import place_toml, related_toml
from verticil.party.dataset.sources.source_table import DatasetRule
from verticil.party.policy.decision_store import ApproverKey
from verticil.party.site import init_state
from verticil.pki.files import quote_toml, write_federation, write_new, write_secret
from verticil.shared.documents.config import RELAY, read_toml
from verticil.shared.federation.identity.authority import create_authority, issue, new_sealing_pem
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.key_words import key_words
from verticil.shared.federation.identity.signing import public_key_text
from verticil.shared.federation.membership.installation import public_sealing_key
from verticil.shared.study.protocol import MINER
from verticil.shared.study.protocols import PROTOCOLS
from verticil.shared.study.reading import simulation_seed_from
from verticil.simulation.federations import adult


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteLimits:
    """The numbers of a site's policy that differ between the demonstration and the simulation."""

    column: float
    study: float
    lifetime: float
    minimum_common_records: int
    minimum_parties: int
    max_categories: int
    allow_exact_parameters: bool = False
    share_delta: float = 1e-6
    public: float | None = None
    masked: float = 1.0
    floor: float = 6.0


DEMO_LIMITS: Final = SiteLimits(
    column=3.0, study=20.0, lifetime=40.0, minimum_common_records=100, minimum_parties=2, max_categories=50
)
OPEN_LIMITS: Final = SiteLimits(
    column=float("inf"),
    study=float("inf"),
    lifetime=float("inf"),
    minimum_common_records=1,
    minimum_parties=2,
    max_categories=65_536,
    allow_exact_parameters=True,
    share_delta=1.0,
    public=float("inf"),
    masked=float("inf"),
    floor=float("inf"),
)
"""The simulation asks what a study would reach, so nothing is refused for its epsilon."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """One party: its name, its table, and the variables that its policy lets leave without noise."""

    name: str
    table: DatasetRule
    allow_infinite: tuple[str, ...] = ()


def csv_site(name: str, path: Path, *, id_column: str = "id") -> Site:
    """Return a party whose table is a plain CSV file."""
    return Site(name=name, table=DatasetRule(path=path, format="csv", id=id_column))


@dataclass(frozen=True, slots=True, kw_only=True)
class Provisioned:
    """Where everything lies.

    Attributes:
        root: the folder with one folder per node.
        miner, parties, analyst: the nodes' folders; in a federation without a miner there is nothing at `miner`.
        ca_certificate: the authority's certificate (each node has a copy).
        ca_sha256: its SHA-256.
        peers: host:port of the parties that serve their peers, or "relay".
        sealing: the parties' public sealing keys, where some are reached through the miner or studies are masked.
        miner_sealing: the miner's, where studies are masked.
    """

    root: Path
    miner: Path
    parties: dict[str, Path]
    analyst: Path
    ca_certificate: Path
    ca_sha256: str
    peers: Mapping[str, str] = field(default_factory=dict)
    sealing: Mapping[str, str] = field(default_factory=dict)
    miner_sealing: str | None = None


def derived_secret(seed: int | None, purpose: str) -> bytes:
    """Return 32 bytes for `purpose`: random, or with a seed derived from it, which the release's manifest must then say."""
    if seed is None:
        return secrets.token_bytes(32)
    return hashlib.sha256(f"verticil/simulation/v1\0{purpose}\0{seed}".encode()).digest()


def _key(seed: int, name: str, kind: str) -> bytes:
    return derived_secret(seed, f"key/{name}/{kind}")


def seed_noise(node: Path, secret: bytes) -> None:
    """Let a node of a trial draw its noise, and what else it draws for masked tables, from a secret."""
    write_secret(node / "state" / NOISE_SEED, secret.hex() + "\n")


def study_seed(path: Path) -> int | None:
    """Return the seed that a study's file names for its simulations, ``[simulation] seed``; None: it names none.

    Raises:
        Misuse: FILE_MISSING, STUDY_INVALID.
    """
    return simulation_seed_from(read_toml(path, code="STUDY_INVALID"), "simulation")


def copy_federation(nodes: Provisioned, root: Path) -> Provisioned:
    """Copy a federation whose nodes do not run: the same keys and secrets, a life of its own.

    Args:
        nodes: what to copy; its tables lie in its folder, too, or nowhere near.
        root: a folder beside `made.root`, to be made.
    """
    shutil.copytree(nodes.root, root)

    def there(path: Path) -> Path:
        return root / path.relative_to(nodes.root)

    return replace(
        nodes,
        root=root,
        miner=there(nodes.miner),
        parties={party: there(folder) for party, folder in nodes.parties.items()},
        analyst=there(nodes.analyst),
        ca_certificate=there(nodes.ca_certificate),
    )


def set_endpoint(
    node: Path,
    federation: str,
    endpoint: str | None,
    *,
    ca_sha256: str,
    peers: Mapping[str, str] | None = None,
    sealing: Mapping[str, str] | None = None,
    miner_sealing: str | None = None,
) -> None:
    """Write the node's federation.toml anew, when the miner's port has become known."""
    (node / "federation.toml").unlink(missing_ok=True)
    write_federation(
        node / "federation.toml",
        name=federation,
        ca_certificate="ca.crt",
        ca_sha256=ca_sha256,
        endpoint=endpoint,
        peers=peers or {},
        sealing=sealing or {},
        miner_sealing=miner_sealing,
    )


_PUBLIC: Final = """max_public_epsilon = {epsilon}
max_public_epsilon_lifetime = {epsilon}
max_public_delta = {delta}
max_public_delta_lifetime = {delta}
"""

_MASKED: Final = """allow_masked = true
max_masked_epsilon = {masked}
max_masked_delta = {delta}
max_floor_epsilon_per_column = {floor}
max_floor_epsilon_per_study = {study}
max_floor_delta_per_study = {delta}
max_floor_epsilon_lifetime = {lifetime}
max_floor_delta_lifetime = {delta}
confirmed_keys = {{ {confirmed} }}   # here one program made all keys; people read the words to each other by telephone
"""
_FLOOR_COLUMNS: Final = 15
"""So many columns at the floor a study of the demonstration may have; twice as many all studies together."""


def _of_masks(limits: SiteLimits, pinned_keys: Mapping[str, str]) -> str:
    """Write what a policy says of masked studies; nothing where no key is pinned for them."""
    confirmations = (f"{name} = {quote_toml(key_words(name, bytes.fromhex(key)))}" for name, key in pinned_keys.items())
    study = _FLOOR_COLUMNS * limits.floor
    return _MASKED.format(
        masked=limits.masked,
        delta=limits.share_delta,
        floor=limits.floor,
        study=study,
        lifetime=2 * study,
        confirmed=", ".join(confirmations),
    )


def _party_toml(
    site: Site,
    node: Path,
    limits: SiteLimits,
    peers: Mapping[str, str],
    approver: bytes,
    *,
    pinned_keys: Mapping[str, str],
) -> str:
    table = site.table
    infinite_names = ", ".join(quote_toml(name) for name in site.allow_infinite)
    recipients = ", ".join(quote_toml(name) for name in ("miner", *(name for name in peers if name != site.name)))
    address = peers.get(site.name)
    peer = f"\n[peer]\nlisten = {quote_toml(address)}\nadvertise = {quote_toml(address)}\n" if address else ""
    if address == RELAY:
        peer = "\n[peer]\nrelay = true\n"
    columns = "".join(
        f"\n[dataset.people.columns.{quote_toml(name)}]\nsource = {quote_toml(rule.source)}\n"
        f"written = {quote_toml(rule.written)}\n"
        for name, rule in table.columns.items()
    )
    public = "" if limits.public is None else _PUBLIC.format(epsilon=limits.public, delta=limits.share_delta)
    public += (
        _of_masks(limits, {name: key for name, key in pinned_keys.items() if name != site.name}) if pinned_keys else ""
    )
    exact = "true" if limits.allow_exact_parameters else "false"
    return f"""schema = 1
name = {quote_toml(site.name)}
federation = "federation.toml"
state_directory = "state"

[identity]
certificate = "pki/{site.name}.crt"
key = "pki/{site.name}.key"

[linkage]
key = "secrets/linkage.key"

[dataset.people]
{place_toml(table, node)}id = {quote_toml(table.id)}
{columns}{related_toml(table, node)}
[policy]
approval = "auto"                # accepted only under the marked authority of a demonstration
approvers_needed = 1
max_epsilon_per_column = {limits.column}
max_epsilon_per_study = {limits.study}
max_epsilon_lifetime = {limits.lifetime}
allow_infinite = [{infinite_names}]
minimum_common_records = {limits.minimum_common_records}
on_small_difference = "warn"      # one demonstration after the other is about nearly the same people; a real site refuses
minimum_parties = {limits.minimum_parties}
max_categories = {limits.max_categories}
deny_columns = []
recipients = [{recipients}]
allow_exact_parameters = {exact}
max_share_delta = {limits.share_delta}
{public}
[[approver]]                     # approves whatever is not automatic: --as demo@{site.name} --key secrets/approver.key
name = "demo@{site.name}"
public_key = {quote_toml(public_key_text(approver))}
{peer}"""


def _miner_toml(listen: str) -> str:
    return f"""schema = 1
name = "miner"
federation = "federation.toml"
state_directory = "state"
listen = {quote_toml(listen)}

[identity]
certificate = "pki/miner.crt"
key = "pki/miner.key"
signing_key = "pki/miner.sign"

[limits]
disk_reserve_bytes = 16777216
"""


def provision(
    root: Path,
    *,
    federation: str,
    sites: Sequence[Site],
    limits: SiteLimits,
    endpoint: str | None,
    listen: str,
    hosts: tuple[str, ...],
    seed: int | None = None,
    peers: Mapping[str, str] | None = None,
    masked: bool = False,
) -> Provisioned:
    """Make the nodes' folders below `root`; a folder that exists gets what it lacks.

    Args:
        root: where.
        federation: the federation's name.
        sites: the parties.
        limits: of every party's policy.
        endpoint: host:port at which parties reach the miner; None: there is none.
        listen: host:port that the miner binds.
        hosts: names and addresses in the certificates of nodes that others dial.
        seed: derive site secrets and the linkage key from it; None: random.
        peers: host:port of each party that serves its peers, or "relay"; None: parties only dial out.
        masked: the policies permit masked tables, and the sealing keys of all parties and the miner are pinned.
    """
    addresses = dict(peers or {})
    parties = {site.name: root / site.name for site in sites}
    miner, analyst = root / "miner", root / "analyst"
    sealing: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as temporary:
        authority = Path(temporary) / "authority"
        ca_sha256 = create_authority(authority, federation, demo=True, days=1)
        roles = {analyst: ("analyst", Role.ANALYST)}
        if endpoint is not None:
            roles[miner] = ("miner", Role.MINER)
        for node, (name, role) in {**roles, **{node: (name, Role.PARTY) for name, node in parties.items()}}.items():
            (node / "state").mkdir(parents=True, exist_ok=True)
            shutil.copyfile(authority / "ca.crt", node / "ca.crt")
            serves = role is Role.MINER or (role is Role.PARTY and addresses.get(name, RELAY) != RELAY)
            # A round of masked tables hangs on the keys of its nodes, so with a seed they follow from it, too.
            draw_key = None if seed is None else functools.partial(_key, seed, name)
            new_identity = issue(
                authority, name, role, node / "pki", hosts=hosts if serves else (), days=1, key_bytes=draw_key
            )
            if new_identity.sealing_key is not None and (masked or RELAY in addresses.values()):
                sealing[name] = public_sealing_key(new_identity.sealing_key)
            if role is Role.MINER and masked:
                pem = new_sealing_pem(None if draw_key is None else draw_key("seal"))
                write_secret(node / "pki" / "miner.seal", pem.decode("ascii"))
        miner_sealing = public_sealing_key(miner / "pki" / "miner.seal") if masked else None
        for node in (*roles, *parties.values()):
            set_endpoint(
                node,
                federation,
                endpoint,
                ca_sha256=ca_sha256,
                peers=addresses,
                sealing=sealing,
                miner_sealing=miner_sealing,
            )
    if endpoint is not None:
        write_new(miner / "miner.toml", _miner_toml(listen))
        if seed is not None:
            seed_noise(miner, derived_secret(seed, "miner"))
    pinned_keys = {} if miner_sealing is None else {**sealing, MINER: miner_sealing}
    linkage_key = derived_secret(seed, "linkage").hex() + "\n"
    for site in sites:
        node = parties[site.name]
        write_secret(node / "secrets" / "linkage.key", linkage_key)  # the parties', never the miner's
        init_state(node / "state", site_secret=derived_secret(seed, f"site/{site.name}"))
        if masked and seed is not None:
            seed_noise(node, derived_secret(seed, f"round/{site.name}"))
        key = node / "secrets" / "approver.key"
        approver = ApproverKey.load(key) if key.exists() else ApproverKey.create(key)
        write_new(
            node / "party.toml", _party_toml(site, node, limits, addresses, approver.public, pinned_keys=pinned_keys)
        )
    return Provisioned(
        root=root,
        miner=miner,
        parties=parties,
        analyst=analyst,
        ca_certificate=analyst / "ca.crt",
        ca_sha256=ca_sha256,
        peers=addresses,
        sealing=sealing,
        miner_sealing=miner_sealing,
    )


def provision_demo(
    root: Path,
    *,
    endpoint: str | None,
    listen: str,
    hosts: tuple[str, ...],
    seed: int | None = None,
    rows: int | None = None,
    model: str = "central",
    peers: Mapping[str, str] | None = None,
) -> Provisioned:
    """Provision the shipped Adult federation; its study lies in the analyst's folder as ``study.toml``.

    Args:
        root, endpoint, listen, hosts, seed: as for `provision`.
        rows: how many common people; None: all 30,647.
        model: the protocol of the study.
        peers: as for `provision`.
    """
    tables = adult.write_tables(root, rows=rows)
    nodes = provision(
        root,
        federation="adult-demo",
        sites=[csv_site(name, path, id_column=adult.ID_COLUMN) for name, path in tables.items()],
        limits=DEMO_LIMITS,
        endpoint=endpoint,
        listen=listen,
        hosts=hosts,
        seed=seed,
        peers=peers,
        masked=PROTOCOLS.named(model).opens_tables,
    )
    study = adult.study_text(model)
    if rows is not None:
        study = study.replace("minimum_common_records = 1000", f"minimum_common_records = {min(1000, rows)}", 1)
    write_new(nodes.analyst / "study.toml", study)
    return nodes


def main() -> None:
    """Provision for containers: the miner is reached by its service name."""
    parser = argparse.ArgumentParser(description="Provision the demonstration's federation (one-shot key service).")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--endpoint", required=True)
    parser.add_argument("--model", default="central", help="of the study; parties that meet do so through the miner")
    parser.add_argument(
        "--seed", type=int, help="derive the sites' secrets from it; the miner must say so: --seed-derived"
    )
    arguments = parser.parse_args()
    if (arguments.out / "miner" / "miner.toml").exists():
        return
    host, _, port = arguments.endpoint.rpartition(":")
    provision_demo(
        arguments.out,
        endpoint=arguments.endpoint,
        listen=f"0.0.0.0:{port}",
        hosts=(host, "localhost", "127.0.0.1"),
        seed=arguments.seed,
        model=arguments.model,
        peers=dict.fromkeys(adult.PARTIES, RELAY) if PROTOCOLS.named(arguments.model).opens_tables else None,
    )


if __name__ == "__main__":
    main()
