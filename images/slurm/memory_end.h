/* Of memory.c: how a job is ended, and files in shared memory, which outlive the processes that made them. */
static struct {
	uid_t user;
	long long bytes;
} owners[256];
static size_t owner_count;

static int add_file(const char *path, const struct stat *its, int kind, struct FTW *depth)
{
	size_t at = 0;
	(void) path, (void) kind, (void) depth;
	while (at < owner_count && owners[at].user != its->st_uid)
		at++;
	if (at == sizeof(owners) / sizeof(*owners))
		return 0;
	if (at == owner_count) {
		owners[owner_count].user = its->st_uid;
		owners[owner_count++].bytes = 0;
	}
	owners[at].bytes += its->st_blocks * 512LL;
	return 0;
}

/* A job of an unknown user is anybody's. */
static int may_have_job(uid_t user)
{
	for (size_t at = 0; at < job_count; at++)
		if (jobs[at].user == user || jobs[at].user == DAEMONS_USER)
			return 1;
	return 0;
}

static int remove_file(const char *path, const struct stat *its, int kind, struct FTW *depth)
{
	if (depth->level && its->st_uid != DAEMONS_USER && !may_have_job(its->st_uid)) {
		setfsgid(its->st_gid);
		setfsuid(its->st_uid);
		if (kind == FTW_DP ? rmdir(path) : unlink(path))
			say("%s can't be removed", path);
		setfsuid(geteuid());
		setfsgid(getegid());
	}
	return 0;
}

/* Whose job a job is, and what files of its user take. Returns whether users without a job have files. */
static int find_files(void)
{
	int orphans = 0;

	owner_count = 0;
	nftw(SHM, add_file, 16, FTW_PHYS | FTW_MOUNT);
	for (size_t at = 0; at < process_count; at++) {
		struct job *job = processes[at].is_leader ? job_of(processes[at].job) : NULL;
		if (job && job->user == DAEMONS_USER)
			job->user = user_of(processes[at].pid);
	}
	for (size_t owner = 0; owner < owner_count; owner++) {
		struct job *most = NULL;
		if (owners[owner].user == DAEMONS_USER)
			continue;
		for (size_t at = 0; at < job_count; at++)
			if (jobs[at].user == owners[owner].user && !jobs[at].ended && (!most || jobs[at].used > most->used))
				most = &jobs[at];
		if (most)
			most->used += owners[owner].bytes;
		else if (!may_have_job(owners[owner].user) && owners[owner].bytes)
			orphans = 1;
	}
	return orphans;
}

/* --- ending a job --- */

/* A slurmstepd, or one that is about to be a task. Users can give their processes any name. */
static int is_daemon(const struct process *process)
{
	return process->is_step || (!strcmp(process->name, "slurmstepd") && user_of(process->pid) == DAEMONS_USER);
}

static int signal_job(unsigned job, int signal, int steps)
{
	int count = 0;
	for (size_t at = 0; at < process_count; at++)
		if (processes[at].job == job && (steps || !is_daemon(&processes[at])))
			count += !kill(processes[at].pid, signal);
	return count;
}

/* Stops a job, or lets it go on, but for what was stopped before: `scontrol suspend` does that. */
static void brake(unsigned job, int signal)
{
	for (size_t at = 0; at < process_count; at++)
		if (processes[at].job == job && !processes[at].is_stopped && !is_daemon(&processes[at]))
			kill(processes[at].pid, signal);
}

static void continue_steps(unsigned job)
{
	for (size_t at = 0; at < process_count; at++)
		if (processes[at].is_step && (!job || processes[at].job == job))
			kill(processes[at].pid, SIGCONT);
}

/* Writes to the error output of the batch script, or of each task if there is none. */
static void write_to_output(unsigned job, const char *text)
{
	int is_batch = 0;
	for (int batch = 1; batch >= 0 && !is_batch; batch--)
		for (size_t at = 0; at < process_count; at++) {
			char path[64], title[64] = "";
			if (processes[at].job != job || !processes[at].is_leader)
				continue;
			snprintf(path, sizeof(path), "/proc/%d/cmdline", processes[at].parent);
			read_text(path, title, sizeof(title));
			if (batch && !strstr(title, ".batch"))
				continue;
			int file = open_as_its_user(processes[at].pid, "fd/2", O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY);
			if (file >= 0)
				is_batch |= dprintf(file, "seltzer: error: %s\n", text) > 0 && batch;
		}
}

