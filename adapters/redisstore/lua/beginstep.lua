-- beginstep. ARGV: now, fence, attempt, occurrence:name, epoch, send within,
-- intent.
local row = owned('origin', 'steps')
if not row or row.state ~= 'in_progress' then
  return 0
end
local id = row.origin .. ':' .. ARGV[4]
local st, within = step(id), tonumber(ARGV[6])
local put = {}
if st and st.state == 'begun' and st.epoch == ARGV[5] then
  -- Another send: the intent stays, and the latest moment to send counts.
  within = math.max(within, tonumber(st.sent) + tonumber(st.within) - now)
elseif not st or (st.state == 'not_applied' and tonumber(ARGV[5]) > tonumber(st.epoch)) then
  if not st then
    st = { seq = text(tonumber(row.steps or 0) + 1) }
    put = { 'steps', st.seq }
  end
  st.epoch, st.begun, st.sends = ARGV[5], text(now), 0
  table.insert(put, 'intent:' .. id)
  table.insert(put, ARGV[7])
else
  return 0
end
st.state, st.sends, st.within = 'begun', text(tonumber(st.sends) + 1), text(within)
st.sent, st.changed = text(now), text(now)
redis.call('HSET', key, 'step:' .. id, stepline(st), unpack(put))
redis.call('HDEL', key, 'result:' .. id)
return 1
