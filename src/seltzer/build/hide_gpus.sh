#!/bin/sh
# Slurm runs this before each task, as its user. Slurm unsets these variables for tasks without GPUs, which would then use
# any GPU of the pod; with an empty value they see none. Only nodes with GPUs have the file.
# shellcheck disable=SC2086
[ -r /run/seltzer/gpus ] || exit 0
read -r name </run/seltzer/gpus
eval "[ -n \"\${$name+set}\" ]" || echo "export $name="
