-- ARGV: owner, purpose, id, sequence, attempt, first version, protobuf -> 1 handed back, 0 refused
local stream, id = stream_of(ARGV[2]), ARGV[3]
if owner_of(stream, id) ~= ARGV[1] then
  return refuse()
end
enqueue({p = ARGV[2], s = ARGV[4], a = ARGV[5], v = ARGV[6], d = ARGV[7]})
take_off(stream, GENERATORS, id)
return 1
