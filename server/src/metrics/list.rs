//! The list of all metrics at `/metrics`. Tests generate the table in `docs/observability.md` and the dashboard from
//! the list, and compare the list with the exposition and the alert rules.

/// The description of one metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricDescription {
    /// The metric's name in the exposition. A counter's name ends in `_total`. A histogram has three names with
    /// suffixes.
    pub name: &'static str,
    /// The section of the metric in the table and the dashboard.
    pub section: Section,
    /// The type of the metric: counter, gauge or histogram.
    pub kind: MetricKind,
    /// The unit of the metric's value; `None` for a number.
    pub unit: Option<Unit>,
    /// The names of the metric's labels.
    pub labels: &'static [&'static str],
    /// The help text in the exposition, which is also the panel's title. If the metric has only the values 1 and 0, the
    /// help contains `, else `.
    pub help: &'static str,
    /// The meaning in the metrics table, as Markdown with links relative to `docs`.
    pub meaning: &'static str,
    /// The labels by which the dashboard groups the metric's series. The dashboard sums over all other labels.
    pub shown_by: &'static [&'static str],
    /// True if the metric measures a service level objective. The dashboard begins with these metrics.
    pub is_objective: bool,
}

/// The section of the metrics table to which a metric belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// The section of requests and their answers.
    Requests,
    /// The section of open watches, and of the events that clients receive.
    Watches,
    /// The section of clusters, and of the watches on them.
    Clusters,
    /// The section of caches of objects and events.
    Memory,
    /// The section of limits, dispatch policies and flow control.
    Governance,
    /// The section of clients' connections to the listener.
    Connections,
    /// The section of the audit log. Without an audit log, these metrics are not exposed.
    Audit,
    /// The section of the hub. Without hub mode, these metrics are not exposed.
    Hub,
    /// The section of the access log. Without an access log, these metrics are not exposed.
    AccessLog,
    /// The section of traces. Without a tracing configuration, these metrics are not exposed.
    Tracing,
    /// The section of the process: memory, CPU and file descriptors.
    Process,
}

impl Section {
    /// All sections of metrics, in the order of the table.
    pub const ALL: [Self; 11] = [
        Self::Requests,
        Self::Watches,
        Self::Clusters,
        Self::Memory,
        Self::Governance,
        Self::Connections,
        Self::Audit,
        Self::Hub,
        Self::AccessLog,
        Self::Tracing,
        Self::Process,
    ];

    /// Returns the title of the metrics section.
    pub fn title(self) -> &'static str {
        match self {
            Self::Requests => "Requests",
            Self::Watches => "Watches",
            Self::Clusters => "Clusters",
            Self::Memory => "Memory",
            Self::Governance => "Limits, policies and flow control",
            Self::Connections => "Connections",
            Self::Audit => "Audit log",
            Self::Hub => "Hub",
            Self::AccessLog => "Access log",
            Self::Tracing => "Traces",
            Self::Process => "Process",
        }
    }
}

/// The type of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// A counter, whose value only grows until the process ends.
    Counter,
    /// A gauge, whose value rises and falls.
    Gauge,
    /// A histogram, which counts observations by size.
    Histogram,
}

impl MetricKind {
    /// Returns the name of the metric type in the exposition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The unit of durations and times: seconds.
    Seconds,
    /// The unit of sizes: bytes.
    Bytes,
}

