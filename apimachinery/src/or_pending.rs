//! Awaits an optional future.

use std::future::{Future, pending};

/// Awaits the future. Without a future, the returned future never completes. Used in the branches of a `select!`, where
/// `futures::future::OptionFuture` would complete with `None` at once. The returned future is cancel-safe if `future`
/// is.
pub async fn or_pending<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => pending().await,
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn optional_future_that_is_absent_never_completes() {
        assert_eq!(or_pending(Some(std::future::ready(7))).now_or_never(), Some(7));
        assert_eq!(or_pending(None::<std::future::Ready<u8>>).now_or_never(), None);
    }
}
