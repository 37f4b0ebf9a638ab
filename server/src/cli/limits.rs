//! The flags for the limits of `serve`.

use std::time::Duration;

use clap::Args;
use tributary_listener::Bounds;
use tributary_router::Limits;
use tributary_router::limits::COLLECTION_BYTES;

use super::bytes::{parse_bytes, parse_bytes_from};
use super::duration::{parse_duration, parse_duration_above_zero};

/// The divisor of the memory for the default limit of cached objects: objects get half of the memory. The other half is
/// for unread answers from clusters, a relist that replaces a collection, the history, unread answers to clients,
/// bodies and heads (256, 128 and 64 MiB), the program and the allocator. If the memory is exhausted, the process ends
/// for all clients. If the limit for objects is reached, further collections are not cached.
const MEMORY_FOR_EACH_COLLECTION_BYTE: u64 = 2;

/// The lowest default limit for objects: 64 MiB, about ten thousand objects. A process with less than 128 MiB serves a
/// few small clusters, and should be able to cache their objects.
const TOTAL_COLLECTION_BYTES_MIN: u64 = 64 << 20;

/// The divisor for the default limit of one collection: half of the limit for all objects. After a restart, the first
/// collection that a client lists must leave capacity for the others. The pods of a large cluster may be most of the
/// objects.
const COLLECTION_DIVISOR: u64 = 2;

/// The divisor of the memory for the default limit of unread answers from clusters: these answers get a quarter of the
/// memory. With 2 GiB of memory, 2,048 answers fit. A single client gets three eighths, 768 answers, which slightly
/// exceeds the requests that it can have in flight.
const MEMORY_FOR_EACH_UNREAD_BYTE: u64 = 4;

/// The lowest default limit for unread answers from clusters: 32 MiB, enough for 128 concurrent answers.
const MEMBER_UNREAD_BYTES_MIN: u64 = 32 << 20;

/// The lowest value of `--max-member-unread-bytes`: 1 MiB, enough for four concurrent answers.
const MEMBER_UNREAD_BYTES_TO_SET_MIN: u64 = 1 << 20;

/// The limits of `serve`. Byte limits accept quantities such as `128Mi`. Each limit is also a metric.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Limits")]
pub struct LimitArguments {
    /// Maximum number of client connections. Further connections wait until a connection closes
    #[arg(long, value_name = "N", default_value_t = Self::default().max_connections, value_parser = parse_count)]
    pub max_connections: usize,
    /// Maximum bytes of answers that clients have not read, for all connections together
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().max_unread_bytes, value_parser = parse_bytes::<usize>)]
    pub max_unread_bytes: usize,
    /// Maximum number of answers above 64 KiB (lists, initial watch events) that are written at once. Further answers
    /// wait up to 50 s
    #[arg(long, value_name = "N", default_value_t = Self::default().max_long_answers, value_parser = parse_count)]
    pub max_long_answers: usize,
    /// Bytes of history of each resource in each cluster. A watch from an older version is answered 410, and its client
    /// lists again
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().history_bytes, value_parser = parse_bytes_or_none)]
    pub history_bytes: usize,
    /// The time for which history is kept
    #[arg(long = "history-seconds", value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub history_age: Duration,
    /// Bytes of encoded watch events of each resource that are kept and shared by watches
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().encodings_bytes, value_parser = parse_bytes_or_none)]
    pub encodings_bytes: usize,
    /// The time after which an unused resource leaves the cache
    #[arg(long = "unused-seconds", value_name = "DURATION", default_value = "30m", value_parser = parse_duration)]
    pub unused_after: Duration,
    /// Maximum number of requests in flight, without long-running requests; shared among connections. Above it, the
    /// answer is 429
    #[arg(long, value_name = "N", default_value_t = Self::default().max_requests_inflight, value_parser = parse_count)]
    pub max_requests_inflight: usize,
    /// Maximum number of long-running requests (watch, logs, exec, attach, port-forward) in shared mode; shared among
    /// users. Above it, the answer is 429
    #[arg(long, value_name = "N", default_value_t = Self::default().max_long_running_requests, value_parser = parse_count)]
    pub max_long_running_requests: usize,
    /// Maximum bytes of buffered bodies (writes, their answers, lists from clusters); shared among connections. Above
    /// it, the answer is 429
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().max_held_bytes, value_parser = parse_bytes::<usize>)]
    pub max_held_bytes: usize,
    /// Maximum bytes of long-running answers of clusters that clients have not read; shared among connections and
    /// users. A logs or `proxy` request reserves 256 KiB, a watch of a cluster path 64 KiB. Above it, the answer is
    /// 429. Minimum: 1 MiB [default: a quarter of the memory (cgroup limit or machine), at least 32 MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_member_unread_bytes)]
    pub max_member_unread_bytes: Option<usize>,
    /// Maximum bytes of the cached objects of a resource in a cluster. A larger collection is not cached: gets and
    /// lists are forwarded, and watches omit the cluster with a Warning, or are answered 429 under --partial Deny
    /// [default: half of --max-total-collection-bytes, at most 4 GiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes::<u64>)]
    pub max_collection_bytes: Option<u64>,
    /// Maximum bytes of all cached objects. A collection that does not fit is not cached; cached collections stay
    /// [default: half of the memory (cgroup limit or machine), at least 64 MiB]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes::<u64>)]
    pub max_total_collection_bytes: Option<u64>,
    /// Maximum number of namespaces of a resource that are cached one by one because a cluster forbids a list of all
    /// namespaces; shared among connections. A new namespace replaces an unused one; above the share of a connection,
    /// the answer is 429
    #[arg(long, value_name = "N", default_value_t = Self::default().max_namespace_views, value_parser = parse_count)]
    pub max_namespace_views: usize,
    /// Maximum time until an answer begins, except of long-running requests. After it, the answer is 504
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_duration_above_zero)]
    pub request_timeout: Duration,
}

