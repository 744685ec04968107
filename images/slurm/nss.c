/* Resolves unknown host names to this host: for slurmctld's image, after files and dns in nsswitch.conf.
 *
 * When a job ends, slurmctld notifies each of its sruns by the name of its host. Its own pod doesn't search the nodes'
 * domains, and login pods have no names: slurmctld would try ten times, a second apart, while it holds its locks: after
 * one scancel it answers nobody for ten seconds. With an address at which nothing listens it gives up at once. srun
 * learns of its end from slurmd, as it would have anyway.
 *
 * Only for names without a dot, as hosts name themselves: a wrong name of a service stays unknown.
 */
#include "nss_answer.h"

static const struct address here = {AF_INET, sizeof(in_addr_t), {127, 0, 0, 1}};

static int is_host(const char *name)
{
	size_t length = strlen(name);
	return length > 0 && length < 64 && !strchr(name, '.') && !strchr(name, ':');
}

enum nss_status _nss_seltzer_gethostbyname4_r(const char *name, struct gaih_addrtuple **pat, char *buffer,
					      size_t buflen, int *errnop, int *herrnop, int32_t *ttlp)
{
	if (!is_host(name))
		return unknown(errnop, herrnop);
	return as_tuple(name, &here, pat, buffer, buflen, errnop, herrnop, ttlp);
}

enum nss_status _nss_seltzer_gethostbyname2_r(const char *name, int family, struct hostent *result, char *buffer,
					      size_t buflen, int *errnop, int *herrnop)
{
	if (family != AF_INET || !is_host(name))
		return unknown(errnop, herrnop);
	return as_hostent(name, &here, result, buffer, buflen, errnop, herrnop);
}

enum nss_status _nss_seltzer_gethostbyname_r(const char *name, struct hostent *result, char *buffer, size_t buflen,
					     int *errnop, int *herrnop)
{
	return _nss_seltzer_gethostbyname2_r(name, AF_INET, result, buffer, buflen, errnop, herrnop);
}
