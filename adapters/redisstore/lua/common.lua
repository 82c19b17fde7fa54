-- What all scripts begin with. A script is about the one key it is given, so it
-- runs on the node that has that key, and is one atomic step there. It reads,
-- decides, and only then writes: the first write is one HSET of all that is to
-- be kept, so that a server that refuses it (memory, replicas) has changed
-- nothing.
--
-- Numbers of Lua are doubles, exact up to 2^53. Fences and times are
-- microseconds and stay below that until the year 2255; a server whose clock is
-- past 2150 is refused, which leaves room for a century of retention. They are
-- kept as decimal text, and fences are compared as text.

local key = KEYS[1]
local now = ARGV[1] -- a test's clock, or nothing
if now == '' then
  local time = redis.call('TIME')
  now = tonumber(time[1]) * 1000000 + tonumber(time[2])
else
  now = tonumber(now)
end
if now >= 5680281600000000 then
  return redis.error_reply('CLOCK the server\'s clock is past the year 2150')
end

-- What a record is made of, in the order in which it is answered.
local RECORD = {
  'scope', 'key', 'operation', 'form', 'secret', 'policy', 'sum', 'parts',
  'state', 'fence', 'origin', 'attempt', 'attempts', 'abandon', 'reason', 'from',
  'retention', 'created', 'lease', 'completed', 'expires', 'status', 'header', 'body',
}

local function text(number)
  return string.format('%.0f', number)
end

-- read gives the named fields of the hash; false for those that are not there.
local function read(...)
  local names, row = { ... }, {}
  local values = redis.call('HMGET', key, ...)
  for i, name in ipairs(names) do
    row[name] = values[i]
  end
  return row
end

local function record()
  return redis.call('HMGET', key, unpack(RECORD))
end

-- owned reads the named fields if the attempt (ARGV[2] fence, ARGV[3] token)
-- still has the key, whatever its state.
local function owned(...)
  local row = read('fence', 'attempt', 'state', ...)
  if row.fence == ARGV[2] and row.attempt == ARGV[3] then
    return row
  end
end

-- expired: only what is settled expires (rule T2).
local function expired(row)
  return (row.state == 'completed' or row.state == 'failed_retryable') and now >= tonumber(row.expires)
end

-- settling lets the writes that follow through when memory is full: it takes
-- the place of the first write, and no later one is refused. What is under way
-- can so be ended, while nothing new begins.
local function settling()
  redis.call('HDEL', key, '-')
end

-- again writes what is there already, for a request that is repeated because its
-- reply was lost: waiting for replicas on this connection covers it then. (WAIT
-- is documented to cover a connection's own writes; Redis 7 waits for more.)
local function again(row)
  settling()
  redis.call('HSET', key, 'state', row.state)
end

-- A step is three fields: its numbers under step:ID, what was recorded of its
-- intent and its result under intent:ID and result:ID. ID is the origin of its
-- life, its occurrence and its name.
local function step(id)
  local line = redis.call('HGET', key, 'step:' .. id)
  if not line then
    return nil
  end
  local st = { id = id }
  st.seq, st.epoch, st.state, st.sends, st.begun, st.sent, st.within, st.changed =
    string.match(line, '^(%d+) (%-?%d+) (%S+) (%d+) (%d+) (%d+) (%d+) (%d+)$')
  st.origin = string.match(id, '^%d+')
  return st
end

local function stepline(st)
  return table.concat({ st.seq, st.epoch, st.state, st.sends, st.begun, st.sent, st.within, st.changed }, ' ')
end

-- steps gives those of all lives of which something is left.
local function steps()
  local found = {}
  if redis.call('HEXISTS', key, 'steps') == 0 then
    return found
  end
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, 5) == 'step:' then
      table.insert(found, step(string.sub(field, 6)))
    end
  end
  return found
end

-- trace tells what effect the steps of a life may have had: 'begun', 'done' or
-- nothing.
local function trace(origin)
  local found
  for _, st in ipairs(steps()) do
    if st.origin == origin and st.state == 'begun' then
      return 'begun'
    elseif st.origin == origin and st.state == 'done' then
      found = 'done'
    end
  end
  return found
end

-- vanish has the server delete the hash some time after it is of no more use.
-- Nobody relies on it: whether a record has expired is decided by its own time.
-- A hash with steps stays for the steps' retention.
local function vanish(retention, stepretention)
  if redis.call('HEXISTS', key, 'steps') == 1 then
    retention = math.max(retention, stepretention)
  end
  redis.call('PEXPIRE', key, text(math.ceil(retention / 1000) + 60000))
end

-- free ends an attempt that left no effect but its finished steps (rule O).
local function free(row, reason, freedretention, stepretention)
  local retention = tonumber(row.retention)
  if trace(row.origin) then
    retention = math.max(retention, freedretention)
  end
  settling()
  redis.call('HSET', key, 'state', 'failed_retryable', 'reason', reason, 'expires', text(now + retention))
  vanish(retention, stepretention)
end
