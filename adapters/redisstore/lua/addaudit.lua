-- addaudit keeps an entry once. ARGV: now, id, entry.
redis.call('HSETNX', key, ARGV[2], text(redis.call('HLEN', key)) .. ' ' .. text(now) .. ' ' .. ARGV[3])
return 1
