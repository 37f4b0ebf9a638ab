//! Formats a report for a terminal. Control characters in texts from clusters are removed. Without I/O.

use std::collections::BTreeMap;

use tributary_router::Report;
use tributary_router::report::{
    ClusterCondition, ClusterReport, CollectionReport, CollectionState, HubObjectReport, HubReport, LimitReport,
    PublicationReport, ResourceReport,
};

use crate::output::terminal::{cut, plain, width};

/// The maximum width of a line in columns, as in the program's help.
pub(super) const COLUMNS_MAX: usize = 110;

/// The maximum width of a name in a table, in columns. Names of clusters and resources are shorter, and six short
/// columns fit beside a name.
const NAME_COLUMNS: usize = 30;

const GAP: &str = "  ";

/// The maximum number of shown resources whose object names occur in several clusters. Such names of ConfigMaps,
/// ServiceAccounts and Namespaces exist in every cluster, and the limit leaves lines for other resources.
const REPEATED_SHOWN: usize = 8;

/// Formats a report in lines of at most this many columns.
pub(super) fn render(report: &Report, columns: usize) -> Vec<String> {
    let mut lines = summary(report);
    let hub = report.hub.as_ref().map(hub_objects).unwrap_or_default();
    let blocks = [clusters(report), behind(report), repeated(&report.resources), limits(&report.limits), hub];
    for block in blocks.into_iter().filter(|block| !block.is_empty()) {
        lines.push(String::new());
        lines.extend(block.into_iter().map(|row| row.line()));
    }
    lines.iter().map(|line| cut(line.trim_end(), columns)).collect()
}

/// A line of a table with aligned cells, or an unaligned line below a row.
struct ScreenRow(Vec<String>);

impl ScreenRow {
    fn line(self) -> String {
        self.0.join(GAP)
    }
}

/// Formats the rows of a table below their headings. Each column except the last is as wide as its widest cell. Each
/// row may have unaligned lines below it.
fn table(headings: &[&str], rows: Vec<(Vec<String>, Vec<String>)>) -> Vec<ScreenRow> {
    let last = headings.len() - 1;
    let shown = |(at, cell): (usize, String)| {
        let cell = plain(&cell);
        if at == last { cell } else { cut(&cell, NAME_COLUMNS) }
    };
    let mut cells = vec![(headings.iter().map(|heading| (*heading).to_owned()).collect::<Vec<_>>(), Vec::new())];
    cells.extend(rows.into_iter().map(|(row, below)| (row.into_iter().enumerate().map(shown).collect(), below)));
    let widths: Vec<_> =
        (0..=last).map(|at| cells.iter().map(|(row, _)| width(&row[at])).max().unwrap_or_default()).collect();
    let mut lines = Vec::new();
    for (row, below) in cells {
        let padded = row.into_iter().enumerate().map(|(at, cell)| {
            let missing = if at == last { 0 } else { widths[at] - width(&cell) };
            cell + &" ".repeat(missing)
        });
        lines.push(ScreenRow(padded.collect()));
        lines.extend(below.into_iter().map(|line| ScreenRow(vec![format!("  {}", plain(&line))])));
    }
    lines
}

fn summary(report: &Report) -> Vec<String> {
    let memory = report.resident_bytes.map(|bytes| format!(", {} of memory", size(bytes))).unwrap_or_default();
    let draining = if report.draining { ", shutting down" } else { "" };
    let mut by_condition: BTreeMap<ClusterCondition, usize> = BTreeMap::new();
    report.clusters.iter().for_each(|cluster| *by_condition.entry(cluster.condition).or_default() += 1);
    let conditions: Vec<_> =
        by_condition.into_iter().rev().map(|(condition, count)| format!("{count} {}", word(condition))).collect();
    let sum = |of: fn(&ClusterReport) -> u64| report.clusters.iter().map(of).sum::<u64>();
    let clusters = if conditions.is_empty() { "no cluster".to_owned() } else { conditions.join(", ") };
    let mut lines = vec![
        plain(&format!("tributary {}, up {}{memory}{draining}", report.version, age(report.uptime_seconds))),
        format!(
            "clusters: {clusters}; {} objects in {}; {} of {} collections behind",
            sum(|it| it.objects),
            size(sum(|it| it.bytes)),
            report.behind.len(),
            sum(|it| it.collections),
        ),
    ];
    lines.extend(report.hub.iter().flat_map(hub_summary));
    lines
}

