-- Each status that an order had, and since when: a version has its end once a later change came, so it is written again then.
{{ config(materialized='incremental', unique_key=['region', 'id', 'position'], incremental_strategy='delete+insert') }}
SELECT _source AS region, id, _start_position AS position, status, __START_AT AS began_at, __END_AT AS ended_at
FROM {{ source('history', 'orders') }}
{% if is_incremental() %}
WHERE greatest(__START_AT, __END_AT) >= (SELECT max(greatest(began_at, ended_at)) FROM {{ this }})
{% endif %}
