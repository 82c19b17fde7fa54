-- Amounts are minor units; times are microseconds since 1970. The operation is
-- the reference of the idempotency key that a row was written under: a second
-- row for the same operation cannot be written, also when the key has expired.

CREATE TABLE payments_charges (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    merchant     TEXT NOT NULL,
    operation    TEXT NOT NULL,
    amount       INTEGER NOT NULL CHECK (amount > 0),
    currency     TEXT NOT NULL CHECK (length(currency) = 3),
    source       TEXT NOT NULL,
    description  TEXT NOT NULL,
    metadata     TEXT NOT NULL,
    order_id     TEXT,
    status       TEXT NOT NULL CHECK (status IN ('succeeded', 'failed')),
    decline_code TEXT,
    -- Every effect at the processor is written down once.
    processor_id TEXT NOT NULL UNIQUE,
    -- What pending and succeeded refunds together take of the amount.
    reserved     INTEGER NOT NULL DEFAULT 0,
    refunded     INTEGER NOT NULL DEFAULT 0,
    created_us   INTEGER NOT NULL,

    UNIQUE (merchant, operation),
    CONSTRAINT never_refunded_beyond_amount CHECK (0 <= refunded AND refunded <= reserved AND reserved <= amount),
    CONSTRAINT only_succeeded_is_refunded CHECK (status = 'succeeded' OR reserved = 0)
) STRICT;

CREATE INDEX payments_charges_list ON payments_charges (merchant, seq);

CREATE TABLE payments_refunds (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    merchant     TEXT NOT NULL,
    operation    TEXT NOT NULL,
    charge_id    TEXT NOT NULL REFERENCES payments_charges (id),
    amount       INTEGER NOT NULL CHECK (amount > 0),
    currency     TEXT NOT NULL,
    reason       TEXT NOT NULL,
    status       TEXT NOT NULL CHECK (status IN ('pending', 'succeeded', 'failed')),
    failure_code TEXT,
    processor_id TEXT UNIQUE,
    -- The attempt that reserved the amount: its key and its fence.
    held_key     TEXT NOT NULL,
    held_fence   INTEGER NOT NULL,
    created_us   INTEGER NOT NULL,

    UNIQUE (merchant, operation),
    CONSTRAINT processor_knows_succeeded CHECK ((status = 'succeeded') = (processor_id IS NOT NULL))
) STRICT;

CREATE INDEX payments_refunds_list ON payments_refunds (merchant, seq);
CREATE INDEX payments_refunds_charge ON payments_refunds (charge_id);

CREATE TABLE payments_products (
    merchant   TEXT NOT NULL,
    id         TEXT NOT NULL,
    name       TEXT NOT NULL,
    price      INTEGER NOT NULL CHECK (price > 0),
    currency   TEXT NOT NULL CHECK (length(currency) = 3),
    -- What is neither sold nor promised to an order.
    stock      INTEGER NOT NULL CONSTRAINT never_oversold CHECK (stock >= 0),

    PRIMARY KEY (merchant, id)
) STRICT;

CREATE TABLE payments_orders (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL,
    merchant   TEXT NOT NULL,
    -- NULL for an order that its client named: the name makes it idempotent.
    operation  TEXT,
    -- What the client asked for, to tell another order under the same name.
    asked      TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('open', 'paying', 'paid')),
    currency   TEXT NOT NULL,
    total      INTEGER NOT NULL CHECK (total > 0),
    -- The attempt that is paying or has paid: operation, key and fence.
    held_by    TEXT,
    held_key   TEXT,
    held_fence INTEGER,
    charge_id  TEXT REFERENCES payments_charges (id),
    created_us INTEGER NOT NULL,

    UNIQUE (merchant, id),
    UNIQUE (merchant, operation),
    CONSTRAINT paid_by_a_charge CHECK ((status = 'paid') = (charge_id IS NOT NULL)),
    CONSTRAINT held_while_paid CHECK ((status = 'open') = (held_by IS NULL))
) STRICT;

-- The names that clients gave to orders: whoever inserts one makes the order.
CREATE TABLE payments_order_names (
    merchant TEXT NOT NULL,
    id       TEXT NOT NULL,

    PRIMARY KEY (merchant, id)
) STRICT;

CREATE TABLE payments_order_lines (
    merchant   TEXT NOT NULL,
    order_id   TEXT NOT NULL,
    line       INTEGER NOT NULL,
    product    TEXT NOT NULL,
    quantity   INTEGER NOT NULL CHECK (quantity > 0),
    unit_price INTEGER NOT NULL CHECK (unit_price > 0),

    PRIMARY KEY (merchant, order_id, line),
    FOREIGN KEY (merchant, order_id) REFERENCES payments_orders (merchant, id),
    FOREIGN KEY (merchant, product) REFERENCES payments_products (merchant, id)
) STRICT;

-- Double entry: a transfer takes an amount from one account to another, so its
-- two entries sum to zero whatever is written here.
CREATE TABLE payments_transfers (
    seq        INTEGER PRIMARY KEY AUTOINCREMENT,
    id         TEXT NOT NULL UNIQUE,
    merchant   TEXT NOT NULL,
    operation  TEXT NOT NULL,
    kind       TEXT NOT NULL CHECK (kind IN ('charge', 'refund')),
    subject    TEXT NOT NULL UNIQUE,
    debit      TEXT NOT NULL,
    credit     TEXT NOT NULL,
    amount     INTEGER NOT NULL CHECK (amount > 0),
    currency   TEXT NOT NULL CHECK (length(currency) = 3),
    created_us INTEGER NOT NULL,

    UNIQUE (merchant, operation),
    CONSTRAINT two_accounts CHECK (debit <> credit)
) STRICT;

CREATE INDEX payments_transfers_list ON payments_transfers (merchant, seq);

-- Debits are positive, credits negative.
CREATE VIEW payments_entries AS
    SELECT merchant, id AS transfer, debit AS account, currency, amount FROM payments_transfers
    UNION ALL
    SELECT merchant, id AS transfer, credit AS account, currency, -amount FROM payments_transfers;

CREATE TRIGGER payments_transfers_stay_as_written BEFORE UPDATE ON payments_transfers
BEGIN SELECT RAISE(ABORT, 'a transfer is never changed; write a contrary one'); END;

CREATE TRIGGER payments_transfers_stay BEFORE DELETE ON payments_transfers
BEGIN SELECT RAISE(ABORT, 'a transfer is never deleted; write a contrary one'); END;
