"""A drawing that a notebook shows and a file keeps: SVG, no package needed."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


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
        """Write the drawing to a file that is not there yet; its folder is made.

        Raises:
            Misuse: FILE_EXISTS, FILE_MISSING.
            DataFault: DISK_FULL.
        """
        from verticil.shared.storage.disk import create_file, write_fault

        target = Path(path)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_fault(error, target) from None
        create_file(target, self.svg.encode("utf-8"), mode=0o644, exists_hint="name another file")
        return target
