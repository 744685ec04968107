/* Finds the groups of a user in the file of libnss-extrausers: for slurmctld's image, as initgroups in nsswitch.conf.
 *
 * libnss-extrausers has one open file for all threads when it lists groups, and getgrouplist(3) lists them without a
 * lock. slurmctld does so for a job while it lists the groups of AllowGroups: it would crash, or miss groups of the job.
 * This opens a file of its own each time.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <grp.h>
#include <nss.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef GROUPS
#define GROUPS "/var/lib/extrausers/group"
#endif
#define LOWEST 500 /* as in libnss-extrausers */

static int is_member(const char *user, char *members)
{
	for (char *name; (name = strsep(&members, ","));)
		if (!strcmp(name, user))
			return 1;
	return 0;
}

/* Whether there was memory for it. */
static int add(gid_t gid, long *count, long *size, gid_t **groups, long limit)
{
	if (*count == *size) {
		long more = limit > 0 && 2 * *size > limit ? limit : 2 * *size;
		gid_t *larger = realloc(*groups, more * sizeof(gid_t));
		if (!larger)
			return 0;
		*groups = larger;
		*size = more;
	}
	(*groups)[(*count)++] = gid;
	return 1;
}

enum nss_status _nss_seltzer_groups_initgroups_dyn(const char *user, gid_t primary, long *count, long *size,
						   gid_t **groups, long limit, int *errnop)
{
	FILE *file = fopen(GROUPS, "re");
	char *line = NULL;
	size_t length = 0;
	int memory = 1, found = 0;
	if (!file) {
		*errnop = errno;
		return NSS_STATUS_UNAVAIL;
	}
	while (memory && (limit <= 0 || *count < limit) && getline(&line, &length, file) > 0) {
		char *rest = line, *gid;
		line[strcspn(line, "\n")] = 0;
		strsep(&rest, ":");
		strsep(&rest, ":");
		gid = strsep(&rest, ":");
		if (!rest || !is_member(user, rest))
			continue;
		unsigned long number = strtoul(gid, NULL, 10);
		if (number < LOWEST || number == primary)
			continue;
		memory = add(number, count, size, groups, limit);
		found |= memory;
	}
	free(line);
	fclose(file);
	if (!memory) {
		*errnop = ENOMEM;
		return NSS_STATUS_TRYAGAIN;
	}
	return found ? NSS_STATUS_SUCCESS : NSS_STATUS_NOTFOUND;
}
