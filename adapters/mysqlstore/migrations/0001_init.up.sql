-- Tables of onlyonce for MySQL 8.0.16 and later and MariaDB 10.6 and later.
--
-- Each statement can be run again after a crash: MySQL has no transaction around
-- them. A program needs SELECT, INSERT, UPDATE and DELETE on these tables.
--
-- All text is bytes: no collation compares it, no blank pads it. Times are
-- microseconds since 1970 by the server's clock, durations microseconds.

CREATE TABLE IF NOT EXISTS onlyonce_migrations (
    version    INT            NOT NULL PRIMARY KEY,
    name       VARBINARY(255) NOT NULL,
    applied_us BIGINT         NOT NULL
) ENGINE = InnoDB, CHARACTER SET = binary;

-- One row a key, in the order of the digest of (scope, key). There is one other
-- index, for the sweeper. It is in order of time, so that its entries are made at
-- the ends of two ranges, never in the middle: a claim makes one and a completion
-- moves it. What only some keys have, and what would be a second random index on
-- all of them, is in tables of its own.
CREATE TABLE IF NOT EXISTS onlyonce_keys (
    digest       BINARY(16)      NOT NULL PRIMARY KEY,
    scope        VARBINARY(255)  NOT NULL,
    key_value    VARBINARY(255)  NOT NULL,
    operation    VARBINARY(1024) NOT NULL,
    fp_form      INT             NOT NULL,
    fp_secret    VARBINARY(255)  NOT NULL,
    fp_policy    VARBINARY(255)  NOT NULL,
    fp_sum       BINARY(32)      NOT NULL,
    fp_parts     BLOB            NOT NULL,
    state        TINYINT         NOT NULL, -- 1 in_progress, 2 completed, 3 failed_retryable, 4 in_doubt
    fence        BIGINT          NOT NULL,
    origin       BIGINT          NOT NULL,
    attempt      BINARY(16)      NOT NULL,
    attempts     INT             NOT NULL,
    abandon      TINYINT         NOT NULL, -- 0 hold, 1 rerun, 2 resume
    resumed_from TINYINT         NOT NULL, -- the state the owner took the key over from; 0: it began this life
    reason       MEDIUMBLOB      NOT NULL,
    retention_us BIGINT          NOT NULL,
    created_us   BIGINT          NOT NULL,
    lease_us     BIGINT          NOT NULL, -- as last asked for
    lease_end_us BIGINT          NOT NULL,
    renewal      BIGINT          NOT NULL, -- how often this owner has renewed
    completed_us BIGINT,
    expires_us   BIGINT,
    sweep_us     BIGINT, -- when a sweeper has to look: the end of the first lease, the expiry; NULL in doubt
    resource     VARBINARY(255), -- NULL: none was named
    holds        TINYINT         NOT NULL, -- 1: a row of onlyonce_holds says so
    kept         TINYINT         NOT NULL, -- 1: there is a row of onlyonce_kept
    -- The answer. A NULL body of a completed key was not retained; empty is not NULL.
    status       SMALLINT,
    header       MEDIUMBLOB,
    body         LONGBLOB,

    KEY onlyonce_keys_sweep (state, sweep_us),
    CONSTRAINT onlyonce_keys_names CHECK (scope <> '' AND key_value <> ''),
    CONSTRAINT onlyonce_keys_life CHECK (origin > 0 AND fence >= origin AND attempts > 0 AND retention_us > 0 AND abandon IN (0, 1, 2)),
    CONSTRAINT onlyonce_keys_taken CHECK (resumed_from IN (0, 1, 3, 4) AND (resumed_from = 0) = (fence = origin)),
    CONSTRAINT onlyonce_keys_answer CHECK (
        state IN (1, 2, 3, 4) AND (state = 2) = (status IS NOT NULL) AND (state = 2) = (completed_us IS NOT NULL)
        AND (state = 2) = (header IS NOT NULL) AND (state = 2 OR body IS NULL)),
    CONSTRAINT onlyonce_keys_expiry CHECK ((state IN (2, 3)) = (expires_us IS NOT NULL) AND (state = 4) = (sweep_us IS NULL)),
    CONSTRAINT onlyonce_keys_extras CHECK (holds IN (0, 1) AND kept IN (0, 1) AND (holds = 0 OR (resource IS NOT NULL AND state <> 2)))
) ENGINE = InnoDB, CHARACTER SET = binary, ROW_FORMAT = DYNAMIC;

