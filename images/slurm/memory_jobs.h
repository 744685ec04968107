/* Of memory.c: the jobs of this container, their processes, and what they use. */
static struct job *job_of(unsigned id)
{
	for (size_t at = 0; at < job_count; at++)
		if (jobs[at].id == id)
			return &jobs[at];
	return NULL;
}

static int exchange(int fd, const void *question, void *answer, size_t size)
{
	return send(fd, question, sizeof(int), MSG_NOSIGNAL) == sizeof(int) &&
	       recv(fd, answer, size, MSG_WAITALL) == (ssize_t) size;
}

/* What the job asked for on this node, in bytes, as any of its steps knows it; -1 if none says so. */
static long long ask_share(unsigned job)
{
	struct sockaddr_un where = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_usec = PATIENCE_MS * 1000};
	int version = PROTOCOL, theirs, question = REQUEST_STEP_MEM_LIMITS;
	uint64_t mebibytes = 0;
	char ours[32];
	long long share = -1;
	struct dirent *entry;
	DIR *spool = opendir(SPOOL);

	snprintf(ours, sizeof(ours), "_%u.", job);
	while (spool && share < 0 && (entry = readdir(spool))) {
		const char *found = strstr(entry->d_name, ours);
		int length = snprintf(where.sun_path, sizeof(where.sun_path), SPOOL "/%s", entry->d_name);
		if (!found || strspn(found + strlen(ours), "0123456789.") != strlen(found + strlen(ours)) ||
		    length >= (int) sizeof(where.sun_path))
			continue;
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
		if (connect(fd, (struct sockaddr *) &where, sizeof(where)) == 0 &&
		    exchange(fd, &version, &theirs, sizeof(theirs)) && theirs > 0 &&
		    exchange(fd, &question, &mebibytes, sizeof(mebibytes)) && mebibytes && mebibytes < 1ULL << 40)
			share = (mebibytes < LEAST_MIB ? LEAST_MIB : mebibytes) * MIB;
		close(fd);
	}
	if (spool)
		closedir(spool);
	return share;
}

/* Not the owner of its folder, which is root for a process that can't be looked into. */
static uid_t user_of(pid_t pid)
{
	char path[64], text[4096];
	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	return read_text(path, text, sizeof(text)) ? value_of(text, "Uid") : DAEMONS_USER;
}

/* Whether a process is in this container: a pod may see all processes of its machine. */
static int is_here(pid_t pid)
{
	char path[64], theirs[64] = "", ours[64] = "";
	snprintf(path, sizeof(path), "/proc/%d/ns/mnt", pid);
	return readlink(path, theirs, sizeof(theirs) - 1) > 0 && readlink("/proc/self/ns/mnt", ours, sizeof(ours) - 1) > 0 &&
	       !strcmp(theirs, ours);
}

/* The job of a slurmstepd, which is root's: users can give their processes any name. */
static unsigned job_of_step(pid_t pid)
{
	char path[64], text[4096];
	unsigned job = 0;

	snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
	if (!read_text(path, text, sizeof(text)) || sscanf(text, "slurmstepd: [%u", &job) != 1)
		return 0;
	return user_of(pid) == DAEMONS_USER && is_here(pid) ? job : 0;
}

static int by_pid(const void *one, const void *other)
{
	return ((const struct process *) one)->pid - ((const struct process *) other)->pid;
}

static int read_process(pid_t pid, struct process *process)
{
	char path[64], text[1024], state, *name, *rest;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	if (!read_text(path, text, sizeof(text)) || !(name = strchr(text, '(')) || !(rest = strrchr(text, ')')))
		return 0;
	*process = (struct process) {.pid = pid};
	snprintf(process->name, sizeof(process->name), "%.*s", (int) (rest - name - 1), name + 1);
	int found = sscanf(rest + 2,
			   "%c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %*u %*u %ld", &state,
			   &process->parent, &process->resident);
	process->is_stopped = state == 'T';
	return found == 3 && state != 'Z';
}

/* Opens a file of a process as its user may: root without capabilities may not. */
static int open_as_its_user(pid_t pid, const char *name, int flags)
{
	struct stat its;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d", pid);
	if (stat(path, &its))
		return -1;
	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	setfsgid(its.st_gid);
	setfsuid(its.st_uid);
	int file = open(path, flags | O_CLOEXEC);
	setfsuid(geteuid());
	setfsgid(getegid());
	return file;
}

/* Where the kernel is faster than this program, it is to choose a job that exceeds its share rather than its neighbour. */
static void offer_to_kernel(pid_t pid)
{
	char text[32], path[64];
	int worse;

	if (!read_text("/proc/self/oom_score_adj", text, sizeof(text)))
		return;
	worse = atoi(text) + MUCH_WORSE > 1000 ? 1000 : atoi(text) + MUCH_WORSE;
	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", pid);
	if (!read_text(path, text, sizeof(text)) || atoi(text) >= worse)
		return;
	int file = open_as_its_user(pid, "oom_score_adj", O_WRONLY);
	if (file >= 0) {
		dprintf(file, "%d", worse);
		close(file);
	}
}

