"""The limits of a site's policy as a document that it signs and publishes: an analyst checks a study against them beforehand.

The document says what a study may ask, for as long as the site publishes no other: whether it is approved, the site decides when
it is there. It holds numbers and names of the policy, and the local columns that its codebooks are of; not what it denies
(`deny_columns` names columns that nobody asked about), nothing of its tables, no sum of its ledger, and no lifetime limit, which
says nothing without these sums. A study is compared with it by the same function as at the site
(`verticil.party.limits.limits.find_objections`).
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, cast

import rfc8785

from verticil.party.config import PartyConfig
from verticil.party.dataset.column_draws import Column
from verticil.party.limits.limits import Objection, Policy, find_objections
from verticil.party.limits.masked import MaskedPolicy
from verticil.shared.core.errors import Misuse, VerticilError, from_code
from verticil.shared.documents.json_document import Json
from verticil.shared.documents.record import parse
from verticil.shared.documents.toml_table import Table
from verticil.shared.documents.view_models import document, left_out
from verticil.shared.federation.identity.identity import Role
from verticil.shared.federation.identity.signing import SigningKey, verify_signed
from verticil.shared.mechanisms.privacy import Breach
from verticil.shared.privacy.accounts import DEALER, PUBLIC, Cost, Reader
from verticil.shared.privacy.accounts import ReaderLimits as AccountLimits
from verticil.shared.study.document import Study
from verticil.wire.v1 import common_pb2

_KIND: Final = "verticil/limits/v1"
LIMITS_BYTES: Final = 2**20
"""Most bytes of the published limits of a party."""
_PLAIN: Final = (
    "max_epsilon_per_column", "max_epsilon_per_study", "max_share_epsilon", "max_share_delta", "allow_infinite",
    "allow_exact_parameters", "minimum_common_records", "minimum_parties", "max_categories", "recipients", "max_days",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedLimits:
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
        """List every limit that a study breaks; nothing for a study that the party is not in.

        Args:
            study: as proposed.
            today: UTC.
        """
        if self.party not in study.parties:
            return ()
        own = [study.schema[position] for position in study.schema.owned_by(self.party)]
        columns = {item.name: Column(dataset="", source=item.name) for item in own}
        return find_objections(self.policy, study, self.party, columns, today=today)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderLimits:
    """What is published of a policy; None among `limits`: there is no limit. `published_at`: when it was signed.

    ``masked`` among `limits` is what masked studies may ask for, with the names of those who may deal masks, and whose noise may
    be counted.

    ``accounts`` among `limits` has what a study may cost by account; for an account that is not in it nothing may be drawn.
    """

    kind: str = _KIND
    federation: str
    party: str
    approval: str
    codebooks: tuple[str, ...]
    limits: Mapping[str, Json]
    published_at: str | None = left_out()


def limits_of(config: PartyConfig) -> ReaderLimits:
    """Return what is published of the policy."""
    policy = config.policy
    limits: dict[str, Json] = {name: _plain(getattr(policy, name)) for name in _PLAIN}
    limits["breach"] = None if policy.breach is None else [policy.breach.prior, policy.breach.posterior]
    limits["accounts"] = {
        reader.name: {"epsilon": _plain(account_reader.study.epsilon), "delta": _plain(account_reader.study.delta)}
        for reader in (PUBLIC, DEALER)
        if (account_reader := policy.limits_of(reader)) is not None
    }
    limits["masked"] = _masked_document(policy.masked)
    codebooks = config.codebook.columns if policy.approval == "rules" else ()
    return ReaderLimits(
        federation=config.federation.name,
        party=config.name,
        approval=policy.approval,
        codebooks=tuple(sorted({item.column.source for item in codebooks})),
        limits=limits,
    )


def publish(config: PartyConfig, at: dt.datetime) -> str:
    """Return the signed document, as JSON text.

    Args:
        config: party.toml.
        at: now, UTC.

    Raises:
        PeerFault: CERTIFICATE_INVALID. DataFault: SECRET_MISSING, there is no signing key.
    """
    statement = document(replace(limits_of(config), published_at=f"{at:%Y-%m-%dT%H:%M:%SZ}"))
    body = rfc8785.dumps(statement)
    signed = SigningKey.load(config.signing_key, config.certificate).sign(body)
    said = {"statement": statement, "signature": signed.signature.hex(), "certificate": signed.certificate.hex()}
    return json.dumps(said, indent=1, ensure_ascii=False) + "\n"


def read_limits(path: Path, authority: bytes, at: dt.datetime) -> PublishedLimits:
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
        with path.open("rb") as file:
            data = file.read(LIMITS_BYTES + 1)
    except OSError:
        raise Misuse("FILE_MISSING", f"{path}: cannot be read", hint=hint) from None
    try:
        parsed = parse(data, source=str(path), limit=LIMITS_BYTES)
        statement = parsed.raw("statement")
        limits = _read(parsed.table("statement"))
        body = rfc8785.dumps(cast("dict[str, object]", statement))  # type: ignore[arg-type]  # it came from JSON
        signature, certificate = (bytes.fromhex(parsed.value(str, key)) for key in ("signature", "certificate"))
        parsed.finish()
    except (Misuse, ValueError) as error:  # hex digits, or a number that the canonical form cannot hold
        problem = error.message if isinstance(error, Misuse) else f"{path}: not the limits of a party"
        raise Misuse("CONFIG_INVALID", problem, hint=hint) from None
    signed = common_pb2.Signed(body=body, signature=signature, certificate=certificate)
    try:
        verify_signed(signed, authority, role=Role.PARTY, name=limits.party, at=at)
    except VerticilError as error:
        raise from_code(error.code, f"{path}: {error.message}", hint=error.hint) from None
    return limits


def _plain(value: float | bool | tuple[str, ...] | None) -> Json:
    return None if isinstance(value, float) and math.isinf(value) else value


def _read(statement: Table) -> PublishedLimits:
    """Read what a statement says.

    Raises:
        Misuse: it is none.
    """
    statement.choice("kind", [_KIND])
    limits = statement.table("limits")
    breach = None if limits.raw("breach") is None else limits.numbers("breach")
    if breach is not None and not (len(breach) == 2 and 0 < breach[0] < breach[1] < 1):
        limits.fail("breach", "expected two probabilities, the first the smaller one")
    policy = Policy(
        approval=cast("Literal['manual', 'rules', 'auto']", statement.choice("approval", ("manual", "rules", "auto"))),
        approvers=(),
        approvers_needed=1,
        max_epsilon_per_column=_number(limits, "max_epsilon_per_column"),
        max_epsilon_per_study=_number(limits, "max_epsilon_per_study"),
        max_epsilon_lifetime=math.inf,
        allow_infinite=limits.strings("allow_infinite"),
        minimum_common_records=limits.value(int, "minimum_common_records"),
        minimum_parties=limits.value(int, "minimum_parties"),
        max_categories=limits.value(int, "max_categories"),
        deny_columns=(),
        recipients=limits.strings("recipients"),
        on_data_change="refuse",
        breach=None if breach is None else Breach(prior=breach[0], posterior=breach[1]),
        allow_exact_parameters=limits.value(bool, "allow_exact_parameters"),
        max_share_epsilon=_number(limits, "max_share_epsilon"),
        max_share_delta=_number(limits, "max_share_delta"),
        max_days=None if limits.raw("max_days") is None else limits.value(int, "max_days"),
        public=_account(limits, PUBLIC),
        dealer=_account(limits, DEALER),
        masked=_read_masked(limits, statement.value(str, "party")),
    )
    return PublishedLimits(
        party=statement.value(str, "party"),
        at=statement.value(str, "published_at"),
        policy=policy,
        codebooks=statement.strings("codebooks"),
    )


def _masked_document(policy: MaskedPolicy) -> Json:
    """List those who may deal and whose noise may be counted: by name, those with a key that a person there confirmed."""
    most = policy.most
    names_by_key = {
        key: [name for name in policy.confirmed if policy.why_not(name, of) is None]
        for key, of in (("allowed_dealers", policy.dealers), ("noise_from", policy.noise))
    }
    return {
        "allow": policy.allow,
        "epsilon": None if most is None else _plain(most.epsilon),
        "delta": None if most is None else _plain(most.delta),
        "floor_epsilon_per_column": _plain(policy.floor),
        **{key: list(names) for key, names in names_by_key.items()},
        "allow_unchecked_partners": policy.unchecked,
        "allow_raw": list(policy.raw),
    }


def _read_masked(limits: Table, party: str) -> MaskedPolicy:
    masked_table = limits.table("masked")
    dealers, noise = masked_table.strings("allowed_dealers"), masked_table.strings("noise_from")
    return MaskedPolicy(
        allow=masked_table.value(bool, "allow"),
        most=Cost(epsilon=_number(masked_table, "epsilon"), delta=_number(masked_table, "delta")),
        floor=_number(masked_table, "floor_epsilon_per_column"),
        confirmed=tuple(dict.fromkeys((party, *dealers, *noise))),
        dealers=dealers,
        noise=noise,
        unchecked=masked_table.value(bool, "allow_unchecked_partners"),
        raw=masked_table.strings("allow_raw"),
    )


def _account(limits: Table, reader: Reader) -> AccountLimits | None:
    unknown = Cost(epsilon=math.inf, delta=math.inf)
    accounts = limits.table("accounts")
    if not accounts.has(reader.name):
        return None
    account_table = accounts.table(reader.name)
    return AccountLimits(
        study=Cost(epsilon=_number(account_table, "epsilon"), delta=_number(account_table, "delta")), lifetime=unknown
    )


def _number(limits: Table, key: str) -> float:
    return math.inf if limits.raw(key) is None else limits.value(float, key)
