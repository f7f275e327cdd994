"""What is released of a local table, as the privacy ledger tells releases apart, and the column that it comes from."""

from __future__ import annotations

import json
from dataclasses import dataclass

from verticil.shared.privacy import events
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.events import PrivacyEvent

Values = tuple[str, str, bytes, bytes, bytes, bytes, bytes]
"""Names randomized values: data set, sources, codebook, matrix, secret, fingerprint, version tag."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a local table.

    Attributes:
        dataset: name of the data set in party.toml.
        source: name of the column in the table.
    """

    dataset: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The randomized values of one unit over the whole data set, or statistics of it, as the ledger tells them apart.

    Attributes:
        variables: the study's names, for people.
        dataset: name of the data set in party.toml.
        sources: local source columns.
        codebook_digest: SHA-256 of what defines the encoding; of statistics, of what they are computed from besides the data.
        transition_digest: SHA-256 of the quantized matrix; of statistics, of the noise.
        secret_id: name of the site secret.
        fingerprint: of the encoded data, independent of row order.
        event: what is drawn.
    """

    variables: tuple[str, ...]
    dataset: str
    sources: tuple[str, ...]
    codebook_digest: bytes
    transition_digest: bytes
    secret_id: bytes
    fingerprint: bytes
    event: PrivacyEvent

    @property
    def epsilon(self) -> float:
        """Of the event; may be infinite."""
        return cost_of(self.event).epsilon

    def to_json(self) -> str:
        """As text, for the state database."""
        digests = (self.codebook_digest, self.transition_digest, self.secret_id, self.fingerprint)
        drawn = events.to_json(self.event)
        return json.dumps([self.variables, self.dataset, self.sources, *(d.hex() for d in digests), drawn])

    @classmethod
    def from_json(cls, text: str) -> Release:
        """Read what `to_json` wrote."""
        variables, dataset, sources, codebook, transition, secret, fingerprint, drawn = json.loads(text)
        return cls(
            variables=tuple(variables),
            dataset=dataset,
            sources=tuple(sources),
            codebook_digest=bytes.fromhex(codebook),
            transition_digest=bytes.fromhex(transition),
            secret_id=bytes.fromhex(secret),
            fingerprint=bytes.fromhex(fingerprint),
            event=events.from_json(drawn),
        )

    @property
    def draw(self) -> tuple[str, str, bytes, bytes, bytes]:
        """What the noise depends on, the version tag apart."""
        return (self.dataset, json.dumps(self.sources), self.codebook_digest, self.transition_digest, self.secret_id)

    def values(self, version_tag: bytes) -> Values:
        """What names the randomized values, which are charged once."""
        return (*self.draw, self.fingerprint, version_tag)
