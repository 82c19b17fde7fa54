-- setting. ARGV: now, name. Asked by a script, and so of the master.
return { redis.call('HGET', key, ARGV[2]) }