fn hub_summary(hub: &HubReport) -> Vec<String> {
    let refused = hub.objects.iter().filter(|object| object.problem.is_some()).count();
    let mut lines = vec![format!("hub: {} objects, {refused} with a problem", hub.objects.len())];
    let problem = hub.problem.as_ref();
    lines.extend(problem.map(|problem| plain(&format!("  its changes do not arrive: {problem}"))));
    for PublicationReport { kind, namespace, published, problem_count, problems } in &hub.publications {
        let counts = format!("{published} of kind {kind}, {problem_count} problems");
        lines.push(plain(&format!("published in namespace {namespace}: {counts}")));
        lines.extend(problems.iter().map(|problem| plain(&format!("  {problem}"))));
    }
    lines
}

/// Formats the objects of the hub. Objects with problems come first, with the problems below them.
fn hub_objects(hub: &HubReport) -> Vec<ScreenRow> {
    if hub.objects.is_empty() {
        return Vec::new();
    }
    let row = |object: &HubObjectReport| {
        let in_force = object.generation_in_force.map_or_else(none, |generation| generation.to_string());
        let items = object.source.as_ref().and_then(|source| {
            let (accepted, found) = (source.accepted?, source.found?);
            Some(format!("{accepted}/{found} {}", source.list))
        });
        vec![
            object.name.clone(),
            object.kind.clone(),
            object.generation.to_string(),
            in_force,
            items.unwrap_or_else(none),
        ]
    };
    let rows = hub.objects.iter().map(|object| (row(object), object.problem.clone().into_iter().collect()));
    table(&["OBJECT OF THE HUB", "KIND", "GENERATION", "IN FORCE", "ITEMS"], rows.collect())
}

/// Formats the clusters. Clusters with problems come first, with the problems below them.
fn clusters(report: &Report) -> Vec<ScreenRow> {
    let mut clusters: Vec<_> = report.clusters.iter().collect();
    clusters.sort_by_key(|cluster| cluster.condition);
    let headings = ["CLUSTER", "HEALTH", "VERSION", "AGE", "LATENCY", "OBJECTS", "MEMORY", "BEHIND"];
    let row = |cluster: &ClusterReport| {
        vec![
            cluster.name.clone(),
            word(cluster.condition).to_owned(),
            cluster.version.as_deref().map_or_else(none, |version| cut(&plain(version), VERSION_COLUMNS)),
            cluster.age_seconds.map_or_else(none, age),
            cluster.latency_microseconds.map_or_else(none, latency),
            cluster.objects.to_string(),
            size(cluster.bytes),
            format!("{}/{}", cluster.behind, cluster.collections),
        ]
    };
    table(&headings, clusters.into_iter().map(|cluster| (row(cluster), problems(cluster))).collect())
}

/// The maximum width of a version, in columns: `v1.30.2-gke.1100` fits.
const VERSION_COLUMNS: usize = 16;

fn none() -> String {
    "-".to_owned()
}

fn word(condition: ClusterCondition) -> &'static str {
    match condition {
        ClusterCondition::Unreachable => "unreachable",
        ClusterCondition::Untrusted => "untrusted",
        ClusterCondition::Unauthorized => "unauthorized",
        ClusterCondition::NoCredentials => "without credentials",
        ClusterCondition::Misconfigured => "misconfigured",
        ClusterCondition::Troubled => "troubled",
        ClusterCondition::Pending => "pending",
        ClusterCondition::Refusing => "refusing",
        ClusterCondition::Ready => "ready",
    }
}

