-- Moves answers and kept requests out of the keys' rows, beside them, into
-- partitions that are emptied as a whole when all in them has expired.
--
-- {every} is how long the range of one partition is, as an interval, {slots} how many
-- partitions there are that take turns; partition 0 takes what lies in none of their
-- ranges, and is swept row by row. {now} is the time.
--
-- The key's row says in which partition its answer is. It is the key's row that
-- makes (scope, key) unique, so that partitions need not.
--
-- No answer is moved, and no key is read: answers that are there already stay where
-- they are, and are replayed from there until they expire. What is kept of requests
-- is moved; it is as much as there are operations under way and in doubt. Nobody can
-- claim meanwhile. Columns change their names, so that a program that knows nothing
-- of this is refused instead of replaying answers without a body.

ALTER TABLE onlyonce_keys DROP CONSTRAINT onlyonce_keys_answer;
ALTER TABLE onlyonce_keys RENAME COLUMN header TO inline_header;
ALTER TABLE onlyonce_keys RENAME COLUMN body TO inline_body;
ALTER TABLE onlyonce_keys
    ADD COLUMN answer_slot smallint, -- the partition of the answer; NULL: there is none, or it is in this row
    ADD COLUMN keep_slot   smallint, -- the partition of the request that is kept; NULL: none is
    ADD COLUMN keep_claim  bigint;   -- the fence of the claim that it came with

-- The ranges of the partitions. A range lies wholly in the past before its
-- partition is emptied and gets the next one.
CREATE TABLE onlyonce_partitions (
    slot  smallint    NOT NULL PRIMARY KEY,
    since timestamptz NOT NULL,
    upto  timestamptz NOT NULL,
    every interval    NOT NULL, -- how long it is; the same in all
    CONSTRAINT onlyonce_partitions_range CHECK (slot > 0 AND every > interval '0' AND upto - since = every)
) WITH (fillfactor = 50);

INSERT INTO onlyonce_partitions (slot, since, upto, every)
SELECT n, r.since + (n - 1) * r.every, r.since + n * r.every, r.every
FROM generate_series(1, {slots}) n,
    (SELECT {every} AS every, date_bin({every}, {now}, timestamptz '2000-01-01 00:00:00+00') AS since) r;

-- The primary keys grow at their ends: an answer and a request cost no second
-- random index.
CREATE TABLE onlyonce_answers (
    until         timestamptz NOT NULL, -- the key's expires_at
    slot          smallint    NOT NULL,
    of_key        bytea       NOT NULL, -- its digest
    answer_header bytea       NOT NULL,
    answer_body   bytea, -- NULL: not retained; empty is not NULL
    CONSTRAINT onlyonce_answers_pkey PRIMARY KEY (slot, until, of_key)
) PARTITION BY LIST (slot);

CREATE TABLE onlyonce_requests (
    claim   bigint   NOT NULL, -- the fence of the claim that it came with
    slot    smallint NOT NULL,
    of_key  bytea    NOT NULL,
    request bytea    NOT NULL,
    CONSTRAINT onlyonce_requests_pkey PRIMARY KEY (slot, claim, of_key)
) PARTITION BY LIST (slot);

-- What is only inserted and then emptied needs no vacuum. Each partition starts with
-- some forty pages, for the reason that the end of the first migration gives.
DO $$
DECLARE
    part text;
    options text;
BEGIN
    FOREACH part IN ARRAY ARRAY ['answers', 'requests'] LOOP
        FOR n IN 0..{slots} LOOP
            options := 'vacuum_truncate = false, ' || CASE n WHEN 0 THEN 'autovacuum_vacuum_scale_factor = 0.05' ELSE 'autovacuum_vacuum_insert_threshold = -1' END;
            EXECUTE format('CREATE TABLE onlyonce_%1$s_%2$s PARTITION OF onlyonce_%1$s FOR VALUES IN (%2$s) WITH (%3$s)', part, n, options);
        END LOOP;
    END LOOP;
END $$;

INSERT INTO onlyonce_answers (slot, until, of_key, answer_header)
SELECT p, 'epoch', decode(md5(n::text), 'hex'), decode(repeat('00', 1500), 'hex') FROM generate_series(0, {slots}) p, generate_series(1, 200) n;
DELETE FROM onlyonce_answers;
INSERT INTO onlyonce_requests (slot, claim, of_key, request)
SELECT p, 0, decode(md5(n::text), 'hex'), decode(repeat('00', 1500), 'hex') FROM generate_series(0, {slots}) p, generate_series(1, 200) n;
DELETE FROM onlyonce_requests;

INSERT INTO onlyonce_requests (slot, claim, of_key, request)
SELECT 0, fence, digest, keep FROM onlyonce_keys WHERE due_at IS NOT NULL;

ALTER TABLE onlyonce_keys DROP CONSTRAINT onlyonce_keys_turn;
UPDATE onlyonce_keys SET keep_slot = 0, keep_claim = fence WHERE due_at IS NOT NULL;
ALTER TABLE onlyonce_keys DROP COLUMN keep;

-- Not valid, so that the rows that are there are not read.
ALTER TABLE onlyonce_keys
    ADD CONSTRAINT onlyonce_keys_answer CHECK (
        (state = 2) = (status IS NOT NULL) AND (state = 2) = (completed_at IS NOT NULL)
        AND (state = 2) = (num_nonnulls(inline_header, answer_slot) = 1) AND num_nonnulls(inline_header, answer_slot) < 2
        AND (inline_header IS NOT NULL OR inline_body IS NULL)) NOT VALID,
    ADD CONSTRAINT onlyonce_keys_turn CHECK (
        turn > 0 AND (keep_claim IS NULL) = (due_at IS NULL) AND (keep_claim IS NULL) = (keep_slot IS NULL)
        AND (due_at IS NULL OR turn_at IS NOT NULL) AND due_at >= turn_at) NOT VALID;

-- Who may work with the keys may work with what is beside them. Emptying partitions
-- takes TRUNCATE on each of them besides, which their owner has.
DO $$
DECLARE
    owner text;
    named record;
    granted record;
BEGIN
    SELECT quote_ident(pg_get_userbyid(relowner)) INTO owner FROM pg_class WHERE oid = 'onlyonce_keys'::regclass;
    FOR named IN
        SELECT 'onlyonce_partitions'::regclass AS part
        UNION ALL SELECT relid FROM pg_partition_tree('onlyonce_answers') UNION ALL SELECT relid FROM pg_partition_tree('onlyonce_requests')
    LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO %s', named.part, owner);
    END LOOP;
    FOR granted IN
        SELECT a.privilege_type AS what, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(a.grantee)) END AS whom
        FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) a
        WHERE c.oid = 'onlyonce_keys'::regclass AND a.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE') AND a.grantee <> c.relowner
    LOOP
        EXECUTE format('GRANT %s ON onlyonce_partitions, onlyonce_answers, onlyonce_requests TO %s', granted.what, granted.whom);
    END LOOP;
END $$;
