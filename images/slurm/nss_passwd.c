/* Finds users by name in the file of libnss-extrausers: for slurmctld's image, before extrausers in nsswitch.conf.
 *
 * Every ten seconds slurmctld looks up each member of the groups in AllowGroups, while nobody else may use partitions.
 * libnss-extrausers reads the file from its beginning for each: with 10,000 users that takes nine seconds. This keeps the
 * file in memory, with an index, until there is another one. Whenever it doesn't know, extrausers is asked next.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <nss.h>
#include <pthread.h>
#include <pwd.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef PASSWD
#define PASSWD "/var/lib/extrausers/passwd"
#endif
#define LOWEST 500 /* as in libnss-extrausers */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct stat seen;
static char *text;
static uint32_t *index_of; /* where lines begin, plus one; 0 is free */
static size_t mask;

static size_t hash(const char *name, size_t length)
{
	uint32_t found = 2166136261u;
	while (length--)
		found = (found ^ (unsigned char)*name++) * 16777619u;
	return found & mask;
}

static int is_same(const struct stat *now)
{
	return text && now->st_dev == seen.st_dev && now->st_ino == seen.st_ino && now->st_size == seen.st_size &&
	       now->st_mtim.tv_sec == seen.st_mtim.tv_sec && now->st_mtim.tv_nsec == seen.st_mtim.tv_nsec;
}

/* The whole file, or NULL. */
static char *contents(struct stat *found)
{
	int file = open(PASSWD, O_RDONLY | O_CLOEXEC);
	char *read_ = NULL;
	if (file < 0)
		return NULL;
	if (!fstat(file, found) && found->st_size < UINT32_MAX && (read_ = malloc(found->st_size + 1))) {
		off_t at = 0;
		ssize_t more;
		while (at < found->st_size && (more = read(file, read_ + at, found->st_size - at)) > 0)
			at += more;
		read_[at] = 0;
		if (at != found->st_size || strlen(read_) != (size_t)at) {
			free(read_);
			read_ = NULL;
		}
	}
	close(file);
	return read_;
}

static void add(size_t start)
{
	size_t at = hash(text + start, strcspn(text + start, ":\n"));
	while (index_of[at])
		at = (at + 1) & mask;
	index_of[at] = start + 1;
}

/* Whether text and index are those of the file as it is now. */
static int load(void)
{
	struct stat now;
	size_t lines = 1, size = 2;
	if (!stat(PASSWD, &now) && is_same(&now))
		return 1;
	free(text);
	free(index_of);
	index_of = NULL;
	if (!(text = contents(&seen)))
		return 0;
	for (char *end = text; (end = strchr(end, '\n')); end++)
		lines++;
	while (size < 2 * lines)
		size *= 2;
	if (!(index_of = calloc(size, sizeof(*index_of)))) {
		free(text);
		text = NULL;
		return 0;
	}
	mask = size - 1;
	for (char *line = text; *line; line += line[strcspn(line, "\n")] ? strcspn(line, "\n") + 1 : strlen(line))
		add(line - text);
	return 1;
}

static const char *line_of(const char *name)
{
	size_t length = strlen(name);
	for (size_t at = hash(name, length); index_of[at]; at = (at + 1) & mask) {
		const char *line = text + index_of[at] - 1;
		if (!strncmp(line, name, length) && line[length] == ':')
			return line;
	}
	return NULL;
}

/* A copy of the user's line. Another thread that is in here, or was when a process forked, is not waited for. */
static enum nss_status copy(const char *name, char *buffer, size_t buflen, int *errnop)
{
	enum nss_status status = NSS_STATUS_UNAVAIL;
	*errnop = EAGAIN;
	if (pthread_mutex_trylock(&lock))
		return status;
	if (load()) {
		const char *line = line_of(name);
		size_t length = line ? strcspn(line, "\n") : 0;
		status = NSS_STATUS_NOTFOUND;
		*errnop = ENOENT;
		if (line && length >= buflen) {
			status = NSS_STATUS_TRYAGAIN;
			*errnop = ERANGE;
		} else if (line) {
			memcpy(buffer, line, length);
			buffer[length] = 0;
			status = NSS_STATUS_SUCCESS;
		}
	}
	pthread_mutex_unlock(&lock);
	return status;
}

static int number(const char *text_, uint32_t *found)
{
	char *end;
	unsigned long value = strtoul(text_, &end, 10);
	*found = value;
	return *text_ >= '0' && *text_ <= '9' && !*end && value >= LOWEST && value < UINT32_MAX;
}

enum nss_status _nss_seltzer_passwd_getpwnam_r(const char *name, struct passwd *user, char *buffer, size_t buflen,
					       int *errnop)
{
	enum nss_status status = copy(name, buffer, buflen, errnop);
	char *fields[7], *rest = buffer;
	if (status != NSS_STATUS_SUCCESS)
		return status;
	for (int at = 0; at < 7; at++)
		fields[at] = strsep(&rest, ":");
	if (!fields[6] || rest || !number(fields[2], &user->pw_uid) || !number(fields[3], &user->pw_gid)) {
		*errnop = ENOENT;
		return NSS_STATUS_NOTFOUND;
	}
	user->pw_name = fields[0];
	user->pw_passwd = fields[1];
	user->pw_gecos = fields[4];
	user->pw_dir = fields[5];
	user->pw_shell = fields[6];
	*errnop = 0;
	return status;
}
