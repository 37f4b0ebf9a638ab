//! What `serve` holds at most.

use std::time::Duration;

use clap::Args;
use tributary_router::Limits;
use tributary_router::limits::COLLECTION_BYTES;

use super::bytes::{parse_bytes, parse_bytes_from};
use super::duration::{parse_duration, parse_duration_above_zero};
use crate::listener_settings::Bounds;

/// Which part of the memory is for objects: half. The other half is for what is not counted with them: what clients
/// leave unread of clusters' answers; a list that takes the place of what is held, of which everything may have changed
/// while a cluster was away; the changes that are remembered; what clients have not read of other answers, bodies and
/// heads (256, 128 and 64 MiB); the program and what the allocator keeps. Too little of it ends the process, for
/// everybody; too few bytes for objects leave out what comes last.
const MEMORY_FOR_EACH_COLLECTION_BYTE: u64 = 2;

/// What objects have at least: 64 MiB, some ten thousand of them. A process that has less than twice that serves a few
/// small clusters, whose objects it should not be without.
const TOTAL_COLLECTION_BYTES_MIN: u64 = 64 << 20;

/// Which part of what all objects may occupy one collection may, half: after a restart who is listed first is not to
/// take what those have that were there before, and the pods of one large cluster are most of what many hold.
const COLLECTIONS_OF_ALL: u64 = 2;

/// Which part of the memory is for what clients leave unread of clusters' answers: a quarter, of 2 GiB 2,048 answers.
/// One client has three eighths of these where it is alone, 768: some more than it may have under way at one endpoint,
/// and not as many again at each.
const MEMORY_FOR_EACH_UNREAD_BYTE: u64 = 4;

/// What these have at least: 32 MiB, which are 128 answers at once.
const MEMBER_UNREAD_BYTES_MIN: u64 = 32 << 20;

/// The least that the flag sets: 1 MiB, which are four answers at once. Of less, hardly one finds room.
const MEMBER_UNREAD_BYTES_TO_SET_MIN: u64 = 1 << 20;

