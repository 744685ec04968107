-- Written by Seltzer: keeps what each batch job asked for, so that a job that slurmctld has acknowledged and not yet
-- saved when it is killed can be put back. The site's own script is in job_submit_site.lua, and still decides.
--
-- For each batch job that is accepted, one line of JSON is in the journal before the job has an ID, and the line's key
-- is in the job's environment as SELTZER_JOB, the first of that name. Its script and environment are in its directory.
-- Errors here never reject a job: without a line it is a job as in stock Slurm. Only submissions that could forge lines of
-- slurmctld's log, by which the guard knows what has run, and those of removed users, are rejected.

local JOURNAL = "/run/slurmctld-state/seltzer.journal"
local SITE = "job_submit_site.lua"
-- The IDs of users who may no longer submit jobs, one per line. Kubernetes replaces the file when the users change.
local REMOVED = "/var/lib/extrausers/removed"

-- The site's script may change what is global.
local slurm, pcall, tonumber, type, pairs = slurm, pcall, tonumber, type, pairs
local open, time, format, concat = io.open, os.time, string.format, table.concat

local NO_VAL, INFINITE, NO_VAL16, INFINITE16 = 4294967294, 4294967295, 65534, 65535
local NICE_OFFSET = 2147483648

-- What Lua calls it, and what slurmrestd does.

local TEXTS = {
    account = "account",
    acctg_freq = "account_gather_frequency",
    admin_comment = "admin_comment",
    array_inx = "array",
    batch_features = "batch_features",
    burst_buffer = "burst_buffer",
    comment = "comment",
    container = "container",
    cpus_per_tres = "cpus_per_tres",
    dependency = "dependency",
    extra = "extra",
    features = "constraints",
    licenses = "licenses",
    mail_user = "mail_user",
    mcs_label = "mcs_label",
    mem_per_tres = "memory_per_tres",
    name = "name",
    network = "network",
    partition = "partition",
    prefer = "prefer",
    qos = "qos",
    reservation = "reservation",
    selinux_context = "selinux_context",
    std_err = "standard_error",
    std_in = "standard_input",
    std_out = "standard_output",
    tres_bind = "tres_bind",
    tres_freq = "tres_freq",
    tres_per_job = "tres_per_job",
    tres_per_node = "tres_per_node",
    tres_per_socket = "tres_per_socket",
    tres_per_task = "tres_per_task",
    wckey = "wckey",
    work_dir = "current_working_directory",
}

-- Logged as they are when a job is submitted, also when Slurm knows no such thing. No control character can be in one
-- that it knows. When a job is changed, all that is changed is logged.
local LOGGED = {
    "account",
    "array_inx",
    "batch_features",
    "cpus_per_tres",
    "dependency",
    "exc_nodes",
    "features",
    "licenses",
    "mcs_label",
    "mem_per_tres",
    "network",
    "partition",
    "prefer",
    "qos",
    "req_nodes",
    "reservation",
    "tres_bind",
    "tres_freq",
    "tres_per_job",
    "tres_per_node",
    "tres_per_socket",
    "tres_per_task",
    "wckey",
}

local LISTS = { exc_nodes = "excluded_nodes", req_nodes = "required_nodes" }

