"""The chart's Role is what ``specsweep doctor`` asks for, to the verb, and nothing reaches beyond the namespace."""

from __future__ import annotations

import re

import pytest
from helm_chart import ROOT, Json, of, pod_templates, rendered

from specsweep.k8s.resources import SECRETS
from specsweep.k8s.rights import FOR_A_QUEUE, FOR_RAY, NEEDED, Right

CLUSTER_WIDE = {
    "ClusterRole",
    "ClusterRoleBinding",
    "CustomResourceDefinition",
    "Namespace",
    "PersistentVolume",
    "StorageClass",
    "PriorityClass",
}


def granted(role: Json) -> set[tuple[str, str, str]]:
    """(group, resource, verb)."""
    return {
        (group, what, verb) for rule in role["rules"] for group in rule["apiGroups"] for what in rule["resources"] for verb in rule["verbs"]
    }


def asked(rights: tuple[Right, ...]) -> set[tuple[str, str, str]]:
    return {
        (right.resource.group, f"{right.resource.plural}/{right.subresource}" if right.subresource else right.resource.plural, right.verb)
        for right in rights
    }


@pytest.mark.parametrize(
    ("values", "rights"),
    [
        ({}, NEEDED + FOR_A_QUEUE + FOR_RAY),
        ({"rbac": {"kueue": False}}, NEEDED + FOR_RAY),
        ({"rbac": {"kuberay": False}}, NEEDED + FOR_A_QUEUE),
        ({"rbac": {"kueue": False, "kuberay": False}}, NEEDED),
    ],
)
def test_the_role_grants_what_a_sweep_asks_for_and_nothing_else(values: Json, rights: tuple[Right, ...]) -> None:
    role = of("Role", rendered(values))
    assert granted(role) == asked(rights)
    assert all("resourceNames" not in rule for rule in role["rules"])


def test_no_right_on_secrets_and_none_by_star() -> None:
    for group, resource, verb in granted(of("Role", rendered(everything=True))):
        assert resource != SECRETS.plural
        assert "*" not in (group, resource, verb)


@pytest.mark.parametrize("everything", [False, True])
def test_nothing_is_of_the_whole_cluster_and_all_is_in_the_namespace(everything: bool) -> None:
    for obj in rendered(everything=everything):
        assert obj["kind"] not in CLUSTER_WIDE
        assert obj["metadata"]["namespace"] == "bench"
        assert "helm.sh/hook" not in obj["metadata"].get("annotations", {})


def test_the_binding_joins_the_role_to_the_account_in_its_namespace() -> None:
    objects = rendered()
    binding = of("RoleBinding", objects)
    assert binding["roleRef"] == {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": of("Role", objects)["metadata"]["name"]}
    account = of("ServiceAccount", objects)
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account["metadata"]["name"], "namespace": "bench"}]
    assert account["metadata"]["name"] == "specsweep"


def test_an_account_that_is_there_is_bound_instead() -> None:
    objects = rendered({"serviceAccount": {"create": False, "name": "bench-runner"}})
    assert "ServiceAccount" not in {obj["kind"] for obj in objects}
    assert of("RoleBinding", objects)["subjects"][0]["name"] == "bench-runner"


def test_without_rbac_there_is_neither_role_nor_binding() -> None:
    assert {obj["kind"] for obj in rendered({"rbac": {"create": False}})} == {"ServiceAccount", "PersistentVolumeClaim"}


def test_pods_of_the_chart_cannot_speak_to_the_api_server() -> None:
    objects = rendered(everything=True)
    assert of("ServiceAccount", objects)["automountServiceAccountToken"] is False
    templates = pod_templates(objects)
    assert len(templates) == 3
    for template in templates:
        assert template["spec"]["automountServiceAccountToken"] is False
        assert "serviceAccountName" not in template["spec"]


def test_the_documentation_lists_the_same_rights() -> None:
    rows = re.findall(r"^\| `([a-z./\d-]+)` \| ([a-z, ]+) \|", (ROOT / "docs" / "kubernetes.md").read_text(), flags=re.MULTILINE)
    listed = {(name, verb) for name, verbs in rows for verb in verbs.split(", ")}
    named = {(f"{what}.{group}" if group else what, verb) for group, what, verb in asked(NEEDED + FOR_A_QUEUE + FOR_RAY)}
    assert listed == named
