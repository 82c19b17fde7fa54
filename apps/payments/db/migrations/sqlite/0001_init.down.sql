DROP VIEW payments_entries;
DROP TABLE payments_transfers;
DROP TABLE payments_order_lines;
DROP TABLE payments_order_names;
DROP TABLE payments_orders;
DROP TABLE payments_products;
DROP TABLE payments_refunds;
DROP TABLE payments_charges;
