//! Generates the alert rules. The same text is valid in a file of Prometheus' `rule_files` and in the `spec` of a
//! PrometheusRule.

pub(crate) struct Alert {
    pub(crate) name: &'static str,
    pub(crate) expression: &'static str,
    /// The time for which the condition must be true before the alert fires.
    pending_period: &'static str,
    severity: &'static str,
    /// The text about the problem, into which Prometheus inserts the labels of the alert.
    pub(crate) summary: &'static str,
    /// The consequence of the problem, and the remedy.
    pub(crate) description: &'static str,
}

pub(crate) const ALERTS: &[Alert] = &[
    Alert {
        name: "TributaryAbsent",
        expression: "absent(tributary_connections_max)",
        pending_period: "5m",
        severity: "critical",
        summary: "No Tributary is scraped.",
        description: "No replica was scraped for 5 minutes. Start Tributary, or let Prometheus read /metrics.",
    },
    Alert {
        name: "TributaryClusterStale",
        expression: "max by (job, instance, cluster) (tributary_collection_age_seconds) > 60",
        pending_period: "5m",
        severity: "warning",
        summary: "The cache of cluster {{ $labels.cluster }} is stale.",
        description: "Reads show {{ $labels.cluster }} as it was {{ $value | humanizeDuration }} ago. `tributary \
                      status` shows the cause.",
    },
    Alert {
        name: "TributaryClusterUnknown",
        expression: "max by (job, instance, resource) (tributary_unknown_clusters) > 0",
        pending_period: "10m",
        severity: "warning",
        summary: "Tributary has never read {{ $labels.resource }} of {{ $value }} clusters.",
        description: "Lists and watches of {{ $labels.resource }} lack these clusters, or are refused (`partial: \
                      Deny`). `tributary status` names the clusters and the causes.",
    },
    Alert {
        name: "TributaryRelists",
        expression: "max by (job, instance, cluster) (increase(tributary_relists_total[30m])) > 10",
        pending_period: "5m",
        severity: "warning",
        summary: "Tributary lists a resource of cluster {{ $labels.cluster }} again and again.",
        description: "Changes of {{ $labels.cluster }} are lost, and each loss costs the cluster a complete list. The \
                      cluster's history is too short, or the network is too slow. The metric names the resource.",
    },
    Alert {
        name: "TributaryVersionsExpired",
        expression: "sum by (job, resource) (rate(tributary_expired_total[10m])) > 1",
        pending_period: "10m",
        severity: "warning",
        summary: "Clients list {{ $labels.resource }} again and again.",
        description: "Their versions are older than the remembered changes (410). Clients read too slowly, or \
                      --history-bytes is too small.",
    },
    Alert {
        name: "TributaryErrors",
        expression: "sum by (job) (rate(apiserver_request_total{code=~\"5..\"}[5m])) \
                     / sum by (job) (rate(apiserver_request_total[5m])) > 0.05",
        pending_period: "10m",
        severity: "critical",
        summary: "{{ $value | humanizePercentage }} of the requests fail.",
        description: "Tributary or its clusters answer with 5xx. The metric names the resources, and whether memory or \
                      a cluster answers.",
    },
    Alert {
        name: "TributarySlow",
        expression: "histogram_quantile(0.99, \
                     sum by (job, le) (rate(apiserver_request_duration_seconds_bucket[10m]))) > 5",
        pending_period: "15m",
        severity: "warning",
        summary: "1 % of the requests wait {{ $value | humanizeDuration }} or longer for an answer.",
        description: "Watches do not count. A forwarded request takes as long as its cluster: compare \
                      tributary_endpoint_latency_seconds.",
    },
    Alert {
        name: "TributaryPanics",
        expression: "increase(tributary_request_panics_total[15m]) > 0",
        pending_period: "0m",
        severity: "critical",
        summary: "A request failed because of a fault in Tributary.",
        description: "The log has the position in the code. Please report it.",
    },
    Alert {
        name: "TributaryLimitNear",
        expression: "tributary_limit_used / on (job, instance, limit) tributary_limit >= 0.75",
        pending_period: "10m",
        severity: "warning",
        summary: "{{ $value | humanizePercentage }} of the limit {{ $labels.limit }} is used.",
        // When the limit `total_collection_bytes` is reached, the cacher stores no new objects. When any other limit is
        // reached, the program refuses requests.
        description: "{{ if eq $labels.limit \"total_collection_bytes\" }}A new collection without room is missing in \
                      reads (429 under `partial: Deny`); a cached one becomes stale when it grows. A Warning names both. \
                      After a restart, collections may be missing. Give the process more memory, or raise --max-total-collection-bytes.{{ else }}The last quarter is for clients with few \
                      requests. The other clients get 429, or 502 for a cluster's answer to a write.{{ end }} See \
                      Limits in docs/operating.md.",
    },
    Alert {
        name: "TributaryMemberLimitNear",
        expression: "tributary_member_limit_used \
                     / on (job, instance, cluster, limit) tributary_member_limit >= 0.75",
        pending_period: "10m",
        severity: "warning",
        summary: "{{ $value | humanizePercentage }} of the limit {{ $labels.limit }} of cluster {{ $labels.cluster }} \
                  is used.",
        description: "The last quarter is for clients with few requests. The other clients get 429. Reads from memory \
                      do not count.",
    },
    Alert {
        name: "TributaryLimitRefuses",
        expression: "sum by (job, instance, limit) (rate(tributary_limit_refused_total[5m])) > 0.1",
        pending_period: "10m",
        severity: "warning",
        summary: "Tributary refuses requests because of the limit {{ $labels.limit }}.",
        description: "Clients get 429 and repeat their requests. Raise the limit, or find the busy clients: \
                      tributary_requests_total has the label client.",
    },
    Alert {
        name: "TributaryConnectionsNear",
        expression: "tributary_connections / tributary_connections_max > 0.9",
        pending_period: "10m",
        severity: "warning",
        summary: "{{ $value | humanizePercentage }} of --max-connections is used.",
        description: "At the limit, new clients wait until a connection closes.",
    },
    Alert {
        name: "TributaryEndpointDown",
        // A drained endpoint raises no alert, because its server may be switched off.
        expression: "max by (job, cluster, endpoint) (tributary_endpoint_reachable) == 0 \
                     unless max by (job, cluster, endpoint) (tributary_endpoint_left_out{reason=\"drain\"}) == 1",
        pending_period: "10m",
        severity: "warning",
        summary: "No replica reaches {{ $labels.endpoint }} of cluster {{ $labels.cluster }}.",
        description: "The cluster's other endpoints, if there are any, get its requests.",
    },
    Alert {
        name: "TributaryWatchersTerminated",
        expression: "sum by (job, resource) (rate(apiserver_terminated_watchers_total[10m])) > 0.1",
        pending_period: "10m",
        severity: "warning",
        summary: "Tributary ends watches of {{ $labels.resource }} because their clients read too slowly.",
        description: "The clients resume. They, or their networks, are too slow.",
    },
    Alert {
        name: "TributaryAuditEventsLost",
        expression: "sum by (job, instance, plugin) (increase(apiserver_audit_error_total[15m])) > 0",
        pending_period: "0m",
        severity: "critical",
        summary: "Audit events are lost.",
        description: "{{ $labels.plugin }} lost {{ $value }} events in 15 minutes: the disk is full, the webhook does \
                      not answer, or the buffer is too small. The log has the cause.",
    },
    Alert {
        name: "TributaryAccessLogLost",
        expression: "sum by (job, instance) (increase(tributary_access_log_lost_total[15m])) > 0",
        pending_period: "0m",
        severity: "warning",
        summary: "Lines of the access log are lost.",
        description: "{{ $value }} lines in 15 minutes: a full or slow disk, or a small --access-log-buffer-size.",
    },
];

/// Returns the rules as YAML. Their texts are JSON strings, which are valid YAML.
pub(crate) fn rules() -> String {
    let mut text = "# Generated by server/tests/observability from its list of alerts. Do not edit.\n\
                    groups:\n- name: tributary\n  rules:\n"
        .to_owned();
    for Alert { name, expression, pending_period, severity, summary, description } in ALERTS {
        let [expression, summary, description] =
            [expression, summary, description].map(|text| serde_json::to_string(text).unwrap());
        text.push_str(&format!(
            "  - alert: {name}\n    expr: {expression}\n    for: {pending_period}\n    labels:\n      severity: {severity}\n    \
             annotations:\n      summary: {summary}\n      description: {description}\n"
        ));
    }
    text
}
