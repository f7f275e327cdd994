"""What a node draws for a round, before its hello, and forgets when nobody needs it any more.

model-three.md, section 3. Everything is 32 random bytes, drawn by itself and derived from nothing else; one file, mode 0600,
in no backup. It is written before anything that depends on it leaves, and written anew, shorter, as soon as a part of it is
not needed.
"""

from __future__ import annotations

import secrets as operating_system
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from verticil.shared.core.errors import DataFault
from verticil.shared.masked.arithmetic.check import RUNS
from verticil.shared.masked.arithmetic.plan import Plan
from verticil.shared.masked.round.schedule import Check, Triple, checks_of, groups_of, pairs_of, triples_of

Random = Callable[[int], bytes]
Secret = Annotated[bytes, 32]
SEED: Final = "noise.seed"
"""In a node's state: what it draws for rounds of a trial follows from it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckSecrets:
    """Of the owner of rows, for one run of their check.

    Attributes:
        verifier_seed, dealer_seed: make the shares of a, and of a^2 the verifier's.
        verifier_salt, dealer_salt: of the commitments to the packets.
        verifier_w_salt, dealer_w_salt: of the commitments to what is expected of them.
    """

    verifier_seed: Secret
    verifier_salt: Secret
    dealer_seed: Secret
    dealer_salt: Secret
    verifier_w_salt: Secret
    dealer_w_salt: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class PairSecrets:
    """Of one party of a pair.

    Attributes:
        mask_seed: makes the mask, and of the lesser name its share of the masks' product.
        mask_salt, masked_salt: of the commitments to the seed, and to the masked rows.
        runs: of the check of its rows.
    """

    mask_seed: Secret
    mask_salt: Secret
    masked_salt: Secret
    runs: tuple[CheckSecrets, ...]


SETS: Final = 1 + RUNS
"""Of masks of a triple: those that hide its rows, and for each run those that are sacrificed (section 8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TripleSecrets:
    """Of one party of a triple.

    Attributes:
        mask_seeds, mask_salts: of each set, as those of `PairSecrets`; its shares of the dealt products, too.
        masked_salt: of the commitment to the masked rows.
        dealt_salt: of the greatest name, of the commitment to all words that were dealt to it.
        sums_salts: by run, of the commitments to its sums.
        runs: by the other party that checks its rows.
    """

    mask_seeds: tuple[Secret, ...]
    mask_salts: tuple[Secret, ...]
    masked_salt: Secret
    dealt_salt: Secret
    sums_salts: tuple[Secret, ...]
    runs: Mapping[str, tuple[CheckSecrets, ...]]

    def against(self, verifier: str) -> PairSecrets:
        """Return what this party needs for its rows as one of the others gets them."""
        return PairSecrets(
            mask_seed=self.mask_seeds[0],
            mask_salt=self.mask_salts[0],
            masked_salt=self.masked_salt,
            runs=self.runs[verifier],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Toss:
    """A node's part of a toss.

    Attributes:
        value: its bytes.
        salt: of the commitment to them.
    """

    value: Secret
    salt: Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """Of one node; what was forgotten, or is not its to have, is empty.

    Attributes:
        noise: key of the noise.
        data_salt: of the data seal.
        sealing, dealing, padding: private keys of the round (X25519).
        pairs: by the number of the pair, of a party.
        triples: by the index of the table, of one of its three parties.
        tosses: by `toss_name`, of a verifier or dealer; by `shared_toss_name`, of a party of a triple.
    """

    noise: bytes
    data_salt: bytes
    sealing: bytes
    dealing: bytes
    padding: bytes
    pairs: Mapping[str, PairSecrets]
    triples: Mapping[str, TripleSecrets]
    tosses: Mapping[str, Toss]


def random_of(state: Path, effective: bytes, *, trial: bool) -> Random:
    """Return where a node draws from: the operating system, or, in a trial, a seed in the node's state, ``noise.seed``,
    if there is one.

    Args:
        state: the node's state folder.
        trial: only then a seed counts.
        effective: digest of the effective study, so that no two studies draw the same.

    Raises:
        DataFault: STATE_CORRUPT, the seed cannot be read.
    """
    path = state / SEED
    if not (trial and path.exists()):
        return operating_system.token_bytes
    n_draws = 0

    def following(n_bytes: int) -> bytes:
        nonlocal n_draws
        n_draws += 1
        info = b"verticil/masked/trial/v1" + effective + n_draws.to_bytes(8, "big")
        return HKDF(algorithm=SHA256(), length=n_bytes, salt=None, info=info).derive(seed)

    try:
        seed = bytes.fromhex(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        raise DataFault("STATE_CORRUPT", f"{path}: is no seed", hint="remove it: it belongs to a trial") from None
    return following


def toss_name(check: Check) -> str:
    """Names a check among a node's secrets."""
    if check.table >= 0:
        return f"table-{check.table}.{check.run}.{check.owner}.{check.verifier}"
    return f"{check.pair}.{check.run}.{check.owner}"


def shared_toss_name(table: int, run: int, which: str) -> str:
    """Names a toss of the three parties of a triple: of ``e``, or of the coefficients, ``c``."""
    return f"table-{table}.{run}.{which}"


def draw(plan: Plan, name: str, random: Random) -> Secrets:
    """Everything that a node needs for a round.

    Args:
        plan: of the round.
        name: of the node.
        random: gives so many random bytes.
    """
    is_party = name in plan.parties
    deals = any(group.dealer == name for group in groups_of(plan))
    own = [triple for triple in triples_of(plan) if name in triple.parties]
    tosses = [toss_name(check) for check in checks_of(plan) if name in {check.verifier, check.dealer}]
    tosses += [shared_toss_name(triple.table, run, which) for triple in own for run in range(RUNS) for which in "ec"]
    return Secrets(
        noise=random(32) if is_party or name in plan.counted else b"",
        data_salt=random(32) if is_party else b"",
        sealing=_private(random),
        dealing=_private(random) if deals and not is_party else b"",
        padding=_private(random) if is_party else b"",
        pairs={str(pair.number): _of_pair(random) for pair in pairs_of(plan) if name in pair.parties},
        triples={str(triple.table): _of_triple(random, triple, name) for triple in own},
        tosses={toss: Toss(value=random(32), salt=random(32)) for toss in tosses},
    )


def _of_pair(random: Random) -> PairSecrets:
    return PairSecrets(
        mask_seed=random(32),
        mask_salt=random(32),
        masked_salt=random(32),
        runs=_runs(random),
    )


def _of_triple(random: Random, triple: Triple, name: str) -> TripleSecrets:
    return TripleSecrets(
        mask_seeds=tuple(random(32) for _ in range(SETS)),
        mask_salts=tuple(random(32) for _ in range(SETS)),
        masked_salt=random(32),
        dealt_salt=random(32),
        sums_salts=tuple(random(32) for _ in range(RUNS)),
        runs={verifier: _runs(random) for verifier in triple.others(name)},
    )


def _runs(random: Random) -> tuple[CheckSecrets, ...]:
    return tuple(CheckSecrets(**{name: random(32) for name in CheckSecrets.__slots__}) for _ in range(RUNS))


def _private(random: Random) -> bytes:
    return X25519PrivateKey.from_private_bytes(random(32)).private_bytes_raw()
