-- Amounts are minor units; times are microseconds since 1970. The operation is
-- the reference of the idempotency key that a row was written under: a second
-- row for the same operation cannot be written, also when the key has expired.

CREATE TABLE payments_charges (
    seq          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           TEXT COLLATE "C" NOT NULL UNIQUE,
    merchant     TEXT COLLATE "C" NOT NULL,
    operation    TEXT COLLATE "C" NOT NULL,
    amount       BIGINT NOT NULL CHECK (amount > 0),
    currency     TEXT COLLATE "C" NOT NULL CHECK (length(currency) = 3),
    source       TEXT COLLATE "C" NOT NULL,
    description  TEXT NOT NULL,
    metadata     TEXT NOT NULL,
    order_id     TEXT COLLATE "C",
    status       TEXT COLLATE "C" NOT NULL CHECK (status IN ('succeeded', 'failed')),
    decline_code TEXT COLLATE "C",
    -- Every effect at the processor is written down once.
    processor_id TEXT COLLATE "C" NOT NULL UNIQUE,
    -- What pending and succeeded refunds together take of the amount.
    reserved     BIGINT NOT NULL DEFAULT 0,
    refunded     BIGINT NOT NULL DEFAULT 0,
    created_us   BIGINT NOT NULL,

    UNIQUE (merchant, operation),
    CONSTRAINT never_refunded_beyond_amount CHECK (0 <= refunded AND refunded <= reserved AND reserved <= amount),
    CONSTRAINT only_succeeded_is_refunded CHECK (status = 'succeeded' OR reserved = 0)
);

CREATE INDEX payments_charges_list ON payments_charges (merchant, seq);

CREATE TABLE payments_refunds (
    seq          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id           TEXT COLLATE "C" NOT NULL UNIQUE,
    merchant     TEXT COLLATE "C" NOT NULL,
    operation    TEXT COLLATE "C" NOT NULL,
    charge_id    TEXT COLLATE "C" NOT NULL REFERENCES payments_charges (id),
    amount       BIGINT NOT NULL CHECK (amount > 0),
    currency     TEXT COLLATE "C" NOT NULL,
    reason       TEXT NOT NULL,
    status       TEXT COLLATE "C" NOT NULL CHECK (status IN ('pending', 'succeeded', 'failed')),
    failure_code TEXT COLLATE "C",
    processor_id TEXT COLLATE "C" UNIQUE,
    -- The attempt that reserved the amount: its key and its fence.
    held_key     TEXT COLLATE "C" NOT NULL,
    held_fence   BIGINT NOT NULL,
    created_us   BIGINT NOT NULL,

    UNIQUE (merchant, operation),
    CONSTRAINT processor_knows_succeeded CHECK ((status = 'succeeded') = (processor_id IS NOT NULL))
);

CREATE INDEX payments_refunds_list ON payments_refunds (merchant, seq);
CREATE INDEX payments_refunds_charge ON payments_refunds (charge_id);

CREATE TABLE payments_products (
    merchant   TEXT COLLATE "C" NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    name       TEXT NOT NULL,
    price      BIGINT NOT NULL CHECK (price > 0),
    currency   TEXT COLLATE "C" NOT NULL CHECK (length(currency) = 3),
    -- What is neither sold nor promised to an order.
    stock      BIGINT NOT NULL CONSTRAINT never_oversold CHECK (stock >= 0),

    PRIMARY KEY (merchant, id)
);

CREATE TABLE payments_orders (
    seq        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         TEXT COLLATE "C" NOT NULL,
    merchant   TEXT COLLATE "C" NOT NULL,
    -- NULL for an order that its client named: the name makes it idempotent.
    operation  TEXT COLLATE "C",
    -- What the client asked for, to tell another order under the same name.
    asked      TEXT NOT NULL,
    status     TEXT COLLATE "C" NOT NULL CHECK (status IN ('open', 'paying', 'paid')),
    currency   TEXT COLLATE "C" NOT NULL,
    total      BIGINT NOT NULL CHECK (total > 0),
    -- The attempt that is paying or has paid: operation, key and fence.
    held_by    TEXT COLLATE "C",
    held_key   TEXT COLLATE "C",
    held_fence BIGINT,
    charge_id  TEXT COLLATE "C" REFERENCES payments_charges (id),
    created_us BIGINT NOT NULL,

    UNIQUE (merchant, id),
    UNIQUE (merchant, operation),
    CONSTRAINT paid_by_a_charge CHECK ((status = 'paid') = (charge_id IS NOT NULL)),
    CONSTRAINT held_while_paid CHECK ((status = 'open') = (held_by IS NULL))
);

-- The names that clients gave to orders: whoever inserts one makes the order.
CREATE TABLE payments_order_names (
    merchant TEXT COLLATE "C" NOT NULL,
    id       TEXT COLLATE "C" NOT NULL,

    PRIMARY KEY (merchant, id)
);

CREATE TABLE payments_order_lines (
    merchant   TEXT COLLATE "C" NOT NULL,
    order_id   TEXT COLLATE "C" NOT NULL,
    line       BIGINT NOT NULL,
    product    TEXT COLLATE "C" NOT NULL,
    quantity   BIGINT NOT NULL CHECK (quantity > 0),
    unit_price BIGINT NOT NULL CHECK (unit_price > 0),

    PRIMARY KEY (merchant, order_id, line),
    FOREIGN KEY (merchant, order_id) REFERENCES payments_orders (merchant, id),
    FOREIGN KEY (merchant, product) REFERENCES payments_products (merchant, id)
);

-- Double entry: a transfer takes an amount from one account to another, so its
-- two entries sum to zero whatever is written here.
CREATE TABLE payments_transfers (
    seq        BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    id         TEXT COLLATE "C" NOT NULL UNIQUE,
    merchant   TEXT COLLATE "C" NOT NULL,
    operation  TEXT COLLATE "C" NOT NULL,
    kind       TEXT COLLATE "C" NOT NULL CHECK (kind IN ('charge', 'refund')),
    subject    TEXT COLLATE "C" NOT NULL UNIQUE,
    debit      TEXT COLLATE "C" NOT NULL,
    credit     TEXT COLLATE "C" NOT NULL,
    amount     BIGINT NOT NULL CHECK (amount > 0),
    currency   TEXT COLLATE "C" NOT NULL CHECK (length(currency) = 3),
    created_us BIGINT NOT NULL,

    UNIQUE (merchant, operation),
    CONSTRAINT two_accounts CHECK (debit <> credit)
);

CREATE INDEX payments_transfers_list ON payments_transfers (merchant, seq);

-- Debits are positive, credits negative.
CREATE VIEW payments_entries AS
    SELECT merchant, id AS transfer, debit AS account, currency, amount FROM payments_transfers
    UNION ALL
    SELECT merchant, id AS transfer, credit AS account, currency, -amount FROM payments_transfers;

CREATE FUNCTION payments_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'a transfer is never changed or deleted; write a contrary one';
END $$;

CREATE TRIGGER payments_transfers_stay BEFORE UPDATE OR DELETE ON payments_transfers
    FOR EACH ROW EXECUTE FUNCTION payments_refuse_change();
