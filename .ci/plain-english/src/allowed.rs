//! Reads exceptions from the limits for comments and documents.

/// Limits above the default, for single crates and pages. Each line of `allowed.txt` has a path and the limit for this
/// path.
pub(crate) struct Allowed(Vec<(String, f64)>);

impl Allowed {
    pub(crate) fn parse(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let pair = |line: &str| {
            let (path, number) = line.trim().rsplit_once(' ')?;
            Some((path.trim().to_owned(), number.parse().ok()?))
        };
        Self(lines.filter_map(pair).collect())
    }

    /// Returns the higher limit of a crate or page, if `allowed.txt` has one.
    pub(crate) fn limit_of(&self, path: &str) -> Option<f64> {
        self.0.iter().find(|(own, _)| own == path).map(|(_, limit)| *limit)
    }
}
