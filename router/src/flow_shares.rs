//! This replica's part of each flow-control limit.

use std::num::NonZeroU32;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;

use crate::flow_control::{ActiveSchemas, FlowSettings, FlowSettingsError};

/// Divides the configured limits by the number of replicas. One value for each process.
#[derive(Debug)]
pub(crate) struct FlowShares {
    governed: Arc<ArcSwap<ActiveSchemas>>,
    whole: Mutex<WholeLimits>,
}

/// Limits before the division among replicas.
#[derive(Debug)]
struct WholeLimits {
    settings: FlowSettings,
    replicas: NonZeroU32,
}

impl FlowShares {
    pub(crate) fn new(governed: Arc<ArcSwap<ActiveSchemas>>) -> Self {
        let whole = WholeLimits { settings: FlowSettings::default(), replicas: NonZeroU32::MIN };
        Self { governed, whole: Mutex::new(whole) }
    }

    /// Replaces the schemas. Each limit is divided by the number of replicas.
    ///
    /// # Errors
    /// [`FlowSettingsError`]. On an error, nothing changes.
    pub(crate) fn set(&self, settings: FlowSettings) -> Result<(), FlowSettingsError> {
        let mut whole = self.whole.lock();
        self.put_into_force(&settings, whole.replicas)?;
        whole.settings = settings;
        Ok(())
    }

    pub(crate) fn set_replicas(&self, replicas: NonZeroU32) {
        let mut whole = self.whole.lock();
        whole.replicas = replicas;
        // An error is impossible: these settings are already in force.
        let _ = self.put_into_force(&whole.settings, replicas);
    }

    fn put_into_force(&self, settings: &FlowSettings, replicas: NonZeroU32) -> Result<(), FlowSettingsError> {
        let next = self.governed.load().next(settings.clone().divided_among(replicas))?;
        self.governed.store(Arc::new(next));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tributary_flow_control::{Limited, MaxRequestsInflight, Schema, SchemaKind};

    use super::*;
    use crate::flow_control::EntryPointSchemas;

    #[test]
    fn flow_control_limits_are_divided_by_the_number_of_replicas() {
        let limit = MaxRequestsInflight { max: 12, count_long_running: true };
        let kind = SchemaKind::MaxRequestsInflight(Limited { limit, by: Vec::new(), queueing: None });
        let merged = EntryPointSchemas { schemas: vec![Schema { name: "one".into(), kind }], all: None };
        let shares = FlowShares::new(Arc::default());
        shares.set_replicas(NonZeroU32::new(3).unwrap());
        shares.set(FlowSettings { merged, ..FlowSettings::default() }).unwrap();
        for (replicas, part) in [(3, 4), (4, 3), (1, 12)] {
            shares.set_replicas(NonZeroU32::new(replicas).unwrap());
            assert_eq!(shares.governed.load().merged_schema("one").unwrap().in_force(), Some(part));
        }
    }
}
