-- ARGV: ids on :rollouts
for _, id in ipairs(ARGV) do
  remove(id, read_entry(ROLLOUTS, id))
end
