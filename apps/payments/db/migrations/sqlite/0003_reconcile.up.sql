-- Reconciliation against a provider's reports. Amounts are minor units, times
-- microseconds since 1970.

-- The time by this database's clock, which is that of the keys.
CREATE VIEW payments_clock AS
    SELECT CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER) AS now_us;

-- Each reading of a report. Nothing here is deleted.
CREATE TABLE payments_report_runs (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    file        TEXT NOT NULL,
    sha256      TEXT,
    provider    TEXT NOT NULL,
    actor       TEXT NOT NULL,
    started_us  INTEGER NOT NULL,
    -- NULL: it did not come to its end, and changed nothing or not all.
    finished_us INTEGER,
    -- What was found, as JSON.
    summary     TEXT
) STRICT;

-- The one run that may be at work. Its right ends by itself if it dies.
CREATE TABLE payments_report_lock (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    run      INTEGER,
    actor    TEXT NOT NULL,
    until_us INTEGER NOT NULL
) STRICT;
INSERT INTO payments_report_lock (id, run, actor, until_us) VALUES (1, NULL, '', 0);

-- The rows of the report that is being read, by their lines. They are deleted at
-- the end of the run; those of a run that died, by the next one.
CREATE TABLE payments_report_rows (
    run         INTEGER NOT NULL,
    line        INTEGER NOT NULL,
    type        TEXT NOT NULL CHECK (type IN ('charge', 'refund')),
    provider_id TEXT NOT NULL,
    reference   TEXT NOT NULL,
    -- NULL: the currency is not one.
    amount      INTEGER,
    currency    TEXT NOT NULL,
    shown       TEXT NOT NULL,
    created_us  INTEGER NOT NULL,

    PRIMARY KEY (run, line)
) STRICT, WITHOUT ROWID;

-- Those of them that no row of the books has, by our reference; normally few. A table
-- of their own, so that no planner goes through all the others.
CREATE TABLE payments_report_unmatched (
    run         INTEGER NOT NULL,
    type        TEXT NOT NULL,
    reference   TEXT NOT NULL,
    line        INTEGER NOT NULL,
    provider_id TEXT NOT NULL,
    amount      INTEGER,
    currency    TEXT NOT NULL,
    shown       TEXT NOT NULL,
    -- 1: a key in doubt, or at work, says why the books do not have it yet.
    explained   INTEGER NOT NULL DEFAULT 0,

    PRIMARY KEY (run, type, reference, line)
) STRICT, WITHOUT ROWID;

-- Which rows of the books a report has shown, by their seq: what was once shown is
-- not missing there. Two ids under one reference are one effect too many, also
-- when they are in two reports. There is no index on references: each insertion
-- would write another page of it, and they are looked for in one go.
CREATE TABLE payments_reconciled (
    type      TEXT NOT NULL CHECK (type IN ('charge', 'refund')),
    seq       INTEGER NOT NULL,
    reference TEXT NOT NULL,
    run       INTEGER NOT NULL,

    PRIMARY KEY (type, seq)
) STRICT, WITHOUT ROWID;

-- What does not agree. Found again, a finding ages; it is not repeated.
CREATE TABLE payments_findings (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    provider    TEXT NOT NULL,
    kind        TEXT NOT NULL,
    type        TEXT NOT NULL,
    -- Empty where there is none, so that a finding is one.
    provider_id TEXT NOT NULL,
    reference   TEXT NOT NULL,
    merchant    TEXT NOT NULL,
    operation   TEXT NOT NULL,
    ours        TEXT NOT NULL,
    theirs      TEXT NOT NULL,
    detail      TEXT NOT NULL,
    status      TEXT NOT NULL CHECK (status IN ('open', 'healed', 'resolved', 'accepted')),
    first_us    INTEGER NOT NULL,
    last_us     INTEGER NOT NULL,
    first_run   INTEGER NOT NULL,
    last_run    INTEGER NOT NULL,
    -- In how many runs it was found.
    runs        INTEGER NOT NULL,
    closed_us   INTEGER,
    -- A run, or a person with a reason.
    closed_by   TEXT NOT NULL DEFAULT '',

    UNIQUE (provider, kind, type, provider_id, reference),
    CONSTRAINT closed_when_not_open CHECK ((status = 'open') = (closed_us IS NULL))
) STRICT;

CREATE INDEX payments_findings_effect ON payments_findings (type, provider_id);
CREATE INDEX payments_findings_status ON payments_findings (status, id);
CREATE INDEX payments_findings_run ON payments_findings (last_run, id);
