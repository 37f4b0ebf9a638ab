//! Every metric that is exposed at `/metrics`: the one list from which the table in `docs/observability.md` and the
//! dashboard are made, which alert rules go by, and with which tests compare what is exposed.

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct MetricDescription {
    /// Its name in the exposition's samples. That of a counter ends in `_total`; a histogram has three more.
    pub name: &'static str,
    /// What it is about.
    pub section: Section,
    /// How its value behaves.
    pub kind: MetricKind,
    /// What it is measured in; a plain number otherwise.
    pub unit: Option<Unit>,
    /// The names of its labels.
    pub labels: &'static [&'static str],
    /// Its line of help in the exposition.
    pub help: &'static str,
    /// What it means, for the documents: Markdown, with links as from `docs`.
    pub meaning: &'static str,
    /// The labels by which the dashboard tells its series apart; the others are summed up.
    pub shown_by: &'static [&'static str],
    /// Whether objectives of a service are measured by it: it is shown first.
    pub is_objective: bool,
}

/// What a metric is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Requests and their answers.
    Requests,
    /// Watches of clients.
    Watches,
    /// Clusters, and how far they are followed.
    Clusters,
    /// What is held in memory.
    Memory,
    /// Limits, policies and flow control.
    Governance,
    /// Connections of clients.
    Connections,
    /// The audit log. Without one they are not exposed.
    Audit,
    /// The access log. Without one they are not exposed.
    AccessLog,
    /// Traces. They are exposed only where some are sent.
    Tracing,
    /// The process.
    Process,
}

impl Section {
    /// All sections, in the order in which they are shown.
    pub const ALL: [Self; 10] = [
        Self::Requests,
        Self::Watches,
        Self::Clusters,
        Self::Memory,
        Self::Governance,
        Self::Connections,
        Self::Audit,
        Self::AccessLog,
        Self::Tracing,
        Self::Process,
    ];

    /// Its title.
    pub fn title(self) -> &'static str {
        match self {
            Self::Requests => "Requests",
            Self::Watches => "Watches",
            Self::Clusters => "Clusters",
            Self::Memory => "Memory",
            Self::Governance => "Limits, policies and flow control",
            Self::Connections => "Connections",
            Self::Audit => "Audit log",
            Self::AccessLog => "Access log",
            Self::Tracing => "Traces",
            Self::Process => "Process",
        }
    }
}

/// How a metric's value behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// It only grows, until the process ends.
    Counter,
    /// It goes up and down.
    Gauge,
    /// It counts observations by their size.
    Histogram,
}

impl MetricKind {
    /// Its name in the exposition.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// What a metric is measured in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Seconds.
    Seconds,
    /// Bytes.
    Bytes,
}

