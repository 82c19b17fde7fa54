-- renew. ARGV: now, fence, attempt, lease.
local row = owned()
if not row or row.state ~= 'in_progress' then
  return 0
end
settling()
redis.call('HSET', key, 'lease', text(now + tonumber(ARGV[4])))
return 1
