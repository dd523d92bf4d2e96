-- ARGV: (sequence, attempt, purpose, first version, protobuf) of each task -> the sequences that were added
ensure_index()
local added = {}
for i = 1, #ARGV, 5 do
  if redis.call('HEXISTS', INFLIGHT, ARGV[i]) == 0 then
    enqueue({s = ARGV[i], a = ARGV[i + 1], p = ARGV[i + 2], v = ARGV[i + 3], d = ARGV[i + 4]})
    added[#added + 1] = ARGV[i]
  end
end
return added
