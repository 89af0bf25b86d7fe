-- ARGV: prefix, id.
local id = ARGV[2]
local status, lease, service, at = get(id, 'status', 'lease', 'service', 'wake')
if status ~= '0' then
    return 0
end
redis.call('HSET', task_of(id), 'cancel', '1')
-- The lease may have expired.
if not lease or tonumber(at) <= now then
    finish(id, service, '3')
end
changed(id)
return 1