impl Default for LimitArguments {
    fn default() -> Self {
        let (limits, bounds) = (Limits::default(), Bounds::default());
        Self {
            max_connections: bounds.connections,
            max_unread_bytes: bounds.unread_bytes,
            max_long_answers: limits.long_answers,
            history_bytes: limits.history_bytes,
            history_age: limits.history_age,
            encodings_bytes: limits.encodings_bytes,
            unused_after: limits.unused_after,
            max_requests_inflight: limits.requests_in_flight,
            max_long_running_requests: limits.long_running_requests,
            max_held_bytes: limits.held_bytes,
            max_member_unread_bytes: None,
            max_collection_bytes: None,
            max_total_collection_bytes: None,
            max_namespace_views: limits.namespace_views,
            request_timeout: limits.request_timeout,
        }
    }
}

impl LimitArguments {
    /// Returns the router's limits for a machine or cgroup with `memory` bytes.
    pub fn router(&self, memory: u64) -> Limits {
        let total = self.max_total_collection_bytes.unwrap_or_else(|| total_collection_bytes(memory));
        Limits {
            history_bytes: self.history_bytes,
            history_age: self.history_age,
            encodings_bytes: self.encodings_bytes,
            long_answers: self.max_long_answers,
            unused_after: self.unused_after,
            requests_in_flight: self.max_requests_inflight,
            long_running_requests: self.max_long_running_requests,
            held_bytes: self.max_held_bytes,
            member_unread_bytes: self.max_member_unread_bytes.unwrap_or_else(|| member_unread_bytes(memory)),
            collection_bytes: self.max_collection_bytes.unwrap_or_else(|| collection_bytes_of(total)),
            total_collection_bytes: total,
            namespace_views: self.max_namespace_views,
            request_timeout: self.request_timeout,
        }
    }

    /// Returns whether the limit of cached objects and the limit of unread answers from clusters together exceed
    /// `memory` bytes.
    pub fn exceed(limits: &Limits, memory: u64) -> bool {
        limits.total_collection_bytes.saturating_add(limits.member_unread_bytes as u64) > memory
    }
}

/// Returns the default limit of all cached objects, in bytes.
fn total_collection_bytes(memory: u64) -> u64 {
    (memory / MEMORY_FOR_EACH_COLLECTION_BYTE).max(TOTAL_COLLECTION_BYTES_MIN)
}

/// Returns the default limit of one collection, if all objects are limited to `total` bytes.
fn collection_bytes_of(total: u64) -> u64 {
    (total / COLLECTION_DIVISOR).clamp(1, COLLECTION_BYTES)
}

/// Returns the default limit of unread answers from clusters, in bytes.
fn member_unread_bytes(memory: u64) -> usize {
    let bytes = (memory / MEMORY_FOR_EACH_UNREAD_BYTE).max(MEMBER_UNREAD_BYTES_MIN);
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

fn parse_count(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("must be a whole number above 0".to_owned()),
    }
}

fn parse_bytes_or_none(text: &str) -> Result<usize, String> {
    parse_bytes_from(0, text)
}

