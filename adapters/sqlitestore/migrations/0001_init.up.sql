-- Times are microseconds since 1970 by the host's clock, durations microseconds.

CREATE TABLE onlyonce_schema (
    version    INTEGER NOT NULL PRIMARY KEY,
    applied_us INTEGER NOT NULL
) STRICT;

-- One row a key. The digest of (scope, key) is the identity; the two stand
-- beside it, compared byte by byte, to be read and checked. Rows carry answers
-- of any size, so the table has rowids and the digest an index of its own.
CREATE TABLE onlyonce_keys (
    digest       BLOB    NOT NULL PRIMARY KEY CHECK (length(digest) = 16),
    scope        TEXT    NOT NULL COLLATE BINARY,
    key          TEXT    NOT NULL COLLATE BINARY,
    operation    TEXT    NOT NULL,
    fp_form      INTEGER NOT NULL,
    fp_secret    TEXT    NOT NULL,
    fp_policy    TEXT    NOT NULL,
    fp_sum       BLOB    NOT NULL CHECK (length(fp_sum) = 32),
    fp_parts     BLOB    NOT NULL,
    state        TEXT    NOT NULL CHECK (state IN ('in_progress', 'completed', 'failed_retryable', 'in_doubt')),
    fence        INTEGER NOT NULL,
    origin       INTEGER NOT NULL,
    attempt      BLOB    NOT NULL CHECK (length(attempt) = 16),
    attempts     INTEGER NOT NULL CHECK (attempts >= 1),
    abandon      INTEGER NOT NULL CHECK (abandon IN (0, 1, 2)),
    -- The state the present attempt took the key over from; NULL for the
    -- first attempt of a life.
    resumed_from TEXT    CHECK (resumed_from IN ('in_progress', 'failed_retryable', 'in_doubt')),
    reason       TEXT    NOT NULL DEFAULT '',
    -- The answer. A NULL body of a completed key was not retained; an empty
    -- one is empty.
    status       INTEGER CHECK (status BETWEEN 0 AND 999),
    header       BLOB,
    body         BLOB,
    retention_us INTEGER NOT NULL CHECK (retention_us >= 0),
    created_us   INTEGER NOT NULL,
    lease_end_us INTEGER NOT NULL,
    completed_us INTEGER,
    expires_us   INTEGER,

    CONSTRAINT fence_never_below_origin CHECK (origin > 0 AND fence >= origin),
    CONSTRAINT first_attempt_is_origin CHECK ((attempts = 1) = (fence = origin)),
    CONSTRAINT first_attempt_resumes_nothing CHECK ((attempts = 1) = (resumed_from IS NULL)),
    CONSTRAINT answer_when_completed CHECK (
        (state = 'completed') = (status IS NOT NULL)
        AND (state = 'completed') = (header IS NOT NULL)
        AND (state = 'completed') = (completed_us IS NOT NULL)
        AND (state = 'completed' OR body IS NULL)
    ),
    CONSTRAINT only_settled_expires CHECK ((state IN ('completed', 'failed_retryable')) = (expires_us IS NOT NULL))
) STRICT;

-- For the sweep of expired records, and of abandoned attempts.
CREATE INDEX onlyonce_keys_expires ON onlyonce_keys (expires_us) WHERE expires_us IS NOT NULL;
CREATE INDEX onlyonce_keys_lease ON onlyonce_keys (lease_end_us) WHERE state = 'in_progress';
-- For listing what is in doubt.
CREATE INDEX onlyonce_keys_doubt ON onlyonce_keys (digest) WHERE state = 'in_doubt';

-- Steps belong to one life of a key (digest, origin) and outlive it. The id is
-- the order of beginning.
CREATE TABLE onlyonce_steps (
    id             INTEGER PRIMARY KEY,
    digest         BLOB    NOT NULL CHECK (length(digest) = 16),
    origin         INTEGER NOT NULL,
    name           TEXT    NOT NULL COLLATE BINARY,
    occurrence     INTEGER NOT NULL CHECK (occurrence >= 0),
    provider       TEXT    NOT NULL,
    epoch          INTEGER NOT NULL CHECK (epoch >= 0),
    derived_key    TEXT    NOT NULL,
    reference      TEXT    NOT NULL,
    request        BLOB    NOT NULL,
    send_within_us INTEGER NOT NULL CHECK (send_within_us >= 0),
    state          TEXT    NOT NULL CHECK (state IN ('begun', 'done', 'not_applied')),
    result         BLOB,
    sends          INTEGER NOT NULL CHECK (sends >= 1),
    -- First and last send of this epoch; last change of the step.
    begun_us       INTEGER NOT NULL,
    sent_us        INTEGER NOT NULL,
    changed_us     INTEGER NOT NULL,

    CONSTRAINT one_row_a_step UNIQUE (digest, origin, name, occurrence),
    CONSTRAINT result_when_ended CHECK ((state = 'begun') = (result IS NULL))
) STRICT;

CREATE INDEX onlyonce_steps_changed ON onlyonce_steps (changed_us);

CREATE TABLE onlyonce_settings (
    kind  TEXT NOT NULL COLLATE BINARY,
    id    TEXT NOT NULL COLLATE BINARY,
    value BLOB NOT NULL,
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE onlyonce_audit (
    id     INTEGER PRIMARY KEY AUTOINCREMENT,
    digest BLOB    NOT NULL CHECK (length(digest) = 16),
    scope  TEXT    NOT NULL COLLATE BINARY,
    key    TEXT    NOT NULL COLLATE BINARY,
    action TEXT    NOT NULL,
    actor  TEXT    NOT NULL,
    reason TEXT    NOT NULL,
    fence  INTEGER NOT NULL,
    at_us  INTEGER NOT NULL
) STRICT;

CREATE INDEX onlyonce_audit_key ON onlyonce_audit (digest);

INSERT INTO onlyonce_schema (version, applied_us)
VALUES (1, CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER));
