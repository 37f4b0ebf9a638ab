//! The results, as a table for people and as JSON for comparisons.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::Context;
use serde::Serialize;

use crate::figure::Figure;
use crate::fleet::FleetFigures;
use crate::gateway::GatewayFigures;
use crate::mirror::MirrorFigures;
use crate::revoked::RevokedFigures;
use crate::shared::SharedFigures;
use crate::token_bucket::TokenBucketFigures;
use crate::{limits, reads, watches, worst};

/// The member's and Tributary's results of a read scenario.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ReadComparison {
    pub(crate) name: String,
    pub(crate) member: reads::ReadMeasurement,
    pub(crate) tributary: reads::ReadMeasurement,
}

/// The member's and Tributary's results of a watch scenario.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Watch {
    pub(crate) name: String,
    pub(crate) member: watches::WatchMeasurement,
    pub(crate) tributary: watches::WatchMeasurement,
    /// The latency and cost of the same writes without watchers.
    pub(crate) alone: watches::WriteAlone,
}

/// The memory of the member and of Tributary, in bytes.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Memory {
    /// The size of the JSON of all pods in the member's list.
    pub(crate) json_bytes: u64,
    /// Tributary's memory before the first request.
    pub(crate) tributary_start: Option<u64>,
    /// Tributary's memory at rest, after the sync and one round of reads.
    pub(crate) tributary_idle: Option<u64>,
    pub(crate) tributary_end: Option<u64>,
    pub(crate) member_end: Option<u64>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Results {
    pub(crate) pods: usize,
    /// The latency of the first list with an empty cache, in milliseconds.
    pub(crate) first_list_ms: f64,
    pub(crate) reads: Vec<ReadComparison>,
    pub(crate) watches: Vec<Watch>,
    pub(crate) storms: Vec<limits::StormResult>,
    pub(crate) worst: Vec<worst::WorstResult>,
    pub(crate) idle: Option<limits::IdleWatchersCost>,
    /// The reconnection of the watchers after a restart.
    pub(crate) resumed: Option<limits::Resumed>,
    pub(crate) gateway: Option<GatewayFigures>,
    /// Reads and watches in shared mode, compared with personal mode.
    pub(crate) shared: Option<SharedFigures>,
    pub(crate) revoked: Option<RevokedFigures>,
    pub(crate) fleet: Option<FleetFigures>,
    /// The cost of the RBAC objects of a thousand clusters.
    pub(crate) mirror: Option<MirrorFigures>,
    /// An overloaded token bucket.
    pub(crate) token_bucket: Option<TokenBucketFigures>,
    pub(crate) memory: Option<Memory>,
    pub(crate) figures: Vec<Figure>,
}

impl Results {
    /// The member's and Tributary's results of a read scenario.
    pub(crate) fn read(&self, name: &str) -> Option<(&reads::ReadMeasurement, &reads::ReadMeasurement)> {
        self.reads.iter().find(|read| read.name == name).map(|read| (&read.member, &read.tributary))
    }