fn parse_member_unread_bytes(text: &str) -> Result<usize, String> {
    parse_bytes_from(MEMBER_UNREAD_BYTES_TO_SET_MIN, text)
        .map_err(|error| format!("{error}; each log reserves 256 KiB"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    /// The memory size from which the router's default limits are derived.
    const MEMORY: u64 = 8 << 30;

    #[test]
    fn flags_set_the_limits_of_the_router() {
        let line = "tributary serve --max-collection-bytes 1 --max-namespace-views 2 --max-held-bytes 1Gi";
        let Command::Serve(serve) = Cli::try_parse_from(line.split_whitespace()).unwrap().command else { panic!() };
        let expected = Limits { collection_bytes: 1, namespace_views: 2, held_bytes: 1 << 30, ..Limits::default() };
        assert_eq!(serve.limits.router(MEMORY), expected);
        let line = "tributary serve --history-seconds 90 --unused-seconds 2h --request-timeout 1m30s";
        let Command::Serve(serve) = Cli::try_parse_from(line.split_whitespace()).unwrap().command else { panic!() };
        let [history_age, request_timeout] = [Duration::from_secs(90); 2];
        let unused_after = Duration::from_secs(2 * 60 * 60);
        let expected = Limits { history_age, request_timeout, unused_after, ..Limits::default() };
        assert_eq!(serve.limits.router(MEMORY), expected);
        let refused =
            Cli::try_parse_from(["tributary", "serve", "--max-collection-bytes", "0"]).unwrap_err().to_string();
        for part in ["--max-collection-bytes", "'0'", "must be a number of bytes, at least 1"] {
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn default_limits_depend_on_the_available_memory() {
        const GIB: u64 = 1 << 30;
        // The columns of each row: the flags, the memory size, and the limits of a collection, of all collections, and
        // of unread answers.
        let rows = [
            ("", 64 * GIB, (4 * GIB, 32 * GIB, 16 << 30)),
            ("", 8 * GIB, (2 * GIB, 4 * GIB, 2 << 30)),
            ("", 16 * GIB, (4 * GIB, 8 * GIB, 4 << 30)),
            ("", 2 * GIB, (GIB / 2, GIB, 512 << 20)),
            ("", 100 << 20, (32 << 20, 64 << 20, 32 << 20)),
            ("--max-total-collection-bytes 1000", 2 * GIB, (500, 1000, 512 << 20)),
            ("--max-total-collection-bytes 8589934592", 2 * GIB, (4 * GIB, 8 * GIB, 512 << 20)),
            ("--max-collection-bytes 1000", 2 * GIB, (1000, GIB, 512 << 20)),
            ("--max-member-unread-bytes 1Mi", 2 * GIB, (GIB / 2, GIB, 1 << 20)),
        ];
        for (flags, memory, expected) in rows {
            let line = format!("tributary serve {flags}");
            let Command::Serve(serve) = Cli::try_parse_from(line.split_whitespace()).unwrap().command else { panic!() };
            let limits = serve.limits.router(memory);
            let found = (limits.collection_bytes, limits.total_collection_bytes, limits.member_unread_bytes);
            assert_eq!(found, expected, "{flags} of {memory}");
        }
    }

    #[test]
    fn max_member_unread_bytes_below_1_mib_is_an_error() {
        for bytes in ["0", "1000", "1048575", "1MiB"] {
            let line = ["tributary", "serve", "--max-member-unread-bytes", bytes];
            let refused = Cli::try_parse_from(line).unwrap_err().to_string();
            for part in ["--max-member-unread-bytes", bytes, "at least 1 MiB", "256 KiB"] {
                assert!(refused.contains(part), "{refused}");
            }
        }
    }

    #[test]
    fn memory_check_adds_the_limits_of_objects_and_unread_answers() {
        for (flags, memory, expected) in [
            ("", 2 << 30, false),
            // The lowest default limits of cached objects and of unread answers are 96 MiB together.
            ("", 96 << 20, false),
            ("", 95 << 20, true),
            ("--max-total-collection-bytes 1610612736", 2 << 30, false),
            ("--max-total-collection-bytes 1610612737", 2 << 30, true),
            ("--max-member-unread-bytes 1073741825", 2 << 30, true),
            ("--max-total-collection-bytes 18446744073709551615", 2 << 30, true),
        ] {
            let line = format!("tributary serve {flags}");
            let Command::Serve(serve) = Cli::try_parse_from(line.split_whitespace()).unwrap().command else { panic!() };
            assert_eq!(LimitArguments::exceed(&serve.limits.router(memory), memory), expected, "{flags} of {memory}");
        }
    }
}
