-- ARGV: prefix, service, lease, lease time, limit, then tools and versions in turn. Returns the
-- tasks, each as a list: 8 fields, the number of entries, the entries, and the answers, each as its
-- question, its epoch, and the answer.
local service, lease, limit = ARGV[2], ARGV[3], tonumber(ARGV[5])
local newest = {}
for i = 6, #ARGV, 2 do
    newest[ARGV[i]] = math.max(newest[ARGV[i]] or 0, tonumber(ARGV[i + 1]))
end

local function hold(id)
    local mid, epoch, attempts, before, posts =
        get(id, 'is_mid_epoch', 'epoch', 'attempts', 'entries_at_claim', 'posts')
    epoch = tonumber(epoch)
    if mid == '0' then
        epoch = epoch + 1
        redis.call('HSET', task_of(id), 'posts_seen', posts)
    end
    local entries = redis.call('LRANGE', entries_of(id), 0, -1)
    if tonumber(before) ~= #entries then
        attempts = 0
    end
    attempts = tonumber(attempts) + 1
    redis.call('HSET', task_of(id), 'lease', lease, 'seq', '0', 'epoch', text(epoch),
        'is_mid_epoch', '1', 'attempts', text(attempts), 'entries_at_claim', text(#entries))
    wake(id, service, now + tonumber(ARGV[4]))
    local tool, version, min_version, call, view =
        get(id, 'tool', 'version', 'min_version', 'call', 'view')
    local held = { id, tool, version, min_version, text(epoch), text(attempts), call, view,
        text(#entries) }
    for _, entry in ipairs(entries) do
        held[#held + 1] = entry
    end
    local answers = redis.call('HGETALL', answers_of(id))
    for i = 1, #answers, 2 do
        local question, answer = answers[i], answers[i + 1]
        if mid == '0' and string.sub(answer, 1, 1) == ':' then
            answer = text(epoch) .. answer
            redis.call('HSET', answers_of(id), question, answer)
        end
        local colon = string.find(answer, ':', 1, true)
        if colon > 1 then
            held[#held + 1] = question
            held[#held + 1] = string.sub(answer, 1, colon - 1)
            held[#held + 1] = string.sub(answer, colon + 1)
        end
    end
    return held
end

-- The ids are read in pages, by rank: a page by score costs more the further it is from the first.
-- Tasks that are not skipped are moved behind those that are due.
local PAGE = 100
local all, skipped = {}, 0
local is_end = false
while #all < limit and not is_end do
    local page = redis.call('ZRANGE', due_of(service), skipped, skipped + PAGE - 1, 'WITHSCORES')
    is_end = #page < 2 * PAGE
    for i = 1, #page, 2 do
        local id = page[i]
        if #all == limit then
            break
        end
        if tonumber(page[i + 1]) > now then
            is_end = true
            break
        end
        local tool, min_version, cancel, at = get(id, 'tool', 'min_version', 'cancel', 'wake')
        if not tool then
            -- It has expired.
            redis.call('ZREM', due_of(service), id)
        elseif tonumber(at) > now or (newest[tool] or -1) < tonumber(min_version) then
            skipped = skipped + 1
        elseif cancel then
            finish(id, service, '3')
            changed(id)
        else
            all[#all + 1] = hold(id)
        end
    end
end
return all