    /// The results of a watch scenario.
    pub(crate) fn watch(&self, name: &str) -> Option<&Watch> {
        self.watches.iter().find(|watch| watch.name == name)
    }

    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        let _ = self.write_markdown(&mut out);
        out
    }

    fn write_markdown(&self, out: &mut String) -> std::fmt::Result {
        if self.pods > 0 {
            self.write_both_sides(out)?;
        }
        if let Some(gateway) = &self.gateway {
            write_gateway(gateway, out)?;
        }
        if let Some(shared) = &self.shared {
            write_shared(shared, out)?;
        }
        if let Some(revoked) = &self.revoked {
            write_revoked(revoked, out)?;
        }
        if let Some(fleet) = &self.fleet {
            write_fleet(fleet, out)?;
        }
        if let Some(mirror) = &self.mirror {
            write_mirror(mirror, out)?;
        }
        if let Some(bucket) = &self.token_bucket {
            write_token_bucket(bucket, out)?;
        }
        writeln!(out, "| figure | measured | allowed | |")?;
        writeln!(out, "|---|---|---|---|")?;
        for figure in &self.figures {
            let verdict = if figure.reached { "reached" } else { "**missed**" };
            writeln!(
                out,
                "| {} | {:.3} {} | {:.2} {} | {verdict} |",
                figure.name, figure.measured, figure.unit, figure.limit, figure.unit
            )?;
        }
        Ok(())
    }

    fn write_both_sides(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "{} pods in one member; first list through Tributary, cache empty: {:.0} ms\n",
            self.pods, self.first_list_ms
        )?;
        self.write_reads(out)?;
        self.write_watches(out)?;
        if let Some(memory) = &self.memory {
            write_memory(memory, out)?;
        }
        self.write_limits(out)
    }

    fn write_reads(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "| read | member p50 / p99 ms | Tributary p50 / p99 ms | × | member CPU ms | Tributary CPU ms | × | per s, both | first byte ms, both | MB |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|---|---|")?;
        for ReadComparison { name, member: m, tributary: t } in &self.reads {
            writeln!(
                out,
                "| {name} | {} | {} | {:.2} | {} | {} | {} | {:.1} / {:.1} | {:.1} / {:.1} | {:.2} |",
                pair(m.latency),
                pair(t.latency),
                t.latency.p50 / m.latency.p50,
                number(m.cpu_ms),
                number(t.cpu_ms),
                ratio(t.cpu_ms, m.cpu_ms),
                m.per_second,
                t.per_second,
                m.first_byte.p50,
                t.first_byte.p50,
                t.bytes as f64 / 1e6,
            )?;
        }
        Ok(())
    }

    fn write_watches(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "\n| watch | side | delivered | lost | cut | from send p50 / p99 ms | from response p50 / p99 ms | CPU ms per event | with the writes |"
        )?;
        writeln!(out, "|---|---|---|---|---|---|---|---|---|")?;
        for watch in &self.watches {
            for (side, m) in [("member", &watch.member), ("Tributary", &watch.tributary)] {
                writeln!(
                    out,
                    "| {} | {side} | {} | {} | {} | {} | {} | {} | {} |",
                    watch.name,
                    m.delivered,
                    m.lost,
                    m.cut,
                    pair(m.from_send),
                    pair(m.from_response),
                    number(m.cpu_ms),
                    number(m.cpu_with_writes_ms),
                )?;
            }
        }
        for Watch { name, alone, .. } in &self.watches {
            writeln!(
                out,
                "\nThe writes of {name} while nobody watches: {} ms p50 / p99, {} ms of the member's CPU each",
                pair(alone.latency),
                number(alone.cpu_ms)
            )?;
        }
        Ok(())
    }

    fn write_limits(&self, out: &mut String) -> std::fmt::Result {
        self.write_storms(out)?;
        self.write_worst(out)?;
        if let Some(idle) = &self.idle {
            writeln!(out, "\n{} idle watchers: {:.1} KB each", idle.watchers, idle.bytes_each / 1e3)?;
        }
        if let Some(resumed) = &self.resumed {
            writeln!(
                out,
                "{} watchers after a restart: {} went on, {} listed again from memory, within {:.1} s; lists asked of the member: {}\n",
                resumed.watchers, resumed.resumed, resumed.relisted, resumed.seconds, resumed.member_lists
            )?;
        }
        Ok(())
    }

    fn write_storms(&self, out: &mut String) -> std::fmt::Result {
        if !self.storms.is_empty() {
            writeln!(
                out,
                "| storm | requests on connections | answered | s | memory before / peak MB | × | another's get alone / during, p50 / p99 ms | another's list of 100 |"
            )?;
            writeln!(out, "|---|---|---|---|---|---|---|---|")?;
        }
        for storm in &self.storms {
            writeln!(
                out,
                "| {} | {} on {} | {} | {:.1} | {:.0} / {:.0} | {:.2} | {} → {} | {} → {} |",
                storm.name,
                storm.requests,
                storm.connections,
                storm.answered,
                storm.seconds,
                storm.idle_bytes as f64 / 1e6,
                storm.peak_bytes as f64 / 1e6,
                storm.peak_bytes as f64 / storm.idle_bytes as f64,
                pair(storm.get_alone),
                pair(storm.get_during),
                pair(storm.list_alone),
                pair(storm.list_during),
            )?;
        }
        Ok(())
    }

    fn write_worst(&self, out: &mut String) -> std::fmt::Result {
        if !self.worst.is_empty() {
            writeln!(
                out,
                "\n| one client's worst requests | answered / refused | another's get alone → during, p50 / p99 ms | memory before / peak MB |"
            )?;
            writeln!(out, "|---|---|---|---|")?;
        }
        for worst in &self.worst {
            writeln!(
                out,
                "| {} | {} / {} | {} → {} | {:.0} / {:.0} |",
                worst.name,
                worst.answered,
                worst.refused,
                pair(worst.get_alone),
                pair(worst.get_during),
                worst.idle_bytes as f64 / 1e6,
                worst.peak_bytes as f64 / 1e6,
            )?;
        }
        Ok(())
    }

    /// Writes all results as JSON to a file.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub(crate) fn save(&self, path: &Path) -> anyhow::Result<()> {
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            std::fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
        }
        let text = serde_json::to_string_pretty(self).context("encode the results")?;
        std::fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))
    }
}

