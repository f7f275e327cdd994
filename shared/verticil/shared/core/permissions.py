"""What is said of a file of another user, as when `sudo -u verticil` is missing before a command: nothing is lost or damaged."""

from __future__ import annotations

import errno
import os
import pwd
from pathlib import Path
from typing import Final

from verticil.shared.core.errors import DataFault

REFUSED: Final = PermissionError(errno.EACCES, os.strerror(errno.EACCES))
"""For a refusal that the operating system gave to somebody who did not hand it on, such as SQLite."""


def not_permitted(error: OSError, path: Path, *, what: str = "") -> DataFault | None:
    """Return the error for a file that this user may not read; None: the system's error is another, or no such file is there.

    Args:
        error: what the operating system said.
        path: the file.
        what: the file in words, for the message.

    Returns:
        STATE_READ_ONLY, which names whose file it is and who asked for it.
    """
    if error.errno not in {errno.EACCES, errno.EPERM} or os.access(path, os.R_OK, effective_ids=True):
        return None
    if (owner := _owner(path)) is None:
        return None
    own, problem = os.geteuid(), f"{what} {path}: cannot be read ({error.strerror})".lstrip()
    if owner == own:
        hint = f"look at its rights and at those of its folders: {_name(own)} must be able to read it"
        return DataFault("STATE_READ_ONLY", f"{problem}, though it belongs to {_name(own)}", hint=hint)
    return DataFault(
        "STATE_READ_ONLY",
        f"{problem}: it belongs to {_name(owner)}, and this command runs as {_name(own)}",
        hint=f"run the command as {_name(owner)}; nothing is lost or damaged",
    )


def _owner(path: Path) -> int | None:
    """Return whose the file is, or the folder that hides it; None: there is no such file."""
    for place in (path.absolute(), *path.absolute().parents):
        try:
            return place.stat().st_uid
        except FileNotFoundError:
            return None
        except OSError:
            continue
    return None


def _name(user: int) -> str:
    """Return a user's name, or the number where there is no name."""
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
