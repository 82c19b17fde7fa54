-- Orders of checkouts stay as they are; the program of before only shows them.
DROP INDEX payments_orders_pending;
ALTER TABLE payments_orders
    DROP CONSTRAINT checkout_until_ended,
    DROP CONSTRAINT payments_orders_status_check,
    DROP COLUMN checkout_key,
    ADD COLUMN held_by TEXT COLLATE "C",
    ADD COLUMN held_key TEXT COLLATE "C",
    ADD COLUMN held_fence BIGINT,
    ADD COLUMN held_asked TEXT,
    ADD CONSTRAINT payments_orders_status_check CHECK (status IN ('open', 'paying', 'pending', 'paid', 'declined', 'cancelled'));
UPDATE payments_orders o SET held_by = (SELECT operation FROM payments_charges c WHERE c.id = o.charge_id);
ALTER TABLE payments_orders ADD CONSTRAINT held_while_paid
    CHECK ((status IN ('paying', 'paid')) = (held_by IS NOT NULL));
CREATE INDEX payments_orders_paying ON payments_orders (merchant, held_by) WHERE status = 'paying';

ALTER TABLE payments_refunds
    DROP CONSTRAINT payments_refunds_status_check,
    ADD CONSTRAINT payments_refunds_status_check CHECK (status IN ('pending', 'succeeded', 'failed')),
    ADD COLUMN held_key TEXT COLLATE "C" NOT NULL DEFAULT '',
    ADD COLUMN held_fence BIGINT NOT NULL DEFAULT 0;
ALTER TABLE payments_refunds ALTER COLUMN held_key DROP DEFAULT, ALTER COLUMN held_fence DROP DEFAULT;
CREATE INDEX payments_refunds_pending ON payments_refunds (merchant, operation) WHERE status = 'pending';

ALTER TABLE payments_charges
    DROP CONSTRAINT never_refunded_beyond_amount,
    DROP CONSTRAINT only_succeeded_is_refunded,
    ADD COLUMN reserved BIGINT NOT NULL DEFAULT 0;
UPDATE payments_charges SET reserved = refunded;
ALTER TABLE payments_charges
    ADD CONSTRAINT never_refunded_beyond_amount CHECK (0 <= refunded AND refunded <= reserved AND reserved <= amount),
    ADD CONSTRAINT only_succeeded_is_refunded CHECK (status = 'succeeded' OR reserved = 0);
