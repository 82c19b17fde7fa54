-- get: the record, unless there is none or it has expired.
local row = read('state', 'expires')
if not row.state or expired(row) then
  return { text(now) }
end
return { text(now), record() }
