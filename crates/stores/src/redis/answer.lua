-- ARGV: prefix, id, then questions and answers in turn.
local id = ARGV[2]
local status, lease, at, service = get(id, 'status', 'lease', 'wake', 'service')
if status ~= '0' then
    return 0
end
for i = 3, #ARGV, 2 do
    redis.call('HSETNX', answers_of(id), ARGV[i], ':' .. ARGV[i + 1])
end
expire(id, answers_of(id))
redis.call('HINCRBY', task_of(id), 'posts', 1)
redis.call('HSET', task_of(id), 'updated', text(now))
if not lease then
    -- A task that is due already keeps its place in the order.
    wake(id, service, math.min(tonumber(at or now), now))
end
changed(id)
return 1
