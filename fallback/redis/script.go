package redis

// serverClock is how the script reads the time, in milliseconds.
const serverClock = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
`

// exchangeScript, after a clock, adds a delta to the present bucket of KEYS[1]
// once, and returns the time and the sum over the window. KEYS[2] is the mark of
// this exchange. ARGV is the length of a bucket in milliseconds, how many buckets
// beside the present one are in the window, the last moment at which the delta
// may count, for how long the mark is kept and for how long the counts are, in
// milliseconds, and the delta: nothing, or one number for each counter. After
// that moment nothing happens, and only the time is returned.
//
// A bucket is a field: its number, and an array of the counters as MessagePack,
// which takes the server less than half the time that text does.
const exchangeScript = `
local width, span = tonumber(ARGV[1]), tonumber(ARGV[2])
if now > tonumber(ARGV[3]) then
  return {now}
end
local flat = redis.call('HGETALL', KEYS[1])
local present = math.floor(now / width)
local newest = present
for i = 1, #flat, 2 do
  newest = math.max(newest, tonumber(flat[i]) or 0)
end
if newest - present > span then
  redis.call('DEL', KEYS[1])
  flat, newest = {}, present
end
local reply = {now, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}
local counts = #reply - 1
local own = {}
for i = 1, #flat, 2 do
  local bucket = tonumber(flat[i]) or 0
  if bucket < newest - span then
    redis.call('HDEL', KEYS[1], flat[i])
  else
    local whole, held = pcall(cmsgpack.unpack, flat[i + 1])
    if whole and type(held) == 'table' and #held == counts then
      for at = 1, counts do
        reply[at + 1] = reply[at + 1] + held[at]
      end
      if bucket == newest then
        own = held
      end
    end
  end
end
if #ARGV == 5 + counts and redis.call('SET', KEYS[2], '', 'NX', 'PX', ARGV[4]) then
  for i = 1, counts do
    local count = tonumber(ARGV[5 + i])
    reply[i + 1] = reply[i + 1] + count
    own[i] = (own[i] or 0) + count
  end
  redis.call('HSET', KEYS[1], string.format('%.0f', newest), cmsgpack.pack(own))
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
end
return reply
`
