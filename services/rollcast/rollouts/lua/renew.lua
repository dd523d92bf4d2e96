-- ARGV: owner, then (purpose, id) of each task -> positions (from 0) of those it does not own any more
-- JUSTID: a plain XCLAIM would count a delivery each time.
local owner, lost = ARGV[1], {}
for i = 2, #ARGV, 2 do
  local stream, id = stream_of(ARGV[i]), ARGV[i + 1]
  if owner_of(stream, id) == owner then
    redis.call('XCLAIM', stream, GENERATORS, owner, 0, id, 'JUSTID')
  else
    lost[#lost + 1] = (i - 2) / 2
  end
end
return lost
