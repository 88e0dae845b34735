-- Decides about charges, atomically and by the clock of the server. Times are whole microseconds, all numbers are integers
-- below 2^53, which a double holds exactly, and written as little-endian doubles.
--
-- A call is about one request, or about several that have nothing to do with each other, of which each is decided by itself, as
-- if it were a call, in their order. An error of one is its reply, and does not concern the others.
--
-- KEYS: for each charge the record of its algorithm; with full = 1 for each charge its record, its reservations (a hash) and when
-- they expire (a sorted set), of which only records with reservations are in need. Those of several requests follow each other.
--
-- ARGV: a head, which a single charge that is taken does without, and one argument for each charge.
--   head     op byte, full byte, time in tests or -1, how long a reservation lasts, the fewest permits that are lent or when permits
--            were lent; the 15 bytes of the ID of a reservation
--   charge   length byte, header, zero byte, permits (-1: more than the limit), and
--            of a bucket the times in which all and they are regained: microseconds, and parts of one
--            of a calendar from, passed, and five edges: passed windows lie between from and the first edge
-- Before the arguments of several requests stands a zero byte, and how many keys and arguments each has, in a byte each. 0 keys
-- are the one of the request before it, and 0 arguments its argument. Requests for a single key that is the same follow each other.
--
-- A record is the header of the limit that it is held to, a byte with 1 for reservations and 2 for loans of which nothing is given
-- back, its time, of reservations how many they are, of how many permits, when the first expires and the last, of loans until when
-- they were made and when all of that has come back anyway, the state, and until when the server keeps it at least:
--   T bucket       header per, burst, num                state missing to full (2), returned, if there are reservations
--   F fixed        header limit, window                  state start, used, excess
--   S sliding      header limit, window, segments        state segment, used in each, the newest first, without zeros at the end
--   A counter      header limit, window                  state start, used in it and in the one before
--   C concurrency  header limit                          state out
--   K calendar     header limit, length byte, name       state start, used, excess, end
--
-- A reply begins with a byte: 0 done, 1 send all keys, 2 send edges around a time (and, if that is not 0, from another edge). After
-- 0 follow the time, and for each charge 0 refused, 1 allowed or 2 too many reservations, the time that counts for the record,
-- and the state that the rest of the decision is computed from. After 3 the same follows without the time, which is that of the
-- record. 4 says that what is kept for a charge is no record, and which charge it is. Nothing is written before it is known that
-- nothing is missing. For several requests, there is a list of replies.
local spread = unpack
local call, quietly, unpack, pack, byte = redis.call, redis.pcall, struct.unpack, struct.pack, string.byte
local IDLE = 3600000000

-- The request that is most usual, a bucket whose record need only be changed in place, stands before all functions, as to make them
-- takes as long as to decide it. What is not so is decided below, by what has been read here.
local clock, found
local key, head, charge = KEYS[1], ARGV[1], ARGV[2]
if not charge then head, charge = nil, head end
if not KEYS[2] and byte(charge, 2) == 84 and (not head or byte(head) == 1) then
  local now = head and unpack('<d', head, 3) or -1
  if now < 0 then
    local t = call('TIME')
    clock = t[1] * 1000000 + t[2]
    now = clock
  end
  found = quietly('GET', key)
  if found and #found == 58 then
    local per, limit, num, n, fus, fpart, us, part = unpack('<dddxddddd', charge, 3)
    local alg, was, burst, by, flag, at, w, x, kept = unpack('<BdddBdddd', found)
    if alg == 84 and was == per and burst == limit and by == num and flag == 0 and at <= now and n > 0 then
      w = w - (now - at)
      if w < 0 then w, x = 0, 0 end
      us, part = w + us, x + part
      if part >= num then us, part = us + 1, part - num end
      if us > fus or us == fus and part > fpart then return '\3\0' .. pack('<ddd', now, w, x) end
      local need = now + us
      if part > 0 then need = need + 1 end
      if kept >= need and kept - need <= 2 * IDLE then
        local state = pack('<ddd', now, us, part)
        call('SETRANGE', key, '26', state)
        return '\3\1' .. state
      end
    end
  end
end

local sub, floor = string.sub, math.floor
local GUARD, MARGIN, MOST = 10000000, 1000, 10000
local TAKE, RESERVE, PEEK, REFUND, SETTLE, INSPECT, RESET = 1, 2, 3, 4, 5, 6, 7
-- What the argument says that was read last, as those of several requests are often the same.
local seen, code, header, hlen, behind, limit, window, segments, num, fus, fpart, n, wus, wpart

local function read_charge(a)
  seen = a
  hlen, code = byte(a, 1, 2)
  header, behind = sub(a, 2, hlen + 2), string.format('%d', hlen + 1)
  n = unpack('<d', a, hlen + 3)
  if code == 84 then num, n, fus, fpart, wus, wpart = unpack('<dxddddd', a, 19)
  elseif code == 83 then limit, window, segments = unpack('<ddd', a, 3)
  elseif code == 75 then limit = unpack('<d', a, 3)
  else limit, window = unpack('<dd', a, 3)
  end
end

-- read reads the head of a request, if it has one: what is asked, of which keys, the time and what else there is to say.
local function read(head)
  local op, full, now, extra = TAKE, 0, -1, 0
  if head then op, full, now, extra = unpack('<BBdd', head) end
  MARGIN = 1000
  if now >= 0 then -- a test has given the time: what the server's clock shows must not drop a record meanwhile
    MARGIN = 3600000
  else
    if not clock then
      local t = call('TIME')
      clock = t[1] * 1000000 + t[2]
    end
    now = clock
  end
  return op, full, now, extra
end

-- replied is how a reply begins: what is asked for is granted or not, by the clock and for the time of the record.
local function replied(ok, now, t)
  if t == now then return ok and '\3\1' or '\3\0' end
  return pack('<BdB', 0, now, ok and 1 or 0)
end

