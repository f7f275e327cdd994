"""How much of a file that somebody else wrote is read: every number, in one place.

Promises: a reader looks here, so that the page of limits and the test of bombs (tests/unit/test_bombs.py) name the same
numbers. Limits are far above what honest files have; they end a file that would fill the memory.
"""

from __future__ import annotations

from typing import Final

MIB: Final = 1 << 20

VALUE_BYTES: Final = MIB
"""Most bytes of one value of a table, as UTF-8 text, wherever the table is."""
STORED_VALUE_BYTES: Final = 64 * MIB
"""Most bytes of a value that SQLite hands to a query at all, also inside of one."""
PART_BYTES: Final = 16 * MIB
"""Bytes of texts after which a part of a table is handed on, whatever rows it has."""
PAGE_BYTES: Final = 128 * MIB
"""Most bytes that one page of a Parquet file inflates to."""
PAGES_BYTES: Final = 512 * MIB
"""Most bytes that the largest pages of all columns that are read inflate to together: they are in memory at once."""
FOOTER_BYTES: Final = 16 * MIB
"""Most bytes of a Parquet file's footer, which is read as a whole."""
BATCH_BYTES: Final = 256 * MIB
"""Bytes that one batch of an Arrow file may inflate to, however small the file is; above them its stored size counts."""
INFLATION: Final = 64
"""Most times its stored size that a larger batch of an Arrow file inflates to."""
INFLATED: Final = 200
"""Most times its size that a compressed CSV file inflates to, above 64 MiB; tables of texts inflate some fifty times."""
WORKBOOK_BYTES: Final = 512 * MIB
"""Most bytes that all parts of a workbook inflate to: it is read as a whole."""
SPARSE_CELLS: Final = 4_000_000
"""Cells that a sheet may span, however few it has; above them its cells count."""
SPARSENESS: Final = 16
"""Most times its cells that a larger sheet spans."""
STATISTICS_COLUMNS: Final = 10_000
"""Most columns of a file of SPSS, Stata or SAS."""
DOCUMENT_BYTES: Final = 256 * MIB
"""Most bytes of a document of a release: model.json, posterior.json, manifest.json .. In Model I a
manifest holds every parameter as its party signed it."""
DOCUMENT_VALUES: Final = 1 << 24
"""Most values of a JSON document, counted by its commas and brackets: a value of a byte can take 70 in memory."""
CERTIFICATE_BYTES: Final = MIB
"""Most bytes of a file of certificates."""
DENY_LIST_BYTES: Final = 64 * MIB
"""Most bytes of a list of revoked certificates: some 40 for each."""
TOML_BYTES: Final = 16 * MIB
"""Most bytes of a study or a configuration."""
TEXTS_BYTES: Final = 3 << 29
"""Most bytes of memory for the distinct texts of a table that is held as a whole (drafting, evaluating)."""
