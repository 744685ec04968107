/* Resolves the nodes of a process's own job: for slurmd's image, between files and dns in nsswitch.conf.
 *
 * slurmstepd knows the addresses of its job's nodes as slurmctld knew them when the job began. It answers at once, also
 * when DNS is down or still caches what a replaced node was called before. Its protocol, over the Unix socket of each
 * step, is the one that Slurm's own nss_slurm speaks; tests/e2e/test_names.py notices if it changes.
 *
 * A name without a dot, or in a domain of nodes that the pod searches. All else, and all processes outside of jobs, are
 * DNS's concern: we are unavailable then. So are names of addresses: steps don't answer these. `[NOTFOUND=return]` behind
 * us keeps questions for the other family away from DNS, which would answer late where it is down.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/types.h>
#include <sys/un.h>
#include <unistd.h>

#include "nss_answer.h"

#ifndef SPOOL
#define SPOOL "/var/spool/slurmd"
#endif
#ifndef RESOLV_CONF
#define RESOLV_CONF "/etc/resolv.conf"
#endif

enum {
	/* Slurm 26.05. Newer steps speak it for years, older ones answer with their own version. */
	PROTOCOL = 45 << 8,
	REQUEST_GETHOST = 27,
	/* Also for processes that have left the step's process tree. */
	NOT_MATCH_PID = 1,
	LABEL = 64,
	/* No name or list of a host is longer; more is not an answer. */
	LONGEST = 1024,
	PATIENCE_MS = 500,
};

static int is_label(const char *text)
{
	size_t length = strlen(text);
	return length > 0 && length < LABEL && strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
							     "0123456789-") == length;
}

/* Whether this is the domain of nodes: <Service>.<namespace>.svc.<domain>, which Seltzer gives to its pods to search. */
static int is_of_nodes(const char *domain)
{
	const char *label = domain;
	for (int dots = 0; dots < 2; dots++) {
		label = strchr(label, '.');
		if (!label++)
			return 0;
	}
	return !strncmp(label, "svc.", 4);
}

static int is_searched(const char *domain)
{
	FILE *file = fopen(RESOLV_CONF, "re");
	char line[4096], *rest;
	int found = 0;
	while (file && fgets(line, sizeof(line), file)) {
		char *word = strtok_r(line, " \t\n", &rest);
		if (!word || strcmp(word, "search"))
			continue;
		for (found = 0; (word = strtok_r(NULL, " \t\n", &rest));)
			found |= is_of_nodes(word) && !strcasecmp(word, domain);
	}
	if (file)
		fclose(file);
	return found;
}

/* Copies the node's name out of a short or full one. */
static int node_of(const char *name, char node[LABEL])
{
	size_t length = strcspn(name, ".");
	if (length >= LABEL)
		return 0;
	memcpy(node, name, length);
	node[length] = 0;
	return is_label(node) && (!name[length] || is_searched(name + length + 1));
}

static int put(int fd, const void *data, size_t size)
{
	return send(fd, data, size, MSG_NOSIGNAL) == (ssize_t) size;
}

static int get(int fd, void *data, size_t size)
{
	return !size || recv(fd, data, size, MSG_WAITALL) == (ssize_t) size;
}

/* A length, and as many bytes that don't matter. */
static int skip(int fd)
{
	char text[LONGEST];
	int length;
	return get(fd, &length, sizeof(length)) && length >= 0 && length <= LONGEST && get(fd, text, length);
}

/* Whether the step knows the node. One that doesn't answer in time, or with something else, doesn't. */
static int ask_step(const char *path, const char *node, struct address *address)
{
	struct sockaddr_un where = {.sun_family = AF_UNIX};
	struct timeval patience = {.tv_usec = PATIENCE_MS * 1000};
	int version = PROTOCOL, question[] = {REQUEST_GETHOST, NOT_MATCH_PID, (int) strlen(node)};
	int found = 0, aliases = 0, known = 0;
	if (strlen(path) >= sizeof(where.sun_path))
		return 0;
	strcpy(where.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return 0;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (struct sockaddr *) &where, sizeof(where)) || !put(fd, &version, sizeof(version)) ||
	    !get(fd, &version, sizeof(version)) || version < 0 || !put(fd, question, sizeof(question)) ||
	    !put(fd, node, question[2]) || !get(fd, &found, sizeof(found)) || !found || !skip(fd) ||
	    !get(fd, &aliases, sizeof(aliases)) || aliases < 0 || aliases > LONGEST)
		goto end;
	while (aliases--)
		if (!skip(fd))
			goto end;
	known = get(fd, &address->family, sizeof(address->family)) &&
		get(fd, &address->length, sizeof(address->length)) &&
		((address->family == AF_INET && address->length == sizeof(struct in_addr)) ||
		 (address->family == AF_INET6 && address->length == sizeof(struct in6_addr))) &&
		get(fd, address->bytes, address->length);
end:
	close(fd);
	return known;
}

/* Asks the steps of the job, on this node, one after the other. */
static int find(const char *name, struct address *address)
{
	const char *job = secure_getenv("SLURM_JOB_ID"), *here = secure_getenv("SLURMD_NODENAME");
	char node[LABEL], path[sizeof(SPOOL) + NAME_MAX + 1], start[LABEL + 32];
	if (!job || !here || !*job || strspn(job, "0123456789") != strlen(job) || strlen(job) > 20 || !is_label(here) ||
	    !node_of(name, node))
		return 0;
	int length = snprintf(start, sizeof(start), "%s_%s.", here, job), known = 0, error = errno;
	DIR *spool = opendir(SPOOL);
	struct dirent *entry;
	while (spool && !known && (entry = readdir(spool)))
		if (!strncmp(entry->d_name, start, length)) {
			snprintf(path, sizeof(path), "%s/%s", SPOOL, entry->d_name);
			known = ask_step(path, node, address);
		}
	if (spool)
		closedir(spool);
	errno = error;
	return known;
}

static enum nss_status not_ours(int *errnop, int *herrnop)
{
	return no(NSS_STATUS_UNAVAIL, ENOENT, NO_RECOVERY, errnop, herrnop);
}

enum nss_status _nss_seltzer_job_gethostbyname4_r(const char *name, struct gaih_addrtuple **pat, char *buffer,
						  size_t buflen, int *errnop, int *herrnop, int32_t *ttlp)
{
	struct address address;
	if (!find(name, &address))
		return not_ours(errnop, herrnop);
	return as_tuple(name, &address, pat, buffer, buflen, errnop, herrnop, ttlp);
}

enum nss_status _nss_seltzer_job_gethostbyname2_r(const char *name, int family, struct hostent *result, char *buffer,
						  size_t buflen, int *errnop, int *herrnop)
{
	struct address address;
	if (!find(name, &address))
		return not_ours(errnop, herrnop);
	/* A step has one address for each node. */
	if (address.family != family)
		return no(NSS_STATUS_NOTFOUND, ENOENT, NO_DATA, errnop, herrnop);
	return as_hostent(name, &address, result, buffer, buflen, errnop, herrnop);
}

enum nss_status _nss_seltzer_job_gethostbyname_r(const char *name, struct hostent *result, char *buffer, size_t buflen,
						 int *errnop, int *herrnop)
{
	return _nss_seltzer_job_gethostbyname2_r(name, AF_INET, result, buffer, buflen, errnop, herrnop);
}
