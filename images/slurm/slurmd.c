/* What slurmd and slurmstepd miss in an unprivileged container; preloaded into slurmd by its start script.
 *
 * The login environment. For `sbatch --export=NONE`, `--export=FOO=1`, `--get-user-env` and scrontab, slurmd runs `su - USER`
 * in a PID namespace and a mount namespace of its own, so that nothing that the user's profile starts outlives it. The
 * kernel refuses these to an unprivileged container, and slurmd then ends itself ("fatal: clone: Operation not permitted").
 * Here such a clone() succeeds without the namespaces, and two small processes do what the namespace would:
 *
 *     slurmd --- stand-in --- reaper --- su --- the user's shell and all that it starts
 *
 * The stand-in is what slurmd knows as its child. When slurmd kills it, or ends itself, the kernel signals the reaper. The
 * reaper inherits what the shell leaves behind. When su has ended or the stand-in is gone, it kills all of that. Where the
 * kernel allows the namespaces, and for any other clone(), nothing changes.
 *
 * Files that users name. slurmstepd opens a job's input and output itself, and an open() of a FIFO waits for the other end.
 * Such a slurmstepd couldn't be ended: the job stayed "completing" for ever, and the node with it. Here it waits for a while.
 *
 * What jobs leave behind. proctrack/linuxproc ends a step's processes by following the tree from slurmstepd down. A process
 * whose parent has ended left that tree, and ran on after its job. With slurmstepd as its new parent it stays in the tree.
 *
 * Whom the kernel ends. When a container is out of memory, the kernel ends its largest process, which is slurmd or a slurmstepd
 * where jobs have many small ones. slurmstepd tries to exempt itself, which an unprivileged one may not. So its tasks start with
 * a higher score than it has.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NAMESPACES (CLONE_NEWPID | CLONE_NEWNS)
/* More than a kernel can give: waiting for it and killing it fail, and harm nobody. */
#define NO_PROCESS 0x3fffffff
/* Five seconds. */
#define TRIES 50
#define BETWEEN_TRIES_MS 100
/* Of 1000, which is the most: a task counts as two percent of the memory larger than it is. */
#define WORSE 20
#define MOST 1000

static int (*kernel_clone)(int (*)(void *), void *, int, void *, ...);
static int (*kernel_open)(const char *, int, ...);
static int (*kernel_execve)(const char *, char *const [], char *const []);
static int (*kernel_mount)(const char *, const char *, const char *, unsigned long, const void *);
/* How long a login may take; 0 for slurmd's own limit, two minutes. */
static unsigned most_seconds;
/* In su's process, until it is su. */
static int without_namespaces;
/* The process ID of slurmstepd; 0 in other programs. */
static pid_t step;

/* Libraries may open files before this one is prepared. Another thread that does this too finds the same. */
static void find_next(void)
{
	kernel_clone = (typeof(kernel_clone)) dlsym(RTLD_NEXT, "clone");
	kernel_execve = (typeof(kernel_execve)) dlsym(RTLD_NEXT, "execve");
	kernel_mount = (typeof(kernel_mount)) dlsym(RTLD_NEXT, "mount");
	kernel_open = (typeof(kernel_open)) dlsym(RTLD_NEXT, "open");
}

__attribute__((constructor)) static void prepare(void)
{
	find_next();
	const char *limit = getenv("SELTZER_LOGIN_TIMEOUT");
	most_seconds = limit ? strtoul(limit, NULL, 10) : 0;
	if (strcmp(program_invocation_short_name, "slurmstepd") == 0) {
		prctl(PR_SET_CHILD_SUBREAPER, 1);
		step = getpid();
	}
	/* slurmd needs the variable, since it executes itself again on a reconfigure. Nothing that it starts does: this
	 * library is the first one in it. */
	if (strcmp(program_invocation_short_name, "slurmd") != 0) {
		const char *libraries = getenv("LD_PRELOAD");
		const char *others = libraries ? strpbrk(libraries, ": ") : NULL;
		if (others)
			setenv("LD_PRELOAD", others + 1, 1);
		else
			unsetenv("LD_PRELOAD");
	}
}

static void wait_a_bit(void)
{
	nanosleep(&(struct timespec) {.tv_nsec = BETWEEN_TRIES_MS * 1000000L}, NULL);
}

/* Kills the children of this process, which has one thread. Without procfs it kills `known` only. */
static void kill_children(pid_t known)
{
	char text[4096];
	int file = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
	ssize_t length = file < 0 ? 0 : read(file, text, sizeof(text) - 1);
	if (file >= 0)
		close(file);
	text[length > 0 ? length : 0] = '\0';
	if (known > 0)
		kill(known, SIGKILL);
	for (char *next = text, *end; *next; next = end) {
		/* The file may end within a number: only those before a space are whole. */
		pid_t child = strtol(next, &end, 10);
		if (end == next || *end != ' ')
			break;
		end++;
		kill(child, SIGKILL);
	}
}

