-- A provider need not give a name to what it declines: NULL is none, of which
-- there may be many. What has moved money always has one.
ALTER TABLE payments_charges ALTER COLUMN processor_id DROP NOT NULL;
UPDATE payments_charges SET processor_id = NULL WHERE processor_id = '' AND status = 'failed';
ALTER TABLE payments_charges ADD CONSTRAINT processor_knows_succeeded CHECK (status <> 'succeeded' OR processor_id IS NOT NULL);
