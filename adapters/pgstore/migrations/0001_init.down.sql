-- Removes everything, records and steps included. After this a retried request
-- is a new one.
DROP TABLE onlyonce_audit;
DROP TABLE onlyonce_settings;
DROP TABLE onlyonce_steps;
DROP TABLE onlyonce_keys;
DROP TABLE onlyonce_migrations;
