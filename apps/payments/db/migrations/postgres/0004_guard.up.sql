-- Who pays an order or refunds a charge is held by the store of keys now, not by
-- these rows. What is held the old way would be lost with the columns, and with it
-- the knowledge that money may have moved: then nothing is changed.
DO $$
BEGIN
    IF EXISTS (SELECT FROM payments_orders WHERE status = 'paying') OR EXISTS (SELECT FROM payments_refunds WHERE status = 'pending') THEN
        RAISE EXCEPTION 'an order is being paid, or a refund is pending: with the program of before, send those requests again with their keys or settle the keys, then migrate';
    END IF;
END $$;

ALTER TABLE payments_charges
    DROP CONSTRAINT never_refunded_beyond_amount,
    DROP CONSTRAINT only_succeeded_is_refunded,
    DROP COLUMN reserved,
    ADD CONSTRAINT never_refunded_beyond_amount CHECK (0 <= refunded AND refunded <= amount),
    ADD CONSTRAINT only_succeeded_is_refunded CHECK (status = 'succeeded' OR refunded = 0);

DROP INDEX payments_refunds_pending;
ALTER TABLE payments_refunds
    DROP COLUMN held_key,
    DROP COLUMN held_fence,
    DROP CONSTRAINT payments_refunds_status_check,
    ADD CONSTRAINT payments_refunds_status_check CHECK (status IN ('succeeded', 'failed'));

DROP INDEX payments_orders_paying;
ALTER TABLE payments_orders
    DROP CONSTRAINT held_while_paid,
    DROP CONSTRAINT payments_orders_status_check,
    DROP COLUMN held_by,
    DROP COLUMN held_key,
    DROP COLUMN held_fence,
    DROP COLUMN held_asked,
    -- The key of the checkout that made the order, until it has ended.
    ADD COLUMN checkout_key TEXT COLLATE "C",
    -- The order of a checkout is pending, then paid, declined or cancelled.
    ADD CONSTRAINT payments_orders_status_check CHECK (status IN ('open', 'pending', 'paid', 'declined', 'cancelled')),
    ADD CONSTRAINT checkout_until_ended CHECK ((status = 'pending') = (checkout_key IS NOT NULL));

-- For checkouts that nobody goes on with.
CREATE INDEX payments_orders_pending ON payments_orders (seq) WHERE status = 'pending';
