package redis

// Scripts name every key they touch in KEYS, as a cluster wants it: that is why
// the versions of tags are fields of one hash. What KEYS[1] holds is that hash.

// readScript returns the records of KEYS[2…] whose tags still have the versions
// they were written with, and false in place of the others. ARGV[1] is the
// length of the longest record: more is not ours, and is not even sent.
const readScript = `
local longest = tonumber(ARGV[1])
local current, records = {}, {}
for i = 2, #KEYS do
  local record = redis.pcall('GETRANGE', KEYS[i], 0, longest)
  local valid = type(record) == 'string' and #record >= 29 and #record <= longest
    and string.sub(record, 1, 4) == 'HKc1'
  local tags = valid and string.byte(record, 29) or 0
  for at = 30, 20 + 10 * tags, 10 do
    local slot = string.sub(record, at, at + 1)
    if current[slot] == nil then
      current[slot] = redis.call('HGET', KEYS[1], slot)
    end
    if current[slot] ~= string.sub(record, at + 2, at + 9) then
      valid = false
      break
    end
  end
  records[i - 1] = valid and record
end
return records
`

// writeScript stores KEYS[2…] if the tags have the expected versions, and
// returns nothing then. Otherwise it stores nothing and returns the versions, one
// after the other. ARGV[1] is the version for tags that have none, ARGV[2] the
// slots with their expected versions; then come, for each key, its TTL in
// milliseconds, its record up to the value, and its value.
//
// All that can fail comes before the first SET. What a full server refuses, it
// refuses from the first writing command of a script on: whether memory is short
// is decided once, when the script starts.
const writeScript = `
local versions, current = {}, true
for at = 1, #ARGV[2], 10 do
  local slot = string.sub(ARGV[2], at, at + 1)
  local version = redis.call('HGET', KEYS[1], slot)
  if not version then
    version = ARGV[1]
    redis.call('HSET', KEYS[1], slot, version)
  end
  current = current and version == string.sub(ARGV[2], at + 2, at + 9)
  versions[#versions + 1] = version
end
if not current then
  return table.concat(versions)
end
for i = 2, #KEYS do
  redis.call('SET', KEYS[i], ARGV[3 * i - 2] .. ARGV[3 * i - 1], 'PX', ARGV[3 * i - 3])
end
return ''
`
