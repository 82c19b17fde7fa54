-- Events that were not published yet are gone with their table.
DROP TABLE payments_events_lock;
DROP TABLE payments_events;
