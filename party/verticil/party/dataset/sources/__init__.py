"""Where a party's table may be: one file or many, CSV, Parquet, Arrow, DuckDB, SQLite, a server. `open_source` is the way in."""