/// Returns a cluster's problems, except collections that the cacher refused to store.
fn problems(cluster: &ClusterReport) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(problem) = &cluster.problem {
        let since = cluster.problem_seconds.map(|seconds| format!("for {}: ", age(seconds))).unwrap_or_default();
        lines.push(format!("{since}{problem}"));
    }
    lines.extend(cluster.credentials_problem.as_ref().map(|problem| format!("credentials: {problem}")));
    lines
        .extend(cluster.rights_problem.as_ref().map(|problem| format!("the rights of users are not known: {problem}")));
    lines.extend(cluster.identity_problem.as_ref().map(|problem| format!("identity: {problem}")));
    // For a cluster with a single endpoint, the problem of the cluster describes the endpoint, too. Only a drained
    // endpoint gets its own line.
    let is_only = cluster.endpoints.len() == 1;
    let told = cluster.endpoints.iter().filter(|it| !is_only || it.left_out.as_deref() == Some("drain"));
    let lost = told.filter_map(|it| Some((&it.address, it.problem.as_ref()?)));
    lines.extend(lost.map(|(address, problem)| format!("endpoint {address}: {problem}")));
    lines
}

/// Formats the collections that are outdated, grouped by cluster and reason.
fn behind(report: &Report) -> Vec<ScreenRow> {
    let mut groups: BTreeMap<_, Vec<&CollectionReport>> = BTreeMap::new();
    for collection in &report.behind {
        let is_held = collection.state == CollectionState::Stale;
        groups.entry((&collection.cluster, !is_held, &collection.reason)).or_default().push(collection);
    }
    let row = |((cluster, is_unknown, reason), collections): ((&String, bool, &Option<String>), Vec<_>)| {
        let all = report.cluster(cluster).map_or(0, |cluster| cluster.collections);
        let since = collections.iter().map(|collection: &&CollectionReport| collection.seconds).max();
        let cells = vec![
            cluster.clone(),
            counted(&collections, all),
            if is_unknown { "missing" } else { "old" }.to_owned(),
            age(since.unwrap_or_default()),
            reason.clone().unwrap_or_else(|| "being read for the first time".to_owned()),
        ];
        (cells, Vec::new())
    };
    let rows: Vec<_> = groups.into_iter().map(row).collect();
    if rows.is_empty() { Vec::new() } else { table(&["CLUSTER", "BEHIND", "HELD", "FOR", "REASON"], rows) }
}

/// Describes a group of outdated collections in a few words.
fn counted(collections: &[&CollectionReport], all: u64) -> String {
    let named = |collection: &CollectionReport| match &collection.namespace {
        Some(namespace) => format!("{} in {namespace}", collection.resource),
        None => collection.resource.clone(),
    };
    match collections {
        [] => String::new(),
        [only] => named(only),
        several if several.len() as u64 == all => format!("all {all} collections"),
        [first, more @ ..] => {
            let more = format!(" and {} more", more.len());
            cut(&plain(&named(first)), NAME_COLUMNS - width(&more)) + &more
        }
    }
}

/// Formats the resources with names that occur in several clusters, the most frequent first.
fn repeated(resources: &[ResourceReport]) -> Vec<ScreenRow> {
    let mut repeated: Vec<_> = resources.iter().filter(|resource| resource.repeated_names > 0).collect();
    repeated.sort_by_key(|resource| std::cmp::Reverse(resource.repeated_names));
    let row = |resource: &&ResourceReport| {
        let group = if resource.group.is_empty() { String::new() } else { format!(".{}", resource.group) };
        let cells = vec![
            format!("{}{group}", resource.resource),
            resource.repeated_names.to_string(),
            resource.objects.to_string(),
        ];
        (cells, Vec::new())
    };
    let rows: Vec<_> = repeated.iter().take(REPEATED_SHOWN).map(row).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let mut lines = table(&["RESOURCE", "REPEATED NAMES", "OBJECTS"], rows);
    if repeated.len() > REPEATED_SHOWN {
        lines.push(ScreenRow(vec![format!("… and {} more resources", repeated.len() - REPEATED_SHOWN)]));
    }
    lines
}

