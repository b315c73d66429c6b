"""`headrace console`: web pages that show every source on its path from the database to the lake's tables.

It reads what the bridges' endpoints answer, the lake's own tables, what Kafka holds of its streams and, where one is
configured, Prometheus. It has no database of its own, changes nothing, and is off unless it is started. Imports point down:

    command                  the options, and what must not be combined
    server                   the listening socket, the application, its threads
    pages · security         requests to HTML; who may ask
    sources · charts         a source's hops and what to run, which sources a page lists; which figures charts show
    tables · lineage         what a table has of its sources; that as a picture, with the models of dbt's that read it
    hops · plots             the hops of a source, each with a state; charts in SVG
    lake_view                what is known of the lake at one moment
    bridges · lake · table_detail · retention    what is known: each has a thread of its own; headrace/lake reads the lake
"""