-- taken takes the charge that was read of a record of the same limit that has no reservations and no loans of which nothing is given
-- back, or of none: what follows below would do the same, slower. The time and the state stand in rec from first to last, or first
-- is nil. It returns the reply, and what is to be written in their place, if anything, and until when that is needed; or nothing
-- for records that it does not know how to take of, also because a number of them is none: no comparison with that is true.
local function taken(rec, first, last, now)
  local t, at, w, x, y = now, 0, 0, 0, 0
  if code == 84 then
    if first then
      if last - first ~= 23 then return end
      at, w, x = unpack('<ddd', rec, first)
      if at > now then
        t = at
        if t - now > GUARD then return end -- the record has to go back
      end
      w = w - (t - at)
      if w < 0 then w, x = 0, 0 end
    end
    if n > 0 then
      local us, part = w + wus, x + wpart
      if part >= num then us, part = us + 1, part - num end
      if us < fus or us == fus and part <= fpart then
        local state = pack('<ddd', t, us, part)
        if part > 0 then us = us + 1 end
        if t == now then return '\3\1' .. state, state, t + us end
        return replied(true, now, t) .. state, state, t + us
      end
    elseif n == 0 then
      local us, part = w + wus, x + wpart
      if part >= num then us, part = us + 1, part - num end
      return replied(us < fus or us == fus and part <= fpart, now, t) .. pack('<ddd', t, w, x)
    end
    return replied(false, now, t) .. pack('<ddd', t, w, x)
  end
  if first then
    if last - first < 15 then return end
    at, w = unpack('<dd', rec, first)
    if at > now then
      t = at
      if t - now > GUARD then return end
    end
  end
  local taken = math.max(n, 1)
  if code == 70 then
    if first and last - first ~= 31 then return end
    if first then x, y = unpack('<dd', rec, first + 16) end
    local begin = t - t % window
    if not (begin >= w) or begin > w and not (x <= limit) then return end
    if begin > w then w, x, y = begin, 0, 0 end
    local ok = n >= 0 and x + taken <= limit
    local state = pack('<dddd', t, w, ok and x + n or x, y)
    if ok and n > 0 then return replied(ok, now, t) .. state, state, w + window end
    return replied(ok, now, t) .. state
  elseif code == 65 then
    if first and last - first ~= 31 then return end
    if first then x, y = unpack('<dd', rec, first + 16) end
    local begin = t - t % window
    if begin > w then
      if begin - w == window then y = x else y = 0 end
      x = 0
    end
    local p = y * (window - (t - begin))
    if not (begin >= w and p < 4503599627370496) then return end
    local weight = floor(p / window)
    if weight * window < p then weight = weight + 1 end
    local ok = n >= 0 and x + weight + taken <= limit
    local state = pack('<dddd', t, begin, ok and x + n or x, y)
    if ok and n > 0 then return replied(ok, now, t) .. state, state, begin + 2 * window end
    return replied(ok, now, t) .. state
  elseif code == 75 then
    if first and last - first ~= 39 then return end
    if first then x, y = unpack('<dd', rec, first + 16) end
    local begin, stop = unpack('<dd', seen, hlen + 35)
    if not (t >= begin and t < stop and begin >= w) or begin > w and not (x <= limit) then return end
    if begin > w then x, y = 0, 0 end
    local ok = n >= 0 and x + taken <= limit
    if ok then x = x + n end
    local reply = replied(ok, now, t) .. pack('<ddd', t, begin, x)
    if ok and n > 0 then return reply, pack('<ddddd', t, begin, x, y, stop), stop end
    return reply
  elseif code == 83 then
    local step, size, s, total = window / segments, 0, {}, 0
    local i = floor(t / step)
    local k = i - w
    if step % 1 ~= 0 or k % 1 ~= 0 or k < 0 or first and (last - first - 15) % 8 ~= 0 then return end -- damaged
    if first then size = math.max(0, math.min((last - first - 15) / 8, segments - k)) end
    if size > 0 then
      local old = { unpack('<' .. string.rep('d', size), rec, first + 16) }
      for j = 1, k do s[j] = 0 end
      for j = 1, size do
        s[k + j] = old[j]
        total = total + old[j]
      end
      size = k + size
      while size > 0 and s[size] == 0 do
        s[size] = nil
        size = size - 1
      end
    end
    local ok = n >= 0 and total + taken <= limit
    if ok and n > 0 then
      s[1] = (s[1] or 0) + n
      size = math.max(size, 1)
    end
    local state = pack('<d' .. string.rep('d', size), i, spread(s))
    local reply = replied(ok, now, t) .. pack('<dB', t, size + 1) .. state
    if ok and n > 0 then return reply, pack('<d', t) .. state, t + window end
    return reply
  end
end

-- write writes head and state over what the server has, rec, or where nothing is. at is where the state begins in it, as a text,
-- and the record is needed until then. It takes a server longer to keep a record until another time than to change it: one that is
-- asked for again is kept for half as long again, and for as long as that does changed in place. The time stands at its end.
local function write(by, key, rec, head, at, state, need, now)
  if rec then
    local size = #head + #state
    if #rec == size + 8 then
      local kept = unpack('<d', rec, size + 1)
      if kept >= need and kept - need <= 2 * IDLE then return by('SETRANGE', key, at, state) end
    end
    need = need + math.max(1000000, math.min((need - now) / 2, IDLE))
  end
  return by('SET', key, head .. state .. pack('<d', need), 'PX', floor((need - now) / 1000) + 1 + MARGIN)
end

