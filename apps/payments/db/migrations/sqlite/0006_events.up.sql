-- Events that wait to be published. Each is written in the transaction of the charge
-- or refund that it tells of, and deleted, by its own id, once the broker has
-- confirmed it.
CREATE TABLE payments_events (
    seq         INTEGER PRIMARY KEY AUTOINCREMENT,
    -- Derived from the operation: the same again, should the row be written again.
    id          TEXT NOT NULL UNIQUE,
    kind        TEXT NOT NULL CHECK (kind IN ('charge.succeeded', 'refund.succeeded')),
    merchant    TEXT NOT NULL,
    amount      INTEGER NOT NULL CHECK (amount > 0),
    currency    TEXT NOT NULL CHECK (length(currency) = 3),
    -- What is published, byte for byte: a later version of the program would write it
    -- in other bytes.
    payload     TEXT NOT NULL,
    occurred_us INTEGER NOT NULL
) STRICT;

-- The one process that publishes, so that several do not all publish the same. Its
-- right ends by itself if it dies.
CREATE TABLE payments_events_lock (
    id       INTEGER PRIMARY KEY CHECK (id = 1),
    holder   TEXT NOT NULL,
    until_us INTEGER NOT NULL
) STRICT;
INSERT INTO payments_events_lock (id, holder, until_us) VALUES (1, '', 0);
