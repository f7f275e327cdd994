"""All nodes of a round of masked tables in one process, with keys of their own; sealed files pass from folder to folder."""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import math
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from verticil.shared.federation.identity.authority import create_authority, issue
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import SigningKey, verify_signed
from verticil.shared.masked.arithmetic.opening import sigma_each
from verticil.shared.masked.arithmetic.plan import Plan
from verticil.shared.masked.round.round import Round
from verticil.shared.masked.round.schedule import Kind, Message, messages_of
from verticil.shared.masked.round.sealed_messages import Credentials
from verticil.shared.mechanisms.discrete_gaussian import discrete_sigma
from verticil.wire.v1 import common_pb2

START = dt.datetime(2026, 1, 5, tzinfo=dt.UTC)
MINER = "miner"


@dataclass
class Table:
    """A party's randomized codes."""

    rows: np.ndarray
    order: bytes = bytes(32)

    def codes(self, rows: slice) -> np.ndarray:
        """Of some people."""
        return self.rows[rows]


class Keys:
    """Signing and sealing keys of the contributors, under one authority.

    Args:
        folder: for the authority's and their files.
        parties: their names; the miner is there besides.
    """

    def __init__(self, folder: Path, parties: Sequence[str]) -> None:
        create_authority(folder / "ca", "trial", demo=True)
        self.authority = (folder / "ca" / "ca.crt").read_bytes()
        self.signing: dict[str, SigningKey] = {}
        for name in (*parties, MINER):
            role, hosts = (Role.MINER, ("localhost",)) if name == MINER else (Role.PARTY, ())
            files = issue(folder / "ca", name, role, folder / name, hosts=hosts, days=1)
            self.signing[name] = SigningKey.load(files.signing_key, files.certificate)
        self.sealing = {name: X25519PrivateKey.generate() for name in (*parties, MINER)}

    def of(self, name: str) -> Credentials:
        """What a node has."""
        return Credentials(
            signing=self.signing[name],
            sealing=self.sealing[name],
            pinned={other: key.public_key().public_bytes_raw() for other, key in self.sealing.items()},
            verify=self.verify,
        )

    def verify(self, signed: common_pb2.Signed, name: str) -> None:
        """As a node does it."""
        verify_signed(signed, self.authority, role=Role.MINER if name == MINER else Role.PARTY, name=name)


def plan_for(sizes: Mapping[str, Sequence[int]], n_people: int, *, epsilon: float = 1.0, **changed: Any) -> Plan:
    """A plan of all pairs of units.

    Args:
        sizes: by party, the categories of its units; units stand party by party.
        n_people: n.
        epsilon: of all tables.
        changed: other values of the plan.
    """
    parties = tuple(sizes)
    owners = tuple(position for position, name in enumerate(parties) for _ in sizes[name])
    n_units = len(owners)
    tables = tuple(itertools.combinations(range(n_units), 2)) if n_units > 1 else ((0,),)
    dealers = []
    for both in itertools.combinations(parties, 2):
        third = [name for name in parties if name not in both]
        dealers.append(third[0] if third else MINER)
    sigma = discrete_sigma(epsilon, 1e-9, len(tables)).as_integer_ratio()
    values: dict[str, Any] = {
        "study": b"s" * 32,
        "effective": b"e" * 32,
        "round": 1,
        "parties": parties,
        "miner": MINER,
        "operators": {name: name for name in (*parties, MINER)},
        "n_people": n_people,
        "linkage": "keyed-hash",
        "owners": owners,
        "sizes": tuple(size for name in parties for size in sizes[name]),
        "tables": tables,
        "dealers": tuple(dealers),
        "counted": (*parties, MINER) if len(parties) == 2 else parties,
        "tolerate": 1,
        "epsilon": epsilon,
        "delta": 1e-9,
        "sigma": sigma,
        "slot_milliseconds": 1,
        "unchecked": (),
        **changed,
    }
    values.setdefault("sigma_each", sigma_each(sigma, len(values["counted"]), values["tolerate"]))
    return Plan(**values)


