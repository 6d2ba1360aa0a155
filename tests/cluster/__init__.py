"""A real Kubernetes control plane on one machine, with nodes whose kubelet runs containers as local processes.

What is proved here is how the code behaves towards Kubernetes itself: the real API server with its admission and its watches, the real
scheduler with its words, the real controllers that delete, evict and count. All of these run outside of any cluster as plain processes.
What cannot is a container runtime, and it is not needed: a pod's container is a process of this machine in namespaces of its own
(network, mounts, an overlay of this machine's files), and everything that a kubelet owes the API server is done for it.

    build.py           the binaries, from Go modules, once for each version
    control_plane.py   etcd, API server, controller manager, scheduler
    network.py         a bridge, and a network namespace for each pod
    disks.py           volumes that one node has at a time
    kubelet.py         the nodes: registration, heartbeats, the watch on pods, logs
    pod.py             one pod from its binding to its end
    container.py       one container: its view of the files, its limits, its process

It needs root, since namespaces, mounts, control groups and a bridge are made, and nothing that a Linux machine does not have: util-linux,
coreutils, iproute2.
"""
