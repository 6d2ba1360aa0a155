"""The kinds of objects that are used here, and where the API keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from specsweep.k8s.errors import SpecError

Verb = Literal["get", "list", "watch", "create", "patch", "delete"]
METHODS: Mapping[Verb, str] = {"get": "GET", "list": "GET", "watch": "GET", "create": "POST", "patch": "PATCH", "delete": "DELETE"}
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"  # of a Secret: that it is there, and nothing of it
MERGE_PATCH = "application/merge-patch+json"


@dataclass(frozen=True, slots=True)
class Resource:
    group: str  # "" for the core
    version: str
    plural: str
    kind: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def full_name(self) -> str:
        """As people and roles name it: ``jobs.batch``, ``pods``."""
        return f"{self.plural}.{self.group}" if self.group else self.plural


JOBS = Resource("batch", "v1", "jobs", "Job")
PODS = Resource("", "v1", "pods", "Pod")
SERVICES = Resource("", "v1", "services", "Service")
CONFIG_MAPS = Resource("", "v1", "configmaps", "ConfigMap")
EVENTS = Resource("", "v1", "events", "Event")
CLAIMS = Resource("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim")
NODES = Resource("", "v1", "nodes", "Node", namespaced=False)
NAMESPACES = Resource("", "v1", "namespaces", "Namespace", namespaced=False)
SECRETS = Resource("", "v1", "secrets", "Secret")
ACCESS_REVIEWS = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", "SelfSubjectAccessReview", namespaced=False)
LOCAL_QUEUES = Resource("kueue.x-k8s.io", "v1beta2", "localqueues", "LocalQueue")
RAY_CLUSTERS = Resource("ray.io", "v1", "rayclusters", "RayCluster")

_KNOWN = (JOBS, PODS, SERVICES, CONFIG_MAPS, EVENTS, CLAIMS, NODES, SECRETS, ACCESS_REVIEWS, LOCAL_QUEUES, RAY_CLUSTERS)


def resource_of(obj: Mapping[str, Any]) -> Resource:
    """Of an object by its ``apiVersion`` and ``kind``. Raises SpecError for one that is not used here."""
    for resource in _KNOWN:
        if (obj.get("apiVersion"), obj.get("kind")) == (resource.api_version, resource.kind):
            return resource
    raise SpecError(f"objects of kind {obj.get('kind')!r} in {obj.get('apiVersion')!r} are not used here")


@dataclass(frozen=True, slots=True)
class Request:
    """One request in the API's own terms, so that an error can name the right that it needed."""

    verb: Verb
    resource: Resource
    namespace: str
    name: str | None = None
    subresource: str | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    content_type: str = "application/json"
    accept: str = "application/json, */*"

    @property
    def method(self) -> str:
        return METHODS[self.verb]

    @property
    def path(self) -> str:
        resource = self.resource
        if not resource.version:
            return f"/{resource.plural}"  # beside the API's groups: /version
        root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
        parts = [root, *(["namespaces", self.namespace] if resource.namespaced else []), resource.plural, self.name, self.subresource]
        return "/".join(part for part in parts if part)

    @property
    def right(self) -> str:
        """In words: ``create jobs.batch in namespace bench``."""
        what = f"{self.resource.plural}/{self.subresource}" if self.subresource else self.resource.full_name
        return f"{self.verb} {what}" + (f" in namespace {self.namespace}" if self.resource.namespaced else "")

    def __str__(self) -> str:
        return f"{self.right} ({self.name})" if self.name else self.right
