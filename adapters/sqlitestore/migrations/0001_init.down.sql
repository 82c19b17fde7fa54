DROP TABLE onlyonce_audit;
DROP TABLE onlyonce_settings;
DROP TABLE onlyonce_steps;
DROP TABLE onlyonce_keys;
DROP TABLE onlyonce_schema;
