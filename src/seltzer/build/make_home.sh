#!/bin/sh
# Creates a user's home directory on the shared volume on first use, or says why it can't be used.
# sshd runs it through PAM before a session ($PAM_USER), slurmd as a Prolog before a job ($SLURM_JOB_USER), and
# `seltzer shell` before a command ($1). Exit code 1: the directory must not be used; otherwise 0, with or without one.
#
# It runs as root without CAP_DAC_OVERRIDE and CAP_FOWNER: root creates the directory, fills it and then gives it away.
# If the file server squashes or restricts root, the user creates it.
PATH=/usr/sbin:/usr/bin:/sbin:/bin
export PATH
readonly DEADLINE=20

# If the file server is down, every access hangs.
if [ "${SELTZER_HOME-}" != inner ]; then
    said=$(SELTZER_HOME=inner timeout -k 1 $DEADLINE /bin/sh "$0" "$@" 2>&1)
    code=$?
    case $code in
    124 | 137)
        said="/home doesn't answer: its file server may be down. Try again later, or ask your administrator."
        code=1
        ;;
    esac
    if [ "${SLURM_JOB_ID-}" ]; then
        # slurmd drops what a Prolog prints, and drains the node if it fails. The job starts in /tmp then, and says so.
        [ ! "$said" ] || echo "seltzer: job $SLURM_JOB_ID: $said" >"/proc/$PPID/fd/2"
        exit 0
    fi 2>/dev/null
    [ ! "$said" ] || echo "$said"
    exit $code
fi

user=${1:-${PAM_USER:-${SLURM_JOB_USER-}}}
entry=$(getent passwd "$user") || exit 0
IFS=: read -r _ _ uid gid _ home _ <<END
$entry
END
case $home in
/home/ | /home/*/* | /home/.*) exit 0 ;;
/home/*) ;;
*) exit 0 ;;
esac
# System users have no home directory here, and without the volume there is nothing to make it on.
[ "$uid" -ge 1000 ] && grep -q '^[^ ]* [^ ]* [^ ]* [^ ]* /home ' /proc/self/mountinfo || exit 0

# Where all may write, another user may have made a link there, and can lead it elsewhere at any time.
owner() {
    made=$(stat -c %u "$home" 2>/dev/null)
    case $made in
    0 | "$uid") stat -L -c %u "$home" 2>/dev/null ;;
    *) echo "$made" ;;
    esac
}

# Succeeds if the directory belongs to the user.
check() {
    found=$(owner)
    # Another node may have made it between the two looks.
    [ "$found" ] || ! [ -e "$home" ] || found=$(owner)
    if [ "$found" = "$uid" ] && [ -d "$home" ]; then
        exit 0
    fi
    if [ "$found" ] || [ -L "$home" ] || [ -e "$home" ]; then
        echo "$home isn't yours: it belongs to user ID ${found:-unknown}, and you are $uid ($user). It is left alone, and" \
            "you can't work in it. Ask your administrator to move it away, or to give it to you with chown."
        exit 1
    fi
}

# Creates a directory that only its creator can read, under a temporary name until it is complete: another node may
# create the same one. Root then gives it to the user ($2) and the group ($3).
readonly MAKE='
umask 077
new=$(mktemp -d /home/.seltzer-XXXXXXXX) || exit
# Root can not empty what it has given away; the owner can.
leave() {
    [ -e "$new" ] || return
    [ "$(id -u)" != 0 ] || setpriv --reuid="$uid" --regid="$gid" --clear-groups rm -rf "$new"
    rmdir "$new" || rm -rf "$new"
} 2>/dev/null
uid=$2 gid=$3
trap leave EXIT
[ "$(stat -c %u "$new")" = "$(id -u)" ] || { echo "the file server makes root a nobody"; exit 1; }
cp -R /etc/skel/. "$new"/ || exit
if [ "$(id -u)" = 0 ]; then chown -hR "$2:$3" "$new" || exit; fi
mv -nT "$new" "$1"
'

check
# A new volume lets all write: anybody could make a directory under the name of another, or rename theirs. Where root may
# change that, users needn't make their own. A directory with the sticky bit is as its administrator wants it.
case $(stat -c %u:%a /home) in
0:777 | 0:2777) chmod go-w /home 2>/dev/null ;;
esac
why=$(sh -c "$MAKE" make "$home" "$uid" "$gid" 2>&1)
check
# Only for permission errors: a full or read-only volume fails for everyone.
case $why in
*denied* | *permitted* | *nobody*)
    setpriv --reuid="$uid" --regid="$gid" --init-groups -- sh -c "$MAKE" make "$home" "$uid" "$gid" >/dev/null 2>&1
    check
    advice="Your administrator can make it: it has to belong to user ID $uid; or have the file server let users make theirs,"
    advice="$advice with 'chmod 1777' on the directory that is /home here."
    ;;
*) advice="Your administrator has to repair the volume with the home directories." ;;
esac
why=$(printf %s "$why" | tail -n 1)
echo "You have no home directory: $home can't be made (${why##*: }). $advice Meanwhile jobs run: start them with srun, or with" \
    "'sbatch --output=/tmp/%j.out', which leaves the output on the node."
exit 0
