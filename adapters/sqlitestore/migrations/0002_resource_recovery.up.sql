-- What an operation works on, and who may have it; what is needed to run an
-- operation again without its caller, and when its next turn comes.

-- NULL: the key has named no resource.
ALTER TABLE onlyonce_keys ADD COLUMN resource TEXT COLLATE BINARY;

-- The digest of (scope, resource) for as long as no other key of the scope may
-- have it.
ALTER TABLE onlyonce_keys ADD COLUMN holds BLOB
    CONSTRAINT holds_until_completed CHECK (
        holds IS NULL OR (length(holds) = 16 AND resource IS NOT NULL AND state <> 'completed'));

-- NULL: nothing is kept. Empty is kept.
ALTER TABLE onlyonce_keys ADD COLUMN keep BLOB
    CONSTRAINT kept_until_completed CHECK (keep IS NULL OR state <> 'completed');

-- How many turns a recoverer was given in this life, and when the next comes: 0
-- at once; below 0 not before another claim, and then not before that time with
-- its sign changed; NULL not before another claim.
ALTER TABLE onlyonce_keys ADD COLUMN turn INTEGER NOT NULL DEFAULT 0
    CONSTRAINT turns_count_up CHECK (turn >= 0);
ALTER TABLE onlyonce_keys ADD COLUMN due_us INTEGER
    CONSTRAINT due_only_when_kept CHECK (due_us IS NULL OR due_us < 0 OR keep IS NOT NULL);

-- One holder a resource, whoever claims.
CREATE UNIQUE INDEX onlyonce_keys_holds ON onlyonce_keys (holds) WHERE holds IS NOT NULL;
-- For what is due, those longest due first.
CREATE INDEX onlyonce_keys_due ON onlyonce_keys (due_us) WHERE due_us IS NOT NULL;

INSERT INTO onlyonce_schema (version, applied_us)
VALUES (2, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER));
