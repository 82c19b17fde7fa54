DROP TABLE payments_findings;
DROP TABLE payments_reconciled;
DROP TABLE payments_report_unmatched;
DROP TABLE payments_report_rows;
DROP TABLE payments_report_lock;
DROP TABLE payments_report_runs;
DROP VIEW payments_clock;