fn write_gateway(gateway: &GatewayFigures, out: &mut String) -> std::fmt::Result {
    if !gateway.reads.is_empty() {
        writeln!(out, "| passed on | side | p50 / p99 ms | CPU ms | per s | first byte ms | MB |")?;
        writeln!(out, "|---|---|---|---|---|---|---|")?;
    }
    for read in &gateway.reads {
        let sides = [
            ("member", &read.member),
            ("haproxy", &read.haproxy),
            ("Tributary", &read.tributary),
            ("Tributary with policies and flow control", &read.governed),
            ("the same for many users, with an audit log", &read.many),
        ];
        for (name, side) in sides {
            writeln!(
                out,
                "| {} | {name} | {} | {} | {:.1} | {:.2} | {:.2} |",
                read.name,
                pair(side.latency),
                number(side.cpu_ms),
                side.per_second,
                side.first_byte.p50,
                side.bytes as f64 / 1e6,
            )?;
        }
    }
    if let Some(events) = &gateway.events {
        let (haproxy, own) = (events.haproxy_us, events.tributary_us);
        writeln!(out, "\nCPU of a passed watch event: haproxy {haproxy:.1} µs, Tributary {own:.1} µs")?;
    }
    if let Some(memory) = &gateway.memory {
        let mb = |bytes: u64| bytes as f64 / 1e6;
        writeln!(
            out,
            "\nMemory: {:.1} MB at start, {:.1} MB while 64 ask; an idle client connection {:.1} KB",
            mb(memory.start),
            mb(memory.busy),
            memory.idle_connection / 1e3
        )?;
    }
    writeln!(out)
}

fn write_shared(shared: &SharedFigures, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "| read | one person CPU ms | all rights CPU ms | × | without audit CPU ms | × | a tenth CPU ms | × per object shown | without audit CPU ms | × per object shown | p50 ms: one, all, a tenth |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|---|---|---|")?;
    for read in &shared.reads {
        let [one, all, quiet, part, quiet_part] =
            [&read.personal, &read.all, &read.unaudited, &read.part, &read.part_unaudited]
                .map(|side| side.cpu_ms.unwrap_or_default());
        writeln!(
            out,
            "| {} | {one:.3} | {all:.3} | {:.3} | {quiet:.3} | {:.3} | {part:.3} | {:.3} | {quiet_part:.3} | {:.3} | {:.3}, {:.3}, {:.3} |",
            read.name,
            all / one,
            quiet / one,
            part / read.share / one,
            quiet_part / read.share / one,
            read.personal.latency.p50,
            read.all.latency.p50,
            read.part.latency.p50
        )?;
    }
    let Some(watch) = &shared.watch else { return writeln!(out) };
    writeln!(
        out,
        "\n| CPU µs for each event of 50 watchers | all of it | what the changes cost without watchers not counted |"
    )?;
    writeln!(out, "|---|---|---|")?;
    let sides = [("one person", watch.personal), ("all rights, at the same time", watch.all), ("a tenth", watch.part)];
    for (who, cost) in sides {
        writeln!(out, "| {who} | {:.2} | {:.2} |", cost.us, cost.telling_us)?;
    }
    writeln!(out, "\nA change costs a server that nobody watches {:.1} µs at the same time.", watch.change_us)?;
    writeln!(out)
}

