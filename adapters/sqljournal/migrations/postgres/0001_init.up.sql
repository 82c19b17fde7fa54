-- The journal of a client of onlyonce, for PostgreSQL 14 and later.
--
-- Each statement can be run again after a crash. A program needs SELECT, INSERT,
-- UPDATE and DELETE on onlyonce_journal, and SELECT on onlyonce_journal_versions.
-- Times are microseconds since 1970: those of entries by their makers' clocks, those
-- of locks by the server's.

-- One row an operation. An open one is all there is of an effect that may have
-- happened: nothing but its answer ends it.
CREATE TABLE IF NOT EXISTS onlyonce_journal (
    intent          text COLLATE "C" NOT NULL PRIMARY KEY,
    idempotency_key text    NOT NULL,
    method          text    NOT NULL,
    target          text    NOT NULL,
    header          bytea   NOT NULL, -- JSON: names and lists of values in base64
    body            bytea   NOT NULL,
    created_us      bigint  NOT NULL,
    state           text    NOT NULL CHECK (state IN ('open', 'answered', 'refused', 'not_sent')),
    attempts        integer NOT NULL CHECK (attempts >= 0),
    status          integer, -- NULL: the server has said nothing
    answer_header   bytea,
    answer_body     bytea,
    note            text    NOT NULL,
    ended_us        bigint,
    maker           bytea   NOT NULL, -- the call that made the row
    locker          bytea, -- the call that works on it
    locked_until_us bigint  NOT NULL,
    version         bigint  NOT NULL, -- grows with every change
    CHECK ((status IS NULL) = (answer_header IS NULL) AND (status IS NULL) = (answer_body IS NULL)),
    CHECK (state <> 'open' OR ended_us IS NULL)
);

CREATE INDEX IF NOT EXISTS onlyonce_journal_open ON onlyonce_journal (created_us, intent) WHERE state = 'open';

CREATE INDEX IF NOT EXISTS onlyonce_journal_ended ON onlyonce_journal (ended_us) WHERE ended_us IS NOT NULL;

CREATE TABLE IF NOT EXISTS onlyonce_journal_versions (
    version integer NOT NULL PRIMARY KEY
);

INSERT INTO onlyonce_journal_versions (version) VALUES (1) ON CONFLICT DO NOTHING;
