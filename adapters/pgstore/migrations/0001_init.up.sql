-- Tables of onlyonce for PostgreSQL 14 and later. Names carry no schema: set
-- search_path to put them elsewhere.
--
-- A program needs SELECT, INSERT, UPDATE and DELETE on these tables, and USAGE
-- on their schema; no sequence, no DDL.

CREATE TABLE onlyonce_migrations (
    version    integer     NOT NULL PRIMARY KEY,
    name       text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
);

-- One row a key. The digest of (scope, key) is the only index on every row: 16
-- random bytes are the cheapest thing that is unique (a second random index
-- would double the full-page images of a claim). What a completion changes
-- stands last and is in no index, so that it stays a heap-only update and its
-- WAL record holds little more than the answer.
--
-- Nothing else is indexed, not even the times by which rows expire: such an
-- index would take an entry from every completion. The sweeper walks the table
-- in its physical order instead, window by window. Rows of one time lie
-- together, so it reads in sequence, and deletes what lies side by side.
CREATE TABLE onlyonce_keys (
    -- Stands for the life of the key.
    origin       bigint      NOT NULL,
    retention    bigint      NOT NULL, -- microseconds
    created_at   timestamptz NOT NULL,
    fp_form      integer     NOT NULL,
    abandon      smallint    NOT NULL, -- 0 hold, 1 rerun, 2 resume
    digest       bytea       NOT NULL,
    scope        text COLLATE "C" NOT NULL,
    key          text COLLATE "C" NOT NULL,
    operation    text COLLATE "C" NOT NULL,
    fp_secret    text COLLATE "C" NOT NULL,
    fp_policy    text COLLATE "C" NOT NULL,
    fp_sum       bytea       NOT NULL,
    fp_parts     bytea       NOT NULL,
    -- Changes with the owner.
    attempts     integer     NOT NULL,
    fence        bigint      NOT NULL, -- microseconds of the server's clock, ever rising
    lease_end    timestamptz NOT NULL,
    attempt      bytea       NOT NULL,
    taken_from   smallint    NOT NULL DEFAULT 0, -- the state the owner resumed from; 0: it began this life
    -- Changes when the owner is done.
    state        smallint    NOT NULL DEFAULT 1, -- 1 in_progress, 2 completed, 3 failed_retryable, 4 in_doubt
    doubt        boolean     NOT NULL DEFAULT false, -- state = 4, for the index of what is in doubt
    status       smallint,
    completed_at timestamptz,
    expires_at   timestamptz,
    reason       text        NOT NULL DEFAULT '',
    header       bytea,
    body         bytea, -- NULL: not retained; empty is not NULL

    CONSTRAINT onlyonce_keys_pkey PRIMARY KEY (digest),
    CONSTRAINT onlyonce_keys_bytes CHECK (octet_length(digest) = 16 AND octet_length(attempt) = 16 AND octet_length(fp_sum) = 32),
    CONSTRAINT onlyonce_keys_names CHECK (scope <> '' AND key <> ''),
    CONSTRAINT onlyonce_keys_life CHECK (fence >= origin AND origin > 0 AND attempts > 0 AND retention > 0 AND abandon BETWEEN 0 AND 2),
    CONSTRAINT onlyonce_keys_taken CHECK (taken_from IN (0, 1, 3, 4) AND (taken_from = 0) = (fence = origin)),
    CONSTRAINT onlyonce_keys_state CHECK (state BETWEEN 1 AND 4 AND doubt = (state = 4)),
    CONSTRAINT onlyonce_keys_answer CHECK (
        (state = 2) = (status IS NOT NULL) AND (state = 2) = (completed_at IS NOT NULL)
        AND (state = 2) = (header IS NOT NULL) AND (state = 2 OR body IS NULL)),
    CONSTRAINT onlyonce_keys_expiry CHECK ((state IN (2, 3)) = (expires_at IS NOT NULL))
) WITH (
    -- Room for the completed version beside the claimed one.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    -- See the end of this file.
    vacuum_truncate = false
);

