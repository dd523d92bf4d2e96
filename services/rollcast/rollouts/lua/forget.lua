-- ARGV: (sequence, record) of each record that cannot be read; one that was written anew meanwhile stays
for i = 1, #ARGV, 2 do
  if redis.call('HGET', INFLIGHT, ARGV[i]) == ARGV[i + 1] then
    bury_record(ARGV[i], ARGV[i + 1])
  end
end
