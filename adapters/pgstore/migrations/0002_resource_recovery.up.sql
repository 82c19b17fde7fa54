-- What an operation works on, and which key may have it; what is needed to run an
-- operation again without its caller, and when its next turn comes.
--
-- Nothing is rewritten. The indexes are empty at first, but each takes one look at
-- the whole table, while nobody can claim. To upgrade a table that is too big for
-- that, run the statement that adds the columns and the two that make the indexes
-- before this file, the latter as CREATE INDEX CONCURRENTLY: what is there already
-- is left as it is. Programs of version 1 work on with these tables.
--
-- A key that names no resource and keeps nothing has NULL in all of the new
-- columns, which is eight bytes a row at most. It is in neither index, and completing
-- it stays a heap-only update.

ALTER TABLE onlyonce_keys
    ADD COLUMN IF NOT EXISTS resource text COLLATE "C", -- NULL: none was named
    ADD COLUMN IF NOT EXISTS holds    bytea, -- the digest of scope and resource, while no other key may have it
    ADD COLUMN IF NOT EXISTS keep     bytea, -- NULL: nothing is kept; empty is not NULL
    ADD COLUMN IF NOT EXISTS turn     integer, -- how many turns a recoverer was given in this life; NULL: none
    ADD COLUMN IF NOT EXISTS turn_at  timestamptz, -- when the next turn comes, if anything is kept by then
    ADD COLUMN IF NOT EXISTS due_at   timestamptz; -- when to look for it: turn_at, or later while a lease is known to run on; NULL where nothing is kept

-- Not valid, so that the rows that are there are not read: they have NULL.
ALTER TABLE onlyonce_keys
    ADD CONSTRAINT onlyonce_keys_resource CHECK (holds IS NULL OR (octet_length(holds) = 16 AND resource IS NOT NULL)) NOT VALID,
    ADD CONSTRAINT onlyonce_keys_turn CHECK (
        turn > 0 AND (keep IS NULL) = (due_at IS NULL) AND (due_at IS NULL OR turn_at IS NOT NULL) AND due_at >= turn_at) NOT VALID;

-- One holder a resource, whoever claims.
CREATE UNIQUE INDEX IF NOT EXISTS onlyonce_keys_holds ON onlyonce_keys (holds) WHERE holds IS NOT NULL;

-- What is kept, those longest due first.
CREATE INDEX IF NOT EXISTS onlyonce_keys_due ON onlyonce_keys (due_at) WHERE due_at IS NOT NULL;

DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_index WHERE indexrelid IN ('onlyonce_keys_holds'::regclass, 'onlyonce_keys_due'::regclass) AND NOT indisvalid) THEN
        RAISE EXCEPTION 'an index that was made beforehand is not valid: drop it, and make it again';
    END IF;
END $$;

INSERT INTO onlyonce_migrations (version, name) VALUES (2, 'resource_recovery');