-- What is in doubt, for operators: small, and touched only when a key goes in
-- doubt or comes out of it.
CREATE INDEX onlyonce_keys_doubt ON onlyonce_keys (digest) WHERE doubt;

-- Steps belong to one life of a key (origin) and outlive its row.
CREATE TABLE onlyonce_steps (
    origin      bigint      NOT NULL,
    occurrence  integer     NOT NULL,
    position    integer     NOT NULL, -- order of beginning
    digest      bytea       NOT NULL,
    name        text COLLATE "C" NOT NULL,
    provider    text COLLATE "C" NOT NULL,
    reference   text COLLATE "C" NOT NULL,
    send_within bigint      NOT NULL, -- microseconds
    epoch       integer     NOT NULL,
    derived_key text COLLATE "C" NOT NULL,
    request     bytea       NOT NULL,
    sends       integer     NOT NULL,
    begun_at    timestamptz NOT NULL, -- the first send of this epoch
    sent_at     timestamptz NOT NULL, -- the last one
    ended_at    timestamptz,
    state       smallint    NOT NULL, -- 1 begun, 2 done, 3 not_applied
    result      bytea,

    CONSTRAINT onlyonce_steps_pkey PRIMARY KEY (digest, origin, name, occurrence),
    CONSTRAINT onlyonce_steps_state CHECK (state BETWEEN 1 AND 3 AND sends > 0 AND epoch >= 0 AND occurrence >= 0),
    CONSTRAINT onlyonce_steps_end CHECK ((state = 1) = (ended_at IS NULL) AND (state = 1) = (result IS NULL))
) WITH (
    fillfactor = 70,
    autovacuum_vacuum_scale_factor = 0.05,
    autovacuum_analyze_scale_factor = 0.05,
    vacuum_truncate = false
);

-- Small values that all processes must agree on.
CREATE TABLE onlyonce_settings (
    kind       text COLLATE "C" NOT NULL,
    id         text COLLATE "C" NOT NULL,
    value      bytea       NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT onlyonce_settings_pkey PRIMARY KEY (kind, id)
);

-- What operators did. Nothing here is ever changed or deleted.
CREATE TABLE onlyonce_audit (
    id     bigint      GENERATED ALWAYS AS IDENTITY,
    digest bytea       NOT NULL,
    scope  text COLLATE "C" NOT NULL,
    key    text COLLATE "C" NOT NULL,
    action text        NOT NULL,
    actor  text        NOT NULL,
    reason text        NOT NULL,
    fence  bigint      NOT NULL,
    at     timestamptz NOT NULL,
    CONSTRAINT onlyonce_audit_pkey PRIMARY KEY (digest, id)
);

-- A plan that is made while a table is tiny reads all of it, and a prepared
-- statement keeps that plan while the table grows, until the next ANALYZE.
-- Against this both tables start with some forty pages, which vacuum does not
-- give back: reading them costs more than the index, however few rows there are.
INSERT INTO onlyonce_keys (origin, retention, created_at, fp_form, abandon, digest, scope, key, operation,
    fp_secret, fp_policy, fp_sum, fp_parts, attempts, fence, lease_end, attempt)
SELECT 1, 1, 'epoch', 0, 0, decode(md5(n::text), 'hex'), 'onlyonce', n::text, '',
    '', '', decode(repeat('00', 32), 'hex'), decode(repeat('00', 1500), 'hex'), 1, 1, 'epoch', decode(repeat('00', 16), 'hex')
FROM generate_series(1, 80) n;
DELETE FROM onlyonce_keys;

INSERT INTO onlyonce_steps (origin, occurrence, position, digest, name, provider, reference, send_within, epoch,
    derived_key, request, sends, begun_at, sent_at, state)
SELECT 1, 0, 0, decode(md5(n::text), 'hex'), '', '', '', 0, 0,
    '', decode(repeat('00', 1500), 'hex'), 1, 'epoch', 'epoch', 1
FROM generate_series(1, 120) n;
DELETE FROM onlyonce_steps;

INSERT INTO onlyonce_migrations (version, name) VALUES (1, 'init');
