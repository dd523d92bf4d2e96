-- ARGV: least incarnation -> the new one
local last = tonumber(redis.call('HGET', STATE, 'incarnation') or '0')
local new = math.max(last + 1, tonumber(ARGV[1]))
redis.call('HSET', STATE, 'incarnation', string.format('%d', new))
return new
