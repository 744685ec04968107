#!/usr/bin/env bash
# Installs everything that Seltzer needs on a fresh Debian or Ubuntu: apt packages, uv, and .venv with locked packages.
#
# Idempotent: it adds what is missing and leaves the rest alone. The next run completes an interrupted one. It doesn't
# touch the system's Python, and starts nothing that it installs.

set -euo pipefail

HOME=${HOME:-$(getent passwd "$(id -u)" | cut -d: -f6)}
repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
venv=$repo/.venv

# As in seltzer/paths.py: a relative path in an XDG variable is ignored.
xdg() {
    local base=${!1:-}
    [[ $base == /* ]] || base=$HOME/$2
    printf '%s/seltzer' "$base"
}
cache=$(xdg XDG_CACHE_HOME .cache)
state=$(xdg XDG_STATE_HOME .local/state)
log=$state/logs/setup.log

os_release=/etc/os-release
offline=/etc/seltzer-offline
meminfo=/proc/meminfo

# Required commands (by name) and files (by path), each with the package that provides it. Looks for commands, not
# packages: runc, for example, may come with Docker's containerd.io.
needs=(
    buildah:buildah
    conntrack:conntrack
    flock:util-linux
    gcc:gcc # used by tests that compile the libraries of our images
    gpgv:gpgv
    ip:iproute2
    iptables:iptables
    mmdebstrap:mmdebstrap
    mount:mount
    nft:nftables
    nsenter:util-linux
    ps:procps
    rsync:rsync # used by tests that copy files
    runc:runc
    slapd:slapd # used by tests that read a directory
    ssh:openssh-client # used by tests that log in
    tmux:tmux # used by tests that read a terminal
    zstd:zstd # used by `seltzer sandbox pack`
    /usr/include/stdio.h:libc6-dev # used by gcc
    /etc/ssl/certs/ca-certificates.crt:ca-certificates
    /usr/lib/podman/netavark:netavark # required by newer versions of buildah, though our builds use no such network
    /usr/share/keyrings/debian-archive-keyring.gpg:debian-archive-keyring
)

main() {
    [[ ! -e $offline ]] || return 0 # an offline archive brought everything
    trap 'printf "\nsetup: interrupted; the next run completes it\n" >&2; exit 130' INT
    check_system
    check_root
    check_memory
    check_disk

    mkdir -p "$cache" "$(dirname "$log")"
    exec 9>"$state/setup.lock"
    flock 9 # two terminals may run make at the same time

    local packages
    mapfile -t packages < <(missing_packages)
    if ((${#packages[@]})); then
        step "install ${packages[*]}" install_packages "${packages[@]}"
    fi
    if ! venv_is_current; then
        step "make .venv with the locked packages" make_venv
    fi
}

# --- the machine ---------------------------------------------------------------------------------------------------

check_system() {
    local machine
    machine=$(uname -sm)
    case $machine in
        "Linux x86_64" | "Linux aarch64") ;;
        *) stop "Seltzer needs Linux on x86_64 or aarch64; this is $machine" ;;
    esac

    local ID='' ID_LIKE='' VERSION_ID='' PRETTY_NAME=''
    # shellcheck disable=SC1090
    [[ -r $os_release ]] && . "$os_release"
    case $ID in
        debian) at_least 12 "${VERSION_ID:-999}" || stop "Seltzer needs Debian 12 or newer; this is $PRETTY_NAME" ;;
        ubuntu) at_least 24.04 "$VERSION_ID" || stop "Seltzer needs Ubuntu 24.04 or newer; this is $PRETTY_NAME" ;;
        *) [[ " $ID_LIKE " == *" debian "* ]] ||
            stop "Seltzer needs Debian 12+ or Ubuntu 24.04+; this is ${PRETTY_NAME:-an unknown system}" ;;
    esac
}

check_root() {
    [[ $(id -u) == 0 ]] || stop "Seltzer's sandbox is made of namespaces, mounts and cgroups: run this as root"
}

check_memory() {
    [[ ${SELTZER_SKIP_CHECKS:-} == 1 ]] && return
    local total
    total=$(awk '/^MemTotal:/ {print int($2 / 1024)}' "$meminfo")
    # A machine with 6 GiB shows a little less: the kernel reserves some.
    ((total >= 5600)) || stop "Seltzer needs 6 GiB of memory; this machine has $(gib "$total")" \
        "(SELTZER_SKIP_CHECKS=1 tries anyway)"
}

check_disk() {
    [[ ${SELTZER_SKIP_CHECKS:-} == 1 ]] && return
    local folder=$cache need=5 free
    # The first run builds Kubernetes and the images; later runs have them in the cache.
    [[ -n $(find "$cache" -mindepth 1 -maxdepth 1 ! -name uv -print -quit 2>/dev/null) ]] || need=15
    until [[ -d $folder ]]; do folder=$(dirname "$folder"); done
    free=$(($(df --output=avail --block-size=1M "$folder" | tail -n 1)))
    ((free >= need * 1024)) || stop "Seltzer needs $need GiB of free disk for $cache; there are $(gib "$free")" \
        "(XDG_CACHE_HOME moves it, SELTZER_SKIP_CHECKS=1 tries anyway)"
}

# --- packages ------------------------------------------------------------------------------------------------------

missing_packages() {
    local need thing
    for need in "${needs[@]}"; do
        thing=${need%%:*}
        [[ $thing == /* && -e $thing ]] || PATH=$PATH:/usr/sbin:/sbin command -v "$thing" >/dev/null || echo "${need#*:}"
    done | sort -u
    [[ -x $venv/bin/python ]] || find_python >/dev/null || printf '%s\n' python3 python3-venv
}

install_packages() {
    local quiet apt
    # Maintainer scripts start services through these two commands. Ours come first on the path, and do nothing.
    quiet=$cache/quiet
    mkdir -p "$quiet"
    printf '#!/bin/sh\nexit 0\n' | tee "$quiet/invoke-rc.d" >"$quiet/deb-systemd-invoke"
    chmod +x "$quiet"/*

    export DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
    apt=(apt-get -q -o DPkg::Lock::Timeout=300 -o Acquire::Retries=3
        -o "DPkg::Path=$quiet:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")

    dpkg --configure -a # completes an interrupted run
    update_lists
    # Never removes an installed package.
    "${apt[@]}" install --yes --no-install-recommends --no-remove "$@"
}

update_lists() {
    # The lock timeout doesn't apply to this lock. A source that can't be read doesn't matter unless we need a package
    # from it: then the installation reports that.
    local deadline=$((SECONDS + 300)) output
    until output=$("${apt[@]}" update 2>&1); do
        printf '%s\n' "$output"
        [[ $output == *"Could not get lock"* ]] && ((SECONDS < deadline)) || return 0
        sleep 2
    done
    printf '%s\n' "$output"
}

# --- Python --------------------------------------------------------------------------------------------------------

# Prints the first Python on PATH that is new enough and can create a venv.
find_python() {
    local name
    for name in python3 python3.14 python3.13 python3.12 python3.11 /usr/bin/python3; do
        "$name" -c '
import ensurepip, sys, venv
if sys.version_info < (3, 11): sys.exit(1)
print(sys.executable)' 2>/dev/null && return
    done
    return 1
}

venv_is_current() {
    [[ -x $venv/bin/python && -e $venv/.stamp && $(<"$venv/.stamp") == "$(inputs)" ]]
}

# A venv can't be moved, so its path is an input, too.
inputs() {
    (cd "$repo" && pwd && sha256sum pyproject.toml requirements*.lock scripts/setup.sh)
}

make_venv() {
    local uv
    rm -f "$venv/.stamp"
    find_uv
    use_pip_settings
    export UV_PYTHON_DOWNLOADS=never VIRTUAL_ENV=$venv
    cd "$repo"
    if ! [[ -x $venv/bin/python ]] || ! grep -qsF "$venv" "$venv/bin/activate"; then
        "$uv" venv --clear --python "$(find_python)" "$venv"
    fi
    "$uv" pip sync --require-hashes requirements-dev.lock
    "$uv" pip install --no-deps --no-build-isolation --editable .
    ln -sf "$uv" "$venv/bin/uv"
    inputs >"$venv/.stamp"
}

# Sets uv: the one on PATH unless it is older than the pinned one, otherwise the pinned one in a venv of its own.
find_uv() {
    local pinned home
    pinned=$(sed -n 's/^uv==\([0-9.]*\).*/\1/p' "$repo/requirements-uv.lock")
    home=$cache/uv/$pinned
    for uv in "$(PATH=${PATH//"$venv/bin:"/} command -v uv)" "$home/bin/uv"; do
        [[ -n $uv ]] && at_least "$pinned" "$("$uv" --version 2>/dev/null | awk '{print $2}')" && return
    done
    rm -rf "$home"
    "$(find_python)" -m venv "$home"
    "$home/bin/python" -m pip install --require-hashes --requirement "$repo/requirements-uv.lock"
    uv=$home/bin/uv
}

# uv doesn't read pip's settings: passes on the machine's index, certificates, proxy and so on.
use_pip_settings() {
    local line key value words
    # pip lists settings from the environment first, and they take precedence.
    while IFS= read -r line; do
        key=${line%%=*} value=${line#*=}
        value=${value#[\'\"]} value=${value%[\'\"]}
        # Items of pip's lists are separated by blanks or (escaped) line ends.
        read -ra words <<<"${value//\\n/ }"
        value=${words[*]}
        case ${key##*.} in
            cert) export SSL_CERT_FILE="${SSL_CERT_FILE:-$value}" ;;
            client-cert) export SSL_CLIENT_CERT="${SSL_CLIENT_CERT:-$value}" ;;
            default-timeout | timeout) export UV_HTTP_TIMEOUT="${UV_HTTP_TIMEOUT:-$value}" ;;
            extra-index-url)
                export UV_INDEX="${UV_INDEX:-$value}"
                # As pip does it; the hashes in the lock files fix the contents, whichever index they come from.
                export UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}"
                ;;
            find-links) export UV_FIND_LINKS="${UV_FIND_LINKS:-${value// /,}}" ;;
            index-url) export UV_DEFAULT_INDEX="${UV_DEFAULT_INDEX:-$value}" ;;
            no-index) export UV_NO_INDEX="${UV_NO_INDEX:-$value}" ;;
            proxy) export ALL_PROXY="${ALL_PROXY:-$value}" ;;
            trusted-host) export UV_INSECURE_HOST="${UV_INSECURE_HOST:-$value}" ;;
        esac
    done < <("$(dirname "$uv")/python" -m pip config list 2>/dev/null || "$(find_python)" -m pip config list 2>/dev/null)
    # pip trusts the system's certificates.
    export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-true}"
}

