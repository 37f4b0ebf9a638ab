//! The limits of the measured values, and their comparison with the results.

use crate::figure::Figure;
use crate::report::{Results, Watch};
use crate::watches::WatchMeasurement;

const MB: f64 = 1e6;
/// The memory that Tributary may use in addition to the cached objects, in bytes.
const MEMORY_BASE: f64 = 30.0 * MB;
/// The largest allowed ratio of the cost in shared mode to the cost in personal mode.
const SHARED_COST_RATIO_MAX: f64 = 1.05;
/// The largest allowed p99 of another client's get, in milliseconds, while one client sends its worst requests.
const GET_MEANWHILE_MS: f64 = 50.0;
/// Tolerance of "as fast as": two measurements of the same server on a shared machine may differ by this factor.
const AS_FAST_AS: f64 = 1.15;

/// Compares the results with the limits. Values that were not measured are left out.
pub(crate) fn judge(results: &Results) -> Vec<Figure> {
    let mut judged = Judged::default();
    judged.reads(results);
    judged.watches(results);
    judged.whole_collections(results);
    judged.storms_and_worst(results);
    judged.at_rest(results);
    judged.gateway(results);
    judged.shared(results);
    judged.rights(results);
    judged.token_bucket(results);
    judged.0
}

/// The median latency of a read through Tributary, relative to the median latency of the same read at the member.
fn p50(results: &Results, name: &str) -> Option<f64> {
    results.read(name).map(|(member, tributary)| tributary.latency.p50 / member.latency.p50)
}

#[derive(Default)]
struct Judged(Vec<Figure>);

impl Judged {
    fn judge(&mut self, name: &str, measured: Option<f64>, limit: f64, unit: &'static str) {
        if let Some(measured) = measured.filter(|measured| measured.is_finite()) {
            self.0.push(Figure { name: name.to_owned(), measured, limit, unit, reached: measured <= limit });
        }
    }

    /// Judges reads of single objects and lists.
    fn reads(&mut self, results: &Results) {
        let p50 = |name: &str| p50(results, name);
        let cpu =
            |name: &str| results.read(name).and_then(|(member, tributary)| Some(tributary.cpu_ms? / member.cpu_ms?));
        self.judge("list of all: time", p50("list-all"), 0.15, "×");
        self.judge("list of all: CPU", cpu("list-all"), 0.1, "×");
        self.judge("namespace of 100: p50", p50("namespace-100"), 0.25, "×");
        self.judge("get: p50", p50("get"), 0.5, "×");
        self.judge("get: CPU", cpu("get"), 0.3, "×");
        for (unset, zero) in
            [("list-all-unset", "list-all"), ("namespace-100-unset", "namespace-100"), ("get-unset", "get")]
        {
            let ratio = results
                .read(unset)
                .zip(results.read(zero))
                .map(|((_, unset), (_, zero))| unset.latency.p50 / zero.latency.p50);
            self.judge(&format!("{unset} against resourceVersion=0: p50"), ratio, AS_FAST_AS, "×");
        }
        let added = results.read("forwarded-get").map(|(member, tributary)| tributary.latency.p50 - member.latency.p50);
        self.judge("forwarded GET: added p50", added, 0.5, "ms");
    }

    /// Judges requests to the path of one cluster (`/clusters/NAME`), which Tributary forwards to the member.
    fn gateway(&mut self, results: &Results) {
        let Some(gateway) = &results.gateway else { return };
        for read in &gateway.reads {
            let (name, own, proxy) = (read.name, read.tributary.cpu_ms, read.haproxy.cpu_ms);
            let cpu_max = match name {
                "get" => 0.1,
                "get-c16" => 0.055,
                _ => 100.0,
            };
            self.judge(&format!("passed {name}: CPU"), own, cpu_max, "ms");
            let ratio = own.zip(proxy).map(|(own, proxy)| own / proxy);
            self.judge(&format!("passed {name}: CPU against haproxy"), ratio, 1.5, "×");
            if name == "get" {
                let added = read.tributary.latency.p50 - read.member.latency.p50;
                self.judge("passed get: added p50", Some(added), 0.15, "ms");
            }
            if name.starts_with("get") {
                for (what, side) in [("policies and flow control", &read.governed), ("all governance", &read.many)] {
                    let more = own.zip(side.cpu_ms).map(|(own, governed)| (governed - own) * 1000.0);
                    self.judge(&format!("passed {name}: CPU of {what}"), more, 40.0, "µs");
                }
            }
        }
        let event = gateway.events.map(|events| events.tributary_us);
        self.judge("passed watch event: CPU", event, 15.0, "µs");
        if let Some(memory) = &gateway.memory {
            self.judge("passing on for 64 at once: memory", Some(memory.busy as f64 / MB), 40.0, "MB");
            self.judge("idle client connection", Some(memory.idle_connection / 1e3), 40.0, "KB");
        }
    }

