//! Rotates a log file by its size, as lumberjack does for kube-apiserver (`gopkg.in/natefinch/lumberjack.v2`):
//! `audit.log` becomes `audit-2026-11-23T17-02-03.000.log`, in UTC.
//!
//! No crate combines lumberjack's file names with limits by number and by age.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

use super::output::Target;

/// The time in a rotated file's name: lumberjack's layout `2006-01-02T15-04-05.000`.
const TIME_FORMAT: &str = "%Y-%m-%dT%H-%M-%S%.3f";

/// The limits of a log file and of its rotated files. Zero disables a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rotation {
    /// The size, in bytes, above which the log file is rotated.
    pub max_bytes: u64,
    /// The maximum number of rotated files.
    pub max_backups: usize,
    /// The maximum age of a rotated file, in days.
    pub max_age_days: u32,
    /// True if rotated files are compressed with gzip.
    pub compress: bool,
}

const COMPRESSED: &str = ".gz";

/// A log file with rotation. Lines that are written with one call always go to the same file.
pub(crate) struct LogFile {
    path: PathBuf,
    rotation: Rotation,
    file: File,
    bytes: u64,
    compressing: Option<JoinHandle<()>>,
}

/// Opens the target of a path. For `-` the target is standard output, which has no rotation.
///
/// # Errors
/// The error of the operating system.
pub(crate) fn open_target(path: &Path, rotation: Rotation) -> io::Result<Box<dyn Target>> {
    Ok(match path == Path::new("-") {
        true => Box::new(unbuffered(io::stdout())?),
        false => Box::new(LogFile::open(path, rotation)?),
    })
}

/// Duplicates a file descriptor as an unbuffered file. `std::io::Stdout` buffers accepted lines, so a failed write
/// could not be attributed to its line.
///
/// # Errors
/// The process has too many open files.
pub(crate) fn unbuffered(descriptor: impl AsFd) -> io::Result<File> {
    Ok(File::from(descriptor.as_fd().try_clone_to_owned()?))
}

impl LogFile {
    /// Opens a log file for appending. Creates a missing file (mode 0600) and its missing directory (mode 0700).
    ///
    /// # Errors
    /// The error of the operating system.
    pub(crate) fn open(path: &Path, rotation: Rotation) -> io::Result<Self> {
        if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
        }
        let file = open(path)?;
        let bytes = file.metadata()?.len();
        let mut log = Self { path: path.to_owned(), rotation, file, bytes, compressing: None };
        // An earlier process may have ended before it compressed its rotated files, so these files are compressed now.
        log.compress_rotated();
        Ok(log)
    }

    /// Returns whether the file may grow by this many bytes without rotation.
    fn fits(&self, bytes: usize) -> bool {
        let Rotation { max_bytes, .. } = self.rotation;
        max_bytes == 0 || self.bytes == 0 || self.bytes.saturating_add(bytes as u64) <= max_bytes
    }

    /// Rotates the file if this many more bytes would exceed its limit.
    ///
    /// # Errors
    /// The error of the operating system. After an error, the unrotated log file stays in use.
    fn rotate_if_full(&mut self, bytes: usize, now: Timestamp) -> io::Result<()> {
        if self.fits(bytes) {
            return Ok(());
        }
        let rotated = (0..1000)
            .filter_map(|later| now.checked_add(SignedDuration::from_millis(later)).ok())
            .map(|time| rotated_path(&self.path, time))
            .find(|path| !path.exists() && !compressed(path).exists())
            .ok_or(io::ErrorKind::AlreadyExists)?;
        fs::rename(&self.path, rotated)?;
        self.file = open(&self.path)?;
        self.bytes = 0;
        self.remove_old(now);
        self.compress_rotated();
        Ok(())
    }

    /// Lists the rotated files with the times in their names.
    fn rotated(&self) -> Vec<(Timestamp, PathBuf)> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        entries.filter_map(|entry| Some((parse_rotation_time(&self.path, &entry.file_name())?, entry.path()))).collect()
    }

    /// Compresses the rotated files on a background thread: 100 MB take a second, and must not delay writing. Files
    /// that are rotated during a compression wait for the next call.
    fn compress_rotated(&mut self) {
        if !self.rotation.compress || self.compressing.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return;
        }
        let plain = |path: &PathBuf| !path.to_string_lossy().ends_with(COMPRESSED);
        let rotated: Vec<_> = self.rotated().into_iter().map(|(_, path)| path).filter(plain).collect();
        if rotated.is_empty() {
            return;
        }
        let compress_all = move || {
            for path in rotated {
                // A file that was removed during its compression is no error.
                if let Err(error) = compress(&path)
                    && path.exists()
                {
                    tracing::warn!(path = %path.display(), %error, "an old log cannot be compressed");
                }
            }
        };
        self.compressing = std::thread::Builder::new().name("log-compress".to_owned()).spawn(compress_all).ok();
    }

    /// Removes the rotated files above the limits. A failed removal is retried at the next rotation.
    fn remove_old(&self, now: Timestamp) {
        let Rotation { max_backups, max_age_days, .. } = self.rotation;
        let backups = self.rotated();
        // During a compression, a rotated file exists in plain form and in compressed form. Both count as one backup,
        // because they have the same time.
        let newest: BTreeSet<_> = backups.iter().map(|(time, _)| Reverse(*time)).collect();
        let oldest =
            now.checked_sub(SignedDuration::from_hours(24 * i64::from(max_age_days))).unwrap_or(Timestamp::MIN);
        let first_too_many = newest.iter().nth(max_backups).filter(|_| max_backups > 0);
        for (time, path) in &backups {
            let is_too_many = first_too_many.is_some_and(|Reverse(first)| time <= first);
            let is_too_old = max_age_days > 0 && *time < oldest;
            if (is_too_many || is_too_old)
                && let Err(error) = fs::remove_file(path)
            {
                tracing::warn!(path = %path.display(), %error, "an old log cannot be removed");
            }
        }
    }
}

