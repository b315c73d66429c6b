-- A region's sales database. Both regions have the same tables; each has its own currency, time zone and customers.
CREATE TABLE customers (
    id bigint PRIMARY KEY,
    email text NOT NULL,
    name text NOT NULL,
    country text NOT NULL
);

CREATE TABLE products (
    sku text PRIMARY KEY,
    name text NOT NULL,
    category text NOT NULL
);

CREATE TABLE orders (
    id bigint PRIMARY KEY,
    customer_id bigint NOT NULL REFERENCES customers,
    placed_at timestamptz NOT NULL,
    currency text NOT NULL,
    status text NOT NULL -- placed, paid, shipped, cancelled
);

CREATE TABLE order_lines (
    order_id bigint NOT NULL REFERENCES orders,
    line integer NOT NULL,
    sku text NOT NULL REFERENCES products,
    quantity integer NOT NULL,
    unit_price numeric(14, 2) NOT NULL,
    PRIMARY KEY (order_id, line)
);

-- Kept at headquarters alone: what one unit of a currency was worth in pounds on a day.
CREATE TABLE rates (
    currency text NOT NULL,
    day date NOT NULL,
    pounds numeric(18, 9) NOT NULL,
    PRIMARY KEY (currency, day)
);