/// The descriptions of all metrics, grouped by section.
pub const METRICS: &[MetricDescription] = &[
    MetricDescription {
        name: "tributary_requests_total",
        section: Section::Requests,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster", "verb", "resource", "decision", "client"],
        help: "Requests by cluster, resource, decision and kind of client",
        meaning: "Answered requests. `decision`: `memory`; `forwarded` (to one or several clusters); `self` \
            (discovery, OpenAPI, health, `/version`); `denied` (by a [dispatch policy](policies.md)); \
            `limited` (429 by a [limit](operating.md#limits) or [schema](operating.md#flow-control)); \
            `refused` (for a different reason, before a cluster was asked). `cluster`: that of the path or \
            host, or the only one asked; `*` for several; otherwise empty. `client`, from the User-Agent: \
            `kubectl`, `helm`, `k9s`, `controller` (other programs with client-go), `browser` or `other`.",
        shown_by: &["decision"],
        is_objective: true,
    },
    MetricDescription {
        name: "apiserver_request_total",
        section: Section::Requests,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["verb", "group", "version", "resource", "subresource", "scope", "source", "code"],
        help: "Requests by verb, resource and code",
        meaning: "Answered requests. `source`: `memory` (also for a get that continued to a cluster outside the \
            registry); `member` (one or several clusters); `self` (discovery, OpenAPI, health, `/version`); \
            empty for an early refusal.",
        shown_by: &["code"],
        is_objective: true,
    },
    MetricDescription {
        name: "apiserver_request_duration_seconds",
        section: Section::Requests,
        kind: MetricKind::Histogram,
        unit: Some(Unit::Seconds),
        labels: &["group", "version", "resource"],
        help: "Time until the answer begins, without watches",
        meaning: "Time until the answer begins, without watches.",
        shown_by: &["resource"],
        is_objective: true,
    },
    MetricDescription {
        name: "tributary_member_questions_total",
        section: Section::Requests,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["about"],
        help: "Requests to clusters that precede the answer to a client",
        meaning: "Requests to clusters that precede an answer, counted for each cluster: which cluster has an object \
            (`name`) or a Helm release (`helm_release`), and whether the client may write an object that it \
            may not get (`right`). At most 32 are in flight for each cluster, clients in turn.",
        shown_by: &["about"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_request_panics_total",
        section: Section::Requests,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Requests that failed because of a panic",
        meaning: "Requests that failed because of a fault in Tributary. Please report them.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "apiserver_longrunning_requests",
        section: Section::Watches,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["group", "version", "resource"],
        help: "Open watches",
        meaning: "Open watches.",
        shown_by: &["resource"],
        is_objective: false,
    },
    MetricDescription {
        name: "apiserver_watch_events_total",
        section: Section::Watches,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["group", "version", "resource"],
        help: "Watch events written to clients",
        meaning: "Watch events written to clients.",
        shown_by: &["resource"],
        is_objective: false,
    },
    MetricDescription {
        name: "apiserver_terminated_watchers_total",
        section: Section::Watches,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["group", "version", "resource"],
        help: "Watches that were ended because their client read too slowly",
        meaning: "Watches that were ended because their client read too slowly.",
        shown_by: &["resource"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_expired_total",
        section: Section::Watches,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["verb", "group", "version", "resource"],
        help: "Lists and watches answered with 410 because their version is too old",
        meaning: "Lists and watches answered with 410, also in a watch's stream: their version or `continue` token \
            is forgotten, and the client lists again.",
        shown_by: &["resource"],
        is_objective: true,
    },
    MetricDescription {
        name: "tributary_collection_age_seconds",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: Some(Unit::Seconds),
        labels: &["cluster", "resource"],
        help: "Maximum age of the objects in memory, by cluster and resource",
        meaning: "Maximum age of the objects in memory: time since the cluster was last heard, or since changes of \
            the resource ceased to arrive. Unread resources have no age; see `tributary_unknown_clusters` and \
            `tributary_forbidden_clusters`.",
        shown_by: &["cluster"],
        is_objective: true,
    },
    MetricDescription {
        name: "tributary_unknown_clusters",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["resource"],
        help: "Clusters in which a resource was never read, although they do not forbid it",
        meaning: "Clusters in which the resource was not read yet, although they do not forbid it. Answers lack \
            them, or are refused (`partial: Deny`).",
        shown_by: &["resource"],
        is_objective: true,
    },
    MetricDescription {
        name: "tributary_forbidden_clusters",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["resource"],
        help: "Clusters that forbid a list of the resource, or of a namespace that is read by itself",
        meaning: "Clusters that answer 403 to a list of the resource, in all namespaces or in a namespace that is \
            read by itself. Expected if a cluster allows Tributary only single namespaces; otherwise a role is \
            missing.",
        shown_by: &["resource"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_relists_total",
        section: Section::Clusters,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster", "resource"],
        help: "Complete lists that were repeated because changes were lost",
        meaning: "Complete lists that were repeated because changes were lost: a 410 of the cluster, or a restored \
            cluster. Watches receive only the differences. Lists of [collections without \
            bookmarks](decisions/0006-collections-without-bookmarks.md) do not count. With single namespaces: \
            the highest count of a namespace.",
        shown_by: &["cluster"],
        is_objective: true,
    },
    MetricDescription {
        name: "tributary_cacher_synced",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "resource"],
        help: "1 if the objects of a resource in a cluster are complete and current, else 0",
        meaning: "1 if the cluster's objects of the resource are complete and current, else 0.",
        shown_by: &["cluster"],
        is_objective: true,
    },
    MetricDescription {
        name: "tributary_endpoint_reachable",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "endpoint"],
        help: "0 if the endpoint is known to be unreachable, else 1",
        meaning: "0 if the endpoint is known to be unreachable, else 1.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_ready",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "endpoint"],
        help: "0 if the endpoint's /readyz reports that it is not ready, else 1",
        meaning: "0 if the endpoint's `/readyz` reports that it is not ready, else 1.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_ejected",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "endpoint"],
        help: "1 while the endpoint answers Tributary's own requests with errors and is left out, else 0",
        meaning: "1 while the endpoint answers [Tributary's own \
            requests](decisions/0071-state-breaker-and-balancer-of-endpoints.md) with errors. It is then used only if no \
            other endpoint remains.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_ejections_total",
        section: Section::Clusters,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster", "endpoint"],
        help: "Ejections of the endpoint because of its errors",
        meaning: "Ejections of the endpoint.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_left_out",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "endpoint", "reason"],
        help: "1 for the reason why the endpoint gets no requests, or only as the last one, else 0",
        meaning: "1 for the [reason](decisions/0071-state-breaker-and-balancer-of-endpoints.md) why the endpoint gets no requests, or \
            only if no other endpoint remains: `drain`, `breaker`, `unreachable`, `full`, `probe` or \
            `outlier`; else 0.",
        shown_by: &["cluster", "endpoint", "reason"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_breaker_openings_total",
        section: Section::Clusters,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster", "endpoint"],
        help: "Openings of the endpoint's circuit breaker",
        meaning: "Openings of the endpoint's circuit breaker.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_member_retries_total",
        section: Section::Clusters,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster"],
        help: "Requests that were sent to a cluster again",
        meaning: "Requests that were [sent to the cluster again](decisions/0044-repeated-requests.md).",
        shown_by: &["cluster"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_member_retries_refused_total",
        section: Section::Clusters,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster"],
        help: "Requests that were not sent to a cluster again, because too many were",
        meaning: "Requests that were not sent again, because a fifth of the last 10 s already were.",
        shown_by: &["cluster"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_latency_seconds",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: Some(Unit::Seconds),
        labels: &["cluster", "endpoint"],
        help: "Duration of the endpoint's last answer to Tributary's probe",
        meaning: "Duration of the endpoint's last answer to Tributary's probe (`/readyz` every 5 s, or as in \
            `endpointProbe`), without the connection's setup.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_outstanding_requests",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "endpoint"],
        help: "Requests in flight at an endpoint, including watches and upgraded connections",
        meaning: "Requests in flight at the endpoint, including watches and upgraded connections.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_requests_total",
        section: Section::Clusters,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster", "endpoint"],
        help: "Requests sent to an endpoint",
        meaning: "Requests sent to the endpoint.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_broken_total",
        section: Section::Clusters,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster", "endpoint"],
        help: "Followed logs, watches and upgraded connections of clients that broke off at an endpoint",
        meaning: "Followed logs, watches of `/clusters/NAME` and upgraded connections of clients that broke off. \
            Each has a line in the log.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_cached_objects",
        section: Section::Memory,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "resource"],
        help: "Objects in memory, by cluster and resource",
        meaning: "Objects in memory.",
        shown_by: &["resource"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_history_bytes",
        section: Section::Memory,
        kind: MetricKind::Gauge,
        unit: Some(Unit::Bytes),
        labels: &["group", "version", "resource"],
        help: "Bytes of remembered changes, of all clusters together",
        meaning: "Bytes of remembered changes, of all clusters together.",
        shown_by: &["resource"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_encodings_bytes",
        section: Section::Memory,
        kind: MetricKind::Gauge,
        unit: Some(Unit::Bytes),
        labels: &["group", "version", "resource"],
        help: "Bytes of encoded watch events that watchers share",
        meaning: "Bytes of encoded watch events that watchers share.",
        shown_by: &["resource"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_repeated_names",
        section: Section::Memory,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["group", "version", "resource"],
        help: "Names (with namespace) of objects in several clusters",
        meaning: "Names (with namespace) of objects in several clusters. Requests for them must name a cluster.",
        shown_by: &["resource"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_answers_active",
        section: Section::Memory,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["length"],
        help: "Answers longer than 64 KiB that are being written",
        meaning: "Answers longer than 64 KiB that are being written: `medium` up to 1 MiB, `long` above.",
        shown_by: &["length"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_answers_waiting",
        section: Section::Memory,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["length"],
        help: "Answers longer than 64 KiB that wait to be written",
        meaning: "Such answers that wait to be written.",
        shown_by: &["length"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_answers_refused_total",
        section: Section::Memory,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["length"],
        help: "Answers longer than 64 KiB that were refused with 429, because too many other answers were being \
               written",
        meaning: "Such answers that were refused with 429, because too many other answers were being written.",
        shown_by: &["length"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_limit",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["limit"],
        help: "Limits of this process",
        meaning: "The [limits](operating.md#limits) of this process.",
        shown_by: &["limit"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_limit_used",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["limit"],
        help: "Used part of a shared limit",
        meaning: "Used part of a shared limit: `requests_in_flight`, `held_bytes`, `member_unread_bytes`, \
            `total_collection_bytes`; in [shared mode](shared-mode.md) also `long_running_requests` and \
            `upgraded_connections` (a personal endpoint counts them in \
            `tributary_endpoint_outstanding_requests`). `short_to_member`, `watches_to_member` and \
            `long_running_to_member` are sums over all clusters; `tributary_member_limit` has the limit of \
            each.",
        shown_by: &["limit"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_member_limit",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "limit"],
        help: "Limits of clients' requests to a cluster",
        meaning: "Limit of [client requests](operating.md#requests-to-one-cluster) in flight at a cluster, over all \
            endpoints: `short_to_member`, `watches_to_member` (of `/clusters/NAME`; over HTTP/1.1 they count \
            as long-running) and `long_running_to_member`.",
        shown_by: &["cluster", "limit"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_member_limit_used",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "limit"],
        help: "Used part of a cluster's limit",
        meaning: "Client requests in flight at the cluster.",
        shown_by: &["cluster", "limit"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_limit_refused_total",
        section: Section::Governance,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["limit"],
        help: "Requests that were refused with 429 because of a limit",
        meaning: "Requests that were refused with 429 because of the limit.",
        shown_by: &["limit"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_dispatch_policy_total",
        section: Section::Governance,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["object", "policy", "decision"],
        help: "Requests by the dispatch policy that took them, and its decision",
        meaning: "Requests by the [dispatch policy](policies.md) that took them, by its position (`global-` before \
            that of a global one). `decision`: `dispatched`, `denied`, `audited` (`mode: Audit`), or \
            `unmatched` without a policy.",
        shown_by: &["object", "policy", "decision"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_flow_control_requests_total",
        section: Section::Governance,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster", "schema", "decision"],
        help: "Requests with a flow-control schema, by decision",
        meaning: "Requests with a [flow-control schema](operating.md#flow-control). `decision`: `admitted`, or \
            refused with 429: `closed` (the schema admits none), `limit-exceeded`, `queue-full`, `time-out` \
            (in the queue). `cluster` is empty for the merged view.",
        shown_by: &["schema", "decision"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_flow_control_requests_in_flight",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "schema"],
        help: "Requests in flight that a schema admitted",
        meaning: "Requests in flight that the schema admitted.",
        shown_by: &["cluster", "schema"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_flow_control_requests_long_running",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "schema"],
        help: "Long-running requests that hold no permit of a schema",
        meaning: "Long-running requests that hold no permit of the schema.",
        shown_by: &["cluster", "schema"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_flow_control_requests_waiting",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "schema"],
        help: "Requests in the queue of a schema",
        meaning: "Requests in the schema's queue.",
        shown_by: &["cluster", "schema"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_flow_control_limit",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "schema"],
        help: "This process's part of a schema's limit, for each key",
        meaning: "This process's part of the limit, for each key: permits, or tokens per second.",
        shown_by: &["cluster", "schema"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_connections",
        section: Section::Connections,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &[],
        help: "Open client connections, including upgraded ones",
        meaning: "Open client connections, including upgraded ones.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_connections_max",
        section: Section::Connections,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &[],
        help: "Limit of open client connections",
        meaning: "Limit of open client connections (`--max-connections`).",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_connections_stuck_total",
        section: Section::Connections,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Connections that were closed because their clients read no answers",
        meaning: "Connections that were closed because their clients read no answers.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_listener_refused_total",
        section: Section::Connections,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["reason"],
        help: "Requests that the listener refused, by reason",
        meaning: "Requests that the listener refused. `reason`: `malformed` (400), `head_too_large` (431, 414), \
            `too_many_headers` (431), `too_many_trailers` (the connection is closed), `too_many_unknown` (429: \
            too many bytes wait for authentication), `too_many_connections` (429: of one user, or of all users \
            of a single cluster), `too_many_unread` (429), `cross_origin` (403). The first two occur over \
            HTTP/1.1 and have no line in the access log; over HTTP/2 they are answered and not counted.",
        shown_by: &["reason"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_strangers_sent_away_total",
        section: Section::Connections,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Connections without an authenticated request that were closed to make room",
        meaning: "Connections without an authenticated request that were closed to make room: they may have a \
            quarter of `--max-connections`, and 64 of them may have sent a part of a long head.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_answers_stuck_total",
        section: Section::Connections,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Answers that were cut because their clients did not read them",
        meaning: "Answers that were cut because their clients did not read them.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_unread_bytes",
        section: Section::Connections,
        kind: MetricKind::Gauge,
        unit: Some(Unit::Bytes),
        labels: &[],
        help: "Bytes of answers that clients have not read",
        meaning: "Bytes of answers that clients have not read.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_unread_bytes_max",
        section: Section::Connections,
        kind: MetricKind::Gauge,
        unit: Some(Unit::Bytes),
        labels: &[],
        help: "Limit of the bytes of answers that clients have not read",
        meaning: "Limit of these bytes (`--max-unread-bytes`).",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "apiserver_tls_handshake_errors_total",
        section: Section::Connections,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Failed TLS handshakes with clients",
        meaning: "Failed TLS handshakes with clients.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "authentication_attempts_total",
        section: Section::Connections,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["result"],
        help: "Authentications by result",
        meaning: "Authentications: `success` or `failure`.",
        shown_by: &["result"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_hosts_refused_total",
        section: Section::Connections,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["reason"],
        help: "Requests that were refused because of their host",
        meaning: "Requests that were refused because of their host: `unknown` (503), `misdirected` (421: the \
            connection is for a different host), `contradicting` (400).",
        shown_by: &["reason"],
        is_objective: false,
    },
    MetricDescription {
        name: "apiserver_audit_event_total",
        section: Section::Audit,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Audit events generated and sent to the audit backends",
        meaning: "Audit events written. This metric and the other metrics of audit events exist only with an [audit log](audit.md).",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "apiserver_audit_error_total",
        section: Section::Audit,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["plugin"],
        help: "Audit events that failed to be audited properly, by plugin",
        meaning: "Audit events that were lost. `plugin`: `log`, `webhook`, `buffered` (the buffer was full), \
            `truncate` (too long even after the cuts).",
        shown_by: &["plugin"],
        is_objective: false,
    },
    MetricDescription {
        name: "apiserver_audit_level_total",
        section: Section::Audit,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["level"],
        help: "Requests by audit level",
        meaning: "Requests by audit level.",
        shown_by: &["level"],
        is_objective: false,
    },
    MetricDescription {
        name: "apiserver_audit_requests_rejected_total",
        section: Section::Audit,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Requests that were rejected because their first audit event could not be written",
        meaning: "Requests that were rejected because their first event could not be written (`blocking-strict`).",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_hub_up",
        section: Section::Hub,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &[],
        help: "Whether changes of the hub arrive",
        meaning: "1 if changes of the hub arrive. At 0, the last accepted configuration is in force; \
            `tributary status` names the reason.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_hub_object_problems",
        section: Section::Hub,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["kind"],
        help: "Objects of the hub with a problem",
        meaning: "Objects of the hub that are refused, or whose references are unusable.",
        shown_by: &["kind"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_hub_generation_in_force",
        section: Section::Hub,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["kind", "name"],
        help: "Generation in force of an object of the hub",
        meaning: "The `metadata.generation` in force of each object of the hub. Without a sample, no generation of the \
            object is in force. At most 5,000 objects, objects with a problem first.",
        shown_by: &["kind"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_hub_source_items",
        section: Section::Hub,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["source", "verdict"],
        help: "Items of a ClusterSource",
        meaning: "Items of each ClusterSource by verdict: `accepted` or `refused`. Without a sample, the list is not \
            read.",
        shown_by: &["source", "verdict"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_hub_published_objects",
        section: Section::Hub,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["kind"],
        help: "Objects that are published in the hub for controllers",
        meaning: "[Published objects](publish.md) in the hub, from the replica that writes them: `ClusterProfile`, \
            `KubeconfigSecret`, `ArgoCDSecret`.",
        shown_by: &["kind"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_hub_publication_problems",
        section: Section::Hub,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["kind"],
        help: "Reasons for which objects for controllers are not published or not up to date",
        meaning: "Reasons for which [published objects](publish.md) are missing or not up to date, such as a name that \
            belongs to a different object. The log and `tributary status` have the reasons.",
        shown_by: &["kind"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_access_log_lines_total",
        section: Section::AccessLog,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Lines of the access log",
        meaning: "Lines of the access log.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_access_log_lost_total",
        section: Section::AccessLog,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Lines of the access log that were lost: the write failed, or the queue was full",
        meaning: "Lines of the access log that were lost: the write failed, or the queue was full.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_spans_total",
        section: Section::Tracing,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Spans that the collector accepted",
        meaning: "Spans that the collector accepted.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_spans_lost_total",
        section: Section::Tracing,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Spans that were lost: the collector did not accept them, or the queue was full",
        meaning: "Spans that were lost: the collector did not accept them, or the queue was full.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "process_resident_memory_bytes",
        section: Section::Process,
        kind: MetricKind::Gauge,
        unit: Some(Unit::Bytes),
        labels: &[],
        help: "Resident memory in bytes",
        meaning: "Resident memory of the process.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "process_open_fds",
        section: Section::Process,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &[],
        help: "Open file descriptors",
        meaning: "Open file descriptors.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "process_cpu_seconds_total",
        section: Section::Process,
        kind: MetricKind::Counter,
        unit: Some(Unit::Seconds),
        labels: &[],
        help: "User and system CPU time in seconds",
        meaning: "User and system CPU time.",
        shown_by: &[],
        is_objective: false,
    },
];
