#!/bin/sh
# Kubernetes runs this before it ends a login pod. It waits until nobody is logged in, at most $1 seconds.
readonly LIMIT=$1

# Whether any user has a process: a shell, a command, a tmux session without a terminal.
is_used() {
    cat /proc/[0-9]*/status 2>/dev/null | awk '$1 == "Uid:" && $2 >= 1000 && $2 != 65534 { found = 1 } END { exit !found }'
}

# Written to every terminal as its owner: root may not without CAP_DAC_OVERRIDE.
announce() {
    for terminal in /dev/pts/[0-9]*; do
        owner=$(stat -c %u "$terminal" 2>/dev/null) || continue
        [ "$owner" -ge 1000 ] || continue
        # shellcheck disable=SC2016
        timeout 2 setpriv --reuid="$owner" --clear-groups -- sh -c 'printf "\r\n%s\r\n" "$1" >"$2"' sh "$1" "$terminal"
    done
}

is_used || exit 0
left="$((LIMIT / 60)) min"
[ "$LIMIT" -ge 120 ] || left="$LIMIT s"
announce "This login pod is being replaced. Please log out within $left and log in again; your jobs go on."
waited=0
while [ "$waited" -lt "$LIMIT" ] && is_used; do
    sleep 1
    waited=$((waited + 1))
done
exit 0
