"""A database on a server: how it is named in party.toml, and where its password comes from.

Promises: a password never stands in party.toml, and nothing that this module holds or says has one: it is read from the
environment or from a file each time a connection is made, and goes into that connection alone. A URL that has one is refused
without being quoted.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from verticil.shared.core.errors import DataFault, Misuse
from verticil.shared.core.permissions import not_permitted

POSTGRESQL: Final = frozenset({"postgresql", "postgres"})
"""How a URL begins that PostgreSQL's own driver reads."""
_SECRET_KEYS: Final = re.compile(
    r"pass(word|wd|phrase|code|file)?$|pwd$|secret|token|(api|access|private)[_-]?key$", re.IGNORECASE
)
_SECRET_WITHIN: Final = re.compile(r"(pwd|password|passwd|token|secret)\s*=", re.I)
_MOST_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """Where a server is, as party.toml says it; either the URL itself or where the URL stands.

    Attributes:
        url: without a password; empty where another place has it.
        url_env, url_file: the environment variable or file that holds the whole URL, a password in it or not.
        password_env, password_file: the same of the password alone.
    """

    url: str = ""
    url_env: str = ""
    url_file: Path | None = None
    password_env: str = ""
    password_file: Path | None = None

    @property
    def named_by(self) -> str:
        """What party.toml says, in one text; two data sets that say the same are at one place."""
        return str(self.url or (self.url_env and f"${self.url_env}") or self.url_file)

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that hold the URL or the password."""
        return tuple(file for file in (self.url_file, self.password_file) if file is not None)

    def scheme(self) -> str:
        """Return the kind of database: how the URL begins. Raises as `address`."""
        return self.address().partition(":")[0]

    def is_checked(self) -> bool:
        """Return whether the URL of a PostgreSQL server makes the client check the server's certificate.

        Raises:
            DataFault, Misuse: as `address`.
        """
        parts = urlsplit(self.address())
        options = dict(parse_qsl(parts.query))
        host = options.get("host") or options.get("hostaddr") or parts.hostname or ""
        near = host in {"", "localhost", "127.0.0.1", "::1"} or host.startswith("/")
        return parts.scheme not in POSTGRESQL or near or options.get("sslmode") == "verify-full"

    def address(self) -> str:
        """Return the URL to connect with. Secret: the password may be in it.

        Raises:
            DataFault: SECRET_MISSING, the environment variable or file is not there.
            Misuse: CONFIG_INVALID, others may read the file, or what it holds is no URL.
        """
        url = self.url or _secret(self.url_env, self.url_file, "url")
        if problem := no_url(url):
            raise Misuse("CONFIG_INVALID", f"the URL of a data set, from its environment variable or file: {problem}")
        if not (self.password_env or self.password_file):
            return url
        password = quote(_secret(self.password_env, self.password_file, "password"), safe="")
        parts = urlsplit(url)
        user, _, place = parts.netloc.rpartition("@")
        return parts._replace(netloc=f"{user}:{password}@{place}").geturl()


def no_url(url: str) -> str:
    """Return what is wrong with a text that should be a URL; empty when nothing is. Never quotes it.

    >>> no_url("postgresql://reader@db.example.org/clinic"), no_url("host=db dbname=clinic")
    ('', 'expected a URL such as postgresql://reader@db.example.org/clinic')
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018  raises where it is no number
    except ValueError:
        parts = None
    if parts is None or not re.fullmatch(r"[a-z][a-z0-9]*(\+[a-z0-9_]+)?", parts.scheme) or "://" not in url:
        return "expected a URL such as postgresql://reader@db.example.org/clinic"
    return ""


def has_password(url: str) -> bool:
    """Return whether a URL has a password, or something like it, in any of the places where drivers look for one.

    >>> [has_password(f"postgresql://{rest}") for rest in ("u@h/d", "u:x@h/d", "u@h/d?sslmode=require", "h/d?password=x")]
    [False, True, False, True]
    """
    parts = urlsplit(url)
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    return (
        ":" in parts.netloc.rpartition("@")[0]
        or "@"
        in parts.path + parts.fragment  # what stands behind a sign that should have been written as %2F, %23 or %3F
        or any("@" in key or _SECRET_KEYS.search(key) or _SECRET_WITHIN.search(value) for key, value in pairs)
    )


def _secret(variable: str, path: Path | None, what: str) -> str:
    if path is None:
        if not (text := os.environ.get(variable, "")):
            hint = f"set it for the daemon and for commands; {what}_env in [dataset.NAME] names it"
            raise DataFault("SECRET_MISSING", f"environment variable {variable}: not set", hint=hint)
        return text
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            data = file.read(_MOST_BYTES)
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        hint = f"{what}_file in [dataset.NAME] names it"
        raise not_permitted(error, path) or DataFault("SECRET_MISSING", f"{path.name}: {reason}", hint=hint) from None
    if mode & 0o077:
        problem = f"{path.name}: mode {mode:04o}, expected 0600 (the owner only)"
        raise Misuse("CONFIG_INVALID", problem, hint=f"chmod 600 {path.name}")
    text = data.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")
    if not text or "\n" in text or "\ufffd" in text:
        raise Misuse("CONFIG_INVALID", f"{path.name}: expected one line with the {what}")
    return text
