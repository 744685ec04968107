/* Host names that nobody knows are this host: for slurmctld's image, behind files and dns in nsswitch.conf.
 *
 * slurmctld tells each srun by the name of its host when its job ends. Pods have no DNS names, and it tries ten times,
 * a second apart, with its locks held: one scancel and nobody is answered for ten seconds. With an address at which
 * nobody listens it gives up at once. srun learns of its end from slurmd, as it would have done.
 *
 * Only names without a dot, which is what a host calls itself: a wrong name of a service stays one.
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

/* Bytes for `size` more in the buffer, aligned; NULL if there is no room. */
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
