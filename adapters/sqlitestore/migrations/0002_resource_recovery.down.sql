-- Who holds a resource, and what was kept of requests, is lost: settle what is
-- in doubt first.
DROP INDEX onlyonce_keys_due;
DROP INDEX onlyonce_keys_holds;
ALTER TABLE onlyonce_keys DROP COLUMN due_us;
ALTER TABLE onlyonce_keys DROP COLUMN turn;
ALTER TABLE onlyonce_keys DROP COLUMN keep;
ALTER TABLE onlyonce_keys DROP COLUMN holds;
ALTER TABLE onlyonce_keys DROP COLUMN resource;
DELETE FROM onlyonce_schema WHERE version = 2;