local several = byte(ARGV[1], 1) == 0
if not several and not KEYS[2] then -- the usual request, in as few steps as it can be
  local op, _, now = read(head)
  if op == TAKE then
    read_charge(charge)
    local rec = found
    if rec == nil then rec = quietly('GET', key) end
    if not rec or not rec.err and sub(rec, 1, hlen + 1) == header then
      local reply, state, need = taken(rec, rec and hlen + 2, rec and #rec - 8, now)
      if state then write(call, key, rec, header, behind, state, need, now) end
      if reply then return reply end
    end
  end
end

local SAFE, reading = 9007199254740992, nil -- the charge whose record is read

-- decided decides about a request in any other way. An error that no command has returned says that a record is none.
local function decided(KEYS, ARGV, op, full, now, extra, argument)
local DEBIT, LEND, RETURN = 8, 9, 10
local LONGEST = 1581120000000000 -- the time in which a bucket must be able to become full

if op == RESET then
  call('DEL', spread(KEYS))
  return pack('<B', 0)
end

-- muldiv is a * b / c rounded down, and the rest, for c up to 2^50 and a quotient below 2^53.
local function muldiv(a, b, c)
  local bq = floor(b / c)
  local br = b - bq * c
  local p = a * br
  if p < 4503599627370496 then
    local q = floor(p / c)
    return a * bq + q, p - q * c
  end
  local base, digits, k, q, r = floor(2251799813685248 / c), {}, 0, 0, 0
  if not (base >= 1 and a < SAFE) then error('not a number of a record') end
  local x = a
  while x > 0 do
    local y = floor(x / base)
    k = k + 1
    digits[k] = x - y * base
    x = y
  end
  for i = k, 1, -1 do
    r = r * base + digits[i] * br
    local d = floor(r / c)
    q = q * base + d
    r = r - d * c
  end
  return a * bq + q, r
end

local function less(aus, apart, bus, bpart) return aus < bus or aus == bus and apart < bpart end

local function minus(aus, apart, bus, bpart, num)
  if apart < bpart then return aus - bus - 1, apart + num - bpart end
  return aus - bus, apart - bpart
end

local function plus(aus, apart, bus, bpart, num)
  if apart + bpart >= num then return aus + bus + 1, apart + bpart - num end
  return aus + bus, apart + bpart
end

-- permits is how many whole permits take no longer than us + part/num to be regained, and what is left in 1/num.
local function permits(us, part, num, per)
  local q, r = muldiv(us, num, per)
  r = r + part
  local k = floor(r / per)
  return q + k, r - k * per
end

-- A loan, its return, or a debit: of the same records, and of those that are missing, in the same way.
if op >= DEBIT and not KEYS[2] then
  local a, key = ARGV[2], KEYS[1]
  local hlen, code = byte(a, 1, 2)
  local n = unpack('<d', a, hlen + 3)
  local rec, t, last, x, y = call('GET', key), now, now, 0, 0
  local known = not rec
  if rec and sub(rec, 1, hlen + 1) == sub(a, 2, hlen + 2) then
    last, x, y = unpack('<ddd', rec, hlen + 2)
    if not (math.abs(last + x + y) < 8 * SAFE) then error('not a record') end
    if now < last then t = last end
    known = t - now <= GUARD
  end
  -- Such a record is held to the limit of the loan, and has not been told of loans of which nothing is given back.
  if op == RETURN and (not rec or known and extra > t) then return pack('<Bd', 0, now) end
  local left, ok, state, shown = 0, false, nil, nil
  if known and code == 84 then
    local per, limit, num, _, fus, fpart = unpack('<dddxddd', a, 3)
    x = x - (t - last)
    if x < 0 then x, y = 0, 0 end
    local us, part = 0, 0
    if op == LEND then
      if less(fus, fpart, x, y) then
        n = 0
      else
        us, part = minus(fus, fpart, x, y, num)
        n = math.min(n, (permits(us, part, num, per)))
      end
      ok = n >= extra
      if ok then
        us, part = muldiv(n, per, num)
        x, y = plus(x, y, us, part, num)
      end
    elseif op == RETURN then -- what cannot have come back by itself
      us, part = muldiv(math.min(n, limit), per, num)
      us = us - (t - extra)
      if us >= 0 then
        if less(x, y, us, part) then us, part = x, y end
        x, y = minus(x, y, us, part, num)
      end
    else
      local mus, mpart = plus(fus, fpart, fus, fpart, num)
      if n > 0 and less(x, y, mus, mpart) then
        us, part = minus(mus, mpart, x, y, num)
        us, part = muldiv(math.min(n, (permits(us, part, num, per))), per, num)
        x, y = plus(x, y, us, part, num)
      end
      if less(x, y, fus, fpart) then
        us, part = minus(fus, fpart, x, y, num)
        ok = permits(us, part, num, per) > 0
      end
    end
    left = x
    if y > 0 then left = left + 1 end
    state = pack('<dd', x, y)
    shown = state
  elseif known and (code == 70 or code == 65 or code == 75) then
    local limit, z, begin, stop, window, used = unpack('<d', a, 3), 0, 0, 0, 0, 0
    if rec then z = unpack('<d', rec, hlen + 26) end
    if code == 75 then
      begin, stop = unpack('<dd', a, hlen + 35)
      known = t >= begin and t < stop and (begin == x or begin > x and y <= limit)
    else
      window = unpack('<d', a, 11)
      begin = t - t % window
      known = begin == x or begin > x and (code == 65 or y <= limit)
    end
    if code ~= 65 then
      if begin > x then y, z = 0, 0 end
      used = y
    elseif known then
      if begin > x then
        if begin - x == window then z = y else z = 0 end
        y = 0
      end
      local q, r = muldiv(z, window - (t - begin), window)
      if r > 0 then q = q + 1 end
      used = y + q
    end
    if known then
      if op == LEND then
        n = math.min(n, math.max(0, limit - used))
        ok = n >= extra
        if ok then y = y + n end
      elseif op == DEBIT then
        n = math.max(0, math.min(n, 2 * limit - used))
        y = y + n
        ok = used + n < limit
      elseif extra >= begin then -- the permits were taken in this window
        if code ~= 65 then
          local k = math.min(n, z)
          z, n = z - k, n - k
        end
        y = y - math.min(n, y)
      elseif code == 65 and extra >= begin - window then
        z = z - math.min(n, z)
      end
      if code == 75 then
        if y > 0 then left = stop - t + (math.ceil(y / limit) - 1) * 31708800000000 end
        state, shown = pack('<dddd', begin, y, z, stop), pack('<dd', begin, y)
      else
        if code == 70 then
          if y > 0 then left = begin + math.ceil(y / limit) * window - t end
        elseif y > 0 then left = begin + 2 * window - t
        elseif z > 0 then left = begin + window - t
        end
        state = pack('<ddd', begin, y, z)
        shown = state
      end
    end
  elseif known and code == 83 then
    local limit, window, segments = unpack('<ddd', a, 3)
    local step = window / segments
    local i = floor(t / step)
    local k = i - x
    if step % 1 == 0 and k >= 0 then
      local s, size, used = {}, 0, 0
      if rec then
        size = math.min((#rec - hlen - 25) / 8, segments - k)
        if size > 0 then
          for j = 1, k do s[j] = 0 end
          local old = { unpack('<' .. string.rep('d', size), rec, hlen + 18) }
          for j = 1, size do
            s[k + j] = old[j]
            used = used + old[j]
          end
        end
      end
      if op == LEND then
        n = math.min(n, math.max(0, limit - used))
        ok = n >= extra
        if ok then s[1] = (s[1] or 0) + n end
      elseif op == DEBIT then
        n = math.max(0, math.min(n, 2 * limit - used))
        s[1] = (s[1] or 0) + n
        ok = used + n < limit
      else
        local j = i - floor(extra / step) + 1
        if s[j] then s[j] = s[j] - math.min(n, s[j]) end
      end
      size = #s
      while size > 0 and s[size] == 0 do
        s[size] = nil
        size = size - 1
      end
      if size > 0 then left = window end
      state = pack('<d' .. string.rep('d', size), i, spread(s))
      shown = string.char(size + 1) .. state
    end
  end
  if state then
    if op ~= LEND or ok then
      if left > 0 then
        write(call, key, rec, '', '0', sub(a, 2, hlen + 2) .. pack('<d', t) .. state, t + math.min(left, 9000000000000000), now)
      elseif rec then
        call('DEL', key)
      end
    end
    if op == RETURN then return pack('<Bd', 0, now) end
    local head = pack('<BdBd', 0, now, ok and 1 or 0, t)
    if op == DEBIT then return head .. shown end
    return head .. shown .. pack('<d', n)
  end
end

local function parse(h) -- the limit in a header
  local l = { alg = byte(h, 1) }
  if l.alg == 84 then
    l.per, l.limit, l.num = unpack('<ddd', h, 2)
    l.fus, l.fpart = muldiv(l.limit, l.per, l.num)
  elseif l.alg == 83 then
    l.limit, l.window, l.segments = unpack('<ddd', h, 2)
  elseif l.alg == 70 or l.alg == 65 then
    l.limit, l.window = unpack('<dd', h, 2)
  elseif l.alg == 67 or l.alg == 75 then
    l.limit = unpack('<d', h, 2)
    l.calendar = sub(h, 10)
  end
  local first, second = l.per or l.window or 1, l.num or l.segments or 1
  if not (l.limit >= 0 and l.limit < SAFE and first >= 1 and first < SAFE and second >= 1 and second < SAFE)
    or l.segments and second > 64 then error('not a limit of a record') end
  return l
end

local function segment(l, t)
  local w = floor(t / l.window)
  return w * l.segments + (muldiv(t - w * l.window, l.segments, l.window))
end

local function weighted(l, s, t)
  if s[3] == 0 then return 0 end
  local q, r = muldiv(s[3], l.window - (t - s[1]), l.window)
  if r > 0 then q = q + 1 end
  return q
end

-- edge is the place of the window that t lies in among the edges that were passed in, or nil.
local function edge(c, t)
  local e = c.edges
  if t < e[1] then return nil end
  for i = 1, 4 do
    if t < e[i + 1] then return i end
  end
  return nil
end

local function zero(l, c)
  local s = {}
  local size = 3
  if l.alg == 83 then size = l.segments + 1 elseif l.alg == 75 then size = 4 elseif l.alg == 67 then size = 1 end
  for i = 1, size do s[i] = 0 end
  if l.alg == 84 then s[3] = 0 end
  return s
end

-- bear takes from what is used what the windows since bear.
local function bear(s, limit, passed)
  if passed > floor(s[2] / limit) then s[2] = 0 else s[2] = math.max(0, s[2] - passed * limit) end
  s[3] = 0
end

-- advance moves the state of c, which is held to the limit l, to the time of c.
local function advance(c, l)
  local s, t = c.s, c.t
  if l.alg == 84 then
    if t > c.last then
      s[1] = s[1] - (t - c.last)
      if s[1] < 0 then s[1], s[2] = 0, 0 end
    end
  elseif l.alg == 70 then
    local start = t - t % l.window
    local passed = (start - s[1]) / l.window
    if passed > 0 then bear(s, l.limit, passed) end
    s[1] = start
  elseif l.alg == 65 then
    local start = t - t % l.window
    local passed = (start - s[1]) / l.window
    if passed == 1 then s[2], s[3] = 0, s[2] elseif passed > 1 then s[2], s[3] = 0, 0 end
    s[1] = start
  elseif l.alg == 83 then
    local i = segment(l, t)
    local k, n = i - s[1], l.segments
    if k > 0 then
      for j = n, 1, -1 do
        if j > k then s[j + 1] = s[j + 1 - k] else s[j + 1] = 0 end
      end
    end
    s[1] = i
  elseif l.alg == 75 then
    if l ~= c.l and l.calendar ~= c.l.calendar then -- only the edge that was kept is known of the old windows
      if t >= s[4] then
        s[2] = math.max(0, s[2] - l.limit)
        s[3] = 0
      end
      return
    end
    local i = edge(c, t)
    local begin, stop = c.edges[i], c.edges[i + 1]
    if begin == s[1] then
      s[4] = stop
    elseif s[2] == 0 or stop < s[1] then
      s[1], s[4] = begin, stop
    elseif begin > s[1] then
      if s[2] <= l.limit then
        s[2], s[3] = 0, 0
      elseif s[1] == c.from then
        bear(s, l.limit, c.passed + i - 1)
      else
        for j = i, 1, -1 do
          if c.edges[j] == s[1] then
            bear(s, l.limit, i - j)
            break
          end
        end
      end
      s[1], s[4] = begin, stop
    end
  end
  c.last = t
end

local function used(c)
  local l, s = c.l, c.s
  if l.alg == 65 then return s[2] + weighted(l, s, c.t) end
  if l.alg == 67 then return s[1] end
  if l.alg ~= 83 then return s[2] end
  local total = 0
  for j = 2, l.segments + 1 do total = total + s[j] end
  return total
end

local function add(c, n)
  local s, alg = c.s, c.l.alg
  if alg == 67 then s[1] = s[1] + n else s[2] = s[2] + n end
end

local function lose(s, i, n) -- takes up to n from s[i], and answers what is left of n
  local k = math.min(n, s[i])
  s[i] = s[i] - k
  return n - k
end

local function returned(c, us, part)
  if c.count == 0 then return end
  c.s[3] = c.s[3] + us
  if part > 0 then c.s[3] = c.s[3] + 1 end
end

local function refund(c, n)
  local l, s = c.l, c.s
  if n <= 0 then return end
  if l.alg == 84 then
    local us, part
    if n / l.num * l.per > 4 * LONGEST then
      us, part = s[1], s[2]
    else
      us, part = muldiv(n, l.per, l.num)
      if less(s[1], s[2], us, part) then us, part = s[1], s[2] end
    end
    s[1], s[2] = minus(s[1], s[2], us, part, l.num)
    returned(c, us, part)
  elseif l.alg == 70 or l.alg == 75 then
    lose(s, 2, lose(s, 3, n))
  elseif l.alg == 65 then
    lose(s, 3, lose(s, 2, n))
  elseif l.alg == 83 then
    for j = 2, l.segments + 1 do n = lose(s, j, n) end
  else
    lose(s, 1, n)
  end
end

local function unregained(n, t, num, per)
  local us, part = muldiv(n, per, num)
  if us < t then return 0 end
  return (permits(us - t, part, num, per))
end

-- cancel undoes n permits of a reservation m = { n, at, part, taken, num, per, expires }; the state knows nothing of those whose
-- num is -1.
local function cancel(c, n, m)
  local l, s = c.l, c.s
  if n <= 0 or m[5] < 0 then return end
  if l.alg == 67 then
    lose(s, 1, n)
  elseif l.alg == 84 then
    local gone = math.max(0, c.t - m[4])
    if m[5] > 0 then -- it was carried to another limit since
      refund(c, math.min(unregained(n, gone, m[5], m[6]), unregained(n, gone, l.num, l.per)))
      return
    end
    local us, part = muldiv(math.min(n, l.limit), l.per, l.num)
    local left, lpart = m[2] - s[3] - c.t, m[3]
    if left == s[1] and lpart == s[2] then -- they are the last that are missing
      if less(s[1], s[2], us, part) then us, part = s[1], s[2] end
      s[1], s[2] = minus(s[1], s[2], us, part, l.num)
      return
    end
    local bus, bpart = 0, 0
    if left >= 0 and less(left, lpart, s[1], s[2]) then
      bus, bpart = left, lpart
      if less(us, part, bus, bpart) then bus, bpart = us, part end
    end
    if gone <= us and less(bus, bpart, us - gone, part) then bus, bpart = us - gone, part end
    if less(s[1], s[2], bus, bpart) then bus, bpart = s[1], s[2] end
    s[1], s[2] = minus(s[1], s[2], bus, bpart, l.num)
    returned(c, bus, bpart)
  elseif l.alg == 83 then
    local j = s[1] - m[2]
    if j >= 0 and j < l.segments then lose(s, j + 2, n) end
  elseif m[2] == s[1] then
    if l.alg == 65 then lose(s, 2, n) else lose(s, 2, lose(s, 3, n)) end
  elseif l.alg == 65 and m[2] == s[1] - l.window then
    lose(s, 3, n)
  end
end

-- charge takes n permits whether they are there or not, up to a debt of the limit.
local function charge(c, n)
  local l, s = c.l, c.s
  if n <= 0 then return end
  if l.alg ~= 84 then
    add(c, math.max(0, math.min(n, 2 * l.limit - used(c))))
    return
  end
  local mus, mpart = plus(l.fus, l.fpart, l.fus, l.fpart, l.num)
  if not less(s[1], s[2], mus, mpart) then return end
  local rus, rpart = minus(mus, mpart, s[1], s[2], l.num)
  local us, part = muldiv(math.min(n, (permits(rus, rpart, l.num, l.per))), l.per, l.num)
  s[1], s[2] = plus(s[1], s[2], us, part, l.num)
end

-- available is how many permits are there.
local function available(c)
  local l, s = c.l, c.s
  if l.alg ~= 84 then return math.max(0, l.limit - used(c)) end
  if less(l.fus, l.fpart, s[1], s[2]) then return 0 end
  local us, part = minus(l.fus, l.fpart, s[1], s[2], l.num)
  return (permits(us, part, l.num, l.per))
end

-- placed is where in time permits count that were taken at t: nowhere in a bucket, and in a calendar if that is not near.
local function placed(c, t)
  local l = c.l
  if l.alg == 83 then return segment(l, t) end
  if l.alg == 75 then return c.edges[edge(c, t) or 0] end
  if l.window then return t - t % l.window end
end

-- scale is the time of part/whole permits.
local function scale(l, part, whole, up)
  local q, r = muldiv(l.per, part, whole)
  if up and r > 0 then q = q + 1 end
  local us = floor(q / l.num)
  return us, q - us * l.num
end

-- carry makes the state of c, which was held to old, one of its limit.
local function carry(c, old)
  local l, s = c.l, c.s
  if l.alg == 84 then
    if less(old.fus, old.fpart, s[1], s[2]) then -- in debt, which stays owed
      local whole, rest = permits(s[1] - old.fus, s[2] - old.fpart, old.num, old.per)
      if s[2] < old.fpart then whole, rest = permits(s[1] - old.fus - 1, s[2] - old.fpart + old.num, old.num, old.per) end
      local us, part = LONGEST, 0
      if whole / l.num * l.per < 2 * LONGEST then us, part = muldiv(whole, l.per, l.num) end
      if us >= LONGEST then us, part = LONGEST, 0 end
      local rus, rpart = scale(l, rest, old.per, true)
      us, part = plus(us, part, rus, rpart, l.num)
      if us >= LONGEST then us, part = LONGEST, 0 end
      s[1], s[2] = plus(l.fus, l.fpart, us, part, l.num)
      return
    end
    local hus, hpart = minus(old.fus, old.fpart, s[1], s[2], old.num)
    local whole, rest = permits(hus, hpart, old.num, old.per)
    s[1], s[2] = 0, 0
    if whole >= l.limit then return end
    local us, part = muldiv(whole, l.per, l.num)
    local rus, rpart = scale(l, rest, old.per, false)
    us, part = plus(us, part, rus, rpart, l.num)
    if less(us, part, l.fus, l.fpart) then s[1], s[2] = minus(l.fus, l.fpart, us, part, l.num) end
  elseif l.alg == 70 or l.alg == 75 then
    local debt = math.max(0, s[2] - old.limit)
    local taken = s[2] - debt + s[3]
    s[2] = math.min(taken, l.limit)
    s[3] = taken - s[2]
    s[2] = s[2] + debt
    if l.alg == 70 then
      s[1] = c.t - c.t % l.window
    elseif l.calendar ~= old.calendar then
      local i = edge(c, c.t)
      s[1], s[4] = c.edges[i], c.edges[i + 1]
    end
  elseif l.alg == 65 then
    if l.window ~= old.window then
      s[2] = s[2] + weighted(old, s, c.t)
      s[1], s[3] = c.t - c.t % l.window, 0
    end
  elseif l.alg == 83 then
    if l.window ~= old.window or l.segments ~= old.segments then
      local total = 0
      for j = 2, old.segments + 1 do total = total + s[j] end
      c.s = zero(l)
      c.s[1], c.s[2] = segment(l, c.t), total
    end
  end
end

-- Reservations: the hash keeps n, at, part, taken, num and per of their marks and when they expire; the sorted set the latter.
local function write_reservation(c, id, m)
  call('HSET', c.res, id, pack('<ddddddd', m[1], m[2], m[3], m[4], m[5], m[6], m[7]))
end

-- keep has the server keep the reservations until the last has expired.
local function keep(c)
  local px = floor(math.max(0, c.until_ - now) / 1000) + 1 + MARGIN
  call('PEXPIRE', c.res, px)
  call('PEXPIRE', c.due, px)
end

-- due is when the first reservation expires; without reservations there is nothing to remember of them.
local function due(c)
  local first = call('ZRANGE', c.due, 0, 0, 'WITHSCORES')
  if first[2] and c.count > 0 then
    c.first = tonumber(first[2])
    return
  end
  c.count, c.sum, c.first, c.until_ = 0, 0, 0, 0
  call('DEL', c.res, c.due)
  if c.l.alg == 84 then c.s[3] = 0 elseif c.l.alg == 67 then c.s[1] = 0 end
end

-- mend counts the reservations anew if the server has evicted some: nobody will give their permits back. When they expire stands
-- in their marks too.
local function mend(c)
  if call('HLEN', c.res) == c.count and call('ZCARD', c.due) == c.count then return end
  local all, count, sum = call('HGETALL', c.res), 0, 0
  call('DEL', c.due)
  for i = 1, #all, 2 do
    local m = { unpack('<ddddddd', all[i + 1]) }
    call('ZADD', c.due, string.format('%.0f', m[7]), all[i])
    count, sum = count + 1, sum + m[1]
  end
  if c.l.alg == 67 then c.s[1] = math.max(0, c.s[1] - c.sum + sum) end
  c.count, c.sum, c.dirty = count, sum, true
  keep(c)
  due(c)
end

local function remove(c, id)
  local v = call('HGET', c.res, id)
  call('HDEL', c.res, id)
  call('ZREM', c.due, id)
  if not v then return nil end
  local m = { unpack('<ddddddd', v) }
  c.count, c.sum = math.max(0, c.count - 1), math.max(0, c.sum - m[1])
  return m
end

-- sweep cancels the reservations that have expired.
local function sweep(c)
  if c.count == 0 or c.first > c.t then return end
  local ids = call('ZRANGEBYSCORE', c.due, '-inf', string.format('%.0f', c.t))
  for _, id in ipairs(ids) do
    local m = remove(c, id)
    if m then cancel(c, m[1], m) end
  end
  due(c)
  c.dirty = true
end

-- every calls f(mark, id) for each reservation, and keeps what it makes of the mark.
local function every(c, f)
  if c.count == 0 then return end
  local all = call('HGETALL', c.res)
  for i = 1, #all, 2 do
    local m = { unpack('<ddddddd', all[i + 1]) }
    f(m, all[i])
    write_reservation(c, all[i], m)
  end
  c.dirty = true
end

-- remark gives the marks of all reservations another meaning after the limit has changed.
local function remark(c, old, from)
  local l = c.l
  if l.alg == 67 then return end
  if l.alg ~= 84 and l.window == old.window and l.segments == old.segments and l.calendar == old.calendar then return end
  every(c, function(m)
    if m[5] < 0 then return end
    if l.alg == 84 then -- the fastest rate at which permits can have come back since
      if m[5] == 0 or m[5] / m[6] < old.num / old.per then m[5], m[6] = old.num, old.per end
      if m[5] / m[6] < l.num / l.per then m[5], m[6] = l.num, l.per end
    elseif m[2] >= from then
      m[2] = c.s[1]
    else
      m[5] = -1
    end
  end)
end

-- rewind takes a record that is far ahead of the clock back to now, as if no time had passed.
local function rewind(c, was, back)
  local moved = c.s[1] - was
  if c.l.alg == 84 then moved = -back elseif c.l.alg == 67 then moved = 0 end
  every(c, function(m, id)
    m[2], m[4], m[7] = m[2] + moved, m[4] - back, m[7] - back
    call('ZADD', c.due, string.format('%.0f', m[7]), id)
  end)
  c.first, c.until_ = c.first - back, c.until_ - back
  c.dirty = true
end

-- rebase keeps what was returned small: it counts only against the marks of reservations.
local function rebase(c)
  if c.l.alg ~= 84 or c.s[3] < 281474976710656 or full == 0 then return end
  every(c, function(m) m[2] = m[2] - c.s[3] end)
  c.s[3] = 0
end

-- seal has nothing given back of loans under l that were made until now, as what becomes of their permits will not be known; if
-- the clock is behind the record, of those until then, as nobody keeps a loan for longer than a day after a clock was so wrong.
local function seal(c, l)
  if l.alg == 67 then return end
  local t = c.t + math.max(0, math.min(c.back, 86400000000))
  local left
  if l.alg == 84 then left = l.fus + 1
  elseif l.alg == 70 then left = l.window - t % l.window
  elseif l.alg == 65 then left = 2 * l.window - t % l.window
  elseif l.alg == 83 then left = l.window
  elseif c.back > 0 then left = 31708800000000
  else left = math.max(0, c.stop - t) end
  c.sealed = math.max(c.sealed, t)
  c.unsealed = math.max(c.unsealed - math.max(0, c.back), t + left)
end

-- save writes the record, which the server may drop once it is equal to a fresh one and no reservation is left.
local function save(c)
  local l, s = c.l, c.s
  local left
  rebase(c)
  if l.alg == 75 then advance(c, l) end
  if l.alg == 84 then
    left = s[1]
    if s[2] > 0 then left = left + 1 end
  elseif l.alg == 70 then
    left = 0
    if s[2] > 0 then left = s[1] + math.ceil(s[2] / l.limit) * l.window - c.t end
  elseif l.alg == 65 then
    left = 0
    if s[2] > 0 then left = s[1] + 2 * l.window - c.t elseif s[3] > 0 then left = s[1] + l.window - c.t end
  elseif l.alg == 83 then
    left = 0
    for j = 2, l.segments + 1 do
      if s[j] > 0 then
        left = l.window
        break
      end
    end
  elseif l.alg == 75 then
    left = 0
    if s[2] > 0 then left = s[4] - c.t + (math.ceil(s[2] / l.limit) - 1) * 31708800000000 end
  else
    left = 0
    if s[1] > 0 and c.count == 0 then s[1] = 0 end
  end
  if c.count > 0 then left = math.max(left, c.until_ - c.t) end
  left = math.max(left, c.unsealed - c.t)
  left = math.min(left, 9000000000000000) -- 285 years
  if left <= 0 then
    call('DEL', c.key)
    return
  end
  local flag, reserved, lent = 0, '', ''
  if c.count > 0 then flag, reserved = 1, pack('<dddd', c.count, c.sum, c.first, c.until_) end
  if c.unsealed > c.t then flag, lent = flag + 2, pack('<dd', c.sealed, c.unsealed) end
  local parts = { c.h, pack('<Bd', flag, c.last) .. reserved .. lent }
  local n = #s
  if l.alg == 84 and c.count == 0 then n = 2 end
  if l.alg == 83 then
    while n > 1 and s[n] == 0 do n = n - 1 end
  end
  for i = 1, n do parts[i + 2] = pack('<d', s[i]) end
  write(call, c.key, c.rec, '', '0', table.concat(parts), c.t + left, now)
end

local step = 1
if full == 1 then step = 3 end
local charges, count = {}, #KEYS / step

for i = 1, count do
  reading = i
  local a = ARGV[argument + i]
  local hlen = byte(a, 1)
  local h = sub(a, 2, hlen + 1)
  local n = unpack('<d', a, hlen + 3)
  local c
  do
    local k = (i - 1) * step
    c = {
      key = KEYS[k + 1], h = h, l = parse(h), t = now, last = now, count = 0, sum = 0, first = 0, until_ = 0,
      sealed = 0, unsealed = 0, stop = 0,
    }
    if full == 1 then c.res, c.due = KEYS[k + 2], KEYS[k + 3] end
    if c.l.alg == 75 then
      local e = { unpack('<ddddddd', a, hlen + 11) }
      c.from, c.passed = e[1], e[2]
      c.edges = { e[3], e[4], e[5], e[6], e[7] }
    end
    local rec = call('GET', c.key)
    c.rec, c.known = rec, rec and 1 or 0
    if op == RETURN and (not rec or sub(rec, 1, hlen) ~= h) then return pack('<Bd', 0, now) end
    if rec then
      local old = c.l
      local size = hlen
      if sub(rec, 1, hlen) ~= h then
        if byte(rec, 1) ~= old.alg then error('not a record') end
        if old.alg == 75 then size = 10 + byte(rec, 10) end
        old = parse(sub(rec, 1, size))
        c.old = old
      end
      local flag, pos
      flag, c.last, pos = unpack('<Bd', rec, size + 1)
      if flag % 2 == 1 then c.count, c.sum, c.first, c.until_, pos = unpack('<dddd', rec, pos) end
      if flag >= 2 then c.sealed, c.unsealed, pos = unpack('<dd', rec, pos) end
      local total = c.last + c.count + c.sum + c.first + c.until_ + c.sealed + c.unsealed
      if not (c.count >= 0 and math.abs(total) < 8 * SAFE) then error('not a record') end
      if now < c.last and c.last - now <= GUARD then c.t = c.last end
      if c.t >= c.unsealed then c.sealed, c.unsealed = 0, 0 end
      if old.alg == 75 then c.stop = unpack('<d', rec, pos + 24) end
      c.s = zero(old)
      local k, most = 0, #c.s
      while pos <= #rec - 15 do
        k = k + 1
        c.s[k], pos = unpack('<d', rec, pos)
        total = total + c.s[k]
      end
      local least = old.alg == 83 and 1 or old.alg == 84 and flag % 2 == 0 and 2 or most
      if pos ~= #rec - 7 or k < least or k > most or not (math.abs(total) < 8 * SAFE) then error('not a record') end
    end
    c.back = c.last - c.t
    c.s = c.s or zero(c.l)
    -- What is missing is told before anything is written.
    c.touched = c.count > 0 and (c.first <= c.t or c.old or c.back > 0 or op == SETTLE or op == REFUND)
    if full == 0 and (c.touched or op == RETURN and c.count > 0) then return pack('<B', 1) end
    if c.l.alg == 75 then
      local at = edge(c, c.t)
      local from = 0
      local limit = (c.old or c.l).limit
      if c.s[2] > limit and (not at or c.s[1] < c.edges[at]) and c.s[1] ~= c.from then
        from = c.s[1]
        for j = 1, at or 0 do
          if c.edges[j] == c.s[1] then from = 0 end
        end
      end
      if not at or from ~= 0 then
        if from == 0 then from = c.from end
        return pack('<BBdd', 2, i, c.t, from)
      end
    end
  end
  charges[i] = { c = c, n = n, a = a, at = hlen + 11 }
end

for i = 1, count do
  reading = i
  local c = charges[i].c
  local old, l = c.old, c.l
  if old or c.back > 0 then seal(c, old or l) end
  c.l = old or l -- reservations are canceled as what they were
  if c.touched then mend(c) end
  if l.alg == 75 then c.l = l end
  local was = c.s[1]
  advance(c, old or l)
  c.l = old or l
  if c.back > 0 then -- written even if the request is refused: time must go on from here
    if c.count > 0 then rewind(c, was, c.back) end
    c.dirty = true
  end
  sweep(c)
  if l.alg == 75 then c.l = l end
  advance(c, old or l) -- a window of a calendar in which nothing is used any more is left
  c.l = l
  if old then
    local from = c.s[1]
    if l.alg == 83 then from = from - old.segments + 1 end
    carry(c, old)
    c.dirty = c.dirty or op ~= PEEK and op ~= INSPECT
    remark(c, old, from)
  end
  c.last = c.t
end

local reply = { pack('<Bd', 0, now) }

local function answer(c, ok)
  local s = c.s
  local n = #s
  if c.l.alg == 84 then n = 2 elseif c.l.alg == 75 then n = 2 end
  local parts = { pack('<Bd', ok, c.t) }
  if c.l.alg == 83 then
    while n > 1 and s[n] == 0 do n = n - 1 end
    parts[2] = pack('<B', n)
  end
  for i = 1, n do parts[#parts + 1] = pack('<d', s[i]) end
  reply[#reply + 1] = table.concat(parts)
end

if op == REFUND then
  for i = 1, count do
    reading = i
    local c = charges[i].c
    local n = charges[i].n
    refund(c, n)
    if c.l.alg == 67 and c.count > 0 then -- or they would come back again when they are settled
      for _, id in ipairs(call('ZRANGE', c.due, 0, -1)) do
        if n <= 0 then break end
        local m = { unpack('<ddddddd', call('HGET', c.res, id)) }
        if m[5] >= 0 and m[1] > 0 then
          local k = math.min(n, m[1])
          m[1], n, c.sum = m[1] - k, n - k, c.sum - k
          write_reservation(c, id, m)
        end
      end
    end
    c.dirty = true
  end
elseif op == RETURN then -- only if the record is held to the limit of the loan
  local c = charges[1].c
  if extra <= c.t and (extra > c.sealed or c.unsealed == 0) then
    cancel(c, charges[1].n, { 0, placed(c, extra) or 0, -1, extra, 0, 0 })
    c.dirty = true
  end
elseif op == LEND then
  local c, n = charges[1].c, charges[1].n
  local l, s = c.l, c.s
  n = math.min(n, available(c))
  if n < extra then
    answer(c, 0)
  else
    if l.alg == 84 then
      local us, part = muldiv(n, l.per, l.num)
      s[1], s[2] = plus(s[1], s[2], us, part, l.num)
    else
      add(c, n)
    end
    answer(c, 1)
    c.dirty = true
  end
  reply[#reply + 1] = pack('<d', n)
elseif op == DEBIT then
  for i = 1, count do
    local c = charges[i].c
    charge(c, charges[i].n)
    c.dirty = true
    local there = 0
    if available(c) > 0 then there = 1 end
    answer(c, there)
  end
elseif op == SETTLE then
  local id, found = sub(ARGV[1], 19), 0
  for i = 1, count do
    reading = i
    local c, n = charges[i].c, charges[i].n
    local m = remove(c, id .. string.char(i))
    if m then
      found = found + 1
      if n < 0 then n = 0 end
      if c.l.alg == 67 then
        cancel(c, m[1], m)
      elseif n < m[1] then
        cancel(c, m[1] - n, m)
      else
        charge(c, n - m[1])
      end
      due(c)
      c.dirty = true
    end
  end
  reply[2] = pack('<B', found)
else
  local all = true
  for i = 1, count do
    local charge_ = charges[i]
    local c, n = charge_.c, charge_.n
    local l, s = c.l, c.s
    local ok = n >= 0 and n <= l.limit
    charge_.answer = 0
    if ok then
      if l.alg == 84 then
        local us, part = unpack('<dd', charge_.a, charge_.at + 16)
        charge_.us, charge_.part = plus(s[1], s[2], us, part, l.num)
        ok = not less(l.fus, l.fpart, charge_.us, charge_.part)
      else
        ok = used(c) + math.max(n, 1) <= l.limit
      end
    end
    if ok then charge_.answer = 1 end
    if op == RESERVE and c.count >= MOST then ok, charge_.answer = false, 2 end
    all = all and ok
  end
  for i = 1, count do
    local charge_ = charges[i]
    local c, n = charge_.c, charge_.n
    if all and (op == TAKE or op == RESERVE) then
      local l, s = c.l, c.s
      if n > 0 then
        if l.alg == 84 then s[1], s[2] = charge_.us, charge_.part else add(c, n) end
        c.dirty = true
      end
      if op == RESERVE then
        local mark, part = s[1], 0
        if n == 0 then mark = -1 elseif l.alg == 84 then mark, part = c.t + s[1] + s[3], s[2] end
        charge_.mark = { n, mark, part, c.t, 0, 0, c.t + extra }
        c.dirty = true
      end
    end
    answer(c, charge_.answer)
    if op == INSPECT then reply[#reply + 1] = pack('<dddd', c.known, c.count, c.sum, call('PTTL', c.key)) end
  end
  if op == RESERVE then
    local expires = 0
    for i = 1, count do
      reading = i
      local c, m = charges[i].c, charges[i].mark
      if m then
        local id = sub(ARGV[1], 19) .. string.char(i)
        if c.count == 0 then call('DEL', c.res, c.due) end
        write_reservation(c, id, m)
        call('ZADD', c.due, string.format('%.0f', m[7]), id)
        c.count, c.sum = c.count + 1, c.sum + m[1]
        if c.count == 1 or m[7] < c.first then c.first = m[7] end
        c.until_ = math.max(c.until_, m[7])
        if expires == 0 or m[7] < expires then expires = m[7] end
        keep(c)
      end
    end
    reply[#reply + 1] = pack('<d', expires)
  end
end

for i = 1, count do
  reading = i
  local c = charges[i].c
  if c.dirty then
    c.dirty = false
    save(c)
  end
end
return table.concat(reply)
end

-- outcome is the reply to a request that is decided so. What a command has returned as an error is one; but for a key of another
-- kind, as what is kept there is no record.
local function outcome(...)
  reading = nil
  local ok, reply = pcall(decided, ...)
  if ok then return reply end
  local why = reply
  if type(reply) == 'table' then why = reply.err else reply = { err = reply } end -- as older servers have it
  if string.find(why, 'WRONGTYPE', 1, true) or sub(why, 1, 12) == 'user_script:' then
    return '\4' .. string.char(reading or 1)
  end
  return reply
end

local argument = ARGV[2] and 1 or 0
if not several then
  local op, full, now, extra = read(argument == 1 and ARGV[1])
  return outcome(KEYS, ARGV, op, full, now, extra, argument)
end

-- Several requests. All records are read at once. One that is missing may be a key of another kind: it is read again by itself.
local KEYS, ARGV = KEYS, ARGV
local layout, records, replies = { byte(ARGV[1], 2, -1) }, {}, {}
if KEYS[2] and #KEYS <= 256 then records = call('MGET', spread(KEYS)) end

-- Requests for one key from run on, of whose record, rec, state is what is to be written at last.
local key, rec, run, state, need, last

-- finish writes that before the request i. If that fails all of the requests have failed, as they build on each other.
local function finish(i)
  if state then
    local result = write(quietly, key, rec, header, behind, state, need, last)
    if type(result) == 'table' and result.err then
      for k = run, i - 1 do replies[k] = result end
    end
  end
  key, state = nil, nil
end

local k, a = 0, 1
local again -- the reply to the request before, if it is also that to another one for the same
for i = 1, #layout / 2 do
  local nk, na = layout[2 * i - 1], layout[2 * i]
  local op, full, now, extra, reply = TAKE, 0, clock, 0, nil
  if nk == 0 and na == 0 then reply = again end
  if na > 1 or not now then op, full, now, extra = read(na > 1 and ARGV[a + 1]) end
  if op == TAKE and nk < 2 and not reply then
    local of, arg = KEYS[k + nk], ARGV[a + na]
    if of ~= key then
      if state then finish(i) end
      key, run, rec = of, i, nk == 1 and records[k + 1] or quietly('GET', of)
    elseif state and arg ~= seen and sub(arg, 2, hlen + 2) ~= header then
      finish(i)
      key, run, rec = of, i, quietly('GET', of)
    end
    if arg ~= seen then read_charge(arg) end
    local changed, until_
    if state then
      reply, changed, until_ = taken(state, 1, #state, now)
    elseif not rec then
      reply, changed, until_ = taken(rec, nil, nil, now)
    elseif rec.err then -- that of a key of another kind, which is read again below
      key = nil
    elseif sub(rec, 1, hlen + 1) == header then
      reply, changed, until_ = taken(rec, hlen + 2, #rec - 8, now)
    end
    again = nil
    if changed then state, need, last = changed, until_, now else again = reply end
  end
  if not reply then
    finish(i)
    records, again = {}, nil
    if nk == 0 then k, nk = k - 1, 1 end
    if na == 0 then a, na = a - 1, 1 end
    local keys, args = { spread(KEYS, k + 1, k + nk) }, { spread(ARGV, a + 1, a + na) }
    reply = outcome(keys, args, op, full, now, extra, na > 1 and 1 or 0)
  end
  replies[i] = reply
  k, a = k + nk, a + na
end
finish(#layout / 2 + 1)
return replies
