"""Where a party's table may be: one file or many, CSV, Parquet, Arrow, DuckDB, SQLite, a server. `door` is the way in."""
