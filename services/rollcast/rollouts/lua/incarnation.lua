-- ARGV: least incarnation -> the new one; the last one's text where that is no number
local last = redis.call('HGET', STATE, 'incarnation') or '0'
if not is_count(last, 8) then
  return last
end
local new = math.max(tonumber(last) + 1, tonumber(ARGV[1]))
redis.call('HSET', STATE, 'incarnation', string.format('%d', new))
return new