/// Limits of `serve`. A number of bytes may be a quantity, as `128Mi`. Each bound is a metric, too.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Limits")]
pub struct LimitArguments {
    /// Client connections that are open at once; further ones wait until one closes
    #[arg(long, value_name = "N", default_value_t = Self::default().max_connections, value_parser = parse_count)]
    pub max_connections: usize,
    /// Bytes of answers that clients have not read, all connections together. A connection that has used its share is
    /// given no more until its client reads: its streams wait, and its requests are answered 429. An answer that nobody
    /// reads is cut after a while
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().max_unread_bytes, value_parser = parse_bytes::<usize>)]
    pub max_unread_bytes: usize,
    /// Lists, and initial events of watches, longer than 64 KiB that are written at once. Further ones wait, for at
    /// most 50 s; connections take turns
    #[arg(long, value_name = "N", default_value_t = Self::default().max_long_answers, value_parser = parse_count)]
    pub max_long_answers: usize,
    /// Bytes of changes that are remembered for each resource of each cluster; a client that was away for longer than
    /// they reach back lists again
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().history_bytes, value_parser = parse_bytes_or_none)]
    pub history_bytes: usize,
    /// How long changes are remembered
    #[arg(long = "history-seconds", value_name = "DURATION", default_value = "5m", value_parser = parse_duration)]
    pub history_age: Duration,
    /// Bytes of encoded watch events that are kept for other watchers, for each resource
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().encodings_bytes, value_parser = parse_bytes_or_none)]
    pub encodings_bytes: usize,
    /// How long a resource is held that nobody reads or watches
    #[arg(long = "unused-seconds", value_name = "DURATION", default_value = "30m", value_parser = parse_duration)]
    pub unused_after: Duration,
    /// Requests in flight, without watches, exec, logs and other long-running ones. Of three quarters of them one
    /// connection may use at most half of what nobody else uses (1,500 of 4,000 if it is alone); the last quarter is
    /// for connections with few requests. More is answered 429 with Retry-After
    #[arg(long, value_name = "N", default_value_t = Self::default().max_requests_inflight, value_parser = parse_count)]
    pub max_requests_inflight: usize,
    /// Watches, followed logs, exec and other long-running requests at once, where many users are served. Shared among
    /// users as requests in flight are, over all their connections and all clusters (15,000 of 40,000 for one alone).
    /// Those that are sent on to clusters also take room of --max-member-unread-bytes, which has less of it on a small
    /// machine. More is answered 429 with Retry-After
    #[arg(long, value_name = "N", default_value_t = Self::default().max_long_running_requests, value_parser = parse_count)]
    pub max_long_running_requests: usize,
    /// Bytes of bodies that are held: of writes, of clusters' answers to them, and of lists that clusters are asked
    /// for. Shared among connections as requests in flight are; a request that finds no room is answered 429
    #[arg(long, value_name = "BYTES", default_value_t = Self::default().max_held_bytes, value_parser = parse_bytes::<usize>)]
    pub max_held_bytes: usize,
    /// Bytes of clusters' answers that last and that clients have not read yet, all clusters together;
    /// --max-unread-bytes is about what is on its way to clients. Each log, and each request through `proxy`, reserves
    /// 256 KiB, a watch of a cluster's own view 64 KiB, until its answer has ended. Shared among connections, and
    /// users, as requests in flight are; a request that finds no room is answered 429. Less than 1 MiB is refused
    /// [default: a quarter of the memory: the cgroup's limit, or else the machine's; 32 MiB at least]
    #[arg(long, value_name = "BYTES", value_parser = parse_member_unread_bytes)]
    pub max_member_unread_bytes: Option<usize>,
    /// Bytes that the objects of one resource in one cluster may occupy. A cluster that has more is asked for its
    /// objects at each request for a name and each list of the newest state. Watches leave it out with a Warning, or
    /// are answered 429 under --partial Deny [default: 4 GiB, or half of --max-total-collection-bytes where that is
    /// less]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes::<u64>)]
    pub max_collection_bytes: Option<u64>,
    /// Bytes that the objects of all resources in all clusters may occupy together. Who would have more is treated as
    /// with --max-collection-bytes; the others keep what they have [default: half of the memory that there is by the
    /// limit of the cgroup, or else in the machine; 64 MiB at least]
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes::<u64>)]
    pub max_total_collection_bytes: Option<u64>,
    /// Namespaces, per resource, that are listed and watched one by one because a cluster forbids listing all of them
    /// at once. A new one takes the place of the one that has been unused for longest. Those in use are shared among
    /// connections as requests in flight are; a connection that has its share is answered 429 for the next one
    #[arg(long, value_name = "N", default_value_t = Self::default().max_namespace_views, value_parser = parse_count)]
    pub max_namespace_views: usize,
    /// How long a request may take until its answer begins, unless it is long-running; 504 after that
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
    /// The router's part, where there is so much memory, in bytes.
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
            collection_bytes: self.max_collection_bytes.unwrap_or_else(|| of_one_collection(total)),
            total_collection_bytes: total,
            namespace_views: self.max_namespace_views,
            request_timeout: self.request_timeout,
        }
    }

    /// Whether what objects may occupy, and what clusters' answers may leave unread, is together more than so much
    /// memory, in bytes.
    pub fn exceed(limits: &Limits, memory: u64) -> bool {
        limits.total_collection_bytes.saturating_add(limits.member_unread_bytes as u64) > memory
    }
}

/// What objects may have of so much memory, in bytes.
fn total_collection_bytes(memory: u64) -> u64 {
    (memory / MEMORY_FOR_EACH_COLLECTION_BYTE).max(TOTAL_COLLECTION_BYTES_MIN)
}

/// What one collection may have of so much for all, in bytes.
fn of_one_collection(total: u64) -> u64 {
    (total / COLLECTIONS_OF_ALL).clamp(1, COLLECTION_BYTES)
}

/// What clusters' answers may leave unread of so much memory, in bytes.
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

    /// As much as the router's own defaults are made for.
    const MEMORY: u64 = 8 << 30;

    #[test]
    fn limits_are_the_routers() {
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
    fn what_is_held_follows_from_the_memory_where_no_flag_says_otherwise() {
        const GIB: u64 = 1 << 30;
        // (flags, memory) → of one collection, of all, of answers that are not read
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
    fn what_has_no_room_for_answers_is_refused() {
        for bytes in ["0", "1000", "1048575", "1MiB"] {
            let line = ["tributary", "serve", "--max-member-unread-bytes", bytes];
            let refused = Cli::try_parse_from(line).unwrap_err().to_string();
            for part in ["--max-member-unread-bytes", bytes, "at least 1 MiB", "256 KiB"] {
                assert!(refused.contains(part), "{refused}");
            }
        }
    }

    #[test]
    fn what_may_be_held_is_compared_with_memory_as_a_whole() {
        for (flags, memory, expected) in [
            ("", 2 << 30, false),
            // The least that both have, 96 MiB.
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