static struct process *find(pid_t pid)
{
	struct process wanted = {.pid = pid};
	return bsearch(&wanted, processes, process_count, sizeof(wanted), by_pid);
}

static void add_job(unsigned id)
{
	struct job *job = job_of(id);
	if (!job) {
		if (job_count == job_room) {
			void *more = realloc(jobs, (job_room + 64) * sizeof(*jobs));
			if (!more)
				return;
			jobs = more;
			job_room += 64;
		}
		job = &jobs[job_count++];
		*job = (struct job) {.id = id, .share = -1};
	}
	job->seen = 1;
	if (job->share < 0)
		job->share = ask_share(id);
}

/* Each process below a slurmstepd belongs to its job, also one whose parent has ended: slurmstepd inherits it. */
static void assign(void)
{
	for (size_t at = 0; at < process_count; at++) {
		struct process *process = &processes[at], *above = find(process->parent);
		if (!strcmp(process->name, "slurmstepd") && !(above && !strcmp(above->name, "slurmstepd")) &&
		    (process->job = job_of_step(process->pid))) {
			process->is_step = 1;
			add_job(process->job);
		}
	}
	for (size_t at = 0; at < process_count; at++) {
		struct process *process = &processes[at], *above = process;
		for (int depth = 0; depth < 1000 && above && !above->is_step; depth++)
			above = find(above->parent);
		if (!above || process->is_step || !above->is_step)
			continue;
		process->job = above->job;
		process->is_leader = process->parent == above->pid;
	}
}

/* The exact figure; negative while it isn't known. */
static long long probed(struct job *job)
{
	long long exact = -1;
	if (!job->prober || !waitpid(job->prober, NULL, WNOHANG))
		return -1;
	if (read(job->answer, &exact, sizeof(exact)) != sizeof(exact))
		exact = -1;
	close(job->answer);
	job->prober = 0;
	return exact;
}

/* All processes, and the jobs that run. */
static void scan(void)
{
	struct dirent *entry;
	DIR *all = opendir("/proc");

	process_count = 0;
	while (all && (entry = readdir(all))) {
		if (!isdigit(*entry->d_name))
			continue;
		if (process_count == process_room) {
			void *more = realloc(processes, (process_room + 1024) * sizeof(*processes));
			if (!more)
				break;
			processes = more;
			process_room += 1024;
		}
		process_count += read_process(atoi(entry->d_name), &processes[process_count]);
	}
	if (all)
		closedir(all);
	qsort(processes, process_count, sizeof(*processes), by_pid);
	for (size_t at = 0; at < job_count; at++)
		jobs[at].seen = 0;
	assign();
	for (size_t at = 0; at < job_count;)
		if (!jobs[at].seen && !jobs[at].reporter && !(jobs[at].prober && probed(&jobs[at]) < 0))
			jobs[at] = jobs[--job_count];
		else
			at++;
}

/* --- what a job uses --- */

enum how { RESIDENT, OWN, EXACT };

/* In bytes. RESIDENT costs nothing and is never less than OWN, which counts shared pages more than once; EXACT doesn't, and takes
 * 60 ms per GiB. */
static long long used_by(const struct process *process, enum how how)
{
	char path[64], text[4096];
	int file;

	if (how == RESIDENT)
		return process->resident * sysconf(_SC_PAGESIZE);
	if (how == EXACT && (file = open_as_its_user(process->pid, "smaps_rollup", O_RDONLY)) >= 0) {
		ssize_t length = read(file, text, sizeof(text) - 1);
		close(file);
		text[length > 0 ? length : 0] = '\0';
		long long own = value_of(text, "Pss_Anon"), shared = value_of(text, "Pss_Shmem");
		if (own >= 0 && shared >= 0)
			return (own + shared) * 1024;
	}
	snprintf(path, sizeof(path), "/proc/%d/status", process->pid);
	read_text(path, text, sizeof(text));
	long long own = value_of(text, "RssAnon"), shared = how == OWN ? value_of(text, "RssShmem") : 0;
	return ((own > 0 ? own : 0) + (shared > 0 ? shared : 0)) * 1024;
}

static long long used_by_job(struct job *job, enum how how)
{
	long long sum = 0;
	for (size_t at = 0; at < process_count; at++)
		if (processes[at].job == job->id && !processes[at].is_step)
			sum += used_by(&processes[at], how);
	return sum;
}

static void offer_jobs(void)
{
	for (size_t at = 0; at < process_count; at++) {
		struct job *job = processes[at].is_step ? NULL : job_of(processes[at].job);
		if (job && job->over_since)
			offer_to_kernel(processes[at].pid);
	}
}