fn write_fleet(fleet: &FleetFigures, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "| fleet (members in the same process) | ready s | synced s after | /livez p50 / p99 ms | longest ms | page of 5 p50 / p99 ms | memory MB | cores while nobody reads |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    writeln!(
        out,
        "| {} clusters of {} pods | {:.1} | {:.1} | {} | {:.0} | {} | {:.0} | {:.2} |\n",
        fleet.clusters,
        fleet.pods,
        fleet.ready_seconds,
        fleet.synced_seconds,
        pair(fleet.livez),
        fleet.livez_longest,
        pair(fleet.page),
        fleet.resident_bytes as f64 / 1e6,
        fleet.idle_cores,
    )
}

fn write_revoked(revoked: &RevokedFigures, out: &mut String) -> std::fmt::Result {
    writeln!(out, "| {} users lose a right | watches | outlive it p50 / p99 ms | longest ms |", revoked.users)?;
    writeln!(out, "|---|---|---|---|")?;
    for (how, outlived) in [("one after the other", revoked.one_by_one), ("all at once", revoked.at_once)] {
        writeln!(out, "| {how} | {} | {} | {:.0} |", outlived.watches, pair(outlived.times), outlived.longest)?;
    }
    writeln!(out)
}

fn write_mirror(mirror: &MirrorFigures, out: &mut String) -> std::fmt::Result {
    let mb = |bytes: f64| bytes / 1e6;
    writeln!(
        out,
        "| rights of {} clusters (simulated, in another process) | known s after the start | CPU s until then | memory MB |",
        mirror.clusters
    )?;
    writeln!(out, "|---|---|---|---|")?;
    let all = format!("{} roles and bindings each, {:.0} MB of JSON", mirror.objects, mb(mirror.json_bytes as f64));
    for (what, cost) in [("two each", mirror.without), (all.as_str(), mirror.with)] {
        let memory = mb(cost.resident_bytes as f64);
        writeln!(out, "| {what} | {:.1} | {:.1} | {memory:.0} |", cost.known_seconds, cost.cpu_seconds)?;
    }
    writeln!(out, "\nThe mirror: {:.0} MB\n", mb(mirror.mirror_bytes()))
}

fn write_token_bucket(bucket: &TokenBucketFigures, out: &mut String) -> std::fmt::Result {
    let (qps, offered) = (bucket.qps, bucket.offered());
    writeln!(out, "| bucket of {qps} gets/s, offered {offered:.2} × that | offered/s | let in/s | 429/s |")?;
    writeln!(out, "|---|---|---|---|")?;
    for (number, user) in bucket.users.iter().enumerate() {
        writeln!(out, "| user {number} | {:.0} | {:.0} | {:.0} |", user.offered, user.admitted, user.refused)?;
    }
    writeln!(out)
}

fn write_memory(memory: &Memory, out: &mut String) -> std::fmt::Result {
    let mb = |bytes: Option<u64>| bytes.map_or("–".to_owned(), |bytes| format!("{:.0} MB", bytes as f64 / 1e6));
    writeln!(
        out,
        "\nMemory: JSON {}; Tributary at start {}, idle after one round of reads {}, at the end {}; kube-apiserver at the end {}\n",
        mb(Some(memory.json_bytes)),
        mb(memory.tributary_start),
        mb(memory.tributary_idle),
        mb(memory.tributary_end),
        mb(memory.member_end),
    )
}

fn pair(times: crate::statistics::Percentiles) -> String {
    let digits = if times.p99.abs() < 100.0 { 2 } else { 0 };
    format!("{:.digits$} / {:.digits$}", times.p50, times.p99)
}

fn number(value: Option<f64>) -> String {
    value.map_or("–".to_owned(), |value| if value < 10.0 { format!("{value:.3}") } else { format!("{value:.0}") })
}

fn ratio(ours: Option<f64>, theirs: Option<f64>) -> String {
    ours.zip(theirs).map_or("–".to_owned(), |(ours, theirs)| format!("{:.2}", ours / theirs))
}
