-- ARGV: (id on :rollouts, reason) of each group that must not be used. Its task is nowhere then, and may be dispatched
-- again.
for i = 1, #ARGV, 2 do
  local entry = read_entry(ROLLOUTS, ARGV[i])
  if entry then
    to_dead(entry, ARGV[i + 1])
  end
  remove(ARGV[i], entry)
end
