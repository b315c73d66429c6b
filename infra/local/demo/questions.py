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

#: From commit at the source to the bridge writing to Kafka. A binlog has whole seconds, so an order has its own moment.
LAG = """
    SELECT source,
           count(*) AS changes,
           percentile(unix_millis(timestamp) - unix_millis(committed), 0.5) AS p50,
           percentile(unix_millis(timestamp) - unix_millis(committed), 0.99) AS p99
    FROM (
        SELECT source, timestamp,
               coalesce(CAST(get_json_object(value, '$.after.placed_at') AS TIMESTAMP), commit_time) AS committed
        FROM bronze.bank
        WHERE table IN ('public.pgbench_history', 'pay.orders') AND op = 'c'
    )
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

#: What orders guarantee: money only moves, so the wallets hold together what they held at first (500 each), and each one what
#: it earned less what it spent; an order costs what its lines cost.
WALLETS = """
    SELECT w._source AS region,
           count(*) AS wallets,
           sum(w.balance) AS balance,
           (SELECT count(*) FROM silver.pay_orders) AS orders,
           (SELECT sum(amount) FROM silver.pay_orders) AS ordered,
           (SELECT sum(amount) FROM silver.pay_order_lines) AS lines,
           count_if(w.balance <> 500 + coalesce(earned.amount, 0) - coalesce(spent.amount, 0)) AS wrong
    FROM silver.pay_wallets w
    LEFT JOIN (SELECT _source, seller AS id, sum(amount) AS amount FROM silver.pay_orders GROUP BY 1, 2) earned
      ON earned._source = w._source AND earned.id = w.id
    LEFT JOIN (SELECT _source, buyer AS id, sum(amount) AS amount FROM silver.pay_orders GROUP BY 1, 2) spent
      ON spent._source = w._source AND spent.id = w.id
    GROUP BY w._source ORDER BY region
"""

#: The busiest tellers of both banks together.
BUSIEST = """
    SELECT _source AS region, tid AS teller, count(*) AS transactions, sum(delta) AS moved
    FROM silver.pgbench_history GROUP BY 1, 2 ORDER BY transactions DESC, region, teller LIMIT 3
"""
