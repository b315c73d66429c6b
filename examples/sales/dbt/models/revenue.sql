-- Revenue by region and its own business day, in pounds at that day's rate.
WITH placed AS (
    SELECT _source, id, currency,
           CAST(timezone(CASE _source WHEN 'jakarta/sales' THEN 'Asia/Jakarta' ELSE 'Europe/London' END, placed_at) AS date) AS day
    FROM {{ source('silver', 'orders') }} WHERE status <> 'cancelled'
)
SELECT p._source AS region, p.day, count(DISTINCT p.id) AS orders, round(sum(l.quantity * l.unit_price * r.pounds), 2) AS pounds
FROM placed p
JOIN {{ source('silver', 'order_lines') }} l ON l._source = p._source AND l.order_id = p.id
JOIN {{ source('silver', 'rates') }} r ON r.currency = p.currency AND r.day = p.day
GROUP BY ALL
