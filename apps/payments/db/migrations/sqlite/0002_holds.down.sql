DROP INDEX payments_refunds_pending;
DROP INDEX payments_orders_paying;
ALTER TABLE payments_orders DROP COLUMN held_asked;
