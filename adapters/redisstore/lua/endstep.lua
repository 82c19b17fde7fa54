-- endstep. ARGV: now, fence, attempt, occurrence:name, state, result.
local row = owned('origin')
if not row or row.state ~= 'in_progress' then
  return 0
end
local id = row.origin .. ':' .. ARGV[4]
local st = step(id)
if not st or (st.state ~= 'begun' and st.state ~= ARGV[5]) then
  return 0
end
if st.state ~= 'begun' then
  again(row)
  return 1
end
st.state, st.changed = ARGV[5], text(now)
settling()
redis.call('HSET', key, 'step:' .. id, stepline(st), 'result:' .. id, ARGV[6])
return 1
