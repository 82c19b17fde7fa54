-- What the charge asks for that is paying an order: should an operator settle its
-- key, this is what is written down of it.
ALTER TABLE payments_orders ADD COLUMN held_asked TEXT;

-- What operations hold, which is looked through all the time.
CREATE INDEX payments_orders_paying ON payments_orders (merchant, held_by) WHERE status = 'paying';
CREATE INDEX payments_refunds_pending ON payments_refunds (merchant, operation) WHERE status = 'pending';
