"""The one tree of errors: every failure has a stable code, a message, a hint and an exit code.

A message says what, where, expected and got (``column 'ward': matrix row 3 sums to 0.98, expected 1 within 1e-9``); the hint
says what the reader can do. Neither ever carries a data value or a record id: they may name files, keys, columns, labels that
the study declares, counts and positions.

The classes tell whose turn it is: `Misuse` (the caller's documents or command line), `DataFault` (the local table or the
local machine), `Refusal` (the owner's policy or approval), `PeerFault` (network, identity, the other side), `GateFailed`
(a verification did not hold), `InternalFault` (ours). Exit codes are those of the README's table.

Raise with the code of the failure; the class must be the one that the code belongs to:

>>> raise Refusal("BUDGET_EXCEEDED", "column 'race': epsilon 3.2, expected at most 3.0", hint="declare more noise")
Traceback (most recent call last):
  ...
verticil.shared.core.errors.Refusal: BUDGET_EXCEEDED: column 'race': epsilon 3.2, expected at most 3.0 (hint: declare more noise)
"""

from __future__ import annotations

from typing import ClassVar, Final


def printable(text: str, *, also: str = "") -> str:
    r"""Return a text so that a terminal shows it and obeys none of it: letters that do not print stand by their numbers.

    Control characters, escape sequences, marks that turn the direction of writing and lone surrogates become what Python writes
    for them; line ends, too, unless they are among `also`.

    >>> printable("\x1b[2Jok\u202e"), printable("a\nb"), printable("a\nb", also="\n") == "a\nb"
    ('\\x1b[2Jok\\u202e', 'a\\nb', True)
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or letter in also else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )


class VerticilError(Exception):
    """Root of the tree. Never raised itself.

    Attributes:
        code: the stable code, a key of `CODES`.
        message: what, where, expected, got.
        hint: what the reader can do; may be empty.
        teller: the other side, when it is that one's word (``the miner``); empty: this program found it out itself. Whatever code
            another node sends, it is no fault of this machine.
        exit_code: exit code of the command that ends with this error.
    """

    family: ClassVar[str] = ""

    teller: str = ""

    def __init__(self, code: str, message: str, *, hint: str = "") -> None:
        family, exit_code = CODES[code]
        if family != self.family:
            raise AssertionError(f"{code} belongs to {family}, not to {type(self).__name__}")
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.hint = hint
        self.exit_code = exit_code

    def __str__(self) -> str:
        return f"{self.code}: {self.message}" + (f" (hint: {self.hint})" if self.hint else "")


class Misuse(VerticilError):
    """The command line, a TOML file or the study document is wrong (exit 2)."""

    family = "Misuse"


class DataFault(VerticilError):
    """The local table, disk or machine is at fault (exit 1)."""

    family = "DataFault"


class Refusal(VerticilError):
    """The owner's policy, budget or approval says no (exit 3 or 4). Doubt about privacy ends here too."""

    family = "Refusal"


class PeerFault(VerticilError):
    """The network, the peer or its identity is at fault (exit 5)."""

    family = "PeerFault"


class GateFailed(VerticilError):
    """A verification or a gate did not hold (exit 6)."""

    family = "GateFailed"


class InternalFault(VerticilError):
    """An error of this program (exit 1)."""

    family = "InternalFault"


