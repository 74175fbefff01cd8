-- Prepares an interpreter for scripts: their global names, and the function that runs them. It runs once in each interpreter.
--
-- Scripts see views of the libraries, which they cannot change. So a script leaves nothing behind for the next one.

-- The functions of the server.
local host = ...

local error, getmetatable, ipairs, next, pairs, select = error, getmetatable, ipairs, next, pairs, select
local setmetatable, tostring, type = setmetatable, tostring, type
local floor, raw_pcall, raw_xpcall, raw_rawset, raw_collect = math.floor, pcall, xpcall, rawset, collectgarbage
local resume, concat = coroutine.resume, table.concat

-- The views, as keys and in a list.
local views, proxies = {}, {}

local function refuse()
  error('Attempt to modify a readonly table', 2)
end

local function view(table)
  local proxy = setmetatable({}, { __index = table, __newindex = refuse, __metatable = false })
  views[proxy] = true
  proxies[#proxies + 1] = proxy
  return proxy
end

-- An error of a function of the server becomes a text, or a table if it is like the error reply of a command.
local function told(what)
  if type(what) == 'userdata' then
    local text, is_reply = host.told(what)
    if text then
      return is_reply and { err = text } or text
    end
  end
  return what
end

-- A script that is stopped ends, even if it catches errors.
local function after(is_good, ...)
  if is_good then
    return is_good, ...
  end
  if host.is_stopped() then
    error('the script was stopped', 0)
  end
  return false, told((...))
end

-- As in Redis, pcall shows the text of an error reply.
local function after_pcall(is_good, ...)
  local what = ...
  if not is_good and type(what) == 'table' and type(what.err) == 'string' then
    return false, what.err
  end
  return is_good, ...
end

local wrong = 'ERR wrong number or type of arguments'
local function is_text(...)
  return select('#', ...) == 1 and type((...)) == 'string'
end

-- Compiled chunks could break the interpreter, so only texts are loaded.
local raw_load = loadstring
local function load_text(text, ...)
  if type(text) == 'string' and text:byte() == 27 then
    return nil, 'compiled chunks are not allowed'
  end
  return raw_load(text, ...)
end

local function load_pieces(next_piece, ...)
  local pieces = {}
  repeat
    local piece = next_piece()
    pieces[#pieces + 1] = piece
  until piece == nil or piece == ''
  return load_text(concat(pieces), ...)
end
string.dump = nil

-- Random numbers are the same in each run, as in Redis.
local seed
local function random(low, high)
  seed = seed * 16807 % 2147483647
  local part = (seed - 1) / 2147483646
  if low == nil then
    return part
  end
  if high == nil then
    low, high = 1, low
  end
  if low > high then
    error('bad argument to \'random\' (interval is empty)', 2)
  end
  return low + floor(part * (high - low + 1))
end

local library = {}
for name, value in pairs(math) do
  library[name] = value
end
library.random = random
library.randomseed = function(to)
  seed = floor(to) % 2147483646 + 1
end

local redis = {
  status_reply = function(...)
    return is_text(...) and { ok = (...) } or { err = wrong }
  end,
  error_reply = function(...)
    return is_text(...) and { err = ((...):gsub('^-', '')) } or { err = wrong }
  end,
  sha1hex = host.sha1hex,
  log = host.log,
  LOG_DEBUG = 0,
  LOG_VERBOSE = 1,
  LOG_NOTICE = 2,
  LOG_WARNING = 3,
  -- There are no replicas: these choose what they would get.
  replicate_commands = function()
    return true
  end,
  set_repl = function() end,
  REPL_NONE = 0,
  REPL_SLAVE = 1,
  REPL_REPLICA = 1,
  REPL_AOF = 2,
  REPL_ALL = 3,
  breakpoint = function()
    return false
  end,
  debug = function() end,
  REDIS_VERSION = host.version,
  REDIS_VERSION_NUM = host.version_number,
}

local threads = {}
for name, value in pairs(coroutine) do
  threads[name] = value
end
threads.resume = function(...)
  return after(resume(...))
end

local allowed = {
  _VERSION = _VERSION,
  assert = assert,
  error = error,
  getmetatable = getmetatable,
  ipairs = ipairs,
  load = load_pieces,
  loadstring = load_text,
  next = next,
  pairs = pairs,
  rawequal = rawequal,
  rawget = rawget,
  select = select,
  setmetatable = setmetatable,
  tonumber = tonumber,
  tostring = tostring,
  type = type,
  unpack = unpack,
  pcall = function(...)
    return after_pcall(after(raw_pcall(...)))
  end,
  xpcall = function(call, handle)
    return after(raw_xpcall(call, function(what)
      return handle(told(what))
    end))
  end,
  rawset = function(table, ...)
    if views[table] then
      refuse()
    end
    return raw_rawset(table, ...)
  end,
  collectgarbage = function(option)
    return raw_collect(option == 'count' and 'count' or 'collect')
  end,
  bit = view(host.bit),
  cjson = view(host.cjson),
  cmsgpack = view(host.cmsgpack),
  coroutine = view(threads),
  math = view(library),
  redis = view(redis),
  server = view(redis),
  string = view(string),
  struct = view(host.struct),
  table = view(table),
}

getmetatable('').__metatable = false
local globals = _G
for name in pairs(globals) do
  globals[name] = nil
end
setmetatable(allowed, {
  __index = function(_, name)
    error('Script attempted to access nonexistent global variable \'' .. tostring(name) .. '\'', 2)
  end,
})
setmetatable(globals, { __index = allowed, __newindex = refuse, __metatable = false })
views[globals] = true
proxies[#proxies + 1] = globals
allowed._G = globals

-- An error becomes a table with its text and its place in the script.
local function explain(what)
  what = told(what)
  if type(what) ~= 'table' then
    what = { err = 'ERR ' .. tostring(what) }
  elseif type(what.err) ~= 'string' then
    what = { err = 'ERR unknown error' }
  end
  what.source, what.line = host.place()
  return what
end

-- Runs a function. Returns true and its result, or false and an error.
local function guarded(call)
  seed = 1
  local is_good, result = raw_xpcall(call, explain)
  -- Functions such as table.insert write to a view all the same.
  for at = 1, #proxies do
    local proxy = proxies[at]
    local name = next(proxy)
    while name ~= nil do
      raw_rawset(proxy, name, nil)
      name = next(proxy)
    end
  end
  return is_good, result
end

-- Runs a script.
local function run(script, keys, arguments)
  allowed.KEYS, allowed.ARGV = keys, arguments
  local is_good, result = guarded(script)
  allowed.KEYS, allowed.ARGV = nil, nil
  return is_good, result
end

-- Runs a function of a library.
local function call(callback, keys, arguments)
  return guarded(function()
    return callback(keys, arguments)
  end)
end

-- The functions that use the server belong to runs.
local function give_server()
  for name, value in pairs(host.of_run) do
    redis[name] = value
  end
end

-- Runs the code of a library, which registers functions and cannot use the server.
local missing = getmetatable(allowed)
local function load_library(library)
  for name in pairs(host.of_run) do
    redis[name] = nil
  end
  redis.register_function = host.register_function
  setmetatable(redis, missing)
  local is_good, result = guarded(library)
  setmetatable(redis, nil)
  redis.register_function = nil
  give_server()
  return is_good, result
end

give_server()
return run, call, load_library
