"""Uses a ConfigMap and a pod with the Python client.

    objects.py --kubeconfig FILE --namespace NAMESPACE --cluster CLUSTER --pod POD

The program creates the ConfigMap `python` in the cluster, changes, lists, watches and deletes it, and runs a command in the
pod. It prints the results as one line of JSON.
"""

import argparse
import json

from kubernetes import client, config, watch
from kubernetes.stream import stream

NAME = "python"

# The timeout of the watch, in seconds.
WATCH_SECONDS = 30


def main():
    parser = argparse.ArgumentParser()
    for flag in ["--kubeconfig", "--namespace", "--cluster", "--pod"]:
        parser.add_argument(flag, required=True)
    given = parser.parse_args()
    config.load_kube_config(given.kubeconfig)
    core = client.CoreV1Api()
    metadata = client.V1ObjectMeta(name=NAME, annotations={"tributary.dev/cluster": given.cluster})
    made = core.create_namespaced_config_map(given.namespace, client.V1ConfigMap(metadata=metadata, data={"step": "1"}))
    listed = core.list_namespaced_config_map(given.namespace)
    changed = core.patch_namespaced_config_map(NAME, given.namespace, {"data": {"step": "2"}})
    watched = None
    options = {"resource_version": listed.metadata.resource_version, "timeout_seconds": WATCH_SECONDS}
    for event in watch.Watch().stream(core.list_namespaced_config_map, given.namespace, **options):
        if event["object"].metadata.name == NAME and event["object"].data["step"] == "2":
            watched = event["type"]
            break
    # `stream` replaces the requests of its client by WebSockets, so it gets a client of its own.
    command = ["sh", "-c", "echo $MEMBER; echo \"$1\"", "sh", "a b&c=d;e"]
    options = {"command": command, "stdout": True, "stderr": True, "stdin": False, "tty": False}
    printed = stream(client.CoreV1Api().connect_get_namespaced_pod_exec, given.pod, given.namespace, **options)
    core.delete_namespaced_config_map(NAME, given.namespace)
    code = None
    try:
        core.read_namespaced_config_map(NAME, given.namespace)
    except client.ApiException as error:
        code = error.status
    print(
        json.dumps(
            {
                "made": made.data["step"],
                "listed": sorted(item.metadata.name for item in listed.items),
                "changed": changed.data["step"],
                "watched": watched,
                "printed": printed,
                "afterDeletion": code,
            }
        )
    )


if __name__ == "__main__":
    main()
