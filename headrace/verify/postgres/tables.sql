-- The tables of a database that can be captured, with what a comparison needs: stored columns (domains resolved to the
-- type below them), key columns in key order (primary key that is not deferrable, else replica identity), and the tables that a partition is of.
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
    )
FROM pg_class AS class
JOIN pg_namespace AS space ON space.oid = class.relnamespace
WHERE class.relkind IN ('r', 'p') AND class.relpersistence = 'p'
  AND space.nspname <> 'information_schema' AND NOT starts_with(space.nspname, 'pg_')
ORDER BY space.nspname, class.relname
