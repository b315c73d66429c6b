-- Each status that an order had, and since when. Written are versions that are new, or have an end since: all are compared, as
-- changes of regions, and within one, need not come in the order of their commit times.
{{ config(materialized='incremental', unique_key=['region', 'id', 'position'], incremental_strategy='delete+insert') }}
SELECT _source AS region, id, _start_position AS position, status, __START_AT AS began_at, __END_AT AS ended_at
FROM {{ source('history', 'orders') }}
{% if is_incremental() %}
EXCEPT SELECT region, id, position, status, began_at, ended_at FROM {{ this }}
{% endif %}
