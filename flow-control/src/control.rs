//! The schemas of one configuration.

use std::collections::HashMap;
use std::mem::discriminant;
use std::sync::Arc;

use tributary_limiters::SpentTokens;

use crate::admitted::{AdmittedRequest, Counts};
use crate::allowance::{Allowance, Slots};
use crate::attributes::{Attributes, Key};
use crate::gate::{Gate, Held};
use crate::refusal::{REFUSAL_REASONS, ReachedLimit, RefusalCause, Refused};
use crate::schema::{Limited, MaxRequestsInflight, Schema, SchemaKind, TokenBucket};

/// The schemas of one configuration, by name. A configuration is a value; what was used is shared with the ones before.
#[derive(Clone, Debug, Default)]
pub struct FlowControl {
    schemas: HashMap<Arc<str>, GovernedSchema>,
    /// Those of configurations before that are not among them: all of the last one, and of older ones those of which
    /// something is used. Newer ones come first.
    left: Vec<GovernedSchema>,
}

/// Two schemas have one name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there are two flow control schemas of the name \"{name}\"; rename one of them")]
pub struct DuplicateSchema {
    /// The name.
    pub name: Arc<str>,
}

/// A schema, and what is used of it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct GovernedSchema {
    name: Arc<str>,
    kind: Arc<Governed>,
    usage: Arc<Counts>,
}

#[derive(Debug)]
enum Governed {
    Exempt,
    Slots(Ruled<Slots>),
    Tokens(Ruled<SpentTokens>),
}

/// What a configuration says, and the state that outlives it.
#[derive(Debug)]
struct Ruled<A: Allowance> {
    rule: Limited<A::Limit>,
    gate: Arc<Gate<A>>,
}

/// How much of a schema is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchemaUsage {
    /// Requests in flight that take a place, or would if the schema had any.
    pub in_flight: usize,
    /// Requests that last, and are counted apart.
    pub long_running: usize,
    /// Requests that wait.
    pub waiting: usize,
    /// Keys that have used something.
    pub keys: usize,
    /// Requests that were let in since the schema came.
    pub admitted: u64,
    /// Requests that were refused since then, for each of [`REFUSAL_REASONS`].
    pub refused: [u64; REFUSAL_REASONS.len()],
}

impl FlowControl {
    /// The schemas of the first configuration.
    ///
    /// # Errors
    /// [`DuplicateSchema`].
    pub fn new(schemas: impl IntoIterator<Item = Schema>) -> Result<Self, DuplicateSchema> {
        Self::default().changed(schemas)
    }

    /// The schemas of the next configuration. A schema of the same name and kind keeps its requests: those that hold
    /// slots, even more than the new limit, and those that wait. A token bucket keeps its tokens while its rate and its
    /// burst stay the same; another rate begins with full buckets. New limits are in force at once, also for holders of
    /// the configuration before. The use of a schema that goes is remembered until it ends, in case the schema returns.
    ///
    /// # Errors
    /// [`DuplicateSchema`]; then nothing is changed.
    pub fn changed(&self, schemas: impl IntoIterator<Item = Schema>) -> Result<Self, DuplicateSchema> {
        let mut by_name: HashMap<Arc<str>, Schema> = HashMap::new();
        for schema in schemas {
            if let Some(other) = by_name.insert(Arc::clone(&schema.name), schema) {
                return Err(DuplicateSchema { name: other.name });
            }
        }
        let schemas = by_name.into_iter().map(|(name, schema)| {
            let governed = GovernedSchema::next(self.schemas_named(&name), schema);
            (name, governed)
        });
        let schemas: HashMap<_, _> = schemas.collect();
        let goes = |before: &&GovernedSchema| {
            !schemas.get(&before.name).is_some_and(|next| discriminant(&*next.kind) == discriminant(&*before.kind))
        };
        let left = self.schemas.values().filter(goes);
        let left = left.chain(self.left.iter().filter(goes).filter(|before| before.is_in_use())).cloned().collect();
        Ok(Self { schemas, left })
    }

    /// All of this name that there are, were in the configuration before, or are still in use.
    fn schemas_named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a GovernedSchema> + Clone {
        self.schemas.get(name).into_iter().chain(self.left.iter().filter(move |schema| *schema.name == *name))
    }

    /// Schemas that are no longer there: all that the configuration before had, so that whoever still goes by that one
    /// finds them, and those of older ones of which something is used. In no order but that of two of one name the
    /// newer comes first.
    pub fn left(&self) -> impl Iterator<Item = &GovernedSchema> {
        self.left.iter()
    }

    /// The schema of this name.
    pub fn schema(&self, name: &str) -> Option<&GovernedSchema> {
        self.schemas.get(name)
    }

    /// All schemas, in no order.
    pub fn schemas(&self) -> impl Iterator<Item = &GovernedSchema> {
        self.schemas.values()
    }
}

