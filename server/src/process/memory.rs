//! The memory limit of this process.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The assumed memory size if the system reports no size: 8 GiB, as in a laptop.
const ASSUMED: u64 = 8 << 30;

/// The directory and the file with the memory limit in cgroup v2.
const V2: (&str, &str) = ("sys/fs/cgroup", "memory.max");

/// The directory and the file with the memory limit of the memory controller in cgroup v1.
const V1: (&str, &str) = ("sys/fs/cgroup/memory", "memory.limit_in_bytes");

/// The memory limit of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// The size of the memory in bytes.
    pub bytes: u64,
    /// The source of the memory size: a cgroup, the machine or an assumption.
    pub bound: MemoryBound,
}

/// The source of a memory size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryBound {
    /// The limit of the process's cgroup or of a parent cgroup, as in a container.
    Cgroup,
    /// The memory of the machine.
    Machine,
    /// An assumption, because the system reports no size.
    Unknown,
}

impl fmt::Display for MemoryBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cgroup => "the limit of the cgroup",
            Self::Machine => "the machine's memory",
            Self::Unknown => "assumed, because the system does not report the limit",
        })
    }
}

impl Memory {
    /// Returns the memory of this process: the least limit of its cgroups, or the machine's memory if that is less.
    /// Reads small files of the kernel.
    pub fn detect() -> Self {
        Self::found(Path::new("/"), machine_bytes())
    }

    /// Returns the memory limit that the cgroup files below `root` set, on a machine with this memory size.
    fn found(root: &Path, machine: Option<u64>) -> Self {
        let cgroups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
        match (cgroup_bytes(root, &cgroups), machine) {
            // Without a limit, cgroup v1 reports a number above every memory size.
            (Some(bytes), machine) if bytes < machine.unwrap_or(u64::MAX >> 2) => {
                Self { bytes, bound: MemoryBound::Cgroup }
            }
            (_, Some(bytes)) => Self { bytes, bound: MemoryBound::Machine },
            (_, None) => Self { bytes: ASSUMED, bound: MemoryBound::Unknown },
        }
    }
}

/// Returns the memory of the machine from a system call, because a systemd unit may have no access to the file
/// (`ProcSubset=pid`).
#[cfg(target_os = "linux")]
fn machine_bytes() -> Option<u64> {
    let known = rustix::system::sysinfo();
    u64::try_from(u128::from(known.totalram) * u128::from(known.mem_unit)).ok()
}

/// The memory of the machine is unknown on this system.
#[cfg(not(target_os = "linux"))]
fn machine_bytes() -> Option<u64> {
    None
}

/// Returns the least limit of the groups in `/proc/self/cgroup` and of their parents. A container may see the cgroup
/// paths of its host. The root of the container's mount then contains the container's limit.
fn cgroup_bytes(root: &Path, cgroups: &str) -> Option<u64> {
    let files = cgroups.lines().filter_map(|line| limit_files(root, line)).flatten();
    files.filter_map(|file| fs::read_to_string(file).ok()?.trim().parse().ok()).min()
}

/// Returns the limit files for a line `HIERARCHY:CONTROLLERS:PATH`, for the cgroup and its parents. Returns `None` for
/// other controllers.
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
    fn memory_bound_is_the_lowest_cgroup_limit_or_machine_memory() {
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
    fn memory_limit_of_this_process_is_detected() {
        let memory = Memory::detect();
        assert!(memory.bytes > 16 << 20, "{memory:?}");
        // On Linux, the memory must be detected, not assumed.
        #[cfg(target_os = "linux")]
        assert_ne!(memory.bound, MemoryBound::Unknown);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn machine_memory_equals_meminfo() {
        assert!(machine_bytes().is_some());
        let Ok(written) = fs::read_to_string("/proc/meminfo") else { return };
        let Some(line) = written.lines().find_map(|line| line.strip_prefix("MemTotal:")) else { return };
        let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
        assert_eq!(machine_bytes(), Some(kibibytes << 10));
    }
}
