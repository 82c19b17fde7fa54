-- addsetting: the value that stands. ARGV: now, name, value. It is written again when
-- it is there, since replicas are asked to confirm what this connection has written.
local stands = redis.call('HGET', key, ARGV[2]) or ARGV[3]
redis.call('HSET', key, ARGV[2], stands)
return stands
