//! Metrics of this process from the kernel, under the names of Prometheus's client libraries.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;

/// The clock ticks per second in `/proc/self/stat`: 100 on every Linux that Rust supports (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads `/proc/self` at each scrape. On systems without `/proc`, there are no metrics.
#[derive(Debug)]
pub(crate) struct ProcessMetrics;

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        if let Some(bytes) = resident().and_then(|bytes| i64::try_from(bytes).ok()) {
            gauge(&mut encoder, "process_resident_memory_bytes", "Resident memory in bytes", bytes)?;
        }
        if let Ok(descriptors) = std::fs::read_dir("/proc/self/fd") {
            let count = i64::try_from(descriptors.count()).unwrap_or(i64::MAX);
            gauge(&mut encoder, "process_open_fds", "Open file descriptors", count)?;
        }
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
        if let Some(seconds) = cpu_seconds(&stat) {
            let counter = ConstCounter::new(seconds);
            let help = "User and system CPU time in seconds";
            let metric = encoder.encode_descriptor("process_cpu_seconds", help, None, counter.metric_type())?;
            counter.encode(metric)?;
        }
        Ok(())
    }
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: i64) -> Result<(), std::fmt::Error> {
    let gauge = ConstGauge::new(value);
    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)
}

/// Returns the resident memory of this process in bytes, if the kernel reports it.
pub(crate) fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    u64::try_from(resident_bytes(&status)?).ok()
}

/// Parses `VmRSS` in `/proc/self/status`, which is in KiB, into bytes.
fn resident_bytes(status: &str) -> Option<i64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    line.split_whitespace().next()?.parse::<i64>().ok()?.checked_mul(1024)
}

/// Sums fields 14 and 15 of `/proc/self/stat`. The second field, the command, may contain spaces and ends with the last
/// `)`.
fn cpu_seconds(stat: &str) -> Option<f64> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let user: f64 = fields.next()?.parse().ok()?;
    let system: f64 = fields.next()?.parse().ok()?;
    Some((user + system) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_metrics_are_parsed_from_proc_files() {
        assert_eq!(resident_bytes("VmPeak:\t 9 kB\nVmRSS:\t    2048 kB\n"), Some(2 << 20));
        assert_eq!(resident_bytes(""), None);
        let stat = "7 (a) b) S 1 7 7 0 -1 4194304 1 2 3 4 150 50 0 0 20 0";
        assert_eq!(cpu_seconds(stat), Some(2.0));
        assert_eq!(cpu_seconds(""), None);
    }
}
