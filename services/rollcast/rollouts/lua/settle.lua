-- ARGV: ids on :rollouts
for _, id in ipairs(ARGV) do
  settle(id, read_entry(ROLLOUTS, id))
end
