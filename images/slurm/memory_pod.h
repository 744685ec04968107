/* What the parts of memory.c share, and what the pod uses and may use. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <ftw.h>
#include <glob.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef CGROUP
#define CGROUP "/sys/fs/cgroup"
#endif
#ifndef SPOOL
#define SPOOL "/var/spool/slurmd"
#endif
#ifndef SHM
#define SHM "/dev/shm"
#endif
#ifndef DAEMONS_USER
#define DAEMONS_USER 0
#endif
#ifndef SAMPLE_MS
#define SAMPLE_MS 1000
#endif
#define MIB 1048576LL

enum {
	/* Slurm 26.05. Newer steps speak it for years, older ones answer with their own version. */
	PROTOCOL = 45 << 8,
	REQUEST_STEP_MEM_LIMITS = 19,
	/* Slurm's code for a job that is out of memory. */
	OUT_OF_MEMORY = 253,
	PATIENCE_MS = 100,
	/* No job has less than this, whatever it asked for: a shell takes some. Slurm's own MinRAMSpace. */
	LEAST_MIB = 30,
	/* While memory is short, and while nothing happens. */
	SOONEST_MS = 10,
	LATEST_MS = 500,
	/* No job fills memory faster: 8 GiB/s. */
	FASTEST_MIB_PER_MS = 8,
	/* At most this part of the time is spent looking at processes, and when most of the memory is used. */
	COST = 100,
	DEARER = 10,
	FOLLOW_MS = 20,
	OUTPUT_MS = 200,
	REPORT_MS = 5000,
	/* A killed process gives its memory back within this time, or is stuck. */
	STUCK_MS = 2000,
	ROUNDS = 5,
	/* Of 1000: half of the memory. */
	MUCH_WORSE = 500,
	LINE = 512,
};

struct process {
	pid_t pid, parent;
	unsigned job;
	int is_step, is_leader, is_stopped;
	long resident;
	char name[16];
};

struct job {
	unsigned id;
	/* DAEMONS_USER: unknown, or it is a job of theirs. */
	uid_t user;
	int seen, left;
	/* In bytes; negative: unknown. */
	long long share, used;
	/* Since when it has used more than its share, and when the exact figure is worth another look. */
	long long over_since, exact_after;
	/* A process that finds out the exact figure, and where it will write it. */
	pid_t prober;
	int answer;
	long long probed_at;
	/* When it was ended; 0 if it wasn't. The process that reports it. */
	long long ended;
	pid_t reporter;
};

struct level {
	/* 0: none. */
	long long limit, used, margin;
};

static struct process *processes;
static size_t process_count, process_room;
static struct job *jobs;
static size_t job_count, job_room;

static long long now_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

static void say(const char *format, ...)
{
	va_list words;
	va_start(words, format);
	fputs("seltzer: ", stdout);
	vprintf(format, words);
	putchar('\n');
	fflush(stdout);
	va_end(words);
}

/* The text of a file; empty if it can't be read. */
static size_t read_text(const char *path, char *text, size_t size)
{
	int file = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length = file < 0 ? 0 : read(file, text, size - 1);
	if (file >= 0)
		close(file);
	text[length > 0 ? length : 0] = '\0';
	return length > 0 ? length : 0;
}

/* A number after a key at the beginning of a line; -1 if there is none. */
static long long value_of(const char *text, const char *key)
{
	size_t length = strlen(key);
	for (const char *line = text; line && *line; line = strchr(line, '\n'), line += line != NULL)
		if (!strncmp(line, key, length) && (isspace(line[length]) || line[length] == ':'))
			return strtoll(line + length + 1, NULL, 10);
	return -1;
}

static long long number_in(const char *path)
{
	char text[64];
	return read_text(path, text, sizeof(text)) && isdigit(*text) ? strtoll(text, NULL, 10) : -1;
}

static int smaller(long long limit, long long other)
{
	return limit > 0 && (other <= 0 || limit < other);
}

/* What the container uses that the kernel couldn't drop, and its limit, with cgroup v2 or v1. */
static struct level look(void)
{
	static char text[16384];
	struct level level = {0};
	const char *pods = getenv("SELTZER_MEMORY_LIMIT"), *inactive = "inactive_file", *active = "active_file";
	long long dropped;

	if (read_text(CGROUP "/memory.stat", text, sizeof(text))) {
		level.limit = number_in(CGROUP "/memory.max");
		level.used = number_in(CGROUP "/memory.current");
	} else if (read_text(CGROUP "/memory/memory.stat", text, sizeof(text))) {
		/* The smallest one of the container and what it is in. */
		level.limit = value_of(text, "hierarchical_memory_limit");
		level.used = number_in(CGROUP "/memory/memory.usage_in_bytes");
		inactive = "total_inactive_file";
		active = "total_active_file";
	}
	if (pods && smaller(strtoll(pods, NULL, 10), level.limit))
		level.limit = strtoll(pods, NULL, 10);
	/* v1 writes a number that no machine has. */
	if (level.used < 0 || level.limit <= 0 || level.limit > 1LL << 60)
		level.limit = 0;
	for (int part = 0; part < 3; part++) {
		dropped = value_of(text, part == 0 ? inactive : part == 1 ? active : "slab_reclaimable");
		level.used -= dropped > 0 ? dropped : 0;
	}
	level.margin = level.limit / 16;
	if (level.margin < 32 * MIB)
		level.margin = 32 * MIB;
	if (level.margin > 512 * MIB)
		level.margin = 512 * MIB;
	if (level.margin > level.limit / 8)
		level.margin = level.limit / 8;
	return level;
}

static int is_short(const struct level *level)
{
	return level->limit && level->used > level->limit - level->margin;
}

