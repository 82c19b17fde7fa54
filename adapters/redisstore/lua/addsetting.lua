-- addsetting: the value that stands. ARGV: now, name, value.
redis.call('HSETNX', key, ARGV[2], ARGV[3])
return redis.call('HGET', key, ARGV[2])
