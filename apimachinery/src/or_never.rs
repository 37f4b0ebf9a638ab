//! A future that may not be there.

use std::future::{Future, pending};

/// What the future gives; without one this never ends. For what is waited for beside other things, where
/// `futures::future::OptionFuture` would give `None` at once. Cancel: as the future's.
pub async fn or_never<F: Future>(future: Option<F>) -> F::Output {
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
    fn without_a_future_it_does_not_end() {
        assert_eq!(or_never(Some(std::future::ready(7))).now_or_never(), Some(7));
        assert_eq!(or_never(None::<std::future::Ready<u8>>).now_or_never(), None);
    }
}