impl Target for LogFile {
    fn begin_lines(&mut self, bytes: usize) {
        // Most writes need no rotation. Only a rotation reads the clock.
        if self.fits(bytes) {
            return;
        }
        // After a failed rotation, lines are appended to the old file.
        if let Err(error) = self.rotate_if_full(bytes, Timestamp::now()) {
            tracing::warn!(path = %self.path.display(), %error, "a log cannot be rotated");
        }
    }
}

impl Write for LogFile {
    /// Appends as many bytes as the operating system accepts with one call. The accepted bytes may end in the middle of
    /// a line.
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let written = self.file.write(text)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn compressed(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(COMPRESSED);
    name.into()
}

/// Compresses a file with gzip, and then removes the plain file. After an interruption, the next call compresses the
/// plain file again.
fn compress(path: &Path) -> io::Result<()> {
    let (mut plain, target) = (File::open(path)?, compressed(path));
    // An existing target may have wider permissions, so the target is created anew.
    let _not_there = fs::remove_file(&target);
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&target)?;
    let mut writer = GzEncoder::new(file, Compression::default());
    let written = io::copy(&mut plain, &mut writer).and_then(|_| writer.finish()).and_then(|file| file.sync_all());
    match written {
        Ok(()) => fs::remove_file(path),
        Err(error) => {
            // A failed compression leaves an incomplete target.
            let _ = fs::remove_file(target);
            Err(error)
        }
    }
}

/// Splits a log file's name into the parts before and after the time of rotation.
fn parts(path: &Path) -> (String, String) {
    let text = |part: Option<&OsStr>| part.map(|part| part.to_string_lossy().into_owned()).unwrap_or_default();
    let extension = path.extension().map(|extension| format!(".{}", extension.to_string_lossy())).unwrap_or_default();
    (format!("{}-", text(path.file_stem())), extension)
}

/// Returns the path of a log file that was rotated at this time.
fn rotated_path(path: &Path, time: Timestamp) -> PathBuf {
    let (before, after) = parts(path);
    let time = time.to_zoned(TimeZone::UTC).strftime(TIME_FORMAT).to_string();
    path.with_file_name(format!("{before}{time}{after}"))
}

