/* What our NSS modules have in common: one address as the answer to a question for a name. */
#pragma once

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <nss.h>
#include <stdint.h>
#include <string.h>

struct address {
	int family;
	int length;
	unsigned char bytes[sizeof(struct in6_addr)];
};

/* Takes `size` aligned bytes from the buffer; NULL if it is too small. */
static inline char *take(char **buffer, size_t *left, size_t size)
{
	size_t gap = -(uintptr_t) *buffer % sizeof(void *);
	if (*left < gap + size)
		return NULL;
	char *taken = *buffer + gap;
	*buffer = taken + size;
	*left -= gap + size;
	return taken;
}

static inline enum nss_status no(enum nss_status status, int error, int herror, int *errnop, int *herrnop)
{
	*errnop = error;
	*herrnop = herror;
	return status;
}

static inline enum nss_status unknown(int *errnop, int *herrnop)
{
	return no(NSS_STATUS_NOTFOUND, ENOENT, HOST_NOT_FOUND, errnop, herrnop);
}

static inline enum nss_status too_small(int *errnop, int *herrnop)
{
	return no(NSS_STATUS_TRYAGAIN, ERANGE, NETDB_INTERNAL, errnop, herrnop);
}

static inline enum nss_status as_tuple(const char *name, const struct address *address, struct gaih_addrtuple **pat,
				       char *buffer, size_t left, int *errnop, int *herrnop, int32_t *ttlp)
{
	char *copy = take(&buffer, &left, strlen(name) + 1);
	struct gaih_addrtuple *found = *pat;
	if (copy && !found)
		found = (struct gaih_addrtuple *) take(&buffer, &left, sizeof(*found));
	if (!copy || !found)
		return too_small(errnop, herrnop);
	memset(found, 0, sizeof(*found));
	found->name = strcpy(copy, name);
	found->family = address->family;
	memcpy(found->addr, address->bytes, address->length);
	*pat = found;
	if (ttlp)
		*ttlp = 0;
	return NSS_STATUS_SUCCESS;
}

static inline enum nss_status as_hostent(const char *name, const struct address *address, struct hostent *result,
					 char *buffer, size_t left, int *errnop, int *herrnop)
{
	char *copy = take(&buffer, &left, strlen(name) + 1);
	char **lists = (char **) take(&buffer, &left, 3 * sizeof(char *));
	char *bytes = take(&buffer, &left, address->length);
	if (!copy || !lists || !bytes)
		return too_small(errnop, herrnop);
	lists[0] = memcpy(bytes, address->bytes, address->length);
	lists[1] = lists[2] = NULL;
	result->h_name = strcpy(copy, name);
	result->h_aliases = &lists[2];
	result->h_addrtype = address->family;
	result->h_length = address->length;
	result->h_addr_list = lists;
	return NSS_STATUS_SUCCESS;
}
