"""What the people of a site decided, in the party's database: signed votes, what each was about, countersignatures.

As in `verticil.party.storage.studies` every method is one transaction that is on the disk when it returns, and can be repeated.
Whether a signature holds is not this module's matter.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from verticil.party.policy.comparison import Origins
from verticil.party.storage.database import Database

_TIME = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True, kw_only=True)
class Vote:
    """One yes.

    Attributes:
        approver: who.
        content: digest of what was approved.
        at: when, as it was signed.
        signature: of the approver's key; empty where party.toml names nobody.
    """

    approver: str
    content: bytes
    at: datetime
    signature: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A release that waits for countersignatures.

    Attributes:
        manifest_sha256: of its manifest, as the miner told.
        fetched: it lies in the state directory.
        countersignature: body, signature and certificate of this party's; None before.
        sent: the miner has it.
    """

    manifest_sha256: bytes
    fetched: bool
    countersignature: tuple[bytes, bytes, bytes] | None
    sent: bool


class DecisionStore:
    """The decisions in a party's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # ---- votes

    def votes(self, digest: bytes) -> tuple[Vote, ...]:
        """All votes for a study, in order of time."""
        rows = self._database.rows(
            "SELECT approver, content, voted_at, signature FROM vote WHERE digest = ? ORDER BY rowid", (digest,)
        )
        return tuple(
            Vote(
                approver=cast("str", approver),
                content=cast("bytes", content),
                at=datetime.fromisoformat(cast("str", at)),
                signature=cast("bytes", signature),
            )
            for approver, content, at, signature in rows
        )

    def vote(self, digest: bytes, vote: Vote) -> tuple[str, ...]:
        """Record a yes; votes for any other content are void and removed.

        Returns:
            Whose votes were removed.
        """
        with self._database.transaction():
            void = tuple(held.approver for held in self.votes(digest) if held.content != vote.content)
            self._database.write("DELETE FROM vote WHERE digest = ? AND content <> ?", (digest, vote.content))
            self._database.write(
                "INSERT INTO vote (digest, approver, content, voted_at, signature) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT (digest, approver) DO UPDATE SET voted_at = excluded.voted_at, signature = excluded.signature"
                " WHERE vote.signature <> excluded.signature AND excluded.signature <> x''",
                (digest, vote.approver, vote.content, f"{vote.at:{_TIME}}", vote.signature),
            )
        return void

    # ---- what a vote was about

    def note(self, digest: bytes, content: bytes, origins: Mapping[int, Origins], at: datetime) -> None:
        """Remember where the data of an approved content came from."""
        facts = json.dumps({str(index): dataclasses.asdict(item) for index, item in origins.items()})
        self._database.write(
            "INSERT INTO basis VALUES (?, ?, ?, ?) ON CONFLICT (digest, content) DO UPDATE SET noted_at = excluded.noted_at",
            (digest, content, facts, f"{at:{_TIME}}"),
        )

    def noted(self, digest: bytes, content: bytes | None = None) -> Mapping[int, Origins] | None:
        """What was noted about a content, or about the latest one; None: nothing (an earlier version approved it)."""
        rows = self._database.rows(
            "SELECT facts FROM basis WHERE digest = ? AND (? IS NULL OR content = ?) ORDER BY noted_at DESC, rowid DESC LIMIT 1",
            (digest, content, content),
        )
        if not rows:
            return None
        facts = cast("dict[str, dict[str, object]]", json.loads(cast("str", rows[0][0])))
        return {int(index): _origins(item) for index, item in facts.items()}

    # ---- countersignatures

    def ask_for_review(self, digest: bytes, manifest_sha256: bytes) -> None:
        """The miner tells of a release to countersign; another manifest than before is another release, not looked at yet."""
        self._database.write(
            "INSERT INTO review (digest, manifest_sha256) VALUES (?, ?) ON CONFLICT (digest) DO UPDATE SET"
            " manifest_sha256 = excluded.manifest_sha256, fetched = 0, sent = 0,"
            " body = NULL, signature = NULL, certificate = NULL"
            " WHERE manifest_sha256 <> excluded.manifest_sha256",
            (digest, manifest_sha256),
        )

    def review(self, digest: bytes) -> Review | None:
        """What is known of a release that waits; None: nothing does."""
        rows = self._database.rows(
            "SELECT manifest_sha256, fetched, body, signature, certificate, sent FROM review WHERE digest = ?",
            (digest,),
        )
        if not rows:
            return None
        manifest, fetched, body, signature, certificate, sent = rows[0]
        signed = None
        if isinstance(body, bytes) and isinstance(signature, bytes) and isinstance(certificate, bytes):
            signed = (body, signature, certificate)
        return Review(
            manifest_sha256=cast("bytes", manifest), fetched=bool(fetched), countersignature=signed, sent=bool(sent)
        )

    def fetched(self, digest: bytes, *, here: bool = True) -> None:
        """The release is in the state directory, or is not there any more."""
        self._database.write("UPDATE review SET fetched = ? WHERE digest = ?", (here, digest))

    def countersign(self, digest: bytes, manifest_sha256: bytes, signed: tuple[bytes, bytes, bytes]) -> bool:
        """Record this party's countersignature; False when the miner has told another manifest since. The first one stays."""
        changed = self._database.write(
            "UPDATE review SET body = coalesce(body, ?), signature = coalesce(signature, ?),"
            " certificate = coalesce(certificate, ?) WHERE digest = ? AND manifest_sha256 = ?",
            (*signed, digest, manifest_sha256),
        )
        return changed > 0

    def forget_countersignature(self, digest: bytes) -> None:
        """The miner does not take it."""
        self._database.write(
            "UPDATE review SET body = NULL, signature = NULL, certificate = NULL, sent = 0 WHERE digest = ?", (digest,)
        )

    def countersignature_told(self, digest: bytes) -> None:
        """The miner has it."""
        self._database.write("UPDATE review SET sent = 1 WHERE digest = ?", (digest,))


def _origins(item: Mapping[str, object]) -> Origins:
    return Origins(
        variables=_texts(item["variables"]),
        dataset=str(item["dataset"]),
        sources=_texts(item["sources"]),
        codebook=str(item["codebook"]),
        transition=str(item["transition"]),
        secret=str(item["secret"]),
        fingerprint=str(item["fingerprint"]),
        n_records=cast("int", item["n_records"]),
    )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(cast("list[str]", value))
