-- Revenue by region and by its own business day, in pounds at that day's rate.
WITH placed AS (
    SELECT o._source, o.id, o.currency,
           to_date(from_utc_timestamp(o.placed_at, CASE o._source WHEN 'jakarta/sales' THEN 'Asia/Jakarta' ELSE 'Europe/London' END)) AS day
    FROM silver.orders o WHERE o.status <> 'cancelled'
)
SELECT p._source AS region, p.day, count(DISTINCT p.id) AS orders, round(sum(l.quantity * l.unit_price * r.pounds), 2) AS pounds
FROM placed p
JOIN silver.order_lines l ON l._source = p._source AND l.order_id = p.id
JOIN silver.rates r ON r.currency = p.currency AND r.day = p.day
GROUP BY p._source, p.day ORDER BY p.day, region;

-- What sells in both regions, and where it sells better.
SELECT pr.sku, max(pr.name) AS name,
       sum(CASE WHEN l._source = 'jakarta/sales' THEN l.quantity ELSE 0 END) AS jakarta,
       sum(CASE WHEN l._source = 'london/sales' THEN l.quantity ELSE 0 END) AS london
FROM silver.order_lines l JOIN silver.products pr ON pr._source = l._source AND pr.sku = l.sku
GROUP BY pr.sku HAVING jakarta > 0 AND london > 0 ORDER BY jakarta + london DESC;

-- Customers known in both regions, whatever they are numbered there.
SELECT lower(email) AS email, count(DISTINCT _source) AS regions, array_sort(collect_set(country)) AS countries
FROM silver.customers GROUP BY lower(email) HAVING regions > 1 ORDER BY email;

-- Orders that are paid and not yet shipped, right now: not one load old.
SELECT _source AS region, count(*) AS waiting, min(placed_at) AS oldest
FROM silver_live.orders WHERE status = 'paid' GROUP BY _source ORDER BY region;

-- How long it takes from an order to its shipping: from the history of its status.
SELECT h._source AS region, count(*) AS shipped,
       round(avg(unix_timestamp(h.__START_AT) - unix_timestamp(h.placed_at)) / 3600, 1) AS hours
FROM history.orders h WHERE h.status = 'shipped' GROUP BY h._source ORDER BY region;

-- Who has seen an order change, and when: every version of it.
SELECT status, __START_AT, __END_AT FROM history.orders
WHERE _source = 'jakarta/sales' AND id = 1 ORDER BY _start_position;