-- Who has a resource. The digest of (scope, resource) is there for as long as no
-- other key of the scope may have it, and its uniqueness decides between two.
CREATE TABLE IF NOT EXISTS onlyonce_holds (
    holds  BINARY(16) NOT NULL PRIMARY KEY,
    digest BINARY(16) NOT NULL
) ENGINE = InnoDB, CHARACTER SET = binary;

-- What is needed to run an operation again without its caller, and when the next
-- turn of a recoverer comes.
CREATE TABLE IF NOT EXISTS onlyonce_kept (
    digest  BINARY(16) NOT NULL PRIMARY KEY,
    turn    INT        NOT NULL, -- how many were given in this life
    turn_us BIGINT     NOT NULL, -- when the next one comes, if it is waited for
    due_us  BIGINT, -- the same; NULL: not before another claim
    request LONGBLOB, -- NULL: it is no longer kept; empty is not NULL

    KEY onlyonce_kept_due (due_us),
    CONSTRAINT onlyonce_kept_turn CHECK (turn >= 0 AND (request IS NOT NULL OR due_us IS NULL))
) ENGINE = InnoDB, CHARACTER SET = binary, ROW_FORMAT = DYNAMIC;

-- Steps belong to one life of a key (origin) and outlive it.
CREATE TABLE IF NOT EXISTS onlyonce_steps (
    digest         BINARY(16)     NOT NULL,
    origin         BIGINT         NOT NULL,
    name           VARBINARY(255) NOT NULL,
    occurrence     INT            NOT NULL,
    position       INT            NOT NULL, -- order of beginning
    provider       VARBINARY(255) NOT NULL,
    epoch          INT            NOT NULL,
    derived_key    VARBINARY(255) NOT NULL,
    reference      VARBINARY(255) NOT NULL,
    send_within_us BIGINT         NOT NULL,
    state          TINYINT        NOT NULL, -- 1 begun, 2 done, 3 not_applied
    sends          INT            NOT NULL,
    begun_us       BIGINT         NOT NULL, -- the first send of this epoch
    sent_us        BIGINT         NOT NULL, -- the last one
    changed_us     BIGINT         NOT NULL,
    request        LONGBLOB       NOT NULL,
    result         LONGBLOB,

    PRIMARY KEY (digest, origin, name, occurrence),
    KEY onlyonce_steps_changed (changed_us),
    CONSTRAINT onlyonce_steps_state CHECK (state IN (1, 2, 3) AND sends > 0 AND epoch >= 0 AND occurrence >= 0 AND (state = 1) = (result IS NULL))
) ENGINE = InnoDB, CHARACTER SET = binary, ROW_FORMAT = DYNAMIC;

-- Small values that all processes must agree on.
CREATE TABLE IF NOT EXISTS onlyonce_settings (
    kind  VARBINARY(255) NOT NULL,
    id    VARBINARY(255) NOT NULL,
    value LONGBLOB       NOT NULL,

    PRIMARY KEY (kind, id)
) ENGINE = InnoDB, CHARACTER SET = binary, ROW_FORMAT = DYNAMIC;

-- What operators did. Nothing here is ever changed or deleted.
CREATE TABLE IF NOT EXISTS onlyonce_audit (
    id        BIGINT         NOT NULL AUTO_INCREMENT PRIMARY KEY,
    digest    BINARY(16)     NOT NULL,
    scope     VARBINARY(255) NOT NULL,
    key_value VARBINARY(255) NOT NULL,
    action    BLOB           NOT NULL,
    actor     BLOB           NOT NULL,
    reason    MEDIUMBLOB     NOT NULL,
    fence     BIGINT         NOT NULL,
    at_us     BIGINT         NOT NULL,

    KEY onlyonce_audit_key (digest)
) ENGINE = InnoDB, CHARACTER SET = binary, ROW_FORMAT = DYNAMIC;

INSERT INTO onlyonce_migrations (version, name, applied_us)
VALUES (1, 'init', TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))
ON DUPLICATE KEY UPDATE version = 1;
