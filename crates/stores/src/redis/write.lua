-- ARGV: prefix, id, lease, seq, renewal or '', position or '', tool or '', version, min_version,
-- '1' if there is a view, view, end, time, status, entries. `end`: 0 the run goes on, 1 it waits,
-- 2 it was released, 3 the task has ended. Returns 0 if the lease was lost, 1 if the write was
-- kept, and 2 if the task also is to be cancelled.
local id, lease, position, ends = ARGV[2], ARGV[3], ARGV[6], ARGV[12]
local task, journal = task_of(id), entries_of(id)
local holder, seq, service, cancel, posts, seen =
    get(id, 'lease', 'seq', 'service', 'cancel', 'posts', 'posts_seen')
-- `seq` grows with every write of a process. A write that arrives late, from a connection that its
-- sender has given up, changes nothing that was written with the same lease since.
if holder ~= lease or tonumber(seq or 0) >= tonumber(ARGV[4]) then
    return 0
end
if position ~= '' then
    local length = redis.call('LLEN', journal)
    position = tonumber(position)
    if position > length then
        return 0
    end
    if position == 0 then
        redis.call('DEL', journal)
    elseif position < length then
        redis.call('LTRIM', journal, 0, position - 1)
    end
    for i = 15, #ARGV do
        redis.call('RPUSH', journal, ARGV[i])
    end
    expire(id, journal)
end
redis.call('HSET', task, 'seq', ARGV[4])
if ARGV[7] ~= '' then
    redis.call('HSET', task, 'tool', ARGV[7], 'version', ARGV[8], 'min_version', ARGV[9])
end
if ARGV[10] == '1' then
    redis.call('HSET', task, 'view', ARGV[11], 'updated', text(now))
end
if ARGV[5] ~= '' then
    wake(id, service, now + tonumber(ARGV[5]))
end
if ends == '3' then
    finish(id, service, ARGV[14])
elseif ends ~= '0' and cancel then
    -- No replica holds it any more, so it ends.
    finish(id, service, '3')
elseif ends == '1' then
    redis.call('HDEL', task, 'lease')
    redis.call('HSET', task, 'is_mid_epoch', '0', 'attempts', '0')
    if posts ~= seen then
        wake(id, service, now)
    else
        sleep(id, service)
    end
elseif ends == '2' then
    redis.call('HDEL', task, 'lease')
    redis.call('HSET', task, 'attempts', '0')
    wake(id, service, now + tonumber(ARGV[13]))
end
if ARGV[10] == '1' or ends ~= '0' then
    changed(id)
end
return cancel and 2 or 1
