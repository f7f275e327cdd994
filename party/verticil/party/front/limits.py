"""The limits of a site's policy as a document that it signs and publishes: an analyst checks a study against them beforehand.

The document says what a study may ask, for as long as the site publishes no other: whether it is approved, the site decides when
it is there. It holds numbers and names of the policy, and the local columns that its codebooks are of; not what it denies
(`deny_columns` names columns that nobody asked about), nothing of its tables, and no sum of its ledger. A study is compared with
it by the same function as at the site (`verticil.party.control.policy.objections`).
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, cast

import rfc8785

from verticil.party.config import PartyConfig
from verticil.party.control.policy import Column, Objection, Policy, objections
from verticil.shared.channels.privacy import Breach
from verticil.shared.errors import Misuse, VerticilError, from_code
from verticil.shared.identity.identity import Role
from verticil.shared.identity.signing import SigningKey, verify_signed
from verticil.shared.study.document import Study
from verticil.wire.v1 import common_pb2

__all__ = ["Published", "limits_of", "publish", "read_limits"]

_KIND: Final = "verticil/limits/v1"
_PLAIN: Final = (
    "max_epsilon_per_column", "max_epsilon_per_study", "max_share_epsilon", "max_share_delta", "allow_infinite",
    "allow_exact_parameters", "minimum_common_records", "minimum_parties", "max_categories", "recipients", "max_days",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The limits of one party.

    Attributes:
        party: whose they are.
        at: when they were signed, ISO 8601.
        policy: what it published; what it did not publish forbids nothing here.
        codebooks: with approval by rules, local columns whose codebooks its rules know; others wait for people.
    """

    party: str
    at: str
    policy: Policy
    codebooks: tuple[str, ...]

    def against(self, study: Study, *, today: dt.date) -> tuple[Objection, ...]:
        """Every limit that a study breaks; nothing for a study that the party is not in.

        Args:
            study: as proposed.
            today: UTC.
        """
        if self.party not in study.parties:
            return ()
        own = [study.schema[position] for position in study.schema.owned_by(self.party)]
        columns = {item.name: Column(dataset="", source=item.name) for item in own}
        return objections(self.policy, study, self.party, columns, today=today)


def limits_of(config: PartyConfig) -> dict[str, object]:
    """What is published of the policy."""
    policy = config.policy
    limits: dict[str, object] = {name: _plain(getattr(policy, name)) for name in _PLAIN}
    limits["breach"] = None if policy.breach is None else [policy.breach.prior, policy.breach.posterior]
    known = config.codebook.columns if policy.approval == "rules" else ()
    return {
        "kind": _KIND,
        "federation": config.federation.name,
        "party": config.name,
        "approval": policy.approval,
        "codebooks": sorted({item.column.source for item in known}),
        "limits": limits,
    }


def publish(config: PartyConfig, at: dt.datetime) -> str:
    """The signed document, as JSON text.

    Args:
        config: party.toml.
        at: now, UTC.

    Raises:
        PeerFault: CERTIFICATE_INVALID. DataFault: SECRET_MISSING, there is no signing key.
    """
    statement = limits_of(config) | {"published_at": f"{at:%Y-%m-%dT%H:%M:%SZ}"}
    body = _body(statement)
    signed = SigningKey.load(config.signing_key, config.certificate).sign(body)
    document = {"statement": statement, "signature": signed.signature.hex(), "certificate": signed.certificate.hex()}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def read_limits(path: Path, authority: bytes, at: dt.datetime) -> Published:
    """Read a document that a party published, and check its signature.

    Args:
        path: the file.
        authority: certificate of the federation's authority, PEM.
        at: now, UTC.

    Raises:
        Misuse: FILE_MISSING; CONFIG_INVALID, it is no such document.
        PeerFault: CERTIFICATE_INVALID, MESSAGE_INVALID, IDENTITY_REFUSED: nobody of this federation signed it so.
    """
    hint = "a party writes it with: verticil party limits --publish FILE"
    try:
        data = path.read_bytes()
    except OSError:
        raise Misuse("FILE_MISSING", f"{path}: cannot be read", hint=hint) from None
    try:
        document = cast("Mapping[str, object]", json.loads(data))
        statement = cast("Mapping[str, object]", document["statement"])
        found = _read(statement)
        signed = common_pb2.Signed(
            body=_body(statement),
            signature=bytes.fromhex(cast("str", document["signature"])),
            certificate=bytes.fromhex(cast("str", document["certificate"])),
        )
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise Misuse("CONFIG_INVALID", f"{path}: not the limits of a party", hint=hint) from None
    try:
        verify_signed(signed, authority, role=Role.PARTY, name=found.party, at=at)
    except VerticilError as error:
        raise from_code(error.code, f"{path}: {error.message}", hint=error.hint) from None
    return found


def _body(statement: Mapping[str, object]) -> bytes:
    """What is signed."""
    return rfc8785.dumps(dict(statement))  # type: ignore[arg-type]  # values are JSON


def _plain(value: object) -> object:
    if isinstance(value, float) and math.isinf(value):
        return None
    return list(cast("tuple[str, ...]", value)) if isinstance(value, tuple) else value


def _read(statement: Mapping[str, object]) -> Published:
    """What a statement says; ValueError, LookupError or TypeError where it is none."""
    if statement["kind"] != _KIND:
        raise ValueError
    limits = cast("dict[str, object]", statement["limits"])
    breach = cast("list[float] | None", limits["breach"])
    share = cast("float | None", limits["max_share_epsilon"])
    days = cast("int | None", limits["max_days"])
    policy = Policy(
        approval=cast("Literal['manual', 'rules', 'auto']", statement["approval"]),
        approvers=(),
        approvers_needed=1,
        max_epsilon_per_column=_number(limits["max_epsilon_per_column"]),
        max_epsilon_per_study=_number(limits["max_epsilon_per_study"]),
        max_epsilon_lifetime=math.inf,
        allow_infinite=tuple(cast("list[str]", limits["allow_infinite"])),
        minimum_common_records=cast("int", limits["minimum_common_records"]),
        minimum_parties=cast("int", limits["minimum_parties"]),
        max_categories=cast("int", limits["max_categories"]),
        deny_columns=(),
        recipients=tuple(cast("list[str]", limits["recipients"])),
        on_data_change="refuse",
        breach=None if breach is None else Breach(prior=breach[0], posterior=breach[1]),
        allow_exact_parameters=bool(limits["allow_exact_parameters"]),
        max_share_epsilon=_number(share),
        max_share_delta=_number(limits["max_share_delta"]),
        max_days=days,
    )
    return Published(
        party=str(statement["party"]),
        at=str(statement["published_at"]),
        policy=policy,
        codebooks=tuple(cast("list[str]", statement["codebooks"])),
    )


def _number(value: object) -> float:
    return math.inf if value is None else float(cast("float", value))
