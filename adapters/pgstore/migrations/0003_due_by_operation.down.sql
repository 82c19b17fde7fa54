CREATE INDEX IF NOT EXISTS onlyonce_keys_due ON onlyonce_keys (due_at) WHERE due_at IS NOT NULL;
DROP INDEX onlyonce_keys_due_of;
DELETE FROM onlyonce_migrations WHERE version = 3;
