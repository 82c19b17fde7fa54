-- Removes everything, records and steps included. After this a retried request is
-- a new one.
DROP TABLE IF EXISTS onlyonce_portable_sweepers;
DROP TABLE IF EXISTS onlyonce_portable_audit;
DROP TABLE IF EXISTS onlyonce_portable_settings;
DROP TABLE IF EXISTS onlyonce_portable_steps;
DROP TABLE IF EXISTS onlyonce_portable_resources;
DROP TABLE IF EXISTS onlyonce_portable_keys;
DROP TABLE IF EXISTS onlyonce_portable_schema;
