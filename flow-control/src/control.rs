//! The flow-control schemas of one configuration.

use std::collections::HashMap;
use std::mem::discriminant;
use std::sync::Arc;

use tributary_limiters::SpentTokens;

use crate::admitted::{AdmittedRequest, Counts};
use crate::allowance::{Allowance, Slots};
use crate::attributes::{Attributes, Key};
use crate::gate::{Gate, GatePermit};
use crate::limiter::Candidate;
use crate::refusal::{REFUSAL_REASONS, ReachedLimit, RefusalCause, Refused};
use crate::schema::{Limited, MaxRequestsInflight, Schema, SchemaKind, TokenBucket};

/// Schemas of one configuration, by name. A schema that is also in the next configuration keeps its usage.
#[derive(Clone, Debug, Default)]
pub struct FlowControl {
    schemas: HashMap<Arc<str>, SchemaLimiter>,
    /// Removed schemas, which the current configuration lacks: all schemas that the last change removed, and the
    /// earlier removed schemas that requests still use. The most recently removed schemas come first.
    removed: Vec<SchemaLimiter>,
}

/// Error: two schemas have the same name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("two flow control schemas are named \"{name}\"; rename one of them")]
pub struct DuplicateSchema {
    /// The duplicate name.
    pub name: Arc<str>,
}

/// A schema with its usage (requests in flight, waiting requests, counters). Cheap to clone.
#[derive(Clone, Debug)]
pub struct SchemaLimiter {
    name: Arc<str>,
    kind: Arc<LimiterKind>,
    usage: Arc<Counts>,
}

#[derive(Debug)]
enum LimiterKind {
    Exempt,
    Slots(ConfiguredLimit<Slots>),
    Tokens(ConfiguredLimit<SpentTokens>),
}

/// Configuration of a limit, with the usage. The usage stays when the configuration changes.
#[derive(Debug)]
struct ConfiguredLimit<A: Allowance> {
    rule: Limited<A::Limit>,
    gate: Arc<Gate<A>>,
}

/// Current usage of a schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchemaUsage {
    /// Number of requests in flight, except long-running requests without a slot.
    pub in_flight: usize,
    /// Number of long-running requests without a slot.
    pub long_running: usize,
    /// Number of requests that wait in queues.
    pub waiting: usize,
    /// Number of keys (for example users) with accounts.
    pub keys: usize,
    /// Number of requests admitted since the creation of the schema.
    pub admitted: u64,
    /// Number of requests refused since the creation of the schema, for each of [`REFUSAL_REASONS`].
    pub refused: [u64; REFUSAL_REASONS.len()],
}

impl FlowControl {
    /// Creates the schemas of the first configuration.
    ///
    /// # Errors
    /// [`DuplicateSchema`].
    pub fn new(schemas: impl IntoIterator<Item = Schema>) -> Result<Self, DuplicateSchema> {
        Self::default().changed(schemas)
    }

    /// Creates the schemas of the next configuration.
    ///
    /// If an earlier schema has the same name and kind, its waiting requests and slots in use stay, even if more slots
    /// are in use than the new limit. A token bucket keeps its tokens unless rate or burst change; a changed bucket
    /// starts full. New limits apply at once, even to requests that use an older configuration. A removed schema in use
    /// keeps its usage, in case a later configuration adds the schema again.
    ///
    /// # Errors
    /// [`DuplicateSchema`]. In this case the limits remain unchanged.
    pub fn changed(&self, schemas: impl IntoIterator<Item = Schema>) -> Result<Self, DuplicateSchema> {
        let mut by_name: HashMap<Arc<str>, Schema> = HashMap::new();
        for schema in schemas {
            if let Some(other) = by_name.insert(Arc::clone(&schema.name), schema) {
                return Err(DuplicateSchema { name: other.name });
            }
        }
        let schemas = by_name.into_iter().map(|(name, schema)| {
            let governed = SchemaLimiter::next(self.schemas_named(&name), schema);
            (name, governed)
        });
        let schemas: HashMap<_, _> = schemas.collect();
        let is_removed = |before: &&SchemaLimiter| {
            !schemas.get(&before.name).is_some_and(|next| discriminant(&*next.kind) == discriminant(&*before.kind))
        };
        let removed = self.schemas.values().filter(is_removed);
        let removed = removed
            .chain(self.removed.iter().filter(is_removed).filter(|before| before.is_in_use()))
            .cloned()
            .collect();
        Ok(Self { schemas, removed })
    }