    /// Judges reads and watches in shared mode, compared with personal mode.
    fn shared(&mut self, results: &Results) {
        let Some(shared) = &results.shared else { return };
        for read in &shared.reads {
            let cpus = read.personal.cpu_ms.zip(read.all.cpu_ms).zip(read.part.cpu_ms);
            let Some(((one, all), part)) = cpus else { continue };
            let name = read.name;
            if name.starts_with("get") {
                let more = (all - one) * 1000.0;
                self.judge(&format!("shared {name}: CPU for user, rights and audit"), Some(more), 25.0, "µs");
                continue;
            }
            self.judge(&format!("shared {name}, all rights: CPU"), Some(all / one), SHARED_COST_RATIO_MAX, "×");
            self.judge(
                &format!("shared {name}, a tenth: CPU per object shown"),
                Some(part / read.share / one),
                SHARED_COST_RATIO_MAX,
                "×",
            );
            let Some((all, part)) = read.unaudited.cpu_ms.zip(read.part_unaudited.cpu_ms) else { continue };
            self.judge(
                &format!("shared {name}, all rights, without audit: CPU"),
                Some(all / one),
                SHARED_COST_RATIO_MAX,
                "×",
            );
            let per_object = Some(part / read.share / one);
            self.judge(
                &format!("shared {name}, a tenth, without audit: CPU per object shown"),
                per_object,
                SHARED_COST_RATIO_MAX,
                "×",
            );
        }
        let Some(watch) = &shared.watch else { return };
        self.judge("shared watch, all rights: CPU", Some(watch.all.us / watch.personal.us), SHARED_COST_RATIO_MAX, "×");
        let telling = watch.part.telling_us / watch.personal.telling_us;
        self.judge(
            "shared watch, a tenth: CPU per event sent, changes not counted",
            Some(telling),
            SHARED_COST_RATIO_MAX,
            "×",
        );
    }

    /// Judges the time until revoked rights end watches, and the cost of the RBAC objects of a thousand clusters.
    fn rights(&mut self, results: &Results) {
        if let Some(revoked) = &results.revoked {
            let slower = revoked.one_by_one.times.p99.max(revoked.at_once.times.p99);
            self.judge("a revoked right leaves an open watch: p99", Some(slower / 1000.0), 2.0, "s");
        }
        if let Some(mirror) = &results.mirror {
            self.judge("rights of 1,000 clusters: known", Some(mirror.with.known_seconds), 30.0, "s");
            self.judge("rights of 1,000 clusters: memory", Some(mirror.mirror_bytes() / MB), 150.0, "MB");
        }
    }

    /// Judges the flow control of requests that are answered from memory.
    fn token_bucket(&mut self, results: &Results) {
        let Some(bucket) = &results.token_bucket else { return };
        self.judge(
            "token bucket, offered twice its rate: lets in its rate, but for",
            Some(bucket.inexact() * 100.0),
            5.0,
            "%",
        );
        self.judge("token bucket: users have an equal share, but for", Some(bucket.unfair() * 100.0), 10.0, "%");
    }

    /// Judges the events of one watcher, and the events of many watchers.
    fn watches(&mut self, results: &Results) {
        let one = results.watch("watch-1").map(|watch| watch.tributary.from_send.p50 - watch.member.from_send.p50);
        self.judge("one watcher: p50 after the member's own", one, 1.0, "ms");
        if let Some(Watch { member, tributary, alone, .. }) = results.watch("watch-500") {
            // The delivery time is the time from sending a write to the arrival of its event, minus the latency of a
            // write without watchers. The time from the response to the event is not usable: with 500 watchers, the
            // member responds to the write later than most events arrive.
            let delivery = |side: &WatchMeasurement| side.from_send.p50 - alone.latency.p50;
            self.judge("500 watchers: p50 of delivery", Some(delivery(tributary) / delivery(member)), 0.5, "×");
            self.judge("500 watchers: p99 from send", Some(tributary.from_send.p99 / member.from_send.p99), 1.0, "×");
            let each = |ours: Option<f64>, theirs: Option<f64>| ours.zip(theirs).map(|(ours, theirs)| ours / theirs);
            // CPU time per event has two limits: with and without the CPU time of the writes, which only the member
            // processes.
            self.judge("500 watchers: CPU per event", each(tributary.cpu_ms, member.cpu_with_writes_ms), 0.2, "×");
            self.judge(
                "500 watchers: CPU per event, writes not counted",
                each(tributary.cpu_ms, member.cpu_ms),
                0.2,
                "×",
            );
            self.judge("500 watchers: streams cut", Some(tributary.cut as f64), 0.0, "");
            self.judge("500 watchers: events lost", Some(tributary.lost as f64), 0.0, "");
        }
    }