/// Formats the limits that are nearly reached, or that have refused requests.
fn limits(limits: &[LimitReport]) -> Vec<ScreenRow> {
    let is_shown = |limit: &&LimitReport| limit.is_near() || limit.refused.is_some_and(|refused| refused > 0);
    let row = |limit: &LimitReport| {
        let cells = vec![
            limit.limit.clone(),
            limit.used.to_string(),
            limit.max.to_string(),
            limit.refused.map_or_else(none, |refused| refused.to_string()),
            limit.of.clone().unwrap_or_default(),
        ];
        (cells, Vec::new())
    };
    let rows: Vec<_> = limits.iter().filter(is_shown).map(row).collect();
    if rows.is_empty() { Vec::new() } else { table(&["LIMIT", "USED", "OF", "REFUSED", "FOR"], rows) }
}

/// Formats seconds as kubectl formats ages: `90s`, `5m`, `3h`, `4d`.
fn age(seconds: u64) -> String {
    match seconds {
        0..120 => format!("{seconds}s"),
        120..7_200 => format!("{}m", seconds / 60),
        7_200..172_800 => format!("{}h", seconds / 3_600),
        _ => format!("{}d", seconds / 86_400),
    }
}

/// Formats a latency: `0.4ms`, `12ms`, `3s`.
fn latency(microseconds: u64) -> String {
    match microseconds {
        0..10_000 => format!("{}.{}ms", microseconds / 1_000, microseconds % 1_000 / 100),
        10_000..10_000_000 => format!("{}ms", microseconds / 1_000),
        _ => format!("{}s", microseconds / 1_000_000),
    }
}

