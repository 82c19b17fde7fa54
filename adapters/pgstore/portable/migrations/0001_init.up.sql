-- Tables of onlyonce for engines that speak PostgreSQL's protocol. Every statement
-- stands alone and may be repeated; none needs to share a transaction with another.
-- Names carry no schema. The scope is the first column wherever there is one, which
-- is what rows are to be distributed by.
--
-- Text carries no collation clause: it is compared for being equal, which is by its
-- bytes under every deterministic collation, and never folded. Times are
-- microseconds since 1970, durations microseconds.

CREATE TABLE IF NOT EXISTS onlyonce_portable_schema (
    version bigint NOT NULL,
    PRIMARY KEY (version)
);

-- One row a key. version rises with every change of the row, and every change names
-- the version it was decided by.
CREATE TABLE IF NOT EXISTS onlyonce_portable_keys (
    scope         text    NOT NULL,
    key           text    NOT NULL,
    operation     text    NOT NULL,
    fp_form       bigint  NOT NULL,
    fp_secret     text    NOT NULL,
    fp_policy     text    NOT NULL,
    fp_sum        bytea   NOT NULL,
    fp_parts      bytea   NOT NULL,
    state         bigint  NOT NULL, -- 1 in_progress, 2 completed, 3 failed_retryable, 4 in_doubt
    fence         bigint  NOT NULL,
    origin        bigint  NOT NULL,
    attempt       bytea   NOT NULL,
    attempts      bigint  NOT NULL,
    abandon       bigint  NOT NULL, -- 0 hold, 1 rerun, 2 resume
    resumed_from  bigint  NOT NULL, -- a state; 0: the attempt began this life
    reason        text    NOT NULL,
    status        bigint,
    header        bytea,
    body          bytea, -- NULL: not retained; empty is not NULL
    retention_us  bigint  NOT NULL,
    lease_us      bigint  NOT NULL, -- how long the lease was last granted for
    renewal       bigint  NOT NULL, -- counts renewals of this attempt's lease
    created_us    bigint  NOT NULL,
    lease_end_us  bigint  NOT NULL,
    completed_us  bigint,
    expires_us    bigint,
    resource      text    NOT NULL, -- empty: none was named
    holds         boolean NOT NULL, -- there is a row of this key in onlyonce_portable_resources
    keep          bytea, -- NULL: nothing is kept; empty is not NULL
    turn          bigint  NOT NULL, -- turns that a recoverer was given in this life
    turn_us       bigint  NOT NULL, -- when the next one comes
    due_us        bigint, -- when to look for it: not before the lease is over; NULL: not before another claim
    steps         bigint  NOT NULL, -- how many were begun in this life
    version       bigint  NOT NULL,
    PRIMARY KEY (scope, key),
    CONSTRAINT onlyonce_portable_keys_life CHECK (origin > 0 AND fence >= origin AND attempts > 0 AND retention_us > 0 AND lease_us > 0),
    CONSTRAINT onlyonce_portable_keys_state CHECK (state >= 1 AND state <= 4),
    CONSTRAINT onlyonce_portable_keys_answer CHECK ((state = 2) = (status IS NOT NULL)),
    CONSTRAINT onlyonce_portable_keys_expiry CHECK ((state = 2 OR state = 3) = (expires_us IS NOT NULL))
);

-- For the sweep, for recoverers and for listing by state.
CREATE INDEX IF NOT EXISTS onlyonce_portable_keys_expires ON onlyonce_portable_keys (expires_us);
CREATE INDEX IF NOT EXISTS onlyonce_portable_keys_lease ON onlyonce_portable_keys (state, lease_end_us);
CREATE INDEX IF NOT EXISTS onlyonce_portable_keys_due ON onlyonce_portable_keys (due_us);
CREATE INDEX IF NOT EXISTS onlyonce_portable_keys_listed ON onlyonce_portable_keys (state, scope, key);

-- Who holds a resource. A table of its own, because its uniqueness begins with the
-- scope and ends with the hold.
CREATE TABLE IF NOT EXISTS onlyonce_portable_resources (
    scope    text NOT NULL,
    resource text NOT NULL,
    key      text NOT NULL,
    PRIMARY KEY (scope, resource)
);

-- Steps belong to one life of a key (origin) and outlive its row.
CREATE TABLE IF NOT EXISTS onlyonce_portable_steps (
    scope          text   NOT NULL,
    key            text   NOT NULL,
    origin         bigint NOT NULL,
    name           text   NOT NULL,
    occurrence     bigint NOT NULL,
    ordinal        bigint NOT NULL, -- order of beginning
    provider       text   NOT NULL,
    epoch          bigint NOT NULL,
    derived_key    text   NOT NULL,
    reference      text   NOT NULL,
    request        bytea  NOT NULL,
    send_within_us bigint NOT NULL,
    state          bigint NOT NULL, -- 1 begun, 2 done, 3 not_applied
    result         bytea,
    sends          bigint NOT NULL,
    begun_us       bigint NOT NULL, -- the first send of this epoch
    sent_us        bigint NOT NULL, -- the last one
    changed_us     bigint NOT NULL,
    PRIMARY KEY (scope, key, origin, name, occurrence),
    CONSTRAINT onlyonce_portable_steps_state CHECK (state >= 1 AND state <= 3 AND (state = 1) = (result IS NULL))
);

CREATE INDEX IF NOT EXISTS onlyonce_portable_steps_changed ON onlyonce_portable_steps (changed_us);

-- Small values that all processes must agree on. They are of no tenant.
CREATE TABLE IF NOT EXISTS onlyonce_portable_settings (
    kind  text  NOT NULL,
    id    text  NOT NULL,
    value bytea NOT NULL,
    PRIMARY KEY (kind, id)
);

-- What operators did. Nothing here is ever changed or deleted.
CREATE TABLE IF NOT EXISTS onlyonce_portable_audit (
    scope   text   NOT NULL,
    key     text   NOT NULL,
    ordinal bigint NOT NULL, -- counts the entries of a key
    action  text   NOT NULL,
    actor   text   NOT NULL,
    reason  text   NOT NULL,
    fence   bigint NOT NULL,
    at_us   bigint NOT NULL,
    PRIMARY KEY (scope, key, ordinal)
);

-- Who sweeps, so that several do not do the same work. Nothing depends on it.
CREATE TABLE IF NOT EXISTS onlyonce_portable_sweepers (
    name     text   NOT NULL,
    owner    bytea  NOT NULL,
    until_us bigint NOT NULL,
    PRIMARY KEY (name)
);
