"""Several rows a person: related tables of a study, laid in slots so that one person stays one record.

`tables` says what a related table is and which columns its slots are, `structure` what is empty by structure and which pairs of
columns are measured, `laying` puts rows in slots, and `synthesis.related_rows` turns records into rows again. Everything else of
the program sees slots, which are columns like any other.
"""
