/* Keeps the jobs of a pod to their memory where the kernel doesn't: /usr/lib/seltzer/memory, beside slurmd in its container.
 *
 * A job that uses more than it asked for in two looks, about a second apart, is ended. And when the pod runs out of memory,
 * the job that exceeds its share the most is ended before the kernel kills slurmd and all jobs. All of its processes are
 * stopped and killed at once, so that their memory is free within milliseconds; its slurmstepds are held meanwhile, so that
 * slurmctld hears of the reason first: the job is OUT_OF_MEMORY, its output and its AdminComment say why, and it isn't
 * requeued. Where slurmctld doesn't answer the job is killed all the same, and counts as FAILED.
 *
 * What a job uses: memory of its own and shared memory, in all of its steps; a page that N processes share counts as 1/N of a
 * page for each. Files that it reads don't count: the kernel drops them when memory is short. What a pod uses: what the kernel
 * couldn't drop. What a job asked for: its slurmstepd knows. Unknown never ends a job, unless the pod has run out of memory.
 *
 * Nothing here needs a capability beyond slurmd's. Files of a job are opened as the job's user.
 */
#include "memory_pod.h"

#include "memory_jobs.h"

#include "memory_end.h"

/* The one that exceeds its share the most; else the largest of those whose share is unknown; else the one closest to it. */
static struct job *worst_job(void)
{
	struct job *worst = NULL;
	long long most = 0, known = 1LL << 50;
	for (size_t at = 0; at < job_count; at++) {
		struct job *job = &jobs[at];
		long long over = job->share < 0 ? job->used : job->used - job->share;
		/* Three ranks, far from each other. */
		over += job->share < 0 ? 0 : over > 0 ? known : -known;
		if (job->ended || !job->used || (worst && over <= most))
			continue;
		worst = job;
		most = over;
	}
	return worst;
}

/* The pod has run out of memory. */
static void relieve(const struct level *level)
{
	static long long said;
	struct job *worst = NULL;
	char text[LINE], share[64] = "an unknown amount";

	/* A brake, by what is known at once. */
	for (size_t at = 0; at < job_count; at++)
		jobs[at].used = used_by_job(&jobs[at], RESIDENT);
	unsigned stopped = (worst = worst_job()) ? worst->id : 0;
	if (worst)
		brake(stopped, SIGSTOP);
	for (size_t at = 0; at < job_count; at++)
		jobs[at].used = used_by_job(&jobs[at], OWN);
	int orphans = find_files();
	worst = orphans ? NULL : worst_job();
	if (stopped && (!worst || worst->id != stopped))
		brake(stopped, SIGCONT);
	/* The kernel may have been faster. */
	struct level again = look();
	if (!is_short(&again)) {
		if (worst && worst->id == stopped)
			brake(stopped, SIGCONT);
		return;
	}
	if (orphans) {
		say("the pod is out of memory: files of users without a job are removed from " SHM);
		nftw(SHM, remove_file, 16, FTW_PHYS | FTW_MOUNT | FTW_DEPTH);
		return;
	}
	if (!worst) {
		if (now_ms() - said > 60000)
			say("the pod is out of memory (%lld of %lld MiB), and no job uses any", level->used / MIB, level->limit / MIB);
		said = now_ms();
		return;
	}
	if (worst->share >= 0)
		snprintf(share, sizeof(share), "%lld MiB", worst->share / MIB);
	snprintf(text, sizeof(text), "job %u is ended: its node is out of memory (%lld of %lld MiB), and the job, which asked for %s "
		 "and uses %lld MiB, exceeds its share the most; ask for what it needs with --mem", worst->id,
		 level->used / MIB, level->limit / MIB, share, worst->used / MIB);
	end(worst, text);
}

/* Asks for the exact figure, which may take as long as a burst takes to fill the pod: in a process of its own. */
static void probe(struct job *job)
{
	int ends[2];
	if (pipe2(ends, O_CLOEXEC | O_NONBLOCK))
		return;
	job->probed_at = now_ms();
	job->prober = fork();
	if (job->prober == 0) {
		long long exact = used_by_job(job, EXACT);
		_exit(write(ends[1], &exact, sizeof(exact)) != sizeof(exact));
	}
	close(ends[1]);
	job->answer = ends[0];
	if (job->prober < 0) {
		close(ends[0]);
		job->prober = 0;
	}
}

/* Jobs that use more than they asked for. Returns whether one was ended: there may be more. */
static int sample(void)
{
	for (size_t at = 0; at < job_count; at++) {
		struct job *job = &jobs[at];
		char text[LINE];
		long long now = now_ms();
		if (job->ended || job->share < 0 || now < job->exact_after)
			continue;
		if (used_by_job(job, RESIDENT) <= job->share || used_by_job(job, OWN) <= job->share) {
			job->over_since = 0;
			continue;
		}
		if (!job->prober)
			probe(job);
		long long exact = probed(job);
		if (exact < 0)
			continue;
		job->used = exact;
		if (exact <= job->share) {
			job->over_since = 0;
			job->exact_after = now + (now - job->probed_at) * COST;
		} else if (!job->over_since) {
			job->over_since = now;
		} else if (now - job->over_since >= SAMPLE_MS) {
			snprintf(text, sizeof(text), "job %u is ended: it asked for %lld MiB on this node and uses %lld MiB; ask for "
				 "what it needs with --mem", job->id, job->share / MIB, job->used / MIB);
			end(job, text);
			return 1;
		}
	}
	return 0;
}

/* Whether slurmd has steps. Looking at processes costs more. */
static int has_steps(void)
{
	int found = 0;
	struct dirent *entry;
	DIR *spool = opendir(SPOOL);
	while (spool && !found && (entry = readdir(spool))) {
		const char *dot = strrchr(entry->d_name, '.'), *bar = strrchr(entry->d_name, '_');
		found = bar && dot && dot > bar && isdigit(bar[1]) && isdigit(dot[1]);
	}
	if (spool)
		closedir(spool);
	return found;
}

int main(void)
{
	const char *wanted = getenv("SELTZER_MEMORY_SAMPLING");
	int samples = !wanted || strcmp(wanted, "0");
	long long next = 0;

	scan();
	continue_steps(0);
	for (;;) {
		struct level level = look();
		long long began = now_ms(), pause = LATEST_MS;

		if (is_ending(0)) {
			scan();
			follow();
		}
		if (is_short(&level) && !is_ending(1)) {
			scan();
			relieve(&level);
		} else if (began >= next && has_steps()) {
			int filling = level.limit && level.used > level.limit / 4 * 3;
			scan();
			next = now_ms() + (now_ms() - began) * (filling ? DEARER : COST);
			if (next < began + (filling ? SAMPLE_MS / 10 : SAMPLE_MS))
				next = began + (filling ? SAMPLE_MS / 10 : SAMPLE_MS);
			if (samples && sample())
				next = 0;
			offer_jobs();
		}
		if (level.limit)
			pause = (level.limit - level.margin - level.used) / MIB / FASTEST_MIB_PER_MS;
		pause = pause > LATEST_MS ? LATEST_MS : pause < SOONEST_MS ? SOONEST_MS : pause;
		if (is_ending(0) && pause > FOLLOW_MS)
			pause = FOLLOW_MS;
		usleep(pause * 1000);
	}
}
