-- Shared by all scripts. ARGV[1] is the prefix of keys. A task has a hash, a list of entries, and a
-- hash of answers; each service has a sorted set of tasks by the time from which they are due.
-- An answer is stored as the number of its epoch, or nothing, then a colon and the answer.

local prefix = ARGV[1]
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function text(number)
    return string.format('%.0f', number)
end

local function task_of(id)
    return prefix .. 'task:{' .. id .. '}'
end

local function entries_of(id)
    return prefix .. 'entries:{' .. id .. '}'
end

local function answers_of(id)
    return prefix .. 'answers:{' .. id .. '}'
end

local function due_of(service)
    return prefix .. 'due:' .. service
end

local function get(id, ...)
    return unpack(redis.call('HMGET', task_of(id), ...))
end

-- Sets the time from which a task is due. Its place in the index is found at the latest when it has
-- expired.
local function wake(id, service, at)
    redis.call('HSET', task_of(id), 'wake', text(at))
    local expires = tonumber(get(id, 'expires') or at)
    redis.call('ZADD', due_of(service), text(math.min(at, expires)), id)
end

local function sleep(id, service)
    redis.call('HDEL', task_of(id), 'wake')
    redis.call('ZREM', due_of(service), id)
end

-- Makes a key expire with its task.
local function expire(id, key)
    local expires = get(id, 'expires')
    if expires then
        redis.call('PEXPIREAT', key, expires)
    end
end

local function finish(id, service, status)
    redis.call('HSET', task_of(id), 'status', status, 'updated', text(now))
    redis.call('HDEL', task_of(id), 'lease')
    sleep(id, service)
    redis.call('DEL', entries_of(id), answers_of(id))
    local expires, retention = get(id, 'expires', 'retention')
    if expires then
        local kept = math.max(tonumber(expires), now + tonumber(retention))
        redis.call('HSET', task_of(id), 'expires', text(kept))
        expire(id, task_of(id))
    end
end

local function changed(id)
    redis.call('PUBLISH', prefix .. 'changed', id)
end

-- Returns what clients may see: 8 fields, the lease, the length of the answers as they are stored,
-- and the questions that have an answer.
local function record(id)
    local fields = redis.call('HMGET', task_of(id), 'tool', 'version', 'min_version', 'status',
        'created', 'updated', 'expires', 'view', 'lease')
    if not fields[1] then
        return {}
    end
    for i = 1, 9 do
        fields[i] = fields[i] or ''
    end
    local bytes = 0
    for i, question in ipairs(redis.call('HKEYS', answers_of(id))) do
        bytes = bytes + redis.call('HSTRLEN', answers_of(id), question)
        fields[10 + i] = question
    end
    fields[10] = text(bytes)
    return fields
end
