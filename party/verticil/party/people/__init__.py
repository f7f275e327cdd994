"""Which people a data set is about: a sketch of each table's people, and how many of them two tables share."""
