-- The tables of a publication, with what decides whether an update or delete can be captured.
select
    quote_ident(n.nspname) || '.' || quote_ident(c.relname) as name,
    c.relreplident::text as identity,
    exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary and i.indimmediate) as has_key,
    exists (select from pg_index i where i.indrelid = c.oid and i.indisprimary and not i.indimmediate) as deferrable,
    exists (select from pg_index i where i.indrelid = c.oid and i.indisreplident and i.indisvalid) as has_index,
    c.relpersistence = 'u' as unlogged,
    has_table_privilege(c.oid, 'select') as may_select
from pg_publication_tables p
join pg_namespace n on n.nspname = p.schemaname
join pg_class c on c.relnamespace = n.oid and c.relname = p.tablename
where p.pubname = %s
order by 1