    /// Judges reads of whole collections in other formats, with selectors, and in pages.
    fn whole_collections(&mut self, results: &Results) {
        let p50 = |name: &str| p50(results, name);
        self.judge("Table of all: time", p50("table-all"), 0.5, "×");
        self.judge("PartialObjectMetadata of all: time", p50("metadata-all"), 0.5, "×");
        self.judge("selector of 1 %: time", p50("selector-1-percent"), 0.2, "×");
        self.judge("all in pages of 200: time", p50("list-pages-200"), 0.5, "×");
    }

    /// Judges the effect of request storms and of the most expensive requests on other clients. Also judges the memory
    /// during storms.
    fn storms_and_worst(&mut self, results: &Results) {
        for storm in &results.storms {
            let ratio = storm.peak_bytes as f64 / storm.idle_bytes as f64;
            self.judge(&format!("{}: peak memory against idle", storm.name), Some(ratio), 1.3, "×");
            self.judge(&format!("{}: not answered", storm.name), Some(storm.refused as f64), 0.0, "");
        }
        for worst in &results.worst {
            self.judge(
                &format!("{}: another's get, p99", worst.name),
                Some(worst.get_during.p99),
                GET_MEANWHILE_MS,
                "ms",
            );
        }
    }

    /// Judges idle watchers, the reconnection of watchers after a restart, a fleet of a thousand clusters, and the
    /// memory at rest.
    fn at_rest(&mut self, results: &Results) {
        self.judge("idle watcher", results.idle.as_ref().map(|idle| idle.bytes_each / 1e3), 20.0, "KB");
        let lists = results.resumed.as_ref().map(|resumed| resumed.member_lists as f64);
        self.judge("lists asked of the member after a restart", lists, 1.0, "");
        if let Some(fleet) = &results.fleet {
            self.judge("1,000 clusters: synced after ready", Some(fleet.synced_seconds), 90.0, "s");
            self.judge("1,000 clusters: p99 of /livez", Some(fleet.livez.p99), 100.0, "ms");
            self.judge("1,000 clusters: p99 of a page of 5", Some(fleet.page.p99), 30.0, "ms");
        }
        if let Some(memory) = &results.memory
            && let Some(resident) = memory.tributary_idle
        {
            let limit = 1.5 * memory.json_bytes as f64 + MEMORY_BASE;
            self.judge("memory, idle after one round of reads", Some(resident as f64 / MB), limit / MB, "MB");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reads::ReadMeasurement;
    use crate::report::ReadComparison;
    use crate::statistics::Percentiles;

    #[test]
    fn measured_ratios_are_compared_with_their_limits() {
        let measured = |p50| ReadMeasurement {
            latency: Percentiles { p50, p99: p50 },
            cpu_ms: Some(p50),
            ..ReadMeasurement::default()
        };
        let read = |name: &str, member, tributary| ReadComparison {
            name: name.to_owned(),
            member: measured(member),
            tributary: measured(tributary),
        };
        let results = Results {
            reads: vec![read("list-all", 1000.0, 120.0), read("get", 1.0, 0.6), read("get-unset", 2.0, 0.61)],
            ..Results::default()
        };
        let reached: Vec<_> = judge(&results).into_iter().map(|figure| (figure.name, figure.reached)).collect();
        let expected = [
            ("list of all: time", true),
            ("list of all: CPU", false),
            ("get: p50", false),
            ("get: CPU", false),
            ("get-unset against resourceVersion=0: p50", true),
        ];
        assert_eq!(reached, expected.map(|(name, reached)| (name.to_owned(), reached)));
    }
}
