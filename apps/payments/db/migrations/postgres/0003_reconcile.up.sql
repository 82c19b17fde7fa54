-- Reconciliation against a provider's reports. Amounts are minor units, times
-- microseconds since 1970.

-- The time by this database's clock, which is that of the keys.
CREATE VIEW payments_clock AS
    SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT) AS now_us;

-- Each reading of a report. Nothing here is deleted.
CREATE TABLE payments_report_runs (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    file        TEXT COLLATE "C" NOT NULL,
    sha256      TEXT COLLATE "C",
    provider    TEXT COLLATE "C" NOT NULL,
    actor       TEXT COLLATE "C" NOT NULL,
    started_us  BIGINT NOT NULL,
    -- NULL: it did not come to its end, and changed nothing or not all.
    finished_us BIGINT,
    -- What was found, as JSON.
    summary     TEXT COLLATE "C"
);

-- The one run that may be at work. Its right ends by itself if it dies.
CREATE TABLE payments_report_lock (
    id       BIGINT PRIMARY KEY CHECK (id = 1),
    run      BIGINT,
    actor    TEXT COLLATE "C" NOT NULL,
    until_us BIGINT NOT NULL
);
INSERT INTO payments_report_lock (id, run, actor, until_us) VALUES (1, NULL, '', 0);

-- The rows of the report that is being read, by their lines. They are deleted at
-- the end of the run; those of a run that died, by the next one.
-- A crash of the server may empty the table: the run then finds that it has lost
-- its rows.
CREATE UNLOGGED TABLE payments_report_rows (
    run         BIGINT NOT NULL,
    line        BIGINT NOT NULL,
    type        TEXT COLLATE "C" NOT NULL CHECK (type IN ('charge', 'refund')),
    provider_id TEXT COLLATE "C" NOT NULL,
    reference   TEXT COLLATE "C" NOT NULL,
    -- NULL: the currency is not one.
    amount      BIGINT,
    currency    TEXT COLLATE "C" NOT NULL,
    shown       TEXT COLLATE "C" NOT NULL,
    created_us  BIGINT NOT NULL,

    PRIMARY KEY (run, line)
);

-- Those of them that no row of the books has, by our reference; normally few. A table
-- of their own, so that no planner goes through all the others.
CREATE UNLOGGED TABLE payments_report_unmatched (
    run         BIGINT NOT NULL,
    type        TEXT COLLATE "C" NOT NULL,
    reference   TEXT COLLATE "C" NOT NULL,
    line        BIGINT NOT NULL,
    provider_id TEXT COLLATE "C" NOT NULL,
    amount      BIGINT,
    currency    TEXT COLLATE "C" NOT NULL,
    shown       TEXT COLLATE "C" NOT NULL,
    -- 1: a key in doubt, or at work, says why the books do not have it yet.
    explained   SMALLINT NOT NULL DEFAULT 0,

    PRIMARY KEY (run, type, reference, line)
);

-- Which rows of the books a report has shown, by their seq: what was once shown is
-- not missing there. Two ids under one reference are one effect too many, also
-- when they are in two reports.
CREATE TABLE payments_reconciled (
    type      TEXT COLLATE "C" NOT NULL CHECK (type IN ('charge', 'refund')),
    seq       BIGINT NOT NULL,
    reference TEXT COLLATE "C" NOT NULL,
    run       BIGINT NOT NULL,

    PRIMARY KEY (type, seq)
);

CREATE INDEX payments_reconciled_reference ON payments_reconciled (type, reference) WHERE reference <> '';

-- What does not agree. Found again, a finding ages; it is not repeated.
CREATE TABLE payments_findings (
    id          BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    provider    TEXT COLLATE "C" NOT NULL,
    kind        TEXT COLLATE "C" NOT NULL,
    type        TEXT COLLATE "C" NOT NULL,
    -- Empty where there is none, so that a finding is one.
    provider_id TEXT COLLATE "C" NOT NULL,
    reference   TEXT COLLATE "C" NOT NULL,
    merchant    TEXT COLLATE "C" NOT NULL,
    operation   TEXT COLLATE "C" NOT NULL,
    ours        TEXT COLLATE "C" NOT NULL,
    theirs      TEXT COLLATE "C" NOT NULL,
    detail      TEXT COLLATE "C" NOT NULL,
    status      TEXT COLLATE "C" NOT NULL CHECK (status IN ('open', 'healed', 'resolved', 'accepted')),
    first_us    BIGINT NOT NULL,
    last_us     BIGINT NOT NULL,
    first_run   BIGINT NOT NULL,
    last_run    BIGINT NOT NULL,
    -- In how many runs it was found.
    runs        BIGINT NOT NULL,
    closed_us   BIGINT,
    -- A run, or a person with a reason.
    closed_by   TEXT COLLATE "C" NOT NULL DEFAULT '',

    UNIQUE (provider, kind, type, provider_id, reference),
    CONSTRAINT closed_when_not_open CHECK ((status = 'open') = (closed_us IS NULL))
);

CREATE INDEX payments_findings_effect ON payments_findings (type, provider_id);
CREATE INDEX payments_findings_status ON payments_findings (status, id);
CREATE INDEX payments_findings_run ON payments_findings (last_run, id);