CODES: Final[dict[str, tuple[str, int]]] = {
    # command line and documents
    "USAGE": ("Misuse", 2),
    "CONFIG_INVALID": ("Misuse", 2),
    "STUDY_INVALID": ("Misuse", 2),
    "STUDY_UNSUPPORTED": ("Misuse", 2),
    "MATRIX_INVALID": ("Misuse", 2),
    "MATRIX_SINGULAR": ("Misuse", 2),
    "FILE_EXISTS": ("Misuse", 2),
    "FILE_MISSING": ("Misuse", 2),
    "STUDY_UNKNOWN": ("Misuse", 2),
    "STUDY_EXISTS": ("Misuse", 2),
    "STUDY_OVER": ("Misuse", 2),
    "UNREVIEWED": ("Misuse", 2),
    # the local table and machine
    "DATA_FILE_MISSING": ("DataFault", 1),
    "DATA_UNREADABLE": ("DataFault", 1),
    "DATA_INTERRUPTED": ("DataFault", 1),
    "DATA_COLUMN_MISSING": ("DataFault", 1),
    "DATA_CATEGORY_UNSEEN": ("DataFault", 1),
    "DATA_VALUE_OUTSIDE": ("DataFault", 1),
    "DATA_ROWS_UNUSED": ("DataFault", 1),
    "DATA_ID_MISSING": ("DataFault", 1),
    "DATA_ID_DUPLICATE": ("DataFault", 1),
    "DATA_EMPTY": ("DataFault", 1),
    "DISK_FULL": ("DataFault", 1),
    "FILES_EXHAUSTED": ("DataFault", 1),
    "STATE_LOCKED": ("DataFault", 1),
    "STATE_CORRUPT": ("DataFault", 1),
    "STATE_UNSUPPORTED": ("DataFault", 1),
    "STATE_READ_ONLY": ("DataFault", 1),
    "CATALOGUE_OLDER": ("DataFault", 1),
    "SECRET_MISSING": ("DataFault", 1),
    "LEARNING_FAILED": ("DataFault", 1),
    # the owner
    "POLICY_REFUSED": ("Refusal", 3),
    "BUDGET_EXCEEDED": ("Refusal", 3),
    "LEDGER_OLDER": ("Refusal", 3),
    "EPSILON_INFINITE": ("Refusal", 3),
    "DATA_CHANGED": ("Refusal", 3),
    "LINKAGE_TOO_SMALL": ("Refusal", 3),
    "DECLARATION_WEAKER": ("Refusal", 3),
    "COMMON_SET_TOO_SIMILAR": ("Refusal", 3),
    "COMMON_SETS_FULL": ("Refusal", 3),
    "SAME_PEOPLE": ("Refusal", 3),
    "NOT_APPROVED": ("Refusal", 4),
    "APPROVAL_VOID": ("Refusal", 4),
    "STUDY_DENIED": ("Refusal", 4),
    "STUDY_EXPIRED": ("Refusal", 4),
    "STUDY_WITHDRAWN": ("Refusal", 4),
    "PARTY_LEFT_OUT": ("Refusal", 4),
    # the other side
    "UNREACHABLE": ("PeerFault", 5),
    "DEADLINE": ("PeerFault", 5),
    "TLS_REFUSED": ("PeerFault", 5),
    "CERTIFICATE_INVALID": ("PeerFault", 5),
    "CERTIFICATE_REVOKED": ("PeerFault", 5),
    "IDENTITY_REFUSED": ("PeerFault", 5),
    "PARTY_UNKNOWN": ("PeerFault", 5),
    "NOT_OWNER": ("PeerFault", 5),
    "VERSION_UNSUPPORTED": ("PeerFault", 5),
    "MESSAGE_INVALID": ("PeerFault", 5),
    "CHUNK_CORRUPT": ("PeerFault", 5),
    "OFFSET_MISMATCH": ("PeerFault", 5),
    "ARTIFACT_INVALID": ("PeerFault", 5),
    "ALIGNMENT_MISMATCH": ("PeerFault", 5),
    "STUDY_MISMATCH": ("PeerFault", 5),
    "NOT_READY": ("PeerFault", 5),
    "RESOURCE_EXHAUSTED": ("PeerFault", 5),
    "SESSION_REPLACED": ("PeerFault", 5),
    "DEADLINE_PASSED": ("PeerFault", 5),
    # gates
    "RELEASE_INVALID": ("GateFailed", 6),
    "RELEASE_UNSUPPORTED": ("GateFailed", 6),
    "BACKUP_INVALID": ("GateFailed", 6),
    "BACKUP_UNSUPPORTED": ("GateFailed", 6),
    "BUNDLE_INVALID": ("GateFailed", 6),
    "BUNDLE_OUT_OF_ORDER": ("GateFailed", 6),
    "RELEASE_UNTRUSTED": ("GateFailed", 6),
    "AUDIT_BROKEN": ("GateFailed", 6),
    "CLAIM_BROKEN": ("GateFailed", 6),
    "LIMIT_EXCEEDED": ("GateFailed", 6),
    "USELESS": ("GateFailed", 6),
    "TOO_NOISY": ("GateFailed", 6),
    # ours
    "INTERNAL": ("InternalFault", 1),
}
"""Code -> (family, exit code). Codes are never renamed or reused; `INTERRUPTED` (exit 130) is Ctrl-C and has no class.

Of a party's table ``DATA_VALUE_OUTSIDE``, ``DATA_ROWS_UNUSED``, ``DATA_ID_DUPLICATE`` and ``DATA_CATEGORY_UNSEEN`` are the names
of remarks of ``party check``."""

_FAMILIES: Final[dict[str, type[VerticilError]]] = {
    c.family: c for c in (Misuse, DataFault, Refusal, PeerFault, GateFailed, InternalFault)
}


def from_code(code: str, message: str, *, hint: str = "") -> VerticilError:
    """Make the error of the right class for `code`, as when it arrives over the wire.

    An unknown code (a newer peer) becomes a `PeerFault` with code ``MESSAGE_INVALID``.

    >>> from_code("NOT_APPROVED", "study 'a': no approval").exit_code
    4
    """
    if code not in CODES:
        return PeerFault(
            "MESSAGE_INVALID", f"the peer reported an error that this version does not know: {message}", hint=hint
        )
    return _FAMILIES[CODES[code][0]](code, message, hint=hint)
