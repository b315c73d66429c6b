-- The tables of a database that can be captured, with what a comparison needs: stored columns (domains resolved to the
-- type below them), key columns in key order (primary key that is not deferrable, else replica identity), the tables that a
-- partition is of, and what a publication carries of the table. Without the publication's name: whether any publication carries
-- it; in a database that has none, nothing is known of that, and all tables count as captured.
WITH RECURSIVE walk (type, below, modifier) AS (
    SELECT oid, typbasetype, typtypmod FROM pg_type WHERE typtype = 'd'
    UNION ALL
    SELECT walk.type, up.typbasetype, CASE WHEN walk.modifier >= 0 THEN walk.modifier ELSE up.typtypmod END
    FROM walk JOIN pg_type AS up ON up.oid = walk.below
    WHERE up.typtype = 'd'
),
domain AS (
    SELECT walk.type, walk.below, walk.modifier
    FROM walk JOIN pg_type AS bottom ON bottom.oid = walk.below
    WHERE bottom.typtype <> 'd'
),
published AS (
    -- Servers before PostgreSQL 15 have neither lists of columns nor filters of rows.
    SELECT
        class.oid,
        CASE WHEN count(*) = 1 AND %(publication)s::text IS NOT NULL
            THEN min((to_jsonb(listed) -> 'attnames')::text)::jsonb END AS columns,
        CASE WHEN count(*) = 1 AND %(publication)s::text IS NOT NULL
            THEN min(to_jsonb(listed) ->> 'rowfilter') END AS filter
    FROM pg_publication_tables AS listed
    JOIN pg_namespace AS space ON space.nspname = listed.schemaname
    JOIN pg_class AS class ON class.relnamespace = space.oid AND class.relname = listed.tablename
    WHERE %(publication)s::text IS NULL OR listed.pubname = %(publication)s::text
    GROUP BY class.oid
)
SELECT
    space.nspname,
    class.relname,
    class.relkind = 'p',
    ARRAY(
        SELECT above_space.nspname || '.' || above.relname
        FROM pg_partition_ancestors(class.oid) AS ancestor (oid)
        JOIN pg_class AS above ON above.oid = ancestor.oid
        JOIN pg_namespace AS above_space ON above_space.oid = above.relnamespace
        WHERE above.oid <> class.oid
    ),
    (
        SELECT coalesce(json_agg(json_build_array(
            attribute.attname,
            CASE WHEN type.typnamespace = 'pg_catalog'::regnamespace THEN type.typname ELSE 'other' END,
            coalesce(domain.modifier, attribute.atttypmod)
        ) ORDER BY attribute.attnum), '[]')
        FROM pg_attribute AS attribute
        LEFT JOIN domain ON domain.type = attribute.atttypid
        JOIN pg_type AS type ON type.oid = coalesce(domain.below, attribute.atttypid)
        WHERE attribute.attrelid = class.oid AND attribute.attnum > 0
          AND NOT attribute.attisdropped AND attribute.attgenerated = ''
    ),
    ARRAY(
        SELECT attribute.attname::text
        FROM (
            SELECT string_to_array(index.indkey::text, ' ')::int2[] AS columns, index.indnkeyatts AS count
            FROM pg_index AS index
            WHERE index.indrelid = class.oid AND (index.indisprimary OR index.indisreplident)
              AND index.indimmediate
            ORDER BY index.indisprimary DESC
            LIMIT 1
        ) AS chosen, unnest(chosen.columns[1:chosen.count]) WITH ORDINALITY AS part (number, place)
        JOIN pg_attribute AS attribute ON attribute.attrelid = class.oid AND attribute.attnum = part.number
        ORDER BY part.place
    ),
    own.oid IS NOT NULL OR above.oid IS NOT NULL
        OR class.relkind = 'p' AND NOT EXISTS (
            SELECT FROM pg_partition_tree(class.oid) AS part
            WHERE part.isleaf AND part.relid NOT IN (SELECT oid FROM published)
        )
        OR %(publication)s::text IS NULL AND NOT EXISTS (SELECT FROM pg_publication),
    CASE WHEN own.oid IS NOT NULL THEN own.columns ELSE above.columns END,
    CASE WHEN own.oid IS NOT NULL THEN own.filter ELSE above.filter END
FROM pg_class AS class
JOIN pg_namespace AS space ON space.oid = class.relnamespace
LEFT JOIN published AS own ON own.oid = class.oid
LEFT JOIN published AS above ON above.oid = (
    -- A partition's rows are published as those of the table that it is a partition of, where that is published so.
    SELECT ancestor.oid FROM pg_partition_ancestors(class.oid) AS ancestor (oid)
    WHERE ancestor.oid <> class.oid AND ancestor.oid IN (SELECT oid FROM published)
    LIMIT 1
)
WHERE class.relkind IN ('r', 'p') AND class.relpersistence = 'p'
  AND space.nspname <> 'information_schema' AND NOT starts_with(space.nspname, 'pg_')
ORDER BY space.nspname, class.relname
