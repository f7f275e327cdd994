"""What the ledger is told of a unit, what it answers, and a row of it (`verticil.party.policy.ledger`)."""

from __future__ import annotations

import json
from dataclasses import dataclass

from verticil.party.policy.budget import Values


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The randomized values of one unit over the whole data set, as the ledger tells them apart.

    Attributes:
        variables: the study's names, for people.
        dataset: name of the data set in party.toml.
        sources: local source columns.
        codebook_digest: SHA-256 of what defines the encoding.
        transition_digest: SHA-256 of the quantized matrix.
        secret_id: name of the site secret.
        fingerprint: of the encoded data, independent of row order.
        epsilon: of the unit; may be infinite.
    """

    variables: tuple[str, ...]
    dataset: str
    sources: tuple[str, ...]
    codebook_digest: bytes
    transition_digest: bytes
    secret_id: bytes
    fingerprint: bytes
    epsilon: float

    def to_json(self) -> str:
        """As text, for the state database."""
        digests = (self.codebook_digest, self.transition_digest, self.secret_id, self.fingerprint)
        return json.dumps([self.variables, self.dataset, self.sources, *(d.hex() for d in digests), str(self.epsilon)])

    @classmethod
    def from_json(cls, text: str) -> Release:
        """Read what `to_json` wrote."""
        variables, dataset, sources, codebook, transition, secret, fingerprint, epsilon = json.loads(text)
        return cls(
            variables=tuple(variables),
            dataset=dataset,
            sources=tuple(sources),
            codebook_digest=bytes.fromhex(codebook),
            transition_digest=bytes.fromhex(transition),
            secret_id=bytes.fromhex(secret),
            fingerprint=bytes.fromhex(fingerprint),
            epsilon=float(epsilon),
        )

    @property
    def draw(self) -> tuple[str, str, bytes, bytes, bytes]:
        """What the noise depends on, the version tag apart."""
        return (self.dataset, json.dumps(self.sources), self.codebook_digest, self.transition_digest, self.secret_id)

    def values(self, version_tag: bytes) -> Values:
        """What names the randomized values, which are charged once."""
        return (*self.draw, self.fingerprint, version_tag)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assessment:
    """What releasing a unit means now.

    Attributes:
        version_tag: enters the noise key; empty but for fresh noise on a changed version.
        charge: epsilon, or 0 when the same values were charged before.
        at_most: what there must be room for: the charge, or epsilon where the policy would accept changed data and these might
            be.
    """

    version_tag: bytes
    charge: float
    at_most: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRow:
    """One row, for people: an attempted send, of which there may have been more (`Ledger.attempts`)."""

    number: int
    at: str
    study_digest: str
    study_id: str
    variables: tuple[str, ...]
    dataset: str
    epsilon: float
    charged: float
    recipient: str
    artifact_sha256: str
    size: int
