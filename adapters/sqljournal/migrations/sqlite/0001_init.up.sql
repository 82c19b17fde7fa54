-- The journal of a client of onlyonce, for SQLite 3.42 and later.
--
-- Each statement can be run again after a crash. Times are microseconds since 1970:
-- those of entries by their makers' clocks, those of locks by the host's.

-- One row an operation. An open one is all there is of an effect that may have
-- happened: nothing but its answer ends it.
CREATE TABLE IF NOT EXISTS onlyonce_journal (
    intent          TEXT    NOT NULL PRIMARY KEY,
    idempotency_key TEXT    NOT NULL,
    method          TEXT    NOT NULL,
    target          TEXT    NOT NULL,
    header          BLOB    NOT NULL, -- JSON: names and lists of values in base64
    body            BLOB    NOT NULL,
    created_us      INTEGER NOT NULL,
    state           TEXT    NOT NULL CHECK (state IN ('open', 'answered', 'refused', 'not_sent')),
    attempts        INTEGER NOT NULL CHECK (attempts >= 0),
    status          INTEGER, -- NULL: the server has said nothing
    answer_header   BLOB,
    answer_body     BLOB,
    note            TEXT    NOT NULL,
    ended_us        INTEGER,
    maker           BLOB    NOT NULL, -- the call that made the row
    locker          BLOB, -- the call that works on it
    locked_until_us INTEGER NOT NULL,
    version         INTEGER NOT NULL, -- grows with every change
    CHECK ((status IS NULL) = (answer_header IS NULL) AND (status IS NULL) = (answer_body IS NULL)),
    CHECK (state <> 'open' OR ended_us IS NULL)
) STRICT;

CREATE INDEX IF NOT EXISTS onlyonce_journal_open ON onlyonce_journal (created_us, intent) WHERE state = 'open';

CREATE INDEX IF NOT EXISTS onlyonce_journal_ended ON onlyonce_journal (ended_us) WHERE ended_us IS NOT NULL;

CREATE TABLE IF NOT EXISTS onlyonce_journal_versions (
    version INTEGER NOT NULL PRIMARY KEY
) STRICT;

INSERT INTO onlyonce_journal_versions (version) VALUES (1) ON CONFLICT DO NOTHING;
