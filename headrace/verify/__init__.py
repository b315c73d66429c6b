"""The source's half of a verification: its database in one snapshot, canonical texts, ranges of keys, sums over hashed rows.

Needs no Spark: the edge uses it in the region, `headrace verify` where it connects to the database itself. Its layers, each
importing only those to its right:

    remote                           a source whose half is computed in its region
    contract                         what is asked of a region, and answered
    engines                          which engine a source has
    postgres/   mysql/               the engines: neither imports the other; `database.py` of each alone imports a driver
    comparison                       what an engine and a side of a comparison give, and how rows are cut into ranges
    canonical                        how values are written, alike at the source and in silver
"""