/* Runs su, and returns its status. On return, nothing that it started is left. */
static int reap(int (*run)(void *), void *argument, pid_t parent, const sigset_t *before)
{
	sigset_t news;
	int status = 0, wanted = 1;

	prctl(PR_SET_NAME, "seltzer-reaper");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		return 1;
	signal(SIGCHLD, SIG_DFL);
	pid_t su = _Fork();
	if (su == 0) {
		without_namespaces = 1;
		sigprocmask(SIG_SETMASK, before, NULL);
		_exit(run(argument));
	}
	/* slurmd reads from su until nobody can write any more. */
	close_range(0, ~0U, 0);
	sigemptyset(&news);
	sigaddset(&news, SIGCHLD);
	sigaddset(&news, SIGTERM);
	sigaddset(&news, SIGALRM);
	alarm(most_seconds);
	if (su < 0)
		return 1;
	for (;;) {
		int its;
		pid_t ended = waitpid(-1, &its, WNOHANG);
		if (ended > 0 && ended == su) {
			status = its;
			su = wanted = 0;
		} else if (ended < 0 && errno == ECHILD) {
			break;
		}
		if (!wanted)
			kill_children(su);
		if (ended == 0) {
			int came = sigwaitinfo(&news, NULL);
			if (came == SIGTERM || came == SIGALRM)
				wanted = 0;
		}
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

/* The process that slurmd waits for, or kills. */
static void stand_in(int (*run)(void *), void *argument, pid_t slurmd, const sigset_t *before)
{
	int status = 0;
	pid_t self = getpid();

	/* The start script knows it by this name, and ends logins that a reconfigure waits for. */
	prctl(PR_SET_NAME, "seltzer-login");
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != slurmd)
		_exit(1);
	pid_t reaper = _Fork();
	if (reaper == 0)
		_exit(reap(run, argument, self, before));
	close_range(0, ~0U, 0);
	while (reaper > 0 && waitpid(reaper, &status, 0) < 0 && errno == EINTR)
		;
	_exit(reaper > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

/* After fork, in a program with threads, only what is safe in a signal handler may be called. */
static pid_t start_without_namespaces(int (*run)(void *), void *argument)
{
	sigset_t all, before;
	pid_t slurmd = getpid();

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	pid_t child = _Fork();
	if (child == 0)
		stand_in(run, argument, slurmd, &before);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return child;
}

int clone(int (*run)(void *), void *stack, int flags, void *argument, ...)
{
	va_list more;
	va_start(more, argument);
	pid_t *parent = va_arg(more, pid_t *);
	void *tls = va_arg(more, void *);
	pid_t *child = va_arg(more, pid_t *);
	va_end(more);

	if (flags != (NAMESPACES | SIGCHLD))
		return kernel_clone(run, stack, flags, argument, parent, tls, child);
	/* slurmd ends itself if this fails. Where no process can be started it has to wait, and fail for this job only. */
	for (int tries = 0; tries < TRIES; tries++) {
		int started = kernel_clone(run, stack, flags, argument);
		if (started < 0 && errno != EAGAIN && errno != ENOMEM)
			started = start_without_namespaces(run, argument);
		if (started > 0)
			return started;
		wait_a_bit();
	}
	return NO_PROCESS;
}

int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data)
{
	/* It would make /proc that of the PID namespace. */
	if (without_namespaces)
		return 0;
	return kernel_mount(source, target, type, flags, data);
}

/* Whether it could not be opened because nobody reads from the FIFO. Sockets can't be opened either. */
static int lacks_reader(const char *path)
{
	struct stat its;
	int error = errno;
	int found = error == ENXIO && stat(path, &its) == 0 && S_ISFIFO(its.st_mode);

	errno = error;
	return found;
}

/* Waits for the other end of a FIFO, but not for ever. */
static int open_for_user(const char *path, int flags, mode_t mode)
{
	struct stat its;
	int file;

	for (int tries = 0; (file = kernel_open(path, flags | O_NONBLOCK, mode)) < 0; tries++) {
		/* Another host has a lease of the file, and is asked for it. */
		if (errno == EWOULDBLOCK)
			return kernel_open(path, flags, mode);
		if (tries >= TRIES || !lacks_reader(path))
			return -1;
		wait_a_bit();
	}
	if ((flags & O_ACCMODE) == O_RDONLY && fstat(file, &its) == 0 && S_ISFIFO(its.st_mode))
		poll(&(struct pollfd) {.fd = file, .events = POLLIN}, 1, TRIES * BETWEEN_TRIES_MS);
	fcntl(file, F_SETFL, fcntl(file, F_GETFL) & ~O_NONBLOCK);
	return file;
}

int open(const char *path, int flags, ...)
{
	va_list more;
	va_start(more, flags);
	mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;
	va_end(more);

	if (!kernel_open)
		find_next();
	/* As a user, they open what that user has named. */
	if (geteuid() == 0 || flags & O_NONBLOCK)
		return kernel_open(path, flags, mode);
	return open_for_user(path, flags, mode);
}

static int score_of(const char *path)
{
	char text[16] = "";
	int file = kernel_open(path, O_RDONLY | O_CLOEXEC);

	if (file < 0)
		return MOST;
	if (read(file, text, sizeof(text) - 1) <= 0)
		strcpy(text, "1000");
	close(file);
	return atoi(text);
}

/* A task counts as larger than it is, unless Slurm has seen to that already, as in a pod with a guarantee. */
static void offer_to_kernel(void)
{
	char path[32], text[16];

	snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", step);
	int score = score_of(path) + WORSE;
	if (score > MOST)
		score = MOST;
	if (score_of("/proc/self/oom_score_adj") >= score)
		return;
	/* A process that has changed its user may open its own files only while it may be looked into. */
	prctl(PR_SET_DUMPABLE, 1);
	int file = kernel_open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (file < 0)
		return;
	snprintf(text, sizeof(text), "%d", score);
	if (write(file, text, strlen(text)) < 0)
		errno = 0;
	close(file);
}

int execve(const char *path, char *const arguments[], char *const environment[])
{
	if (!kernel_execve)
		find_next();
	if (step && getpid() != step)
		offer_to_kernel();
	return kernel_execve(path, arguments, environment);
}
