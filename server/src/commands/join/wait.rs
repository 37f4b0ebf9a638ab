//! Waits for controllers of a cluster, and prints messages to the user during the wait.

use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The time limit of a wait. In a healthy cluster, a controller stores a token in a Secret, or the authorizer applies a
/// role, within seconds.
pub(super) const WAIT_TIMEOUT: Duration = Duration::from_secs(30);
/// The pause between two calls of the function `look`.
const PAUSE: Duration = Duration::from_millis(500);
const PROGRESS_INTERVAL: Duration = Duration::from_secs(5);

/// Calls `look` repeatedly until `look` returns a value. Returns `None` after [`WAIT_TIMEOUT`]. Calls `say` with `what`
/// at the interval [`PROGRESS_INTERVAL`].
///
/// # Errors
/// Errors of `look`. Cancel: safe if `look` is.
pub(super) async fn wait_until_some<T>(
    what: &str,
    say: impl Fn(&str),
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<Option<T>> {
    let begun = Instant::now();
    let mut told = begun;
    loop {
        if let Some(found) = look().await? {
            return Ok(Some(found));
        }
        if begun.elapsed() >= WAIT_TIMEOUT {
            return Ok(None);
        }
        if told.elapsed() >= PROGRESS_INTERVAL {
            told = Instant::now();
            let (gone, all) = (begun.elapsed().as_secs(), WAIT_TIMEOUT.as_secs());
            say(&format!("Waiting until {what}: {gone} s of at most {all} s\n"));
        }
        sleep(PAUSE).await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn join_prints_the_subject_and_time_limit_of_a_long_wait() {
        let told = RefCell::new(Vec::new());
        let say = |line: &str| told.borrow_mut().push(line.to_owned());
        let begun = Instant::now();
        let found = wait_until_some("it is there", say, async || Ok(None::<()>)).await.unwrap();
        assert_eq!((found, begun.elapsed()), (None, WAIT_TIMEOUT));
        let told = told.into_inner();
        assert_eq!(told.len(), 5, "{told:?}");
        assert_eq!(told[0], "Waiting until it is there: 5 s of at most 30 s\n");
    }

    #[tokio::test(start_paused = true)]
    async fn join_prints_nothing_during_a_wait_of_two_seconds() {
        let begun = Instant::now();
        let look = async || Ok((begun.elapsed() >= Duration::from_secs(2)).then_some(1));
        let found = wait_until_some("it is there", |line| panic!("{line}"), look).await.unwrap();
        assert_eq!(found, Some(1));
    }
}
