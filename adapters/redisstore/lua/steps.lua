-- steps: id, numbers, intent and result of each step of the present life.
local row = read('scope', 'key', 'origin')
local out = { text(now) }
if not row.origin then
  return out
end
for _, st in ipairs(steps()) do
  if st.origin == row.origin then
    local kept = redis.call('HMGET', key, 'intent:' .. st.id, 'result:' .. st.id)
    table.insert(out, { st.id, stepline(st), kept[1], kept[2] })
  end
end
return out
