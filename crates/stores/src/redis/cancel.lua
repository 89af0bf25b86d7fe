-- ARGV: prefix, id.
local id = ARGV[2]
local status, lease, service = get(id, 'status', 'lease', 'service')
if status ~= '0' then
    return 0
end
redis.call('HSET', task_of(id), 'cancel', '1')
if not lease then
    finish(id, service, '3')
end
changed(id)
return 1