# --- output --------------------------------------------------------------------------------------------------------

# step TEXT COMMAND...: runs the command with its output in the log; prints one line with its duration.
step() {
    local text=$1 started=$EPOCHREALTIME failed=0 red='' green='' dim='' plain='' again=''
    shift
    if [[ -t 2 ]]; then
        red=$'\e[31m' green=$'\e[32m' dim=$'\e[2m' plain=$'\e[0m' again=$'\r\e[K'
        printf '  … %s' "$text" >&2
    fi
    printf '\n=== %(%F %T)T %s\n' -1 "$text" >>"$log"
    # Not "if (...)": bash ignores set -e everywhere inside of that.
    set +e
    (
        set -e
        "$@"
    ) </dev/null >>"$log" 2>&1
    failed=$?
    set -e
    if ((failed)); then
        printf '%s%s  ✗ %s%s %s%s%s\n' "$again" "$red" "$text" "$plain" "$dim" "$(since "$started")" "$plain" >&2
        stop "setup: could not $text; see $log"
    fi
    printf '%s%s  ✓%s %s %s%s%s\n' "$again" "$green" "$plain" "$text" "$dim" "$(since "$started")" "$plain" >&2
}

since() {
    awk -v from="$1" -v to="$EPOCHREALTIME" 'BEGIN {printf "%.1f s", to - from}'
}

stop() {
    printf '%s\n' "$*" >&2
    exit 1
}

# at_least WANTED VERSION
at_least() {
    [[ -n $2 && $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$1" ]]
}

gib() {
    awk -v mib="$1" 'BEGIN {printf "%.1f GiB", mib / 1024}'
}

[[ ${BASH_SOURCE[0]} != "$0" ]] || main