/// Parses the time in a rotated file's name. Returns `None` for other files.
fn parse_rotation_time(path: &Path, name: &OsStr) -> Option<Timestamp> {
    let (before, after) = parts(path);
    let name = name.to_str()?;
    let time = name.strip_suffix(COMPRESSED).unwrap_or(name).strip_prefix(&before)?.strip_suffix(&after)?;
    DateTime::strptime(TIME_FORMAT, time).ok()?.to_zoned(TimeZone::UTC).ok().map(|time| time.timestamp())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const NO_BOUNDS: Rotation = Rotation { max_bytes: 0, max_backups: 0, max_age_days: 0, compress: false };

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Lists the files of a folder, by name, with their contents.
    fn files(folder: &Path) -> Vec<(String, String)> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
        let mut files: Vec<_> = entries
            .map(|entry| (entry.file_name().into_string().unwrap(), fs::read_to_string(entry.path()).unwrap()))
            .collect();
        files.sort();
        files
    }

    fn add(log: &mut LogFile, line: &str) {
        log.begin_lines(line.len());
        log.write_all(line.as_bytes()).unwrap();
    }

    #[test]
    fn rotated_file_names_have_the_format_of_lumberjack() {
        let now = time("2026-11-23T17:02:03.04Z");
        for (path, expected) in [
            ("/var/log/audit.log", "/var/log/audit-2026-11-23T17-02-03.040.log"),
            ("audit", "audit-2026-11-23T17-02-03.040"),
            ("a.b.log", "a.b-2026-11-23T17-02-03.040.log"),
        ] {
            let path = Path::new(path);
            let named = rotated_path(path, now);
            assert_eq!(named, Path::new(expected));
            assert_eq!(parse_rotation_time(path, named.file_name().unwrap()), Some(now));
            for other in ["audit.log", "audit-yesterday.log", "other-2026-11-23T17-02-03.040.log"] {
                assert_eq!(parse_rotation_time(path, OsStr::new(other)), None, "{other}");
            }
        }
    }

    #[test]
    fn full_log_file_is_rotated_between_lines() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/audit.log");
        let rotation = Rotation { max_bytes: 10, ..NO_BOUNDS };
        let mut log = LogFile::open(&path, rotation).unwrap();
        for line in ["one\n", "two\n", "three\n", "much longer than ten\n", "four\n"] {
            add(&mut log, line);
        }
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(path.parent().unwrap())), (0o600, 0o700));
        let texts: Vec<_> = files(path.parent().unwrap()).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["one\ntwo\n", "three\n", "much longer than ten\n", "four\n"]);
        drop(log);
        // New lines are appended to an existing file, and its size counts for the rotation.
        let mut log = LogFile::open(&path, rotation).unwrap();
        add(&mut log, "five\n");
        add(&mut log, "six\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "six\n");
    }

    #[test]
    fn log_line_written_in_parts_stays_in_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let mut log = LogFile::open(&path, Rotation { max_bytes: 10, ..NO_BOUNDS }).unwrap();
        add(&mut log, "a first\n");
        log.begin_lines("second and long\n".len());
        // A disk may accept only a part of a line with one call.
        log.write_all(b"sec").unwrap();
        log.write_all(b"ond and long\n").unwrap();
        let texts: Vec<_> = files(folder.path()).into_iter().map(|(_, text)| text).collect();
        assert_eq!(texts, ["a first\n", "second and long\n"]);
    }

    #[test]
    fn rotated_log_files_are_compressed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let rotation = Rotation { max_bytes: 10, max_backups: 2, compress: true, ..NO_BOUNDS };
        // An earlier process was interrupted and left this rotated file uncompressed.
        let rotated = rotated_path(&path, time("2020-11-23T12:00:00Z"));
        fs::write(&rotated, "earlier\n").unwrap();
        fs::write(compressed(&rotated), "half").unwrap();
        let mut log = LogFile::open(&path, rotation).unwrap();
        let wait = |log: &mut LogFile| log.compressing.take().unwrap().join().unwrap();
        wait(&mut log);
        let texts = || {
            let entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
            let mut rotated: Vec<_> = entries.filter(|own| *own != path).collect();
            rotated.sort();
            let text = |path: PathBuf| {
                assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
                let mut text = String::new();
                let file = File::open(path).unwrap();
                io::Read::read_to_string(&mut flate2::read::GzDecoder::new(file), &mut text).unwrap();
                text
            };
            rotated.into_iter().map(text).collect::<Vec<_>>()
        };
        assert_eq!(texts(), ["earlier\n"]);
        for line in ["one one\n", "two two\n", "three\n"] {
            add(&mut log, line);
            if let Some(compressing) = log.compressing.take() {
                compressing.join().unwrap();
            }
        }
        assert_eq!(texts(), ["one one\n", "two two\n"], "as many as are kept");
        assert_eq!(fs::read_to_string(&path).unwrap(), "three\n");
    }

    #[test]
    fn old_rotated_log_files_are_removed_by_age_and_number() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.log");
        let now = time("2026-11-23T00:00:00Z");
        for day in ["20", "21", "22"] {
            fs::write(rotated_path(&path, time(&format!("2026-11-{day}T12:00:00Z"))), day).unwrap();
        }
        fs::write(folder.path().join("audit-of-others.log"), "kept").unwrap();
        let left = |rotation| {
            LogFile::open(&path, rotation).unwrap().remove_old(now);
            files(folder.path()).len() - 2
        };
        assert_eq!(left(NO_BOUNDS), 3);
        assert_eq!(left(Rotation { max_age_days: 2, ..NO_BOUNDS }), 2);
        assert_eq!(left(Rotation { max_backups: 1, ..NO_BOUNDS }), 1);
        assert_eq!(files(folder.path())[0].1, "22", "the newest");
    }
}