/* An array's number stands for all of its tasks, so the comment needs the task's own name. A site's comment stays. */
static const char comment[] =
	"while read -r number name; do\n"
	"    [[ $number == \"$1\" ]] || continue\n"
	"    [[ $(scontrol --oneliner show job \"$name\") == *' AdminComment='* ]] && continue\n"
	"    scontrol update JobId=\"$name\" AdminComment=\"$2\"\n"
	"done < <(squeue --noheader --array --states=all --nodelist=\"$POD_NAME\" --format='%A %i')";

/* Tells slurmctld: a process of its own, since libraries may crash and servers may be silent. */
static void report(unsigned job, const char *text)
{
	struct {
		uint64_t sluid;
		uint32_t job, component, step;
	} step = {0, job, 0xfffffffe, 0xfffffffe};
	char number[16];
	glob_t found;

	snprintf(number, sizeof(number), "%u", job);
	pid_t shell = fork();
	if (shell == 0) {
		execl("/bin/bash", "bash", "-c", comment, "seltzer", number, text, NULL);
		_exit(127);
	}
	waitpid(shell, NULL, 0);
	if (glob("/usr/lib/*/slurm*/libslurmfull.so", 0, NULL, &found))
		return;
	void *library = dlopen(found.gl_pathv[0], RTLD_NOW | RTLD_GLOBAL);
	void (*init)(const char *) = library ? (void (*)(const char *)) dlsym(library, "slurm_init") : NULL;
	int (*complete)(void *, uint32_t) = library ? (int (*)(void *, uint32_t)) dlsym(library, "slurm_complete_job") : NULL;
	if (!init || !complete)
		return;
	init(NULL);
	if (complete(&step, OUT_OF_MEMORY))
		say("slurmctld doesn't take the end of job %u", job);
}

/* Not for ever: it may hang on a file system whose server is gone, where no signal reaches it. */
static void wait_for(pid_t child, int milliseconds)
{
	long long end = now_ms() + milliseconds;
	while (child > 0 && waitpid(child, NULL, WNOHANG) == 0) {
		if (now_ms() >= end) {
			kill(child, SIGKILL);
			return;
		}
		usleep(1000);
	}
}

static void end(struct job *job, const char *text)
{
	unsigned id = job->id;
	int before = -1, stopped = 0;

	/* Until none is new: a process may start others faster than they are found. */
	for (int round = 0; round < ROUNDS && stopped != before; round++) {
		before = stopped;
		stopped = signal_job(id, SIGSTOP, 1);
		scan();
	}
	signal_job(id, SIGSTOP, 1);
	fflush(stdout);
	pid_t writer = fork();
	if (writer == 0) {
		write_to_output(id, text);
		_exit(0);
	}
	wait_for(writer, OUTPUT_MS);
	signal_job(id, SIGKILL, 0);
	say("%s", text);
	/* scan() may have moved it. */
	if (!(job = job_of(id)))
		return;
	job->ended = now_ms();
	job->left = 1;
	job->reporter = fork();
	if (job->reporter == 0) {
		setpgid(0, 0);
		report(id, text);
		_exit(0);
	}
	if (job->reporter < 0) {
		job->reporter = 0;
		continue_steps(id);
	}
}

/* Kills what is left of ended jobs, and lets their slurmstepds go on when slurmctld has heard of it. */
static void follow(void)
{
	for (size_t at = 0; at < job_count; at++) {
		struct job *job = &jobs[at];
		long long since = now_ms() - job->ended;
		if (!job->ended)
			continue;
		job->left = signal_job(job->id, SIGKILL, 0);
		if (job->reporter && since > REPORT_MS) {
			say("slurmctld doesn't answer: job %u counts as failed", job->id);
			kill(-job->reporter, SIGKILL);
		}
		if (job->reporter && waitpid(job->reporter, NULL, since > REPORT_MS ? 0 : WNOHANG)) {
			job->reporter = 0;
			continue_steps(job->id);
		}
		/* Slurm may run it once more, by its number. */
		if (!job->reporter && since > 2 * REPORT_MS)
			job->ended = 0;
	}
}

/* Whether ended jobs have to be followed, and whether they are about to give memory back. */
static int is_ending(int soon)
{
	for (size_t at = 0; at < job_count; at++)
		if (jobs[at].ended && (soon ? jobs[at].left && now_ms() - jobs[at].ended < STUCK_MS
					    : jobs[at].left || jobs[at].reporter))
			return 1;
	return 0;
}

