"""Watches ConfigMaps and pods with the Python client, and checks each event against the earlier events.

    oracle.py --kubeconfig FILE --namespace NAMESPACE

The program lists, and then watches from the list's version, as the client's documentation advises. After a 410 it lists
again; after every other end of a watch it resumes from the last version. It prints {"event": "synced"}, and then reads the
commands "dump" and "exit" from standard input, like the Go clients. The checks are those of ../oracle/ledger.go.
"""

import argparse
import json
import os
import sys
import threading
import time
import traceback

import urllib3
from kubernetes import client, config, watch

SEQUENCE = "oracle.tributary.dev/sequence"
PAYLOAD = "oracle.tributary.dev/payload"
CLUSTER = "tributary.dev/cluster"

# The requested duration of a watch, and the timeout of a silent connection, in seconds.
WATCH_SECONDS = 30
SILENCE_SECONDS = 45

# The number of violations, and of newest gaps, that a dump contains. The counters have no limit.
KEPT = 20

printing = threading.Lock()


def say(value):
    with printing:
        print(json.dumps(value), flush=True)


class Ledger:
    """The events of one resource, and their violations."""

    def __init__(self, name):
        self.name = name
        self.lock = threading.Lock()
        self.held = {}
        self.gone = {}
        self.last = {}
        self.steady = {}
        self.resumed = False
        self.counts = {"Added": 0, "Modified": 0, "Deleted": 0, "Replaced": 0, "Repeated": 0, "Gaps": 0, "Violations": 0}
        self.violations = []
        self.gaps = []

    def violate(self, text):
        self.counts["Violations"] += 1
        if len(self.violations) < KEPT:
            self.violations.append(f"{self.name}: {text}")
        say({"event": "violation", "message": text})

    def describe(self, item, event):
        metadata = item["metadata"]
        annotations = metadata.get("annotations") or {}
        at = (metadata["namespace"] + "/" + metadata["name"], annotations.get(CLUSTER, ""))
        sequence = annotations.get(SEQUENCE, "-1")
        parts = annotations.get(PAYLOAD, "").split(":", 2)
        if len(parts) != 3 or parts[0] != sequence or parts[1] != str(len(parts[2])):
            self.violate(f"{event}: {at} is torn: sequence {sequence} with payload {parts}")
        return at, {"uid": metadata["uid"], "sequence": int(sequence), "resourceVersion": metadata["resourceVersion"]}

    def step(self, at, state, event):
        before = self.steady.get(at)
        if before is not None and state["sequence"] > before + 1:
            self.counts["Gaps"] += 1
            self.gaps = self.gaps[1 - KEPT :]
            self.gaps.append(f"{time.time():.3f} {self.name}: {event} of {at}: {state} after sequence {before}")
        self.steady[at] = max(before or 0, state["sequence"])

    def settle(self):
        self.steady = {at: state["sequence"] for at, state in self.held.items()}

    def forward(self, at, state, event):
        if state["uid"] in self.gone:
            self.violate(f"{event}: {at} comes back: {state}, {self.gone[state['uid']]}")
        last = self.last.get(at)
        if last is not None and state["sequence"] < last:
            self.violate(f"{event}: {at} goes back from sequence {last} to {state['sequence']}")
        self.last[at] = max(last or 0, state["sequence"])
        if event != "list":
            self.step(at, state, event)

    def replace(self, items):
        with self.lock:
            self.counts["Replaced"] += 1
            self.resumed = False
            following = {}
            for item in items:
                at, state = self.describe(item, "list")
                if at in following:
                    self.violate(f"list: {at} is there twice")
                self.forward(at, state, "list")
                following[at] = state
            for at, state in self.held.items():
                if at not in following or following[at]["uid"] != state["uid"]:
                    self.gone[state["uid"]] = f"missing from a list after sequence {state['sequence']}"
            self.held = following
            self.settle()

    def twin(self, at):
        return any(other[0] == at[0] and other[1] != at[1] for other in self.last)

    def repeats(self, known):
        if self.resumed and known:
            self.counts["Repeated"] += 1
            return True
        return False

    def event(self, kind, item):
        if kind == "BOOKMARK":
            return
        with self.lock:
            at, state = self.describe(item, kind)
            before = self.held.get(at)
            if kind == "ADDED":
                self.counts["Added"] += 1
                if before and not self.twin(at) and not self.repeats(before["uid"] == state["uid"]):
                    self.violate(f"ADDED of {at}, which is held: {before}, then {state}")
            elif kind == "MODIFIED":
                self.counts["Modified"] += 1
                if not before:
                    self.violate(f"MODIFIED of {at}, which is not held: {state}")
                elif before["uid"] != state["uid"]:
                    self.violate(f"MODIFIED of {at} turns {before} into {state}")
                elif before["resourceVersion"] == state["resourceVersion"] and not self.repeats(True):
                    self.violate(f"MODIFIED of {at}, again at {state}")
            elif kind == "DELETED":
                self.delete(at, state, before)
                return
            else:
                self.violate(f"{kind} of {at}")
            self.forward(at, state, kind)
            self.held[at] = state

    def delete(self, at, state, before):
        self.counts["Deleted"] += 1
        same = before and before["uid"] == state["uid"]
        if not same and self.repeats(state["uid"] in self.gone):
            return
        if not same:
            self.violate(f"DELETED of {at} with {state}, held is {before}")
        elif state["sequence"] < before["sequence"]:
            self.violate(f"DELETED of {at} goes back: {before}, then {state}")
        self.step(at, state, "DELETED")
        self.last[at] = max(self.last.get(at, 0), state["sequence"])
        self.gone[state["uid"]] = f"deleted at sequence {state['sequence']}"
        self.held.pop(at, None)

    def dump(self):
        with self.lock:
            self.settle()
            return {
                "objects": {at[0]: state for at, state in self.held.items()},
                "counts": dict(self.counts),
                "violations": list(self.violations),
                "gaps": list(self.gaps),
            }


