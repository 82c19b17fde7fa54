-- Events that wait to be published. Each is written in the transaction of the charge
-- or refund that it tells of, and deleted, by its own id, once the broker has
-- confirmed it.
CREATE TABLE payments_events (
    seq         BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- Derived from the operation: the same again, should the row be written again.
    id          TEXT COLLATE "C" NOT NULL UNIQUE,
    kind        TEXT COLLATE "C" NOT NULL CHECK (kind IN ('charge.succeeded', 'refund.succeeded')),
    merchant    TEXT COLLATE "C" NOT NULL,
    amount      BIGINT NOT NULL CHECK (amount > 0),
    currency    TEXT COLLATE "C" NOT NULL CHECK (length(currency) = 3),
    -- What is published, byte for byte: a later version of the program would write it
    -- in other bytes.
    payload     TEXT COLLATE "C" NOT NULL,
    occurred_us BIGINT NOT NULL
);

-- The one process that publishes, so that several do not all publish the same. Its
-- right ends by itself if it dies.
CREATE TABLE payments_events_lock (
    id       BIGINT PRIMARY KEY CHECK (id = 1),
    holder   TEXT COLLATE "C" NOT NULL,
    until_us BIGINT NOT NULL
);
INSERT INTO payments_events_lock (id, holder, until_us) VALUES (1, '', 0);
