"""A file that somebody else wrote, read up to a limit.

Promises: of a file above its limit no more than the limit and a byte is in memory, whatever its size is said to be.
"""

from __future__ import annotations

import os
from pathlib import Path


class TooLargeError(ValueError):
    """A file that is larger than its reader takes."""


def read_at_most(path: Path, most: int) -> bytes:
    """Read a whole file of at most so many bytes.

    Raises:
        TooLargeError: it is larger.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        content = b"" if os.fstat(file.fileno()).st_size > most else file.read(most + 1)
        if len(content) > most or os.fstat(file.fileno()).st_size > most:
            raise TooLargeError(f"more than {most} bytes")
    return content