def note(resource, error):
    print(f"{time.strftime('%H:%M:%S')} {resource}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr, flush=True)


def end(failure):
    """Ends the process after an error in a thread, which would otherwise silently stop watching."""
    traceback.print_exception(failure.exc_type, failure.exc_value, failure.exc_traceback)
    sys.stderr.flush()
    os._exit(1)


def follow(resource, function, namespace, ledger):
    """Lists and watches a resource until the process ends."""
    api = client.ApiClient()
    version = None
    while True:
        try:
            if version is None:
                listing = function(namespace, _request_timeout=SILENCE_SECONDS)
                ledger.replace([api.sanitize_for_serialization(item) for item in listing.items])
                version = listing.metadata.resource_version
            stream = watch.Watch()
            options = {"resource_version": version, "timeout_seconds": WATCH_SECONDS, "allow_watch_bookmarks": True}
            for event in stream.stream(function, namespace, _request_timeout=SILENCE_SECONDS, **options):
                if event is not None:
                    ledger.event(event["type"], event["raw_object"])
                    version = stream.resource_version
            ledger.resumed = True
        except client.ApiException as error:
            note(resource, error)
            if error.status == 410:
                version = None
            else:
                ledger.resumed = True
            time.sleep(0.5)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            note(resource, error)
            ledger.resumed = True
            time.sleep(0.5)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--namespace", required=True)
    given = parser.parse_args()
    config.load_kube_config(given.kubeconfig)
    threading.excepthook = end
    core = client.CoreV1Api()
    functions = {"configmaps": core.list_namespaced_config_map, "pods": core.list_namespaced_pod}
    ledgers = {resource: Ledger(resource + "/stream") for resource in functions}
    for resource, function in functions.items():
        arguments = (resource, function, given.namespace, ledgers[resource])
        threading.Thread(target=follow, args=arguments, daemon=True).start()
    say({"event": "synced"})
    for line in sys.stdin:
        if line.strip() == "dump":
            say({"event": "dump", "stores": {resource + "/stream": ledger.dump() for resource, ledger in ledgers.items()}})
        elif line.strip() == "exit":
            break


if __name__ == "__main__":
    main()
