-- Flink reads a table's topic as a changelog: queries of accounts are of its rows. The edge's file: [records] truncates = false.
-- Without scan.bounded.mode it goes on with what comes.
create table accounts (
    id int, owner string, balance decimal(12, 2), opened date, active boolean, ratio double, big string, later int,
    primary key (id) not enforced
) with (
    'connector' = 'kafka',
    'properties.bootstrap.servers' = 'kafka:9092',
    'properties.group.id' = 'flink',
    'properties.isolation.level' = 'read_committed',
    'topic' = 'bank.public.accounts',
    'scan.startup.mode' = 'earliest-offset',
    'scan.bounded.mode' = 'latest-offset',
    'format' = 'debezium-json',
    'debezium-json.timestamp-format.standard' = 'ISO-8601'
);

select * from accounts
