-- park. ARGV: now, fence, attempt, whether the lease must be over, reason.
local row = owned('lease')
if not row then
  return 0
end
if row.state == 'in_doubt' then
  again(row)
  return 1
end
if row.state ~= 'in_progress' or (ARGV[4] == '1' and now < tonumber(row.lease)) then
  return 0
end
settling()
redis.call('HSET', key, 'state', 'in_doubt', 'reason', ARGV[5])
return 1
