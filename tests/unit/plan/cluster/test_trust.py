"""Only what contains nothing from the user is rolled out without a trial."""

from __future__ import annotations

from typing import Any

import pytest
from tests.builders.objects import cluster, nodeset

from seltzer.plan.cluster.trust import is_trusted

TEMPLATE = {"spec": {"nodeSelector": {"a": "b"}}}


@pytest.mark.parametrize(
    ("spec", "nodes", "trusted"),
    [
        ({}, {}, True),
        ({"home": {}, "controller": {"keepJobs": True}}, {}, True),
        ({"rest": {"podTemplate": TEMPLATE}, "login": {"podTemplate": TEMPLATE, "image": "x"}}, {}, True),
        ({"controller": {"resources": {"limits": {"cpu": 1}}}}, {"features": ["a"], "podTemplate": TEMPLATE}, True),
        ({"config": {"gres.conf": ""}}, {}, False),
        ({}, {"partition": {"options": "State=UP"}}, False),
        ({"controller": {"image": "mine"}}, {}, False),
        ({"controller": {"podTemplate": TEMPLATE}}, {}, False),
        ({"podTemplate": TEMPLATE}, {}, False),
        ({"podTemplate": {"metadata": {"labels": {"a": "b"}}}}, {}, False),
    ],
)
def test_only_what_is_all_ours_is_trusted(spec: dict[str, Any], nodes: dict[str, Any], trusted: bool) -> None:
    assert is_trusted(cluster(spec), [nodeset(nodes)]) is trusted
