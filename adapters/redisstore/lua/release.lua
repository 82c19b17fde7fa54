-- release. ARGV: now, fence, attempt, step retention, freed retention, reason.
local row = owned('retention', 'origin')
if not row then
  return 0
end
if row.state == 'failed_retryable' then
  again(row)
  return 1
end
if row.state ~= 'in_progress' then
  return 0
end
free(row, ARGV[6], tonumber(ARGV[5]), tonumber(ARGV[4]))
return 1
