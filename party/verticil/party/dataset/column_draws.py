"""What is released of a local table, as the privacy ledger tells draws apart, and the column that it comes from.

An approval leaves the site, so it does not hold the fingerprints of the data themselves: two that are equal, in two studies or
under two codebooks, would tell exactly that no value changed, or that nobody lies between two bins. It holds seals (`seals`),
which only this site can compare, and which differ between any two studies and units whatever the data are.
"""

from __future__ import annotations

import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from verticil.shared.privacy import events
from verticil.shared.privacy.accountant import cost_of
from verticil.shared.privacy.events import PrivacyEvent

_SEAL: Final = b"verticil/approval/v1"

Values = tuple[str, str, bytes, bytes, bytes, bytes, bytes, bytes]
"""Names randomized values: data set, sources, codebook, matrix, secret, fingerprint, that of the sources, version tag."""
Drawn = tuple[str, str, bytes, bytes, bytes, bytes, bytes, bytes, str]
"""Values, and whom they are drawn for (`verticil.shared.privacy.accounts`)."""


_SLOT: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]*\[[0-9]+\]\.(.+)", re.DOTALL)
"""Source of a column of a slot: its table, the number of the slot, and the local column."""


def column_of_source(source: str) -> str:
    """Return the local column behind the source of a slot's column, for a site's rules on its columns; else the source itself.

    >>> column_of_source("visits[2].ward"), column_of_source("ward")
    ('ward', 'ward')
    """
    match = _SLOT.fullmatch(source)
    return source if match is None else match[1]


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
class ColumnDraw:
    """The randomized values of one unit over the whole data set, or statistics of it, as the ledger tells them apart.

    Attributes:
        variables: the study's names, for people.
        dataset: name of the data set in party.toml.
        sources: local source columns.
        codebook_digest: SHA-256 of what defines the encoding; of statistics, of what they are computed from besides the data.
        transition_digest: SHA-256 of the quantized matrix; of statistics, of the noise.
        secret_id: name of the site secret.
        fingerprint: of the encoded data, independent of row order: which values are drawn.
        source_fingerprint: of ids and texts, whatever the codebook: whether the data are those of before
            (`verticil.party.dataset.source_fingerprints`); empty: of statistics, or put back without it.
        event: what is drawn.
    """

    variables: tuple[str, ...]
    dataset: str
    sources: tuple[str, ...]
    codebook_digest: bytes
    transition_digest: bytes
    secret_id: bytes
    fingerprint: bytes
    source_fingerprint: bytes = b""
    event: PrivacyEvent

    @property
    def epsilon(self) -> float:
        """Of the event; may be infinite."""
        return cost_of(self.event).epsilon

    def to_json(self) -> str:
        """Return the draw as text, for the state database."""
        digests = (
            self.codebook_digest,
            self.transition_digest,
            self.secret_id,
            self.fingerprint,
            self.source_fingerprint,
        )
        event_text = events.to_json(self.event)
        return json.dumps([self.variables, self.dataset, self.sources, *(d.hex() for d in digests), event_text])

    @classmethod
    def from_json(cls, text: str) -> ColumnDraw:
        """Read what `to_json` wrote."""
        variables, dataset, sources, codebook, transition, secret, fingerprint, source, event_text = json.loads(text)
        return cls(
            variables=tuple(variables),
            dataset=dataset,
            sources=tuple(sources),
            codebook_digest=bytes.fromhex(codebook),
            transition_digest=bytes.fromhex(transition),
            secret_id=bytes.fromhex(secret),
            fingerprint=bytes.fromhex(fingerprint),
            source_fingerprint=bytes.fromhex(source),
            event=events.from_json(event_text),
        )

    @property
    def draw(self) -> tuple[str, str, bytes, bytes, bytes]:
        """What the noise depends on, the version tag apart."""
        return (self.dataset, json.dumps(self.sources), self.codebook_digest, self.transition_digest, self.secret_id)

    def values(self, version_tag: bytes) -> Values:
        """Return what names the randomized values, which are charged once."""
        return (*self.draw, self.fingerprint, self.source_fingerprint, version_tag)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origins:
    """Where one unit's values come from at this site, and which they are. Never leaves it.

    Attributes:
        variables: the study's names.
        dataset: of party.toml.
        sources: local columns.
        codebook, transition, secret, fingerprint, source_fingerprint: digests; see `ColumnDraw`.
        n_records: people in the table.
    """

    variables: tuple[str, ...]
    dataset: str
    sources: tuple[str, ...]
    codebook: str
    transition: str
    secret: str
    fingerprint: str
    n_records: int
    source_fingerprint: str = ""

    def has_data_of(self, other: Origins) -> bool:
        """Tell whether the values, and their texts, are those of another reading."""
        return (self.fingerprint, self.source_fingerprint) == (other.fingerprint, other.source_fingerprint)


def origins_of(column_draws: Mapping[int, ColumnDraw], n_records: int) -> dict[int, Origins]:
    """Return where the data of each unit come from and their fingerprint, to say later what changed."""
    return {
        index: Origins(
            variables=column_draw.variables,
            dataset=column_draw.dataset,
            sources=column_draw.sources,
            codebook=column_draw.codebook_digest.hex(),
            transition=column_draw.transition_digest.hex(),
            secret=column_draw.secret_id.hex(),
            fingerprint=column_draw.fingerprint.hex(),
            n_records=n_records,
            source_fingerprint=column_draw.source_fingerprint.hex(),
        )
        for index, column_draw in column_draws.items()
    }


def seals(column_draws: Mapping[int, ColumnDraw], proposal_digest: bytes, *, site_secret: bytes) -> dict[int, bytes]:
    """Return what an approval says of the data of each unit: 32 bytes that change with the data and with where they come
    from.

        seal = HMAC-SHA-256(HKDF-SHA-256(site secret, info = "verticil/approval/v1" ‖ proposal digest), unit ‖ draw ‖ data)

    where the draw names data set, source columns, codebook (with the recode), matrix and secret, and the data are the two
    fingerprints. Nothing can be learned from it without the site secret, not even
    whether two studies saw the same data.

    Args:
        column_draws: by unit.
        proposal_digest: of the proposal.
        site_secret: of this site.
    """
    key = HKDF(algorithm=hashes.SHA256(), length=32, salt=None, info=_SEAL + proposal_digest).derive(site_secret)

    def seal(index: int, column_draw: ColumnDraw) -> bytes:
        draw = [part if isinstance(part, str) else part.hex() for part in column_draw.draw]
        data = [column_draw.fingerprint, column_draw.source_fingerprint]
        return hmac.digest(key, json.dumps([index, *draw, *(part.hex() for part in data)]).encode("ascii"), "sha256")

    return {index: seal(index, column_draw) for index, column_draw in column_draws.items()}