def random_tables(sizes: Mapping[str, Sequence[int]], n_people: int, seed: int = 1) -> dict[str, Table]:
    """Codes of all parties, dependent on each other."""
    rng = np.random.default_rng(seed)
    common = rng.random(n_people)
    return {
        name: Table(
            np.stack([((common + rng.random(n_people) / 2) % 1 * size).astype(np.int64) for size in of], axis=1)
        )
        for name, of in sizes.items()
    }


def fixed_random(name: str) -> Callable[[int], bytes]:
    """What a node draws: the same bytes in each run, others at each node."""
    counter = itertools.count()
    return lambda size: hashlib.sha256(f"{name} {next(counter)}".encode()).digest()[:size]


@dataclass
class Nodes:
    """Everybody who contributes to a round.

    Attributes:
        folder: of everything.
        keys: of all.
        plan: of the round.
        tables: by party.
        charged: by party, the T1 that were charged.
        change: called with each message on its way and its file: a test may falsify it, or give None to lose it.
        plans: of nodes that have another one.
        clock: of all; None: a second passes with each look.
        random: by name, where a node draws from.
    """

    folder: Path
    keys: Keys
    plan: Plan
    tables: Mapping[str, Table]
    charged: dict[str, list[bytes]] = field(default_factory=dict)
    change: Callable[[Message, Path], Path | None] = lambda _, path: path
    plans: Mapping[str, Plan] = field(default_factory=dict)
    clock: Callable[[], dt.datetime] | None = None
    random: Callable[[str], Callable[[int], bytes]] = lambda _: secrets.token_bytes

    def __post_init__(self) -> None:
        self.now = START
        self.messages = messages_of(self.plan)
        self.rounds = {name: self.made(name) for name in (*self.plan.parties, MINER)}

    def tick(self) -> dt.datetime:
        """A second later."""
        self.now += dt.timedelta(seconds=1)
        return self.now

    def made(self, name: str) -> Round:
        """A node as it starts, with what is on its disk."""
        return Round(
            self.folder / "nodes" / name,
            self.plans.get(name, self.plan),
            name,
            credentials=self.keys.of(name),
            people=self.tables.get(name),
            charge=self.charged.setdefault(name, []).append,
            clock=self.clock or self.tick,
            random=self.random(name),
        )

    def restart(self, name: str) -> None:
        """Kill a node and start it."""
        self.rounds[name] = self.made(name)

    def exchange(self) -> bool:
        """Every node does what it can, then all that is there passes once; whether anything passed."""
        passed = False
        for node in self.rounds.values():
            node.begin()
            node.step()
        for source, target in itertools.permutations(self.rounds, 2):
            wanted = set(self.rounds[target].missing(source))
            for index in self.rounds[source].outgoing(target):
                if index in wanted:
                    passed |= self.carry(index, source, target)
        return passed

    def carry(self, index: int, source: str, target: str) -> bool:
        """One message from folder to folder."""
        item = self.rounds[source].sealed(index)
        copy = self.folder / f"carried-{index}"
        shutil.copyfile(item.path, copy)
        changed = self.change(self.messages[index], copy)
        if changed is None:
            return False
        self.rounds[target].receive(index, changed)
        return True

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Exchange until all are finished, or nothing passes any more."""
        idle = 0
        while not all(node.is_finished for node in self.rounds.values()) and not (until and until()):
            idle = 0 if self.exchange() else idle + 1
            if idle > 2:
                return

    def noise(self, counts: Sequence[np.ndarray]) -> list[np.ndarray]:
        """What opened tables have besides the cross tables of the people, to be compared with the contributors' draws."""
        return [opened - exact for opened, exact in zip(counts, self.exact(), strict=True)]

    def exact(self) -> list[np.ndarray]:
        """The tables of the people."""
        plan = self.plan
        columns, places = [], dict.fromkeys(plan.parties, 0)
        for owner in plan.owners:
            name = plan.parties[owner]
            columns.append(self.tables[name].rows[:, places[name]])
            places[name] += 1
        found = []
        for table in plan.tables:
            shape = tuple(plan.sizes[unit] for unit in table)
            at = np.ravel_multi_index(tuple(columns[unit] for unit in table), shape)
            found.append(np.bincount(at, minlength=math.prod(shape)).reshape(shape))
        return found


__all__ = ["MINER", "Keys", "Kind", "Nodes", "Table", "fixed_random", "plan_for", "random_tables"]
