//! The alert rules, for a Prometheus' `rule_files` and for a PrometheusRule's `spec`.

pub(crate) struct Alert {
    pub(crate) name: &'static str,
    /// What holds while it is raised, in PromQL.
    pub(crate) expression: &'static str,
    /// For how long that has to hold before.
    lasts: &'static str,
    severity: &'static str,
    /// What is so, with the labels of what it is raised for.
    pub(crate) summary: &'static str,
    /// What it means, and what to do.
    pub(crate) description: &'static str,
}

pub(crate) const ALERTS: &[Alert] = &[
    Alert {
        name: "TributaryAbsent",
        expression: "absent(tributary_connections_max)",
        lasts: "5m",
        severity: "critical",
        summary: "No Tributary is scraped.",
        description: "No replica has been scraped for five minutes: none runs, or Prometheus may not read /metrics.",
    },
    Alert {
        name: "TributaryClusterStale",
        expression: "max by (job, instance, cluster) (tributary_collection_age_seconds) > 60",
        lasts: "5m",
        severity: "warning",
        summary: "What is held of cluster {{ $labels.cluster }} is old.",
        description: "Reads show {{ $labels.cluster }} as it was {{ $value | humanizeDuration }} ago. `tributary status` \
                      says what is wrong with it.",
    },
    Alert {
        name: "TributaryClusterUnknown",
        expression: "max by (job, instance, resource) (tributary_unknown_clusters) > 0",
        lasts: "10m",
        severity: "warning",
        summary: "{{ $labels.resource }} of {{ $value }} clusters have never been read.",
        description: "Lists and watches of {{ $labels.resource }} lack these clusters, or are refused (`partial: Deny`). \
                      `tributary status` names them and why.",
    },
    Alert {
        name: "TributaryRelists",
        expression: "max by (job, instance, cluster) (increase(tributary_relists_total[30m])) > 10",
        lasts: "5m",
        severity: "warning",
        summary: "A resource of cluster {{ $labels.cluster }} is listed anew again and again.",
        description: "Changes of {{ $labels.cluster }} are lost before they are read, which costs it complete lists: its \
                      history is short, or the way there is too slow. The metric's labels say of which resource.",
    },
    Alert {
        name: "TributaryVersionsExpired",
        expression: "sum by (job, resource) (rate(tributary_expired_total[10m])) > 1",
        lasts: "10m",
        severity: "warning",
        summary: "Clients of {{ $labels.resource }} list anew again and again.",
        description: "Their versions are older than what is remembered (410): they read too slowly, or there is too \
                      little history (--history-bytes).",
    },
    Alert {
        name: "TributaryErrors",
        expression: "sum by (job) (rate(apiserver_request_total{code=~\"5..\"}[5m])) \
                     / sum by (job) (rate(apiserver_request_total[5m])) > 0.05",
        lasts: "10m",
        severity: "critical",
        summary: "{{ $value | humanizePercentage }} of the requests fail.",
        description: "They are answered 5xx, by Tributary or by the clusters behind it. The metric's labels say which \
                      resources, and who was to answer.",
    },
    Alert {
        name: "TributarySlow",
        expression: "histogram_quantile(0.99, \
                     sum by (job, le) (rate(apiserver_request_duration_seconds_bucket[10m]))) > 5",
        lasts: "15m",
        severity: "warning",
        summary: "One request of a hundred waits {{ $value | humanizeDuration }} or more for its answer.",
        description: "Watches are left out. What is forwarded takes as long as its cluster: compare \
                      tributary_endpoint_latency_seconds.",
    },
    Alert {
        name: "TributaryPanics",
        expression: "increase(tributary_request_panics_total[15m]) > 0",
        lasts: "0m",
        severity: "critical",
        summary: "A request failed because of a fault in Tributary.",
        description: "Its log has the place. Please report it.",
    },
    Alert {
        name: "TributaryLimitNear",
        expression: "tributary_limit_used / on (job, instance, limit) tributary_limit >= 0.75",
        lasts: "10m",
        severity: "warning",
        summary: "{{ $value | humanizePercentage }} of the limit {{ $labels.limit }} are used.",
        // Objects without room are not held; for want of any other bound requests are refused.
        description: "{{ if eq $labels.limit \"total_collection_bytes\" }}A collection that finds no room is \
                      missing in reads (429 under `partial: Deny`), or stale if it was held, and a Warning says so. A \
                      restart may leave out some that are held now. Give the process more memory, or raise \
                      --max-total-collection-bytes.{{ else }}The last quarter is for \
                      those who hold little: whoever wants more of it is refused with 429, or with 502 where it is for \
                      a cluster's answer to a write.{{ end }} The table of limits in docs/operating.md says more.",
    },
    Alert {
        name: "TributaryMemberLimitNear",
        expression: "tributary_member_limit_used \
                     / on (job, instance, cluster, limit) tributary_member_limit >= 0.75",
        lasts: "10m",
        severity: "warning",
        summary: "{{ $value | humanizePercentage }} of the limit {{ $labels.limit }} of cluster {{ $labels.cluster }} \
                  are used.",
        description: "The last quarter is for those who hold little: whoever sends more there is refused with 429. Reads \
                      that memory answers are not among these.",
    },
    Alert {
        name: "TributaryLimitRefuses",
        expression: "sum by (job, instance, limit) (rate(tributary_limit_refused_total[5m])) > 0.1",
        lasts: "10m",
        severity: "warning",
        summary: "Requests are refused because of the limit {{ $labels.limit }}.",
        description: "They are answered 429 and come again. Raise the limit, or find who sends so many: \
                      tributary_requests_total tells by client.",
    },
    Alert {
        name: "TributaryConnectionsNear",
        expression: "tributary_connections / tributary_connections_max > 0.9",
        lasts: "10m",
        severity: "warning",
        summary: "{{ $value | humanizePercentage }} of the connections that may be open are.",
        description: "Further clients wait for one (--max-connections).",
    },
    Alert {
        name: "TributaryEndpointDown",
        // One that is drained may well be switched off.
        expression: "max by (job, cluster, endpoint) (tributary_endpoint_reachable) == 0 \
                     unless max by (job, cluster, endpoint) (tributary_endpoint_left_out{reason=\"drain\"}) == 1",
        lasts: "10m",
        severity: "warning",
        summary: "No replica reaches {{ $labels.endpoint }} of cluster {{ $labels.cluster }}.",
        description: "The cluster's other endpoints take its requests, where it has some.",
    },
    Alert {
        name: "TributaryWatchersTerminated",
        expression: "sum by (job, resource) (rate(apiserver_terminated_watchers_total[10m])) > 0.1",
        lasts: "10m",
        severity: "warning",
        summary: "Watches of {{ $labels.resource }} are ended because their clients read too slowly.",
        description: "They come back and go on from where they were. Their clients, or the lines to them, are too slow.",
    },
    Alert {
        name: "TributaryAuditEventsLost",
        expression: "sum by (job, instance, plugin) (increase(apiserver_audit_error_total[15m])) > 0",
        lasts: "0m",
        severity: "critical",
        summary: "Audit events are lost.",
        description: "{{ $labels.plugin }} lost {{ $value }} of them in 15 minutes: a full disk, a webhook that does not \
                      answer, a buffer that is too small. The log says which.",
    },
    Alert {
        name: "TributaryAccessLogLost",
        expression: "sum by (job, instance) (increase(tributary_access_log_lost_total[15m])) > 0",
        lasts: "0m",
        severity: "warning",
        summary: "Lines of the access log are lost.",
        description: "The disk is full or too slow: {{ $value }} lines in 15 minutes (--access-log-buffer-size).",
    },
];

/// The rules as YAML. Texts are JSON strings, which YAML has as well.
pub(crate) fn rules() -> String {
    let mut text = "# Made by server/tests/observability from its list of alerts; change that, and not this.\n\
                    groups:\n- name: tributary\n  rules:\n"
        .to_owned();
    for Alert { name, expression, lasts, severity, summary, description } in ALERTS {
        let [expression, summary, description] =
            [expression, summary, description].map(|text| serde_json::to_string(text).unwrap());
        text.push_str(&format!(
            "  - alert: {name}\n    expr: {expression}\n    for: {lasts}\n    labels:\n      severity: {severity}\n    \
             annotations:\n      summary: {summary}\n      description: {description}\n"
        ));
    }
    text
}