local CHANGED = {}
for _, known in pairs({ TEXTS, LISTS }) do
    for field in pairs(known) do
        CHANGED[#CHANGED + 1] = field
    end
end

-- Of 16 bits, where 0 is the same as nothing.
local COUNTS = {
    boards_per_node = "minimum_boards_per_node",
    cores_per_socket = "cores_per_socket",
    cpus_per_task = "cpus_per_task",
    ntasks_per_board = "tasks_per_board",
    ntasks_per_core = "tasks_per_core",
    ntasks_per_node = "tasks_per_node",
    ntasks_per_socket = "tasks_per_socket",
    ntasks_per_tres = "ntasks_per_tres",
    pn_min_cpus = "minimum_cpus_per_node",
    sockets_per_board = "minimum_sockets_per_board",
    sockets_per_node = "sockets_per_node",
    threads_per_core = "threads_per_core",
}

local NUMBERS = {
    delay_boot = "delay_boot",
    max_cpus = "maximum_cpus",
    max_nodes = "maximum_nodes",
    min_cpus = "minimum_cpus",
    min_nodes = "minimum_nodes",
    num_tasks = "tasks",
    pn_min_tmp_disk = "temporary_disk_per_node",
    site_factor = "site_factor",
    thread_spec = "thread_specification",
    wait4switch = "wait_for_switch",
}

-- Numbers that slurmrestd takes as an object.
local OBJECTS = {
    min_mem_per_cpu = "memory_per_cpu",
    min_mem_per_node = "memory_per_node",
    req_switch = "required_switches",
    time_limit = "time_limit",
    time_min = "time_minimum",
}

local SWITCHES = { reboot = "reboot", requeue = "requeue" }

local SHARED = { [0] = "none", "oversubscribe", "user", "mcs", "topo" }

-- By bit. Only what a user can ask for: Slurm sets the others by itself.
local FLAGS = {
    [0] = "KILL_INVALID_DEPENDENCY",
    [1] = "NO_KILL_INVALID_DEPENDENCY",
    [4] = "GRES_BINDING_ENFORCED",
    [8] = "SPREAD_JOB",
    [9] = "PREFER_MINIMUM_NODE_COUNT",
    [14] = "EXACT_TASK_COUNT_REQUESTED",
    [15] = "EXACT_CPU_COUNT_REQUESTED",
    [19] = "GRES_BINDING_DISABLED",
    [23] = "EXACT_MEMORY_REQUESTED",
    [41] = "STEPMGR_ENABLED",
    [43] = "SPREAD_SEGMENTS",
    [44] = "CONSOLIDATE_SEGMENTS",
    [45] = "EXPEDITED_REQUEUE",
}

local MAILS = {
    [0] = "BEGIN",
    "END",
    "FAIL",
    "REQUEUE",
    "TIME=100%",
    "TIME=90%",
    "TIME=80%",
    "TIME=50%",
    "STAGE_OUT",
    "ARRAY_TASKS",
    "INVALID_DEPENDENCY",
}

local FREQUENCIES = { [2147483649] = "low", [2147483650] = "medium", [2147483651] = "high", [2147483652] = "highm1" }
local GOVERNORS = {
    [2151677952] = "SchedUtil",
    [2155872256] = "UserSpace",
    [2164260864] = "PowerSave",
    [2181038080] = "Performance",
    [2214592512] = "OnDemand",
    [2281701376] = "Conservative",
}

local function is_utf8(text)
    if not text:find("[\128-\255]") then
        return true
    end
    local rest = text
        :gsub("[\194-\223][\128-\191]", " ")
        :gsub("\224[\160-\191][\128-\191]", " ")
        :gsub("[\225-\236\238\239][\128-\191][\128-\191]", " ")
        :gsub("\237[\128-\159][\128-\191]", " ")
        :gsub("\240[\144-\191][\128-\191][\128-\191]", " ")
        :gsub("[\241-\243][\128-\191][\128-\191][\128-\191]", " ")
        :gsub("\244[\128-\143][\128-\191][\128-\191]", " ")
    return not rest:find("[\128-\255]")
end

local function escape(character)
    return format("\\u%04x", character:byte())
end

-- Escapes everything that any program treats as a line break.
local function quote(text)
    text = text:gsub('[\1-\31"\\]', escape)
    if text:find("[\128-\255]") then
        text = text:gsub("\194\133", "\\u0085"):gsub("\226\128\168", "\\u2028"):gsub("\226\128\169", "\\u2029")
    end
    return '"' .. text .. '"'
end

-- The names of the bits that are set, as JSON.
local function names(bits, known)
    local found = {}
    for bit, name in pairs(known) do
        if bits % 2 ^ (bit + 1) >= 2 ^ bit then
            found[#found + 1] = quote(name)
        end
    end
    return found[1] and "[" .. concat(found, ",") .. "]"
end

-- A table of Lua's or Slurm's that begins with 0, as JSON.
local function array(texts)
    local found, at = {}, 0
    while texts[at] do
        found[#found + 1] = quote(texts[at])
        at = at + 1
    end
    return "[" .. concat(found, ",") .. "]"
end

local function object(number)
    if number == INFINITE then
        return '{"set":false,"infinite":true,"number":0}'
    end
    return format('{"set":true,"infinite":false,"number":%.0f}', number)
end

-- As --cpu-freq takes it.
local function frequency(low, high, governor)
    local parts = {}
    if high and high ~= NO_VAL and high ~= 0 then
        local from = low and low ~= NO_VAL and low ~= 0 and (FREQUENCIES[low] or format("%.0f", low)) .. "-" or ""
        parts[1] = from .. (FREQUENCIES[high] or format("%.0f", high))
    end
    parts[#parts + 1] = GOVERNORS[governor]
    return parts[1] and concat(parts, ":")
end

-- All that can be kept, as a JSON object for POST /job/submit, and why that isn't enough, if it isn't.
local function options(job)
    local found, cannot = {}, nil
    local function put(name, json)
        found[#found + 1] = quote(name) .. ":" .. json
    end
    local function put_text(name, text)
        if not is_utf8(text) then
            cannot = name .. " isn't UTF-8"
            return
        end
        put(name, quote(text))
    end
    for field, name in pairs(TEXTS) do
        local value = job[field]
        if value then
            put_text(name, value)
        end
    end
    for field, name in pairs(LISTS) do
        local value = job[field]
        if value then
            put(name, "[" .. quote(value) .. "]")
        end
    end
    for field, name in pairs(COUNTS) do
        local value = job[field]
        if value and value ~= 0 and value ~= NO_VAL16 and value ~= INFINITE16 then
            put(name, format("%.0f", value))
        end
    end
    for field, name in pairs(NUMBERS) do
        local value = job[field]
        if value and value ~= NO_VAL and value ~= INFINITE then
            put(name, format("%.0f", value))
        end
    end
    for field, name in pairs(OBJECTS) do
        local value = job[field]
        if value and value ~= NO_VAL then
            put(name, object(value))
        end
    end
    for field, name in pairs(SWITCHES) do
        local value = job[field]
        if value and value ~= NO_VAL16 then
            put(name, value == 0 and "false" or "true")
        end
    end
    put("user_id", format('"%.0f"', job.user_id))
    put("group_id", format('"%.0f"', job.group_id))
    put("oom_kill_step", format("%.0f", NO_VAL16)) -- without it slurmrestd says 0
    if job.contiguous == 1 then
        put("contiguous", "true")
    end
    -- Lua can't see --overcommit, but what sbatch makes of it where --ntasks is given (bit 14).
    local tasks, cpus, nodes = job.num_tasks, job.min_cpus, job.min_nodes
    if job.bitflags % 32768 >= 16384 and cpus < tasks and cpus == (nodes ~= NO_VAL and nodes or 1) then
        put("overcommit", "true")
    end
    local argv, spank = job.argv, job.spank_job_env
    if argv then
        put("argv", array(argv))
    end
    if spank then
        put("spank_environment", array(spank))
    end
    local begin, shared, segment = job.begin_time, job.shared, job.segment_size
    if begin and begin ~= 0 then
        put("begin_time", object(begin))
    end
    if SHARED[shared] then
        put("shared", "[" .. quote(SHARED[shared]) .. "]")
    end
    if segment and segment ~= 0 and segment ~= NO_VAL16 then
        put("segment_size", object(segment))
    end
    local priority, nice = job.priority, job.nice
    if priority == 0 then
        put("hold", "true")
    elseif priority and priority ~= NO_VAL then
        put("priority", object(priority))
    end
    if nice and nice ~= NO_VAL then
        put("nice", format("%.0f", nice - NICE_OFFSET))
    end
    local flags, mails = names(job.bitflags, FLAGS), names(job.mail_type, MAILS)
    if flags then
        put("flags", flags)
    end
    if mails and job.mail_type ~= NO_VAL16 then
        put("mail_type", mails)
    end
    local speed = frequency(job.cpu_freq_min, job.cpu_freq_max, job.cpu_freq_gov)
    if speed then
        put("cpu_frequency", quote(speed))
    end
    local core_spec = job.core_spec
    if core_spec and core_spec ~= 0 then
        put("core_specification", format("%.0f", core_spec))
    elseif core_spec then
        cannot = "slurmrestd takes no --core-spec=0"
    end
    if job.cron_job then
        cannot = "it comes from a crontab"
    elseif job.het_job_offset ~= NO_VAL then
        cannot = "it is a part of a heterogeneous job"
    end
    return "{" .. concat(found, ",") .. "}", cannot
end

-- No two loads of this file make the same keys, in whatever slurmctld of the cluster.
local function birth()
    local file = open("/dev/urandom", "rb")
    local bytes = file and file:read(12)
    if file then
        file:close()
    end
    if not bytes or #bytes < 12 then
        return nil
    end
    return (bytes:gsub(".", function(byte)
        return format("%02x", byte:byte())
    end))
end

-- slurmctld is SlurmUser.
local function own_uid()
    local file = open("/proc/self/status")
    local text = file and file:read("*a")
    if file then
        file:close()
    end
    return text and tonumber(text:match("\nUid:%s+(%d+)"))
end

local random, slurm_uid, count = birth(), own_uid(), 0
local complained = 0
-- The slurmctld before this one may have been killed within a line.
local torn = true

local function complain(why)
    local now = time()
    if now - complained >= 60 then
        complained = now
        pcall(slurm.log_error, "seltzer: jobs aren't written down and can't be put back after a crash: %s", why)
    end
end

-- Opened by path each time: once the directory is renamed, this slurmctld must not write.
local function append(line)
    local file, why = open(JOURNAL, "a")
    if not file then
        error(why, 0)
    end
    -- One write for one line.
    file:setvbuf("full", #line + 2)
    local written, problem = file:write(torn and "\n" or "", line, "\n")
    local closed, late = file:close()
    torn = not (written and closed)
    if torn then
        error(problem or late or JOURNAL, 0)
    end
end

local function keep(job, uid)
    if not job.script then
        return -- it isn't a batch job
    end
    local environment = job.environment
    -- Inherited from the job that runs sbatch: if our line fails, this one would be put back with that one's options.
    if environment.SELTZER_JOB then
        environment.SELTZER_JOB = ""
    end
    count = count + 1
    local key = random .. "-" .. count
    local wanted, cannot = options(job)
    local line = { '{"v":1,"key":"', key, '","time":', format("%.0f", time()), ',"uid":', format("%.0f", uid) }
    line[#line + 1] = cannot and ',"cannot":' .. quote(cannot) or ""
    line[#line + 1] = ',"options":' .. wanted .. "}"
    append(concat(line))
    environment.SELTZER_JOB = key
end

local function note(record)
    -- A task of an array is known by the array's directory.
    local id = record.array_job_id
    if not id or id == 0 then
        id = record.job_id
    end
    append(format('{"v":1,"modified":"%.0f","time":%.0f}', id, time()))
end

-- Whether the guard is putting back a job that the site accepted before.
local function is_put_back(job, uid)
    if uid ~= 0 and uid ~= slurm_uid or not job.script then
        return false
    end
    local environment = job.environment
    local key = environment.SELTZER_PUT_BACK
    if not key or key == "" then
        return false
    end
    environment.SELTZER_JOB = key
    -- Jobs that this one submits aren't put back.
    environment.SELTZER_PUT_BACK = ""
    return true
end

-- As Slurm sees it: what isn't a number is no error.
local function accepted(code)
    local number = tonumber(code)
    return number == nil or (number > -1 and number < 1)
end

local function attempt(work, ...)
    local done, why = pcall(work, ...)
    if not done then
        complain(why)
    end
    return done and why
end

-- Whether no source lists the user any more. A job that runs on could otherwise submit the next one for ever.
local function is_removed(uid)
    local file = open(REMOVED)
    local text = file and file:read("*a")
    if file then
        file:close()
    end
    return text and ("\n" .. text):find(format("\n%.0f\n", uid), 1, true) ~= nil
end

-- The first of these fields, if any, that would end a line of slurmctld's log.
local function forger(job, fields)
    for at = 1, #fields do
        local value = job[fields[at]]
        if type(value) == "string" and value:find("%c") then
            return fields[at]
        end
    end
end

local function refuse(field)
    pcall(slurm.log_user, "a control character, such as the end of a line, can't be in a job's " .. field)
    return slurm.ERROR
end

local function load_site()
    local here = debug.getinfo(1, "S").source:match("^@(.*/)") or "/etc/slurm/"
    local file = open(here .. SITE)
    if not file then
        return
    end
    local text = file:read("*a")
    file:close()
    -- Errors in it are reported under the site's file name.
    local chunk, why = loadstring(text:gsub("^#[^\n]*", ""), "@" .. here .. "job_submit.lua")
    if not chunk then
        error(why, 0)
    end
    chunk()
    return true
end

local has_site = load_site()
local site_submit, site_modify = slurm_job_submit, slurm_job_modify

local function submit(job, partitions, uid)
    if attempt(is_put_back, job, uid) then
        return slurm.SUCCESS
    end
    local bad = attempt(forger, job, LOGGED)
    if bad then
        return refuse(bad)
    end
    if attempt(is_removed, uid) then
        pcall(slurm.log_user, "you are no longer a user of this cluster: ask its administrator")
        return slurm.ERROR
    end
    local code = slurm.SUCCESS
    if has_site then
        code = site_submit(job, partitions, uid)
    else
        -- Slurm rebuilds this table of all jobs every second. Nothing reads it, and keeping it costs Lua time.
        slurm.jobs = nil
    end
    if accepted(code) then
        attempt(keep, job, uid)
    end
    return code
end

local function modify(job, record, partitions, uid)
    local bad = attempt(forger, job, CHANGED)
    if bad then
        return refuse(bad)
    end
    local code = slurm.SUCCESS
    if has_site then
        code = site_modify(job, record, partitions, uid)
    end
    if accepted(code) then
        attempt(note, record)
    end
    return code
end

-- Slurm rejects a site's script that lacks one of them, as always.
if type(site_submit) == "function" or not has_site then
    slurm_job_submit = submit
end
if type(site_modify) == "function" or not has_site then
    slurm_job_modify = modify
end