impl GovernedSchema {
    /// The next one after those that are known of its name.
    fn next<'a>(mut known: impl Iterator<Item = &'a Self> + Clone, schema: Schema) -> Self {
        let Schema { name, kind } = schema;
        let usage = known.clone().next().map(|before| Arc::clone(&before.usage)).unwrap_or_default();
        let kind = match kind {
            SchemaKind::Exempt => Governed::Exempt,
            SchemaKind::MaxRequestsInflight(rule) => {
                let before =
                    known.find_map(|before| if let Governed::Slots(own) = &*before.kind { Some(own) } else { None });
                Governed::Slots(Ruled::with_rule(before, rule))
            }
            SchemaKind::TokenBucket(rule) => {
                let before =
                    known.find_map(|before| if let Governed::Tokens(own) = &*before.kind { Some(own) } else { None });
                Governed::Tokens(Ruled::with_rule(before, rule))
            }
        };
        Self { name, kind: Arc::new(kind), usage }
    }

    /// Whether a request that it let in is under way or waits, or what one has spent is not back.
    fn is_in_use(&self) -> bool {
        let is_at_rest = match &*self.kind {
            Governed::Exempt => true,
            Governed::Slots(ruled) => ruled.gate.is_at_rest(),
            Governed::Tokens(ruled) => ruled.gate.is_at_rest(),
        };
        !is_at_rest || [false, true].into_iter().any(|is_apart| self.usage.under_way(is_apart) > 0)
    }

    /// The name.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Lets a request in: at once, or after the short wait that the schema provides for. Nothing is allocated unless it
    /// waits or its key is new.
    ///
    /// Cancel: dropping the future leaves the queue; a turn that was just given goes to the next.
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
        let is_apart = self.is_apart(attributes);
        let slot = match &*self.kind {
            Governed::Exempt => None,
            Governed::Slots(ruled) if is_apart => {
                ruled.pass_apart(&self.name, attributes)?;
                None
            }
            Governed::Slots(ruled) => Some(ruled.admit(&self.name, attributes).await?),
            Governed::Tokens(ruled) => {
                ruled.admit(&self.name, attributes).await?.spend();
                None
            }
        };
        Ok(AdmittedRequest::begin(&self.usage, is_apart, slot))
    }

    /// Whether a request lasts, and is counted apart from the others: of places it takes none.
    fn is_apart(&self, attributes: &Attributes<'_>) -> bool {
        let counts_all = match &*self.kind {
            Governed::Slots(ruled) => ruled.rule.limit.count_long_running,
            Governed::Exempt | Governed::Tokens(_) => false,
        };
        attributes.is_long_running && !counts_all
    }

    /// What is in force now for each key: slots, or tokens in a second. `None` where nothing is limited.
    pub fn in_force(&self) -> Option<u32> {
        match &*self.kind {
            Governed::Exempt => None,
            Governed::Slots(ruled) => Some(ruled.gate.limit().max),
            Governed::Tokens(ruled) => Some(ruled.gate.limit().qps.get()),
        }
    }

    /// How much of it is used now.
    pub fn usage(&self) -> SchemaUsage {
        let (waiting, keys) = match &*self.kind {
            Governed::Exempt => (0, 0),
            Governed::Slots(ruled) => ruled.gate.usage(),
            Governed::Tokens(ruled) => ruled.gate.usage(),
        };
        let [in_flight, long_running] = [false, true].map(|is_apart| self.usage.under_way(is_apart));
        let (admitted, refused) = (self.usage.admitted(), self.usage.refused());
        SchemaUsage { in_flight, long_running, waiting, keys, admitted, refused }
    }
}

impl<A: Allowance> Ruled<A>
where
    ReachedLimit: From<A::Limit>,
{
    /// The state of the one before under another rule; where there was none, nothing is used.
    fn with_rule(before: Option<&Self>, rule: Limited<A::Limit>) -> Self {
        let Some(before) = before else {
            let gate = Gate::new(rule.limit, rule.queueing);
            return Self { rule, gate };
        };
        before.gate.change(rule.limit, rule.queueing);
        Self { rule, gate: Arc::clone(&before.gate) }
    }

    async fn admit(&self, name: &Arc<str>, attributes: &Attributes<'_>) -> Result<Held<A>, Box<Refused>> {
        let Limited { by, queueing, .. } = &self.rule;
        let who = (Key::from_attributes(by, attributes), attributes.flow);
        let admitted = self.gate.admit(who, attributes.width, *queueing).await;
        admitted.map_err(|cause| self.refused(name, cause, attributes))
    }

    fn refused(&self, name: &Arc<str>, cause: RefusalCause, attributes: &Attributes<'_>) -> Box<Refused> {
        // What is in force now, not when the request's configuration was made.
        let limit = self.gate.limit().into();
        Box::new(Refused::new(name, limit, &self.rule.by, cause, attributes))
    }
}

impl Ruled<Slots> {
    /// Lets a request pass that takes no place.
    ///
    /// # Errors
    /// Where there is none, nothing is let in.
    fn pass_apart(&self, name: &Arc<str>, attributes: &Attributes<'_>) -> Result<(), Box<Refused>> {
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
