-- Removes everything, records and steps included. After this a retried request is
-- a new one. The list of migrations goes last: a crash on the way leaves it, and all
-- of this can be run again.
DROP TABLE IF EXISTS onlyonce_audit;
DROP TABLE IF EXISTS onlyonce_settings;
DROP TABLE IF EXISTS onlyonce_steps;
DROP TABLE IF EXISTS onlyonce_kept;
DROP TABLE IF EXISTS onlyonce_holds;
DROP TABLE IF EXISTS onlyonce_keys;
DROP TABLE IF EXISTS onlyonce_migrations;