    /// Returns the schemas of this name, the current one and the removed ones. The newest schema comes first.
    fn schemas_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a SchemaLimiter> + Clone {
        self.schemas.get(name).into_iter().chain(self.removed.iter().filter(move |schema| *schema.name == *name))
    }

    /// Returns the removed schemas, which the current configuration lacks. The result has all schemas that the last
    /// change removed, because requests may still use them. It also has the earlier removed schemas that requests still
    /// use. The most recently removed schemas come first.
    pub fn removed(&self) -> impl Iterator<Item = &SchemaLimiter> {
        self.removed.iter()
    }

    /// Returns the schema of this name.
    pub fn schema(&self, name: &str) -> Option<&SchemaLimiter> {
        self.schemas.get(name)
    }

    /// Returns all schemas, in no particular order.
    pub fn schemas(&self) -> impl Iterator<Item = &SchemaLimiter> {
        self.schemas.values()
    }
}

impl SchemaLimiter {
    /// Creates a schema that takes over the usage of an earlier schema of the same name and kind.
    fn next<'a>(mut known: impl Iterator<Item = &'a Self> + Clone, schema: Schema) -> Self {
        let Schema { name, kind } = schema;
        let usage = known.clone().next().map(|before| Arc::clone(&before.usage)).unwrap_or_default();
        let kind = match kind {
            SchemaKind::Exempt => LimiterKind::Exempt,
            SchemaKind::MaxRequestsInflight(rule) => {
                let before =
                    known.find_map(|before| if let LimiterKind::Slots(own) = &*before.kind { Some(own) } else { None });
                LimiterKind::Slots(ConfiguredLimit::with_rule(before, rule))
            }
            SchemaKind::TokenBucket(rule) => {
                let before = known
                    .find_map(|before| if let LimiterKind::Tokens(own) = &*before.kind { Some(own) } else { None });
                LimiterKind::Tokens(ConfiguredLimit::with_rule(before, rule))
            }
        };
        Self { name, kind: Arc::new(kind), usage }
    }

    /// Returns whether a request of the schema is in flight or waits, or a token bucket is not full.
    fn is_in_use(&self) -> bool {
        let is_unused = match &*self.kind {
            LimiterKind::Exempt => true,
            LimiterKind::Slots(ruled) => ruled.gate.is_unused(),
            LimiterKind::Tokens(ruled) => ruled.gate.is_unused(),
        };
        !is_unused || [false, true].into_iter().any(|is_without_slot| self.usage.in_flight(is_without_slot) > 0)
    }

    /// Returns the name of the schema.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Admits a request at once, or after a wait of at most [`Queueing::wait_max`](crate::Queueing::wait_max).
    /// Allocates only if the request waits or its key is new.
    ///
    /// Cancellation: dropping the future removes the request from its queue. A permit that was already granted goes to
    /// the next waiting request.
    ///
    /// # Errors
    /// [`Refused`].
    pub async fn admit(&self, attributes: &Attributes<'_>) -> Result<AdmittedRequest, Box<Refused>> {
        let admitted = self.decide(attributes).await;
        match &admitted {
            Ok(_) => self.usage.admit(),
            Err(refused) => self.usage.refuse(refused.cause),
        }
        admitted
    }

    async fn decide(&self, attributes: &Attributes<'_>) -> Result<AdmittedRequest, Box<Refused>> {
        let is_without_slot = self.is_without_slot(attributes);
        let slot = match &*self.kind {
            LimiterKind::Exempt => None,
            LimiterKind::Slots(ruled) if is_without_slot => {
                ruled.admit_without_slot(&self.name, attributes)?;
                None
            }
            LimiterKind::Slots(ruled) => Some(ruled.admit(&self.name, attributes).await?),
            LimiterKind::Tokens(ruled) => {
                ruled.admit(&self.name, attributes).await?.spend();
                None
            }
        };
        Ok(AdmittedRequest::begin(&self.usage, is_without_slot, slot))
    }

    /// Returns whether a request is long-running and takes no slot.
    fn is_without_slot(&self, attributes: &Attributes<'_>) -> bool {
        let counts_all = match &*self.kind {
            LimiterKind::Slots(ruled) => ruled.rule.limit.count_long_running,
            LimiterKind::Exempt | LimiterKind::Tokens(_) => false,
        };
        attributes.is_long_running && !counts_all
    }

    /// Returns the current limit of each key, in slots or tokens per second. `None` for a schema without a limit.
    pub fn in_force(&self) -> Option<u32> {
        match &*self.kind {
            LimiterKind::Exempt => None,
            LimiterKind::Slots(ruled) => Some(ruled.gate.limit().max),
            LimiterKind::Tokens(ruled) => Some(ruled.gate.limit().qps.get()),
        }
    }

    /// Returns the current usage of the schema.
    pub fn usage(&self) -> SchemaUsage {
        let (waiting, keys) = match &*self.kind {
            LimiterKind::Exempt => (0, 0),
            LimiterKind::Slots(ruled) => ruled.gate.usage(),
            LimiterKind::Tokens(ruled) => ruled.gate.usage(),
        };
        let [in_flight, long_running] = [false, true].map(|is_without_slot| self.usage.in_flight(is_without_slot));
        let (admitted, refused) = (self.usage.admitted(), self.usage.refused());
        SchemaUsage { in_flight, long_running, waiting, keys, admitted, refused }
    }
}

