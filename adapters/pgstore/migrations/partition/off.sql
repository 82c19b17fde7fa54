-- Brings answers and kept requests back into the keys' rows. It reads and rewrites
-- every key whose answer is in a partition, while nobody can claim. What has expired
-- is deleted instead. Run it before the numbered down migrations.

ALTER TABLE onlyonce_keys DROP CONSTRAINT onlyonce_keys_answer, DROP CONSTRAINT onlyonce_keys_turn;
DELETE FROM onlyonce_keys WHERE state = 2 AND answer_slot IS NOT NULL AND expires_at <= clock_timestamp();
UPDATE onlyonce_keys SET inline_header = answer_header, inline_body = answer_body
FROM onlyonce_answers WHERE slot = answer_slot AND until = expires_at AND of_key = digest;
ALTER TABLE onlyonce_keys ADD COLUMN keep bytea;
UPDATE onlyonce_keys SET keep = request
FROM onlyonce_requests WHERE slot = keep_slot AND claim = keep_claim AND of_key = digest;
ALTER TABLE onlyonce_keys RENAME COLUMN inline_header TO header;
ALTER TABLE onlyonce_keys RENAME COLUMN inline_body TO body;
ALTER TABLE onlyonce_keys
    DROP COLUMN answer_slot,
    DROP COLUMN keep_slot,
    DROP COLUMN keep_claim,
    ADD CONSTRAINT onlyonce_keys_answer CHECK (
        (state = 2) = (status IS NOT NULL) AND (state = 2) = (completed_at IS NOT NULL)
        AND (state = 2) = (header IS NOT NULL) AND (state = 2 OR body IS NULL)),
    ADD CONSTRAINT onlyonce_keys_turn CHECK (
        turn > 0 AND (keep IS NULL) = (due_at IS NULL) AND (due_at IS NULL OR turn_at IS NOT NULL) AND due_at >= turn_at) NOT VALID;
DROP TABLE onlyonce_answers, onlyonce_requests, onlyonce_partitions;
