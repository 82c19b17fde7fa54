-- sweep: housekeeping of one key, as a takeover would decide. ARGV: now, grace,
-- step retention of this sweep, most steps to delete, step retention of the
-- store, freed retention, and the reasons: abandoned, unfinished step, unanswered
-- step, swept free. Gives how many were deleted, freed, parked, steps deleted.
local row = read('state', 'origin', 'abandon', 'lease', 'expires', 'retention')
local deleted, freed, parked, swept = 0, 0, 0, 0

local function decide()
  local reason
  if row.abandon == '0' then
    reason = ARGV[7]
  elseif row.abandon == '2' then
    reason = ({ begun = ARGV[8], done = ARGV[9] })[trace(row.origin) or '']
  end
  if not reason then
    free(row, ARGV[10], tonumber(ARGV[6]), tonumber(ARGV[5]))
    freed = 1
    return
  end
  settling()
  redis.call('HSET', key, 'state', 'in_doubt', 'reason', reason)
  parked = 1
end

if row.state and expired(row) then
  redis.call('HDEL', key, unpack(RECORD))
  row.state, deleted = false, 1
elseif row.state == 'in_progress' and now >= tonumber(row.lease) + tonumber(ARGV[2]) then
  decide()
end

local left = 0
for _, st in ipairs(steps()) do
  local dead = not row.state or st.origin ~= row.origin
  if dead and tonumber(st.changed) < now - tonumber(ARGV[3]) and swept < tonumber(ARGV[4]) then
    redis.call('HDEL', key, 'step:' .. st.id, 'intent:' .. st.id, 'result:' .. st.id)
    swept = swept + 1
  else
    left = left + 1
  end
end
if left == 0 and swept + deleted > 0 then
  redis.call('HDEL', key, 'steps')
end
return { deleted, freed, parked, swept }