impl<A: Allowance> ConfiguredLimit<A>
where
    ReachedLimit: From<A::Limit>,
{
    /// Applies a new limit to the usage of the earlier schema. Without an earlier schema, the usage starts with zero.
    fn with_rule(before: Option<&Self>, rule: Limited<A::Limit>) -> Self {
        let Some(before) = before else {
            let gate = Gate::new(rule.limit, rule.queueing);
            return Self { rule, gate };
        };
        before.gate.change(rule.limit, rule.queueing);
        Self { rule, gate: Arc::clone(&before.gate) }
    }

    async fn admit(&self, name: &Arc<str>, attributes: &Attributes<'_>) -> Result<GatePermit<A>, Box<Refused>> {
        let Limited { by, queueing, .. } = &self.rule;
        let key = Key::from_attributes(by, attributes);
        let candidate = Candidate { key, flow: attributes.flow, width: attributes.width };
        let admitted = self.gate.admit(candidate, *queueing).await;
        admitted.map_err(|cause| self.refused(name, cause, attributes))
    }

    fn refused(&self, name: &Arc<str>, cause: RefusalCause, attributes: &Attributes<'_>) -> Box<Refused> {
        // The limit that now applies. A newer configuration may have changed the limit since the request read its
        // configuration.
        let limit = self.gate.limit().into();
        Box::new(Refused::new(name, limit, &self.rule.by, cause, attributes))
    }
}

impl ConfiguredLimit<Slots> {
    /// Admits a long-running request that takes no slot.
    ///
    /// # Errors
    /// [`Refused`] if the limit is 0.
    fn admit_without_slot(&self, name: &Arc<str>, attributes: &Attributes<'_>) -> Result<(), Box<Refused>> {
        match self.rule.limit.max {
            0 => Err(self.refused(name, RefusalCause::Closed, attributes)),
            _ => Ok(()),
        }
    }
}

impl From<MaxRequestsInflight> for ReachedLimit {
    fn from(limit: MaxRequestsInflight) -> Self {
        Self::MaxRequestsInflight(limit)
    }
}

impl From<TokenBucket> for ReachedLimit {
    fn from(limit: TokenBucket) -> Self {
        Self::TokenBucket(limit)
    }
}
