"""report.html: what was published, for people, first of all for privacy officers. One file, no script, no outside address."""
