-- ARGV: sequences...
for _, sequence in ipairs(ARGV) do
  local words = words_of(redis.call('HGET', INFLIGHT, sequence))
  if words[1] == 'waiting' or words[1] == 'claimed' then
    take_off(stream_of(words[3]), GENERATORS, words[4])
  elseif words[1] == 'finished' then
    take_off(ROLLOUTS, TRAINER, words[4])
  end
  redis.call('HDEL', INFLIGHT, sequence)
end
