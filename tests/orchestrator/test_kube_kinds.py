"""What a config file says of a cluster is read by kind: a slip is told by name before anything is sent."""

from __future__ import annotations

from typing import Any

import pytest
from plan_samples import plan_of

from specsweep.orchestrator.engines import EngineSpec
from specsweep.orchestrator.errors import ConfigError
from specsweep.orchestrator.kube import kinds
from specsweep.orchestrator.kube.settings import Deadlines, Settings, pod_of
from specsweep.orchestrator.kube.specs import server_spec

SECRET = "hunter2"


def config_of(*overrides: str) -> Any:
    words = ("sweep=smoke", "engine=sim", "target=tiny", "cluster=kubernetes", "cluster.image=reg/specsweep:1", "drafter=none")
    return plan_of(*words, *overrides).sessions[0].config


BASE = config_of()


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("quue", "gpu", r"cluster\.quue is not known; cluster has .*queue"),
        ("results", {"clam": "r"}, r"cluster\.results\.clam is not known; cluster\.results has claim, path"),
        ("deadlines", {"quque_s": 3}, r"cluster\.deadlines\.quque_s is not known"),
        ("deadlines", {"queue_s": 1e308}, r"cluster\.deadlines\.queue_s=1e\+308: at most"),
        ("sweep", {"cpuu": 3}, r"cluster\.sweep\.cpuu is not known"),
        ("sweep", {"tolerations": "all"}, r"cluster\.sweep\.tolerations='all': a list is needed"),
        ("sweep", {"template": {1: 2}}, r"cluster\.sweep\.template=\{…\}: its key 1 is no text"),
        ("sweep", {"priority_class": ["a"]}, r"cluster\.sweep\.priority_class=\['a'\]: the name of an object"),
        ("service_account", "8 Gi", r"cluster\.service_account='8 Gi': the name of an object"),
        ("namespace", "a/b", r"cluster\.namespace='a/b': the name of a namespace"),
        ("queue", "Team_A!", r"cluster\.queue='Team_A!': the name of an object"),
        ("image_pull_secrets", [{"name": "a"}], r"cluster\.image_pull_secrets=.*the name of an object"),
        ("gpu_memory_gb", "180", r"cluster\.gpu_memory_gb='180': a number above 0"),
        ("gpu_limits", {1: 1}, r"cluster\.gpu_limits: its key 1 is no text"),
        ("hub_token", {"secret": "hub", "key": "a b"}, r"cluster\.hub_token\.key='a b': a key of a Secret"),
        ("clients", {"ray_address": "ray://head:10001"}, r"cluster\.clients\.ray_address=.*host:port"),
        ("clients", {"ray_address": "head:99999"}, r"cluster\.clients\.ray_address='head:99999'"),
        ("image", f"me:{SECRET}@reg/x:1", r"cluster\.image='…@reg/x:1': an image is needed"),
    ],
)
def test_a_slip_in_the_cluster_is_told_by_its_field(field: str, value: Any, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as told:
        Settings.of({"cluster": {**BASE["cluster"], field: value}})
    assert SECRET not in told.value.message


@pytest.mark.parametrize(
    ("pod", "says"),
    [
        ({"tolerations": True}, r"engine\.pod\.tolerations=True: a list is needed"),
        ({"tolerations": ["gpu"]}, r"'gpu' in it: a toleration is a mapping"),
        ({"tolerations": [{"kee": "x"}]}, r"'kee' is no field of a toleration"),
        ({"capabilities": "IPC_LOCK"}, r"engine\.pod\.capabilities='IPC_LOCK': a list is needed, as in \[IPC_LOCK\]"),
        ({"env": {"A": {"b": SECRET}}}, r"engine\.pod\.env=\{…\}: A in it: one value is needed"),
        ({"gpus": ""}, r"engine\.pod\.gpus='': a whole number"),
        ({"gpu_product": 200}, r"engine\.pod\.gpu_product=200: a label's value is needed, as text"),
        ({"gpu_resource": "gpu"}, r"engine\.pod\.gpu_resource='gpu': a domain and a name"),
        ({"shm": -1}, r"engine\.pod\.shm=-1: a quantity above 0"),
        ({"memory": "8 Gi"}, r"engine\.pod\.memory='8 Gi': a quantity above 0"),
        ({"run_as_user": 2**40}, r"engine\.pod\.run_as_user=1099511627776: a user's number"),
        ({"pull_policy": "always"}, r"engine\.pod\.pull_policy='always': one of Always"),
        ({"extra_resources": {"rdma/hca": "one"}}, r"rdma/hca in it: a quantity"),
        ({"template": {"spec": {"priority": float("nan")}}}, r"engine\.pod\.template=\{…\}: nan in it is not a finite number"),
    ],
)
def test_a_slip_in_a_pod_is_told_by_its_field(pod: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError, match=says) as told:
        pod_of({**BASE, "engine": {**BASE["engine"], "pod": pod}})
    assert SECRET not in told.value.message


def test_the_deadlines_that_are_checked_are_those_that_are_read() -> None:
    assert set(kinds.CLUSTER["deadlines"]) == set(Deadlines.__dataclass_fields__)


def made(pod: dict[str, Any], **config: Any) -> Any:
    whole = {**BASE, "target": {**BASE["target"], "pod": pod}, **config}
    return server_spec(EngineSpec("sim", ("serve",), "tiny"), whole, Settings.of(whole), sweep="s", session_id="ab", namespace="bench")


def test_null_takes_a_variable_back_and_a_flag_is_written_as_yaml_writes_it() -> None:
    cluster = {**BASE["cluster"], "pod": {**BASE["cluster"]["pod"], "env": {"DEBUG": "1", "KEEP": "2"}}}
    spec = made({"env": {"DEBUG": None, "FAST": True}, "node_selector": {"gpu": True}}, cluster=cluster)
    env = {name: value for name, value in spec.program.env.items() if name in ("DEBUG", "KEEP", "FAST")}
    assert (env, spec.placement.node_selector) == ({"KEEP": "2", "FAST": "true"}, {"gpu": "true"})


def test_a_pod_without_defaults_is_refused_by_what_it_lacks() -> None:
    with pytest.raises(ConfigError, match=r"cluster\.pod\.cpu is not set"):
        made({}, cluster={**BASE["cluster"], "pod": None})
