"""Kept jobs: adds our job_submit script, which writes each job's options to a journal, beside the site's own.

slurmctld saves a job up to five seconds after it has acknowledged it. If it is killed in between, the guard puts the
job back from the journal, which is on the state volume.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import resources

from .userconf import ConfigRefused, UserConf

SCRIPT = "job_submit.lua"
SITE = "job_submit_site.lua"
"""The site's own job_submit.lua. Ours runs it first, and respects its result."""
_PLUGINS = "JobSubmitPlugins"
_LUA = "lua"
_PREFIX = "job_submit/"


def keep(user: UserConf) -> UserConf:
    """The configuration with our script added. The site's own job_submit plugins keep their effect."""
    if SITE in user.files:
        raise ConfigRefused(f"config {SITE} has a name that Seltzer uses for your {SCRIPT}: rename the file")
    _, value = user.settings.get(_PLUGINS.lower(), (_PLUGINS, ""))
    plugins = [name for name in (each.strip() for each in value.split(",")) if name]
    files = dict(user.files)
    script = files.pop(SCRIPT, None)
    if _LUA in (name.removeprefix(_PREFIX) for name in plugins):
        if script is None:
            raise ConfigRefused(f"slurm.conf has {_PLUGINS}={value}, but config has no {SCRIPT}: add it, or remove lua")
        files[SITE] = script
    else:
        plugins.append(_LUA)  # last: it sees the job as the other plugins left it
    files[SCRIPT] = resources.files(__package__).joinpath(SCRIPT).read_text()
    settings = {**user.settings, _PLUGINS.lower(): (_PLUGINS, ",".join(plugins))}
    return replace(user, settings=settings, files=files)
