CREATE TABLE transactions (
    id bigint PRIMARY KEY,
    card text NOT NULL,
    branch text,                    -- the card's branch, REGION/NAME: where alerts about the card go
    kind text NOT NULL CHECK (kind IN ('payment', 'withdrawal')),
    merchant text,
    place text NOT NULL,
    amount numeric(12, 2) NOT NULL,
    made_at timestamptz NOT NULL
);
