-- complete. ARGV: now, fence, attempt, step retention, status, header, and body
-- unless it is not retained. Gives the answer's expiry; empty: the key is lost.
local row = owned('retention', 'expires')
if not row or row.state == 'failed_retryable' then
  return ''
end
if row.state == 'completed' then
  again(row)
  return row.expires
end
local retention = tonumber(row.retention)
local expires = text(now + retention)
settling()
redis.call('HSET', key, 'state', 'completed', 'reason', '', 'status', ARGV[5], 'header', ARGV[6],
  'completed', text(now), 'expires', expires)
if ARGV[7] then
  redis.call('HSET', key, 'body', ARGV[7])
end
vanish(retention, tonumber(ARGV[4]))
return expires
