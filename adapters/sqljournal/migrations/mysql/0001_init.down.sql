-- Removes the journal, open entries included: what they may have done is then known
-- to nobody. The list of versions goes last, so that all of this can be run again.
DROP TABLE IF EXISTS onlyonce_journal;

DROP TABLE IF EXISTS onlyonce_journal_versions;
