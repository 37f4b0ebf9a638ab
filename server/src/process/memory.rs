//! How much memory this process may have.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// What is taken for the memory there is where nobody says: 8 GiB, a laptop's.
const ASSUMED: u64 = 8 << 30;

/// Where the files of the one hierarchy of cgroup v2 are, and which of them has the limit.
const V2: (&str, &str) = ("sys/fs/cgroup", "memory.max");

/// The same of the memory controller of cgroup v1.
const V1: (&str, &str) = ("sys/fs/cgroup/memory", "memory.limit_in_bytes");

/// How much memory this process may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// In bytes.
    pub bytes: u64,
    /// By what.
    pub bound: MemoryBound,
}

/// By what a process's memory is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBound {
    /// By the limit of its cgroup, or of one above it: a container's.
    Cgroup,
    /// By what the machine has.
    Machine,
    /// Nobody says.
    Unknown,
}

impl fmt::Display for MemoryBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cgroup => "the limit of the cgroup",
            Self::Machine => "the machine's memory",
            Self::Unknown => "assumed, as the system does not say",
        })
    }
}

impl Memory {
    /// Of this process, as of now: the least limit of its cgroups, or what the machine has where that is less. Reads
    /// some small files of the kernel's.
    pub fn of_this_process() -> Self {
        Self::found(Path::new("/"), machine_bytes())
    }

    /// As the files below this directory say, on a machine that has so much.
    fn found(root: &Path, machine: Option<u64>) -> Self {
        let cgroups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        match (cgroup_bytes(root, &cgroups), machine) {
            // What has no limit in cgroup v1 has one beyond all memory.
            (Some(bytes), machine) if bytes < machine.unwrap_or(u64::MAX >> 2) => {
                Self { bytes, bound: MemoryBound::Cgroup }
            }
            (_, Some(bytes)) => Self { bytes, bound: MemoryBound::Machine },
            (_, None) => Self { bytes: ASSUMED, bound: MemoryBound::Unknown },
        }
    }
}

/// What the machine has. By the system call: a unit of systemd may see no file about it (`ProcSubset=pid`).
#[cfg(target_os = "linux")]
fn machine_bytes() -> Option<u64> {
    let known = rustix::system::sysinfo();
    u64::try_from(u128::from(known.totalram) * u128::from(known.mem_unit)).ok()
}

/// Not known here.
#[cfg(not(target_os = "linux"))]
fn machine_bytes() -> Option<u64> {
    None
}

/// The least limit of the groups that `/proc/self/cgroup` names, and of those above them. In a container that sees the
/// path of its host, that of the root of what is mounted is its own.
fn cgroup_bytes(root: &Path, cgroups: &str) -> Option<u64> {
    let files = cgroups.lines().filter_map(|line| limit_files(root, line)).flatten();
    files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).min()
}

/// Where the limits are of the group of one line, `HIERARCHY:CONTROLLERS:PATH`, and of those above it; `None` where it
/// is of no memory.
fn limit_files(root: &Path, line: &str) -> Option<Vec<PathBuf>> {
    let (_, of) = line.split_once(':')?;
    let (controllers, path) = of.split_once(':')?;
    let is_v1 = controllers.split(',').any(|controller| controller == "memory");
    let (mount, file) = if is_v1 { V1 } else { V2 };
    let groups = Path::new(path.trim_start_matches('/')).ancestors();
    let files = groups.map(|group| root.join(mount).join(group).join(file)).collect();
    (is_v1 || controllers.is_empty()).then_some(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_limit_counts_or_the_machines_memory() {
        use MemoryBound::{Cgroup, Machine, Unknown};
        type Files<'a> = &'a [(&'a str, &'a str)];
        let own = ("proc/self/cgroup", "0::/pods/one\n");
        let v1 = ("proc/self/cgroup", "4:cpu,memory:/docker/x\n1:name=systemd:/docker/x\n0::/\n");
        let machine = Some(16 << 20);
        let rows: [(&str, Option<u64>, Files<'_>, u64, MemoryBound); 9] = [
            ("nothing is said", None, &[], ASSUMED, Unknown),
            ("no limit", machine, &[own, ("sys/fs/cgroup/pods/one/memory.max", "max\n")], 16 << 20, Machine),
            ("its own", machine, &[own, ("sys/fs/cgroup/pods/one/memory.max", "4096\n")], 4096, Cgroup),
            (
                "one above it",
                machine,
                &[
                    own,
                    ("sys/fs/cgroup/pods/one/memory.max", "max\n"),
                    ("sys/fs/cgroup/pods/memory.max", "8192\n"),
                    ("sys/fs/cgroup/memory.max", "9000\n"),
                ],
                8192,
                Cgroup,
            ),
            (
                "in a container",
                machine,
                &[("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/memory.max", "5000\n")],
                5000,
                Cgroup,
            ),
            (
                "more than there is",
                machine,
                &[own, ("sys/fs/cgroup/pods/one/memory.max", "99999999999\n")],
                16 << 20,
                Machine,
            ),
            ("v1", machine, &[v1, ("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "7000\n")], 7000, Cgroup),
            (
                "v1 in a container that sees its host's path",
                machine,
                &[v1, ("sys/fs/cgroup/memory/memory.limit_in_bytes", "6000\n")],
                6000,
                Cgroup,
            ),
            (
                "v1 without a limit",
                None,
                &[v1, ("sys/fs/cgroup/memory/docker/x/memory.limit_in_bytes", "9223372036854771712\n")],
                ASSUMED,
                Unknown,
            ),
        ];
        for (case, machine, files, bytes, bound) in rows {
            let root = tempfile::tempdir().unwrap();
            for (path, text) in files {
                let file = root.path().join(path);
                fs::create_dir_all(file.parent().unwrap()).unwrap();
                fs::write(file, text).unwrap();
            }
            assert_eq!(Memory::found(root.path(), machine), Memory { bytes, bound }, "{case}");
        }
    }

    #[test]
    fn this_process_has_some() {
        let memory = Memory::of_this_process();
        assert!(memory.bytes > 16 << 20, "{memory:?}");
        // What is assumed is more than that, too.
        #[cfg(target_os = "linux")]
        assert_ne!(memory.bound, MemoryBound::Unknown);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_machine_has_what_the_kernel_writes() {
        assert!(machine_bytes().is_some());
        let Ok(written) = fs::read_to_string("/proc/meminfo") else { return };
        let Some(line) = written.lines().find_map(|line| line.strip_prefix("MemTotal:")) else { return };
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        assert_eq!(machine_bytes(), Some(kibibytes << 10));
    }
}
