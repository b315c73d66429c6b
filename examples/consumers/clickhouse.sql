-- ClickHouse keeps the rows of a table from its topic: the newest version of each key, and none that was deleted.
-- The edge's file: [records] key_change = "delete-create", or profile = "debezium" with decimal = "string" and time = "iso".
create table accounts_topic (change String) engine = Kafka
settings kafka_broker_list = 'kafka:9092', kafka_topic_list = 'bank.public.accounts', kafka_group_name = 'clickhouse-accounts',
         kafka_format = 'JSONAsString';

create table accounts (
    id Int32, owner String, balance Nullable(Decimal(12, 2)), opened Nullable(Date32), active Nullable(Bool),
    ratio Nullable(Float64), big Nullable(String), later Nullable(Int32), _version UInt256, _is_deleted UInt8
) engine = ReplacingMergeTree(_version, _is_deleted) order by id;

-- The version is the change's position, epoch/commit/ordinal in hexadecimal, as one number; a commit above 64 bits is behind an x.
create materialized view accounts_changes to accounts as
with JSONExtractString(change, 'op') as op, JSONExtractRaw(change, if(op = 'd', 'before', 'after')) as row,
     splitByChar('/', JSONExtractString(change, 'source', 'position')) as place,
     concat(place[1], leftPad(replaceAll(place[2], 'x', ''), 32, '0'), place[3]) as digits
select JSONExtract(row, 'id', 'Int32') as id,
       JSONExtract(row, 'owner', 'String') as owner,
       toDecimal64OrNull(JSONExtractString(row, 'balance'), 2) as balance,
       toDate32OrNull(JSONExtractString(row, 'opened')) as opened,
       JSONExtract(row, 'active', 'Nullable(Bool)') as active,
       JSONExtract(row, 'ratio', 'Nullable(Float64)') as ratio,
       JSONExtract(row, 'big', 'Nullable(String)') as big,
       JSONExtract(row, 'later', 'Nullable(Int32)') as later,
       reinterpretAsUInt256(reverse(unhex(digits))) as _version,
       op = 'd' as _is_deleted
from accounts_topic
where op in ('c', 'r', 'u', 'd');

select id, owner, balance, opened, active, ratio, big, later from accounts final order by id;
