"""What the demo asks the lake: SQL that an analyst would type at `headrace lake sql`."""

#: The offsets that each load took from each partition.
RANGES = """
    SELECT load, partition, min(offset) AS first, max(offset) AS last, count(*) AS records
    FROM bronze.bank
    JOIN (SELECT load, finished_at, lag(finished_at, 1, timestamp'1970-01-01') OVER (ORDER BY load) AS before
          FROM lake.published)
      ON loaded_at > before AND loaded_at <= finished_at
    GROUP BY load, partition ORDER BY load, partition
"""

#: Which loads were published, and up to where.
LOADS = "SELECT load, changes, positions FROM lake.published ORDER BY load"

#: From commit at the source to the bridge writing to Kafka, and from there to the lake.
LAG = """
    SELECT source,
           count(*) AS changes,
           percentile(unix_millis(timestamp) - unix_millis(commit_time), 0.5) AS p50,
           percentile(unix_millis(timestamp) - unix_millis(commit_time), 0.99) AS p99
    FROM bronze.bank
    WHERE table = 'public.pgbench_history' AND op = 'c'
    GROUP BY source ORDER BY source
"""

#: TPC-B's invariant: every transaction moves one amount through an account, a teller, a branch and the history.
INVARIANT = """
    SELECT region,
           max(sum) FILTER (WHERE what = 'accounts') AS accounts,
           max(sum) FILTER (WHERE what = 'tellers') AS tellers,
           max(sum) FILTER (WHERE what = 'branches') AS branches,
           max(sum) FILTER (WHERE what = 'history') AS history
    FROM (
        SELECT _source AS region, 'accounts' AS what, sum(abalance) AS sum FROM silver.pgbench_accounts GROUP BY 1
        UNION ALL SELECT _source, 'tellers', sum(tbalance) FROM silver.pgbench_tellers GROUP BY 1
        UNION ALL SELECT _source, 'branches', sum(bbalance) FROM silver.pgbench_branches GROUP BY 1
        UNION ALL SELECT _source, 'history', sum(delta) FROM silver.pgbench_history GROUP BY 1
    )
    GROUP BY region ORDER BY region
"""

#: The busiest teller of both regions together.
BUSIEST = """
    SELECT _source AS region, tid AS teller, count(*) AS transactions, sum(delta) AS moved
    FROM silver.pgbench_history GROUP BY 1, 2 ORDER BY transactions DESC, region, teller LIMIT 3
"""
