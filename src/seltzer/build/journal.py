"""What keeps jobs: a job_submit script of ours that writes down what each job asked for, and the site's beside it.

slurmctld saves a job up to five seconds after it has acknowledged it. The script's journal on the state volume is what
the guard puts such jobs back from, if slurmctld is killed in between.
"""

from __future__ import annotations

from dataclasses import replace
from importlib import resources

from .userconf import ConfigRefused, UserConf

SCRIPT = "job_submit.lua"
SITE = "job_submit_site.lua"
"""Where the site's own job_submit.lua is: ours runs it first, and heeds what it says."""
_PLUGINS = "JobSubmitPlugins"
_LUA = "lua"
_PREFIX = "job_submit/"


def keep(user: UserConf) -> UserConf:
    """The same configuration, whose slurmctld writes jobs down. What the site's own job_submit plugins do stays."""
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
        plugins.append(_LUA)  # last, to see what the others made of the job
    files[SCRIPT] = resources.files(__package__).joinpath(SCRIPT).read_text()
    settings = {**user.settings, _PLUGINS.lower(): (_PLUGINS, ",".join(plugins))}
    return replace(user, settings=settings, files=files)
