/* Resolves unknown host names to this host: for slurmctld's image, after files and dns in nsswitch.conf.
 *
 * When a job ends, slurmctld notifies each of its sruns by the name of its host. Pods have no DNS names, and slurmctld
 * tries ten times, a second apart, while it holds its locks: after one scancel it answers nobody for ten seconds. With
 * an address at which nothing listens it gives up at once. srun learns of its end from slurmd, as it would have anyway.
 *
 * Only for names without a dot, as hosts name themselves: a wrong name of a service stays unknown.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <nss.h>
#include <stdint.h>
#include <string.h>

static int is_host(const char *name)
{
	size_t length = strlen(name);
	return length > 0 && length < 64 && !strchr(name, '.') && !strchr(name, ':');
}

/* Takes `size` aligned bytes from the buffer; NULL if it is too small. */
static char *take(char **buffer, size_t *left, size_t size)
{
	size_t gap = -(uintptr_t) *buffer % sizeof(void *);
	if (*left < gap + size)
		return NULL;
	char *taken = *buffer + gap;
	*buffer = taken + size;
	*left -= gap + size;
	return taken;
}

static enum nss_status no(enum nss_status status, int error, int herror, int *errnop, int *herrnop)
{
	*errnop = error;
	*herrnop = herror;
	return status;
}

enum nss_status _nss_seltzer_gethostbyname4_r(const char *name, struct gaih_addrtuple **pat, char *buffer,
					      size_t buflen, int *errnop, int *herrnop, int32_t *ttlp)
{
	if (!is_host(name))
		return no(NSS_STATUS_NOTFOUND, ENOENT, HOST_NOT_FOUND, errnop, herrnop);
	char *copy = take(&buffer, &buflen, strlen(name) + 1);
	struct gaih_addrtuple *found = *pat;
	if (copy && !found)
		found = (struct gaih_addrtuple *) take(&buffer, &buflen, sizeof(*found));
	if (!copy || !found)
		return no(NSS_STATUS_TRYAGAIN, ERANGE, NETDB_INTERNAL, errnop, herrnop);
	memset(found, 0, sizeof(*found));
	found->name = strcpy(copy, name);
	found->family = AF_INET;
	found->addr[0] = htonl(INADDR_LOOPBACK);
	*pat = found;
	if (ttlp)
		*ttlp = 0;
	return NSS_STATUS_SUCCESS;
}

enum nss_status _nss_seltzer_gethostbyname2_r(const char *name, int family, struct hostent *result, char *buffer,
					      size_t buflen, int *errnop, int *herrnop)
{
	if (family != AF_INET || !is_host(name))
		return no(NSS_STATUS_NOTFOUND, ENOENT, HOST_NOT_FOUND, errnop, herrnop);
	char *copy = take(&buffer, &buflen, strlen(name) + 1);
	char **lists = (char **) take(&buffer, &buflen, 3 * sizeof(char *));
	in_addr_t *address = (in_addr_t *) take(&buffer, &buflen, sizeof(in_addr_t));
	if (!copy || !lists || !address)
		return no(NSS_STATUS_TRYAGAIN, ERANGE, NETDB_INTERNAL, errnop, herrnop);
	*address = htonl(INADDR_LOOPBACK);
	lists[0] = (char *) address;
	lists[1] = lists[2] = NULL;
	result->h_name = strcpy(copy, name);
	result->h_aliases = &lists[2];
	result->h_addrtype = AF_INET;
	result->h_length = sizeof(*address);
	result->h_addr_list = lists;
	return NSS_STATUS_SUCCESS;
}

enum nss_status _nss_seltzer_gethostbyname_r(const char *name, struct hostent *result, char *buffer, size_t buflen,
					     int *errnop, int *herrnop)
{
	return _nss_seltzer_gethostbyname2_r(name, AF_INET, result, buffer, buflen, errnop, herrnop);
}
