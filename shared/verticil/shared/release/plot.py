"""A drawing that a notebook shows and a file keeps: SVG, no package needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from verticil.shared.core.errors import Misuse


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A drawing as a document of SVG.

    Attributes:
        svg: the document.
    """

    svg: str = field(repr=False)

    def _repr_html_(self) -> str:
        return self.svg

    def save(self, path: Path | str) -> Path:
        """Write the drawing to a file that is not there yet.

        Raises:
            Misuse: FILE_EXISTS.
        """
        target = Path(path)
        try:
            with target.open("x", encoding="utf-8") as file:
                file.write(self.svg)
        except FileExistsError:
            raise Misuse(
                "FILE_EXISTS", f"{target}: exists already and is not overwritten", hint="name another file"
            ) from None
        return target