/// Every metric, each beside others of its section.
pub const METRICS: &[MetricDescription] = &[
    MetricDescription {
        name: "tributary_requests_total",
        section: Section::Requests,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster", "verb", "resource", "decision", "client"],
        help: "Requests by cluster, resource, what became of them and kind of client",
        meaning: "Requests answered, by what became of them. `decision` is `memory`, `forwarded` (one cluster or \
         several were asked), `self` (discovery, OpenAPI, health, `/version`), `denied` (by a [dispatch \
         policy](policies.md)), `limited` (429, by a [limit](operating.md#limits) or \
         [schema](operating.md#flow-control)) or `refused` (for another reason, before a cluster was \
         asked). `cluster` is the one that the path or host names, or the only one that was asked, `*` \
         where several were, and empty otherwise. `client` is by the User-Agent: `kubectl`, `helm`, \
         `k9s`, `controller` (any other program that uses client-go), `browser` or `other`.",
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
        meaning: "Requests answered. `source` says who was to answer: `memory` (also if a get that found nothing \
         there went on to a cluster that the registry leaves out), `member` (one cluster or several), or \
         `self` (discovery, OpenAPI, health, `/version`). It is empty for a request that was refused \
         before that was decided.",
        shown_by: &["code"],
        is_objective: true,
    },
    MetricDescription {
        name: "apiserver_request_duration_seconds",
        section: Section::Requests,
        kind: MetricKind::Histogram,
        unit: Some(Unit::Seconds),
        labels: &["group", "version", "resource"],
        help: "Time to the head of the answer, watches left out",
        meaning: "A histogram of the time until the answer begins, without watches.",
        shown_by: &["resource"],
        is_objective: true,
    },
    MetricDescription {
        name: "tributary_member_questions_total",
        section: Section::Requests,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["about"],
        help: "Questions to members that come before an answer to a client",
        meaning: "Questions to clusters, one counted for each that is asked, that come before an answer: which \
         has an object of a name (`name`), or a Helm release (`helm_release`), and whether the client \
         may write what it may not get there (`right`). At most 32 are under way at a cluster, clients \
         in turn.",
        shown_by: &["about"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_request_panics_total",
        section: Section::Requests,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Requests whose handler panicked",
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
        help: "Watches open now",
        meaning: "Watches that are open now.",
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
        help: "Watches ended because their client read too slowly",
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
        help: "Lists and watches told that their version is too old (410)",
        meaning: "Lists and watches that were answered 410, also within a watch's stream: their version, or their \
         `continue`, is older than what is remembered, and their client lists anew.",
        shown_by: &["resource"],
        is_objective: true,
    },
    MetricDescription {
        name: "tributary_collection_age_seconds",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: Some(Unit::Seconds),
        labels: &["cluster", "resource"],
        help: "Age of what is held, where something is: since its changes ceased, or its cluster was last heard",
        meaning: "How old what is held of a resource of a cluster may be: the time since the cluster was last \
         heard, or since the changes of this resource ceased to arrive. What was never read has no age: \
         `tributary_unknown_clusters` and `tributary_forbidden_clusters` count it.",
        shown_by: &["cluster"],
        is_objective: true,
    },
    MetricDescription {
        name: "tributary_unknown_clusters",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["resource"],
        help: "Clusters of which a resource has never been read, and that do not forbid it",
        meaning: "Clusters of which this resource has not been read yet, though they do not forbid it. Its reads \
         lack them, or are refused (`partial: Deny`).",
        shown_by: &["resource"],
        is_objective: true,
    },
    MetricDescription {
        name: "tributary_forbidden_clusters",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["resource"],
        help: "Clusters that forbid to list a resource, or a namespace of it that is read by itself",
        meaning: "Clusters that answer 403 to a list of this resource in all namespaces, or in one that is read by \
         itself. Where a cluster allows us single namespaces alone, this is how it should be; where it should \
         show all of them, it lacks a role.",
        shown_by: &["resource"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_relists_total",
        section: Section::Clusters,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster", "resource"],
        help: "Complete lists taken anew, because changes were lost",
        meaning: "How often a resource of a cluster was listed anew since it is followed, because changes were \
         lost: a 410 of the cluster, a restored cluster. Watches are told the differences alone. Lists that are made \
         [where no bookmarks come](decisions/0006-collections-without-bookmarks.md) are not counted. Where namespaces \
         are read one by one, it is how often the one of them was that was listed most often.",
        shown_by: &["cluster"],
        is_objective: true,
    },
    MetricDescription {
        name: "tributary_cacher_synced",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "resource"],
        help: "1 where the objects of a resource in a cluster are complete and up to date",
        meaning: "1 if this cluster's objects of the resource are complete and current, else 0.",
        shown_by: &["cluster"],
        is_objective: true,
    },
    MetricDescription {
        name: "tributary_endpoint_reachable",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "endpoint"],
        help: "1 where an endpoint is not known to be unreachable",
        meaning: "1 unless the endpoint is known to be unreachable, else 0.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_ready",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "endpoint"],
        help: "1 where an endpoint has not said that it is not ready",
        meaning: "1 unless the endpoint's `/readyz` says that it is not ready, else 0.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_ejected",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "endpoint"],
        help: "1 where an endpoint answers our own questions with errors and is left out",
        meaning: "1 while the endpoint answers [our own questions](decisions/0071-one-state-for-each-endpoint.md) with \
         errors, so that it is asked only where no other is left; else 0.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_ejections_total",
        section: Section::Clusters,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster", "endpoint"],
        help: "Times that an endpoint was left out for its errors",
        meaning: "How often that has begun.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_left_out",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "endpoint", "reason"],
        help: "1 for the reason why an endpoint is given no requests, or only those for which no other is left",
        meaning: "1 for the [reason](decisions/0043-what-opens-a-breaker.md) why the endpoint is given no requests, or only those for which no other is left: `drain`, `breaker`, `unreachable`, `full`, `probe` or `outlier`; else 0.",
        shown_by: &["cluster", "endpoint", "reason"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_breaker_openings_total",
        section: Section::Clusters,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster", "endpoint"],
        help: "Times that an endpoint's circuit breaker has opened",
        meaning: "How often the endpoint's circuit breaker has opened.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_member_retries_total",
        section: Section::Clusters,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster"],
        help: "Requests sent to a cluster once more",
        meaning: "Requests sent to the cluster [once more](decisions/0044-what-is-sent-again.md).",
        shown_by: &["cluster"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_member_retries_refused_total",
        section: Section::Clusters,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster"],
        help: "Requests not sent to a cluster once more, for too many were",
        meaning: "Requests that were not, for a fifth of those of the last 10 s had been already.",
        shown_by: &["cluster"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_latency_seconds",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: Some(Unit::Seconds),
        labels: &["cluster", "endpoint"],
        help: "Time that an endpoint's last answer to our own /readyz took",
        meaning: "How long the endpoint's last answer to our own `/readyz`, or what `endpointProbe` says, took once there was \
         a connection; asked every 5 s, or as that says.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_outstanding_requests",
        section: Section::Clusters,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "endpoint"],
        help: "Requests in flight at an endpoint, watches and tunnels included",
        meaning: "Requests in flight at an endpoint, watches and upgraded connections included.",
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
        meaning: "Requests sent to an endpoint.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_endpoint_broken_total",
        section: Section::Clusters,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster", "endpoint"],
        help: "Logs, watches and tunnels of clients that broke off at an endpoint",
        meaning: "Followed logs, watches of `/clusters/NAME` and upgraded connections of clients that broke off. \
         Each is a line of the log, too.",
        shown_by: &["cluster", "endpoint"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_cached_objects",
        section: Section::Memory,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "resource"],
        help: "Objects held per cluster and resource",
        meaning: "Objects held of one resource of one cluster.",
        shown_by: &["resource"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_history_bytes",
        section: Section::Memory,
        kind: MetricKind::Gauge,
        unit: Some(Unit::Bytes),
        labels: &["group", "version", "resource"],
        help: "Bytes of remembered changes, all clusters together",
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
        meaning: "Bytes of encoded events that watchers share.",
        shown_by: &["resource"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_repeated_names",
        section: Section::Memory,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["group", "version", "resource"],
        help: "Names (with their namespace) that objects of several clusters have",
        meaning: "Names, with their namespace, that objects of several clusters have: a request for one of them \
         has to say which cluster it means.",
        shown_by: &["resource"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_answers_active",
        section: Section::Memory,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["length"],
        help: "Answers of more than a frame being written",
        meaning: "Answers longer than 64 KiB that are being written: `medium` up to 1 MiB, `long` beyond.",
        shown_by: &["length"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_answers_waiting",
        section: Section::Memory,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["length"],
        help: "Answers that wait for their turn",
        meaning: "Such answers that wait for their turn.",
        shown_by: &["length"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_answers_refused_total",
        section: Section::Memory,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["length"],
        help: "Answers refused with 429: no turn in time",
        meaning: "Such answers that were refused with 429 because they had no turn in time.",
        shown_by: &["length"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_limit",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["limit"],
        help: "The bounds of what is held",
        meaning: "The bounds that are listed in [Limits](operating.md#limits).",
        shown_by: &["limit"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_limit_used",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["limit"],
        help: "How much of a limit is used now",
        meaning: "How much of a shared bound is used now: `requests_in_flight`, `held_bytes`, `member_unread_bytes`, \
         `total_collection_bytes`, and in the [shared mode](shared-mode.md) `long_running_requests` and \
         `upgraded_connections`. In one person's own endpoint the last two are not shared, and not told here: what \
         lasts is among `tributary_endpoint_outstanding_requests`. \
         `short_to_member`, `watches_to_member` and `long_running_to_member` are of all clusters together; their \
         bounds are those of each, which `tributary_member_limit` has.",
        shown_by: &["limit"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_member_limit",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "limit"],
        help: "The bounds of clients' requests to a cluster",
        meaning: "How many [requests of clients](operating.md#requests-to-one-cluster) may be under way at a cluster, all its \
         endpoints together: `short_to_member`, `watches_to_member` (of its own view; over HTTP/1.1 they are among \
         the next) and `long_running_to_member`.",
        shown_by: &["cluster", "limit"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_member_limit_used",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "limit"],
        help: "How much of a cluster's limit is used now",
        meaning: "How many of these are under way.",
        shown_by: &["cluster", "limit"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_limit_refused_total",
        section: Section::Governance,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["limit"],
        help: "Requests refused with 429 because of a limit",
        meaning: "Requests that were refused with 429 because of it.",
        shown_by: &["limit"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_dispatch_policy_total",
        section: Section::Governance,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["object", "policy", "decision"],
        help: "Requests by the dispatch policy that took them, and what it did with them",
        meaning: "Requests by the [dispatch policy](policies.md) that took them, by its place, with \
         `global-` before that of a global one: `dispatched`, `denied`, or `audited` where it is in `mode: Audit`; \
         `unmatched`, without a policy, where none did.",
        shown_by: &["object", "policy", "decision"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_flow_control_requests_total",
        section: Section::Governance,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["cluster", "schema", "decision"],
        help: "Requests by what became of them",
        meaning: "Requests that came to a [schema](operating.md#flow-control) of flow control: `admitted`; or \
         refused with 429, because it lets none in (`closed`), or there were more (`limit-exceeded`), \
         too many wait already (`queue-full`), or one waited in vain (`time-out`). `cluster` is empty \
         for the merged view.",
        shown_by: &["schema", "decision"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_flow_control_requests_in_flight",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "schema"],
        help: "Requests under way that a schema let in",
        meaning: "Requests under way that the schema let in.",
        shown_by: &["cluster", "schema"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_flow_control_requests_long_running",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "schema"],
        help: "Lasting requests that are counted apart",
        meaning: "Those that last, where they take no place and are counted apart.",
        shown_by: &["cluster", "schema"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_flow_control_requests_waiting",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "schema"],
        help: "Requests that wait for their turn",
        meaning: "Requests that wait for their turn.",
        shown_by: &["cluster", "schema"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_flow_control_limit",
        section: Section::Governance,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &["cluster", "schema"],
        help: "What this process has of a limit, for each key",
        meaning: "What this process has of the limit now, for each key: places, or tokens in a second.",
        shown_by: &["cluster", "schema"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_connections",
        section: Section::Connections,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &[],
        help: "Open client connections, upgraded ones included",
        meaning: "Open client connections, upgraded ones included.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_connections_max",
        section: Section::Connections,
        kind: MetricKind::Gauge,
        unit: None,
        labels: &[],
        help: "Client connections that may be open at once",
        meaning: "How many may be open at once (`--max-connections`).",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_connections_stuck_total",
        section: Section::Connections,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Connections closed because their clients read none of their answers",
        meaning: "Connections that were closed because their clients read none of their answers.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_listener_refused_total",
        section: Section::Connections,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["reason"],
        help: "Requests that the listener refused, whatever they asked for",
        meaning: "Requests that the listener refused, whatever they asked for, by `reason`: `malformed` (400), \
         `head_too_large` (431, 414), `too_many_headers` (431), `too_many_trailers` (the connection is closed), `too_many_unknown` (429: too much waits until it is known who \
         sends it), `too_many_connections` (429: of one user, or of all for whom one cluster alone vouches), `too_many_unread` (429), `cross_origin` (403). The first two \
         are of HTTP/1.1, and have no line in the access log: nothing is known of them but their connection. Over HTTP/2 \
         they are answered without being counted.",
        shown_by: &["reason"],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_strangers_sent_away_total",
        section: Section::Connections,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Connections that were closed because nobody was known on them when others needed the room",
        meaning: "Connections that were closed because nobody was known on them when others needed the room: at \
         most a quarter of `--max-connections` may be so, and 64 of them may have sent a part of a long head.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_answers_stuck_total",
        section: Section::Connections,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Answers cut because their clients read nothing of them",
        meaning: "Answers that were cut because their clients read nothing of them.",
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
        help: "Bytes of answers that clients may leave unread at once",
        meaning: "How many of these there may be (`--max-unread-bytes`).",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "apiserver_tls_handshake_errors_total",
        section: Section::Connections,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "TLS handshakes that failed",
        meaning: "TLS handshakes with clients that failed.",
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
        help: "Requests refused by the host that they name",
        meaning: "Requests refused by the host that they name: `unknown` (503), `misdirected` (421: their \
         connection was opened for another one), `contradicting` (400).",
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
        meaning: "Audit events written; only with an [audit log](audit.md), as the next three.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "apiserver_audit_error_total",
        section: Section::Audit,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["plugin"],
        help: "Audit events that failed to be audited properly, by the part that lost them",
        meaning: "Audit events that were lost: by the `log`, by the `webhook`, because the buffer before \
         either was full (`buffered`), or because they were too long however much they were cut (`truncate`).",
        shown_by: &["plugin"],
        is_objective: false,
    },
    MetricDescription {
        name: "apiserver_audit_level_total",
        section: Section::Audit,
        kind: MetricKind::Counter,
        unit: None,
        labels: &["level"],
        help: "Requests by the level of the policy's rule for them",
        meaning: "Requests by the level of the policy's rule for them.",
        shown_by: &["level"],
        is_objective: false,
    },
    MetricDescription {
        name: "apiserver_audit_requests_rejected_total",
        section: Section::Audit,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Requests rejected because their first audit event could not be written",
        meaning: "Requests refused because their first event could not be written (`blocking-strict`).",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_access_log_lines_total",
        section: Section::AccessLog,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Lines of the access log",
        meaning: "Lines of the access log that were given to be written.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_access_log_lost_total",
        section: Section::AccessLog,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Lines of the access log that were lost: the disk failed, or too many waited for it",
        meaning: "Lines of the access log that were lost: they could not be written, or too many waited.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_spans_total",
        section: Section::Tracing,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Spans that the collector took",
        meaning: "Spans that the collector took.",
        shown_by: &[],
        is_objective: false,
    },
    MetricDescription {
        name: "tributary_spans_lost_total",
        section: Section::Tracing,
        kind: MetricKind::Counter,
        unit: None,
        labels: &[],
        help: "Spans that were lost: the collector did not take them, or too many waited for it",
        meaning: "Spans that were lost: the collector did not take them, or too many waited.",
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
        meaning: "Memory of the process.",
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
        meaning: "File descriptors that the process has open.",
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
        meaning: "CPU time that the process took.",
        shown_by: &[],
        is_objective: false,
    },
];
