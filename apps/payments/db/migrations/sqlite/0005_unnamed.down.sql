-- The version of before needs a name of each: charges without one get one that no
-- provider has given.
CREATE TABLE payments_charges_new (
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
    refunded     INTEGER NOT NULL DEFAULT 0,
    created_us   INTEGER NOT NULL,

    UNIQUE (merchant, operation),
    CONSTRAINT never_refunded_beyond_amount CHECK (0 <= refunded AND refunded <= amount),
    CONSTRAINT only_succeeded_is_refunded CHECK (status = 'succeeded' OR refunded = 0)
) STRICT;
INSERT INTO payments_charges_new SELECT seq, id, merchant, operation, amount, currency, source, description, metadata,
    order_id, status, decline_code, coalesce(processor_id, 'none of ' || id), refunded, created_us FROM payments_charges;

CREATE TABLE payments_refunds_new (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL UNIQUE,
    merchant     TEXT NOT NULL,
    operation    TEXT NOT NULL,
    charge_id    TEXT NOT NULL REFERENCES payments_charges_new (id),
    amount       INTEGER NOT NULL CHECK (amount > 0),
    currency     TEXT NOT NULL,
    reason       TEXT NOT NULL,
    status       TEXT NOT NULL CHECK (status IN ('succeeded', 'failed')),
    failure_code TEXT,
    processor_id TEXT UNIQUE,
    created_us   INTEGER NOT NULL,

    UNIQUE (merchant, operation),
    CONSTRAINT processor_knows_succeeded CHECK ((status = 'succeeded') = (processor_id IS NOT NULL))
) STRICT;
INSERT INTO payments_refunds_new SELECT seq, id, merchant, operation, charge_id, amount, currency, reason, status,
    failure_code, processor_id, created_us FROM payments_refunds;

CREATE TABLE payments_orders_new (
    seq          INTEGER PRIMARY KEY AUTOINCREMENT,
    id           TEXT NOT NULL,
    merchant     TEXT NOT NULL,
    -- NULL for an order that its client named: the name makes it idempotent.
    operation    TEXT,
    -- What the client asked for, to tell another order under the same name.
    asked        TEXT NOT NULL,
    -- The order of a checkout is pending, then paid, declined or cancelled.
    status       TEXT NOT NULL CHECK (status IN ('open', 'pending', 'paid', 'declined', 'cancelled')),
    currency     TEXT NOT NULL,
    total        INTEGER NOT NULL CHECK (total > 0),
    -- The key of the checkout that made the order, until it has ended.
    checkout_key TEXT,
    charge_id    TEXT REFERENCES payments_charges_new (id),
    created_us   INTEGER NOT NULL,

    UNIQUE (merchant, id),
    UNIQUE (merchant, operation),
    CONSTRAINT paid_by_a_charge CHECK ((status = 'paid') = (charge_id IS NOT NULL)),
    CONSTRAINT checkout_until_ended CHECK ((status = 'pending') = (checkout_key IS NOT NULL))
) STRICT;
INSERT INTO payments_orders_new SELECT seq, id, merchant, operation, asked, status, currency, total,
    checkout_key, charge_id, created_us FROM payments_orders;

CREATE TABLE payments_order_lines_new (
    merchant   TEXT NOT NULL,
    order_id   TEXT NOT NULL,
    line       INTEGER NOT NULL,
    product    TEXT NOT NULL,
    quantity   INTEGER NOT NULL CHECK (quantity > 0),
    unit_price INTEGER NOT NULL CHECK (unit_price > 0),

    PRIMARY KEY (merchant, order_id, line),
    FOREIGN KEY (merchant, order_id) REFERENCES payments_orders_new (merchant, id),
    FOREIGN KEY (merchant, product) REFERENCES payments_products (merchant, id)
) STRICT;
INSERT INTO payments_order_lines_new SELECT merchant, order_id, line, product, quantity, unit_price FROM payments_order_lines;

DROP TABLE payments_order_lines;
DROP TABLE payments_orders;
DROP TABLE payments_refunds;
DROP TABLE payments_charges;
ALTER TABLE payments_charges_new RENAME TO payments_charges;
ALTER TABLE payments_refunds_new RENAME TO payments_refunds;
ALTER TABLE payments_orders_new RENAME TO payments_orders;
ALTER TABLE payments_order_lines_new RENAME TO payments_order_lines;
CREATE INDEX payments_charges_list ON payments_charges (merchant, seq);
CREATE INDEX payments_refunds_list ON payments_refunds (merchant, seq);
CREATE INDEX payments_refunds_charge ON payments_refunds (charge_id);
-- For checkouts that nobody goes on with.
CREATE INDEX payments_orders_pending ON payments_orders (seq) WHERE status = 'pending';
