-- Who holds a resource, and what was kept of requests, is lost: settle what is in
-- doubt first. Everything else stays.
ALTER TABLE onlyonce_keys
    DROP COLUMN due_at, -- and with them what is made of them
    DROP COLUMN turn_at,
    DROP COLUMN turn,
    DROP COLUMN keep,
    DROP COLUMN holds,
    DROP COLUMN resource;
DELETE FROM onlyonce_migrations WHERE version = 2;
