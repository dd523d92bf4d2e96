-- ARGV: owner, purpose, id, reason, most failures -> 1 counted, 0 refused
local stream, id = stream_of(ARGV[2]), ARGV[3]
if owner_of(stream, id) ~= ARGV[1] then
  return refuse()
end
redo(stream, id, ARGV[4], tonumber(ARGV[5]), {}, {})
return 1
