-- The journal of a client of onlyonce, for MySQL 8.0.16 and MariaDB 10.6, and later.
--
-- Each statement can be run again after a crash. A program needs SELECT, INSERT,
-- UPDATE and DELETE on onlyonce_journal, and SELECT on onlyonce_journal_versions.
-- Times are microseconds since 1970: those of entries by their makers' clocks, those
-- of locks by the server's.
--
-- All text is bytes: no collation compares it, no blank pads it.

-- One row an operation. An open one is all there is of an effect that may have
-- happened: nothing but its answer ends it.
CREATE TABLE IF NOT EXISTS onlyonce_journal (
    intent          VARBINARY(255)  NOT NULL PRIMARY KEY,
    idempotency_key VARBINARY(1024) NOT NULL,
    method          VARBINARY(255)  NOT NULL,
    target          MEDIUMBLOB      NOT NULL,
    header          LONGBLOB        NOT NULL, -- JSON: names and lists of values in base64
    body            LONGBLOB        NOT NULL,
    created_us      BIGINT          NOT NULL,
    state           VARBINARY(16)   NOT NULL,
    attempts        INT             NOT NULL,
    status          INT, -- NULL: the server has said nothing
    answer_header   LONGBLOB,
    answer_body     LONGBLOB,
    note            LONGBLOB        NOT NULL,
    ended_us        BIGINT,
    maker           BINARY(16)      NOT NULL, -- the call that made the row
    locker          BINARY(16), -- the call that works on it
    locked_until_us BIGINT          NOT NULL,
    version         BIGINT          NOT NULL, -- grows with every change

    KEY onlyonce_journal_open (state, created_us, intent),
    KEY onlyonce_journal_ended (ended_us),
    CONSTRAINT onlyonce_journal_state CHECK (state IN ('open', 'answered', 'refused', 'not_sent') AND attempts >= 0),
    CONSTRAINT onlyonce_journal_answer CHECK ((status IS NULL) = (answer_header IS NULL) AND (status IS NULL) = (answer_body IS NULL)),
    CONSTRAINT onlyonce_journal_ended CHECK (state <> 'open' OR ended_us IS NULL)
) ENGINE = InnoDB, CHARACTER SET = binary, ROW_FORMAT = DYNAMIC;

CREATE TABLE IF NOT EXISTS onlyonce_journal_versions (
    version INT NOT NULL PRIMARY KEY
) ENGINE = InnoDB;

INSERT INTO onlyonce_journal_versions (version) VALUES (1) ON DUPLICATE KEY UPDATE version = 1;