/// Formats a number of bytes in the largest unit in which the number is ten or more: `900B`, `12KiB`, `3500MiB`.
fn size(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["B", "KiB", "MiB", "GiB"];
    /// From this number on, the next larger unit is used: 10 × 1,024.
    const SEVERAL: u64 = 10 << 10;
    let (mut amount, mut unit) = (bytes, 0);
    while amount >= SEVERAL && unit + 1 < UNITS.len() {
        (amount, unit) = (amount >> 10, unit + 1);
    }
    format!("{amount}{}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use tributary_router::report::{EndpointReport, SourceReport};

    use super::*;

    fn ready(name: &str, objects: u64) -> ClusterReport {
        ClusterReport {
            name: name.to_owned(),
            condition: ClusterCondition::Ready,
            version: Some("v1.36.3".to_owned()),
            heard_seconds: Some(2),
            age_seconds: Some(2),
            latency_microseconds: Some(3_450),
            objects,
            bytes: objects * 7_000,
            collections: 3,
            ..ClusterReport::default()
        }
    }

    fn behind(cluster: &str, resource: &str, state: CollectionState, reason: &str) -> CollectionReport {
        CollectionReport {
            cluster: cluster.to_owned(),
            resource: resource.to_owned(),
            state,
            seconds: 251,
            reason: Some(reason.to_owned()),
            ..CollectionReport::default()
        }
    }

    fn lost() -> ClusterReport {
        ClusterReport {
            condition: ClusterCondition::Unreachable,
            problem: Some(
                "10.0.0.7:6443: Connection refused (os error 111); check that the \
                 address is right and the network allows it"
                    .to_owned(),
            ),
            problem_seconds: Some(251),
            latency_microseconds: None,
            age_seconds: Some(254),
            behind: 3,
            endpoints: vec![EndpointReport { address: "10.0.0.7:6443".to_owned(), ..EndpointReport::default() }],
            ..ready("us", 812)
        }
    }

    fn hub_object(
        name: &str,
        generation: i64,
        generation_in_force: Option<i64>,
        problem: Option<&str>,
    ) -> HubObjectReport {
        let (kind, name, problem) = ("UpstreamCluster".to_owned(), name.to_owned(), problem.map(str::to_owned));
        HubObjectReport { kind, name, generation, generation_in_force, problem, source: None }
    }

    fn report() -> Report {
        let silent = "unreachable: 10.0.0.7:6443: Connection refused (os error 111)";
        let forbidden = "forbidden: Tributary's account may not list or watch this collection";
        Report {
            version: "0.1.0".to_owned(),
            uptime_seconds: 7_300,
            resident_bytes: Some(64 << 20),
            clusters: vec![
                ready("eu", 15_210),
                ClusterReport {
                    condition: ClusterCondition::Refusing,
                    behind: 1,
                    rights_problem: Some("the roles of the cluster cannot be watched: forbidden".to_owned()),
                    ..ready("lab", 40)
                },
                lost(),
            ],
            resources: vec![
                ResourceReport {
                    resource: "configmaps".to_owned(),
                    objects: 90,
                    repeated_names: 12,
                    ..Default::default()
                },
                ResourceReport { resource: "pods".to_owned(), objects: 900, ..Default::default() },
                ResourceReport {
                    group: "apps".to_owned(),
                    resource: "deployments".to_owned(),
                    objects: 60,
                    repeated_names: 40,
                    ..Default::default()
                },
            ],
            behind: vec![
                behind("lab", "secrets", CollectionState::Unknown, forbidden),
                behind("us", "configmaps", CollectionState::Stale, silent),
                behind("us", "deployments.v1.apps", CollectionState::Stale, silent),
                behind("us", "pods", CollectionState::Stale, silent),
            ],
            limits: vec![
                LimitReport::new("requests_in_flight", 3_500, 4_000, Some(7)),
                LimitReport::new("held_bytes", 10, 1_000, Some(0)),
                LimitReport { of: Some("eu".to_owned()), ..LimitReport::new("short_to_member", 90, 100, None) },
            ],
            hub: Some(HubReport {
                problem: Some("upstreamclusters: forbidden: the hub answers 403".to_owned()),
                objects: vec![
                    hub_object("us", 4, Some(3), Some("spec.endpoints: 127.0.0.1 is a loopback address")),
                    hub_object("eu", 7, Some(7), None),
                    HubObjectReport {
                        kind: "ClusterSource".to_owned(),
                        source: Some(SourceReport {
                            list: "karmadaClusters".to_owned(),
                            found: Some(12),
                            accepted: Some(11),
                        }),
                        ..hub_object("karmada", 1, Some(1), None)
                    },
                ],
                publications: vec![PublicationReport {
                    kind: "ClusterProfile".to_owned(),
                    namespace: "fleet".to_owned(),
                    published: 1,
                    problem_count: 1,
                    problems: vec!["ClusterProfile fleet/us: the name belongs to an object".to_owned()],
                }],
            }),
            ..Report::default()
        }
    }

    const SCREEN: &str = "\
tributary 0.1.0, up 2h, 64MiB of memory
clusters: 1 ready, 1 refusing, 1 unreachable; 16062 objects in 107MiB; 4 of 9 collections behind
hub: 3 objects, 1 with a problem
  its changes do not arrive: upstreamclusters: forbidden: the hub answers 403
published in namespace fleet: 1 of kind ClusterProfile, 1 problems
  ClusterProfile fleet/us: the name belongs to an object

CLUSTER  HEALTH       VERSION  AGE  LATENCY  OBJECTS  MEMORY   BEHIND
us       unreachable  v1.36.3  4m   -        812      5550KiB  3/3
  for 4m: 10.0.0.7:6443: Connection refused (os error 111); check that the address is right and the network a…
lab      refusing     v1.36.3  2s   3.4ms    40       273KiB   1/3
  the rights of users are not known: the roles of the cluster cannot be watched: forbidden
eu       ready        v1.36.3  2s   3.4ms    15210    101MiB   0/3

CLUSTER  BEHIND             HELD     FOR  REASON
lab      secrets            missing  4m   forbidden: Tributary's account may not list or watch this collection
us       all 3 collections  old      4m   unreachable: 10.0.0.7:6443: Connection refused (os error 111)

RESOURCE          REPEATED NAMES  OBJECTS
deployments.apps  40              60
configmaps        12              90

LIMIT               USED  OF    REFUSED  FOR
requests_in_flight  3500  4000  7
short_to_member     90    100   -        eu

OBJECT OF THE HUB  KIND             GENERATION  IN FORCE  ITEMS
us                 UpstreamCluster  4           3         -
  spec.endpoints: 127.0.0.1 is a loopback address
eu                 UpstreamCluster  7           7         -
karmada            ClusterSource    1           1         11/12 karmadaClusters
";

    #[test]
    fn status_screen_shows_problems() {
        let lines = render(&report(), COLUMNS_MAX);
        assert_eq!(lines.join("\n") + "\n", SCREEN);
    }

    #[test]
    fn status_screen_without_problems_shows_only_clusters() {
        let report = Report { clusters: vec![ready("eu", 3)], version: "0.1.0".to_owned(), ..Report::default() };
        let screen = "tributary 0.1.0, up 0s\nclusters: 1 ready; 3 objects in 20KiB; 0 of 3 collections behind\n\n\
                      CLUSTER  HEALTH  VERSION  AGE  LATENCY  OBJECTS  MEMORY  BEHIND\n\
                      eu       ready   v1.36.3  2s   3.4ms    3        20KiB   0/3";
        assert_eq!(render(&report, COLUMNS_MAX).join("\n"), screen);
        assert!(render(&Report::default(), COLUMNS_MAX)[1].starts_with("clusters: no cluster; 0 objects in 0B"));
    }

    /// A report with control characters in every text that a member, a configuration or a server chooses.
    fn hostile() -> Report {
        let bad = || "x\u{1b}[2J\u{7}\n\u{202e}\u{9b}y".to_owned() + &"界".repeat(200);
        let cluster = ClusterReport {
            name: bad(),
            problem: Some(bad()),
            credentials_problem: Some(bad()),
            rights_problem: Some(bad()),
            identity_problem: Some(bad()),
            version: Some(bad()),
            endpoints: vec![EndpointReport { address: bad(), problem: Some(bad()), ..EndpointReport::default() }; 2],
            ..ready("eu", 1)
        };
        let collection = |resource: String, namespace| CollectionReport {
            namespace,
            ..behind(&bad(), &resource, CollectionState::Unknown, &bad())
        };
        let resource = ResourceReport { group: bad(), resource: bad(), repeated_names: 1, ..ResourceReport::default() };
        Report {
            version: bad(),
            clusters: vec![cluster],
            resources: vec![resource; 10],
            behind: vec![collection(bad(), Some(bad())), collection("pods".to_owned(), None)],
            limits: vec![LimitReport { of: Some(bad()), ..LimitReport::new(&bad(), 1, 1, None) }],
            hub: Some(HubReport {
                problem: Some(bad()),
                objects: vec![HubObjectReport { kind: bad(), ..hub_object(&bad(), 1, None, Some(&bad())) }],
                publications: vec![PublicationReport {
                    kind: bad(),
                    namespace: bad(),
                    problems: vec![bad()],
                    ..PublicationReport::default()
                }],
            }),
            ..Report::default()
        }
    }

    #[test]
    fn status_screen_is_plain_text_that_fits_the_terminal() {
        for columns in [COLUMNS_MAX, 20] {
            for line in render(&hostile(), columns) {
                assert_eq!(plain(&line), line, "nothing that a terminal obeys");
                assert!(width(&line) <= columns, "{line}");
            }
        }
    }

    #[test]
    fn drained_endpoint_is_reported_even_without_other_endpoints() {
        let told = |left_out: &str, problem: &str| {
            problems(&ClusterReport {
                endpoints: vec![EndpointReport {
                    address: "10.0.0.7:6443".to_owned(),
                    left_out: Some(left_out.to_owned()),
                    problem: Some(problem.to_owned()),
                    ..EndpointReport::default()
                }],
                ..ready("eu", 1)
            })
        };
        let drained = told("drain", "the configuration drains the endpoint");
        assert_eq!(drained, ["endpoint 10.0.0.7:6443: the configuration drains the endpoint"]);
        assert!(told("unreachable", "refused").is_empty(), "the cluster's own problem says so");
    }

    #[test]
    fn ages_latencies_and_sizes_are_abbreviated() {
        assert_eq!(
            [0, 119, 120, 7_199, 7_200, 172_799, 172_800].map(age),
            ["0s", "119s", "2m", "119m", "2h", "47h", "2d"]
        );
        assert_eq!([0, 450, 9_999, 10_000, 12_000_000].map(latency), ["0.0ms", "0.4ms", "9.9ms", "10ms", "12s"]);
        assert_eq!([0, 10_239, 10_240, 50 << 20, 90 << 30].map(size), ["0B", "10239B", "10KiB", "50MiB", "90GiB"]);
    }
}
