CREATE TABLE transactions (
    id bigint PRIMARY KEY,
    card varchar(40) NOT NULL,
    branch varchar(80),             -- the card's branch, REGION/NAME: where alerts about the card go
    kind enum('payment', 'withdrawal') NOT NULL,
    merchant varchar(80),
    place varchar(80) NOT NULL,
    amount decimal(12, 2) NOT NULL,
    made_at timestamp(6) NOT NULL
);
