-- What is kept is found by its operation, so that a recoverer does not read past
-- what is due of operations it does not know.
--
-- The index takes the place of the one by time alone. It is empty where nothing is
-- kept, but making it takes one look at the whole table, while nobody can claim. To
-- upgrade a table that is too big for that, run the statement that makes it before
-- this file, as CREATE INDEX CONCURRENTLY: what is there already is left as it is.
-- Programs of version 2 work on with these tables; their recoverers read more of
-- them until they are replaced.

CREATE INDEX IF NOT EXISTS onlyonce_keys_due_of ON onlyonce_keys (operation, due_at) WHERE due_at IS NOT NULL;

DO $$ BEGIN
    IF EXISTS (SELECT FROM pg_index WHERE indexrelid = 'onlyonce_keys_due_of'::regclass AND NOT indisvalid) THEN
        RAISE EXCEPTION 'an index that was made beforehand is not valid: drop it, and make it again';
    END IF;
END $$;

DROP INDEX onlyonce_keys_due;

INSERT INTO onlyonce_migrations (version, name) VALUES (3, 'due_by_operation');
