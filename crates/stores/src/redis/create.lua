-- ARGV: prefix, id, service, tool, version, min_version, lease, lease time, ttl or '', retention,
-- call, view, entries. Returns whether the task is new, and the record.
local id, service, lease = ARGV[2], ARGV[3], ARGV[7]
local task = task_of(id)
if redis.call('EXISTS', task) == 1 then
    local is_ours = get(id, 'lease') == lease
    return { is_ours and '1' or '0', unpack(record(id)) }
end
redis.call('HSET', task, 'service', service, 'tool', ARGV[4], 'version', ARGV[5],
    'min_version', ARGV[6], 'status', '0', 'lease', lease, 'posts', '0', 'posts_seen', '0',
    'epoch', '0', 'is_mid_epoch', '1', 'attempts', '1', 'entries_at_claim', text(#ARGV - 12),
    'created', text(now), 'updated', text(now), 'retention', ARGV[10], 'call', ARGV[11],
    'view', ARGV[12])
redis.call('DEL', entries_of(id), answers_of(id))
for i = 13, #ARGV do
    redis.call('RPUSH', entries_of(id), ARGV[i])
end
if ARGV[9] ~= '' then
    -- Not now: Redis would delete the key at once.
    redis.call('HSET', task, 'expires', text(now + math.max(1, tonumber(ARGV[9]))))
    expire(id, task)
    expire(id, entries_of(id))
end
wake(id, service, now + tonumber(ARGV[8]))
return { '1', unpack(record(id)) }
