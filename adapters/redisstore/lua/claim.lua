-- claim: onlyonce.Judge, and the write that it asks for.
-- ARGV: now, attempt, lease, retention, abandon, resolve, scope, key, operation,
-- form, secret, policy, sum, parts, doubt.
local attempt, abandon = ARGV[2], ARGV[5]
local lease, retention = tonumber(ARGV[3]), tonumber(ARGV[4])
local old = read('scope', 'key', 'state', 'fence', 'origin', 'attempt', 'attempts', 'abandon',
  'lease', 'expires', 'form', 'secret', 'policy', 'sum')
if old.state and (old.scope ~= ARGV[7] or old.key ~= ARGV[8]) then
  return redis.error_reply('COLLISION the record belongs to another key')
end

local function judge()
  if not old.state or expired(old) then
    return 'won', true
  end
  if old.attempt == attempt and old.state == 'in_progress' then
    return old.fence == old.origin and 'won' or 'resumed', false
  end
  if old.form ~= ARGV[10] or old.secret ~= ARGV[11] or old.policy ~= ARGV[12] or old.sum ~= ARGV[13] then
    return 'mismatch', false
  end
  if old.state == 'completed' then
    return 'replay', false
  elseif old.state == 'failed_retryable' then
    if old.abandon == '2' and abandon ~= '2' then
      return 'doubtful', false
    end
    return 'resumed', true
  elseif old.state == 'in_doubt' then
    if ARGV[6] == '1' and (ARGV[15] == '0' or ARGV[15] == old.fence) then
      return 'resumed', true
    end
    return 'doubtful', false
  elseif now < tonumber(old.lease) then
    return 'busy', false
  elseif old.abandon == abandon and abandon ~= '0' then
    return 'resumed', true
  end
  return 'abandoned', false
end

local verdict, write = judge()
if write then
  local fence = text(math.max(tonumber(old.fence or 0) + 1, now))
  local mine = {
    'state', 'in_progress', 'fence', fence, 'attempt', attempt, 'abandon', abandon,
    'reason', '', 'retention', text(retention), 'lease', text(now + lease),
  }
  local function put(...)
    for _, value in ipairs({ ... }) do
      table.insert(mine, value)
    end
  end
  if verdict == 'resumed' then
    put('attempts', text(tonumber(old.attempts) + 1), 'from', old.state)
  else
    put('attempts', '1', 'from', '', 'origin', fence, 'created', text(now),
      'scope', ARGV[7], 'key', ARGV[8], 'operation', ARGV[9],
      'form', ARGV[10], 'secret', ARGV[11], 'policy', ARGV[12], 'sum', ARGV[13], 'parts', ARGV[14])
  end
  redis.call('HSET', key, unpack(mine))
  redis.call('HDEL', key, 'completed', 'expires', 'status', 'header', 'body')
  redis.call('PERSIST', key)
elseif verdict == 'won' or verdict == 'resumed' then
  again(old)
end
return { verdict, text(now), record() }
